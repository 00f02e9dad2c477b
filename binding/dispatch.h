#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace truefuse::binding {

/// A registered operator in PyTorch's dispatcher, for C++ functions that call it as Python does:
/// with autograd, autocast and whatever else is registered. `Signature` is its schema in C++.
template <class Signature>
c10::TypedOperatorHandle<Signature> registered(const char* qualified_name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(qualified_name, "").typed<Signature>();
}

}  // namespace truefuse::binding
