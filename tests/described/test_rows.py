"""A described kernel that takes rows where they lie: x[:, 1:, :], transposes, steps."""

import itertools

import pytest
import torch

import truefuse
from truefuse import simulate

_numbers = itertools.count()
TEXT = """operator: rows_NUMBER::centred
summary:  each row minus its first element, beside a second tensor's row
schema:   centred(Tensor x, Tensor? y) -> Tensor
contract:
  x: f32|bf16 [rows.., hidden] rows-strided;
  y: like x [rows.., hidden] rows-strided optional
  -> out: like x [rows.., hidden] contiguous
kernel:   kernel.hip
let:
  widest = 16 / x.bytes
  aligned = min(min(x.row_alignment, y.row_alignment), out.row_alignment) >= 16
  vector = aligned && hidden % widest == 0 ? widest : 1
constants:
  TF_STORAGE = x.dtype
  TF_VECTOR  = vector
launch: centred
  grid  = hidden == 0 ? 0 : min(rows, 3)
  block = 64
reference: reference
cpu: reference
"""
KERNEL = """#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"
using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(64) void centred(T* out, const T* x, const T* y, TF_PARAMETER tf::RowMap x_rows,
                           TF_PARAMETER tf::RowMap y_rows, tf::i64 rows, tf::i64 hidden) {
  for (tf::i64 row = tf::block_x(); row < rows; row += tf::grid_dim_x()) {
    const T* const in = x + tf::row_offset(x_rows, row);
    const T* const beside = y == nullptr ? nullptr : y + tf::row_offset(y_rows, row);
    const float first = tf::to_float(in[0]);
    for (tf::i64 i = tf::thread_x() * TF_VECTOR; i < hidden; i += 64 * TF_VECTOR) {
      auto value = tf::to_float(tf::load<TF_VECTOR>(in + i));
      if (beside != nullptr) {
        const auto more = tf::to_float(tf::load<TF_VECTOR>(beside + i));
        TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] += more[k];
      }
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] -= first;
      tf::store(out + row * hidden + i, tf::from_float<T>(value));
    }
  }
}
"""


def reference(x, y):
    wide = x.float() + (0 if y is None else y.float())
    return (wide - x[..., :1].float()).to(x.dtype)


def load(text=TEXT, kernel=KERNEL):
    text = text.replace("NUMBER", str(next(_numbers)))
    return truefuse.load(text, kernel=kernel, functions={"reference": reference})


@pytest.fixture(scope="module")
def centred():
    return load()


BASE = (4, 6, 5, 32)
VIEWS = {
    "contiguous": lambda x: x,
    "a part of the rows": lambda x: x[:, 1:, :, :],
    "a part of the columns": lambda x: x[..., 8:24],
    "columns that are not aligned": lambda x: x[..., 3:30],
    "transposed": lambda x: x.transpose(0, 2),
    "steps": lambda x: x[::2, :, ::3],
    "one row": lambda x: x[1, 2, 3],
    "expanded": lambda x: x[:1].expand(3, -1, -1, -1),
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[..., :0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("arch", "dtype"), [("sim:wave32", torch.float32), ("sim:wave64", torch.bfloat16)], ids=["f32", "bf16"])  # fmt: skip
def test_rows_are_read_where_they_lie(centred, view, arch, dtype):
    x = VIEWS[view](torch.randn(BASE).to(dtype))
    y = VIEWS[view](torch.randn(BASE).to(dtype))
    with simulate.Simulated(simulate.Device(arch)):
        alone, beside = centred(x, None), centred(x, y)
    assert torch.equal(alone, reference(x, None))
    assert torch.equal(beside, reference(x, y))


def test_more_separate_dimensions_than_a_map_has_are_refused_by_name(centred):
    x = torch.randn((3,) * 8)[..., :2].permute(6, 4, 2, 0, 5, 3, 1, 7)[:2, :2, :2, :2, :2, :2, :2]
    with pytest.raises(RuntimeError, match=r"centred: the leading dimensions of x .*x\.contiguous\(\)"):  # fmt: skip
        with simulate.Simulated(simulate.Device("sim:wave64")):
            centred(x, None)


@pytest.mark.parametrize(("before", "after", "sentence"), [
    ("x_rows,", "rows_of_x,", r"kernel\.hip:5: a map of rows is named after its tensor"),
    ("x_rows,", "w_rows,", r"kernel\.hip:5: .* no tensor fits w_rows"),
    ("tf::RowMap y_rows", "Map y_rows", r"kernel\.hip:6: .*double and tf::RowMap"),
], ids=["no tensor's name", "no tensor", "another type"])  # fmt: skip
def test_a_map_that_does_not_fit_its_tensor(before, after, sentence):
    assert before in KERNEL
    with pytest.raises(RuntimeError, match=sentence):
        load(kernel=KERNEL.replace(before, after))


def test_a_tensor_whose_columns_may_lie_anywhere_has_no_map():
    with pytest.raises(RuntimeError, match="x is not such a tensor in the contract"):
        load(TEXT.replace("rows-strided;", "strided;"))
