#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <truefuse/operator/operator.h>

namespace truefuse::binding {

/// The operator's entry in PyTorch's dispatcher, for C++ programs that call it: with autograd,
/// autocast and whatever else is registered. `Signature` is its schema in C++.
template <const Operator& (*get)(), class Signature>
const c10::TypedOperatorHandle<Signature>& handle_of() {
  static const auto handle = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow(get().qualified_name().c_str(), "")
                                 .template typed<Signature>();
  return handle;
}

}  // namespace truefuse::binding
