// out[row] = sum of |x[row]|. A block takes a row, and walks on by the grid's size. The
// parameters are matched by name to what description.txt knows. Constants: TF_STORAGE (the dtype),
// TF_VECTOR (elements per access).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(256) void my_operator(float* out, const T* x, tf::i64 rows, tf::i64 hidden) {
  for (tf::i64 row = tf::block_x(); row < rows; row += tf::grid_dim_x()) {
    float sum = 0;  // Half types are computed in float.
    for (tf::i64 column = tf::thread_x() * TF_VECTOR; column < hidden; column += 256 * TF_VECTOR) {
      const auto value = tf::to_float(tf::load<TF_VECTOR>(x + row * hidden + column));
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) sum += tf::abs(value[k]);
    }
    sum = tf::block_sum(sum);
    if (tf::thread_x() == 0) out[row] = sum;
  }
}
