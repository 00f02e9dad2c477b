#pragma once

#include <ATen/core/function_schema.h>

#include <truefuse/operator/operator.h>

namespace truefuse::binding {

/// Throws Error that names the first argument in which the schema and the contract differ: in name,
/// order, type, whether it is optional, or whether it is written; or if they return different
/// numbers of tensors.
void require_same(const Operator& op, const c10::FunctionSchema& schema);

}  // namespace truefuse::binding
