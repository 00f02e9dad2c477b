#pragma once

#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/raw.h>
#include <truefuse/operator/operator.h>

namespace truefuse::capi {

/// What a function of raw.h is given.
struct RawCall {
  const Operator& op;
  int device;
  void* stream;
  std::vector<Argument> arguments;
  std::vector<TensorView> outputs;

  /// Throw Error if the tensor is null or describes none.
  void add_argument(const truefuse_tensor* tensor);
  void add_output(const truefuse_tensor* tensor);
  /// Throws Error if the text is null.
  void add_argument(const char* text);

  /// Checks the arguments against the contract and the outputs against what it promises, and
  /// launches. Throws Error; also for an operator that needs scratch memory, for which there is
  /// nobody to ask here.
  void run() const;
};

/// Null, or the sentence of the error: no exception leaves a C function. `fill` adds arguments and
/// outputs to a RawCall.
template <class Fill>
char* run_raw(const Operator& (*get)(), int device, void* stream, const Fill& fill) noexcept {
  try {
    RawCall call{get(), device, stream, {}, {}};
    fill(call);
    call.run();
    return nullptr;
  } catch (const std::exception& error) {
    return copy_of(error.what());
  } catch (...) {
    return copy_of("an exception that is no std::exception");
  }
}

}  // namespace truefuse::capi
