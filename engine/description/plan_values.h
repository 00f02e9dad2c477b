#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/host/plan.h>
#include <truefuse/operator/operator.h>

namespace truefuse::description {

/// The values that a C++ function gives in each call: `plan: plan.cpp -> splits, chunk`.
class PlanValues {
 public:
  static constexpr std::size_t kMost = 32;

  /// `file` is the function's in errors, `numbers` what it may ask for by name: slots of values.
  PlanValues(std::string op, std::string file, std::vector<std::string> names,
             std::vector<std::pair<std::string, std::size_t>> numbers,
             host::abi::Function& function)
      : op_(std::move(op)),
        file_(std::move(file)),
        names_(std::move(names)),
        numbers_(std::move(numbers)),
        function_(&function) {}

  /// Asks the function; `values[i]` is that of the i-th name. Throws Error with what the function
  /// throws, and for a value that it does not give.
  void evaluate(const Contract& contract, const Call& call, const DeviceFacts& device,
                const std::int64_t* slots, std::int64_t* values) const;

 private:
  std::string op_, file_;
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, std::size_t>> numbers_;
  host::abi::Function* function_;
};

}  // namespace truefuse::description
