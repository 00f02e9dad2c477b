"""A small described operator: its description, kernel and case."""

TEXT = """operator: described_NUMBER::scale
summary:  alpha x, or its square
schema:   scale(Tensor x, *, float alpha, bool square) -> Tensor
contract:
  x: f32|f64 [rows.., hidden] contiguous;
  alpha: float [-8, 8];
  square: bool
  -> out: like x [rows.., hidden] contiguous
kernel:   kernel.hip
let:
  count = rows * hidden
constants:
  TF_STORAGE = x.dtype
  TF_SQUARE  = square
launch: scale
  grid  = min(ceil_div(count, 64), 3)
  block = 64
reference: reference
"""
CPU = "cpu: eager\n"
BACKWARD = "backward: gradients -> x\n"

KERNEL = """#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"
using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(64) void scale(T* out, const T* x, float alpha, tf::i64 count) {
  for (tf::i64 i = tf::block_x() * 64 + tf::thread_x(); i < count; i += tf::grid_dim_x() * 64) {
    out[i] = T(alpha) * x[i] * (TF_SQUARE ? x[i] : T(1));
  }
}
"""

# The number of blocks from a C++ function: from PLANNED in the text and PLAN beside it.
PLANNED = {"let:\n": "plan: plan.cpp -> blocks\nlet:\n", "min(ceil_div(count, 64), 3)": "blocks"}
PLAN = """#include <algorithm>

#include "truefuse/host/plan.h"

void plan(const truefuse::host::Call& call, truefuse::host::Values& values) {
  const std::int64_t count = call.number("rows") * call.number("hidden");
  values["blocks"] = std::min<std::int64_t>((count + 63) / 64, 3);
}
TRUEFUSE_PLAN(plan)
"""

CASE = '''"""Of tests."""


def reference(x, *, alpha, square):
    return alpha * x * (x if square else 1)


eager = reference


def gradients(grad, x, *, alpha, square):
    return alpha * grad * (2 * x if square else 1)
'''
