// out[row] = x[row] - mean(x[row]). A block takes a row, and walks on by the grid's size. The
// parameters are matched by name to what description.txt knows. Constants: TF_STORAGE (the dtype),
// TF_VECTOR (elements per access).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(256) void my_operator(T* out, const T* x, tf::i64 rows, tf::i64 hidden) {
  const tf::i64 first = tf::thread_x() * TF_VECTOR;
  const float share = 1.0f / float(hidden);
  for (tf::i64 row = tf::block_x(); row < rows; row += tf::grid_dim_x()) {
    const tf::i64 begin = row * hidden;
    float sum = 0;  // Half types are computed in float. Shares of large numbers do not overflow.
    for (tf::i64 column = first; column < hidden; column += 256 * TF_VECTOR) {
      const auto value = tf::to_float(tf::load<TF_VECTOR>(x + begin + column));
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) sum = tf::fma(value[k], share, sum);
    }
    const float mean = tf::block_sum(sum);
    for (tf::i64 column = first; column < hidden; column += 256 * TF_VECTOR) {
      auto value = tf::to_float(tf::load<TF_VECTOR>(x + begin + column));
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] -= mean;
      tf::store(out + begin + column, tf::from_float<T>(value));
    }
  }
}
