#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/description/entries.h>
#include <truefuse/description/facts.h>
#include <truefuse/description/plan_values.h>
#include <truefuse/description/signature.h>
#include <truefuse/expression/expression.h>

namespace truefuse::description {

/// A named expression of a description.
struct Value {
  std::string name;
  Expression expression;
  std::size_t place = 0;
};

/// What one kernel parameter is given in each call.
struct Binding {
  enum class From : std::uint8_t { tensor, rows, number, real, scratch };
  enum class Type : std::uint8_t { pointer, map, i64, i32, u64, u32, f32, f64 };
  From from;
  Type type;
  std::size_t index;  ///< Tensor, slot, argument, or piece of scratch memory.
  std::string name;
};

struct LaunchText {
  std::string kernel;
  std::size_t place = 0;
  std::array<std::optional<Expression>, 3> grid, block;  ///< x, y, z; missing: 1.
  std::optional<Expression> shared;
  std::optional<std::uint32_t> max_threads;  ///< If the kernel states it as a number.
  std::vector<Binding> parameters;
};

/// The expressions of a description over one contract, and the plan that they make. Names are
/// looked up when a text is read: values of `let` stand for themselves, everything else is a Fact.
class Geometry {
 public:
  Geometry(std::string op, const Contract& contract);
  Geometry(const Geometry&) = delete;

  // Each reads an entry of the description; throws Error with the place.
  void read_plan(const File& file, Scanner& scanner);  ///< The names; use_plan() follows.
  void read_let(const File& file, const Entry& entry);
  void read_constants(const File& file, const Entry& entry);
  void read_scratch(const File& file, const Entry& entry);
  void read_launch(const File& file, const Entry& entry);

  /// Binds the kernels' parameters by their names to tensors, scratch memory, values of `let`,
  /// sizes and scalar arguments. Throws Error, with the place in the source, for a kernel that is
  /// not there, a name that nothing has, a type that does not fit, a tensor that is written though
  /// the contract does not say so; and for an output that no kernel gets.
  void bind(const File& file, const std::string& source_name, const std::string& source);

  /// The function that gives the values of read_plan(); `file` is its file's name in errors.
  void use_plan(const std::string& file, host::abi::Function& function);

  std::vector<std::string> constant_names() const;
  const std::vector<LaunchText>& launches() const { return launches_; }

  void plan(const Call& call, const DeviceFacts& device, Plan& plan) const;

 private:
  static constexpr std::size_t kMaxFacts = 96;
  static constexpr std::size_t kMaxLets = 64;
  static constexpr std::size_t kFirstLet = kMaxFacts + PlanValues::kMost;
  using Slots = std::array<std::int64_t, kFirstLet + kMaxLets>;  // Facts, plan's values, lets.

  /// Where each piece begins; nothing for one of no bytes, for which a kernel gets null.
  using ScratchPieces = std::vector<std::optional<std::size_t>>;

  std::size_t slot_of(const Reference& reference);
  Names names();
  std::vector<Value> read_values(const File& file, Scanner& scanner, std::string_view what);
  void refuse_taken(const File& file, const Value& value) const;
  Binding binding_of(const KernelParameter& parameter);
  Binding rows_binding(const KernelParameter& parameter) const;
  Binding tensor_binding(const KernelParameter& parameter, std::size_t tensor) const;
  void add_parameter(const Binding& binding, const Call& call, const Slots& slots,
                     const ScratchPieces& scratch, Launch& launch) const;
  std::uint32_t extent(const LaunchText& launch, const char* what, std::size_t axis,
                       const std::optional<Expression>& expression, const Slots& slots) const;
  std::int64_t evaluate(const std::string& what, const Expression& expression,
                        const Slots& slots) const;

  std::string op_;
  const Contract& contract_;
  Facts facts_;
  std::vector<std::string> planned_;
  std::optional<PlanValues> plan_;
  std::vector<Value> lets_, constants_, scratch_;
  std::vector<LaunchText> launches_;
};

}  // namespace truefuse::description
