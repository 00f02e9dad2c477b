// The sum of each row, in one kernel or in two. Constants: TF_STORAGE (the dtype), TF_VECTOR
// (elements per load).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

/// The sum of [begin, end) of a row, whose bounds are whole vectors, in each thread of the block.
TF_DEVICE float sum_of(const T* row, tf::i64 begin, tf::i64 end) {
  float sum = 0;
  for (tf::i64 i = begin + tf::i64(tf::thread_x()) * TF_VECTOR; i < end; i += 256 * TF_VECTOR) {
    const auto value = tf::to_float(tf::load<TF_VECTOR>(row + i));
    TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) sum += value[k];
  }
  return tf::block_sum(sum);
}

TF_KERNEL(256) void row_sum(T* out, const T* x, tf::i64 rows, tf::i64 hidden) {
  for (tf::i64 row = tf::block_x(); row < rows; row += tf::grid_dim_x()) {
    const float sum = sum_of(x + row * hidden, 0, hidden);
    if (tf::thread_x() == 0) out[row] = tf::from_float<T>(sum);
  }
}

TF_KERNEL(256)
void row_sum_partial(float* partial, const T* x, tf::i64 rows, tf::i64 hidden, tf::i64 chunk) {
  const tf::i64 begin = tf::block_x() * chunk;
  const tf::i64 end = begin + chunk < hidden ? begin + chunk : hidden;
  for (tf::i64 row = tf::block_y(); row < rows; row += tf::grid_dim_y()) {
    const float sum = sum_of(x + row * hidden, begin, end);
    if (tf::thread_x() == 0) partial[row * tf::grid_dim_x() + tf::block_x()] = sum;
  }
}

TF_KERNEL(256)
void row_sum_combine(T* out, const float* partial, tf::i64 rows, tf::i64 splits) {
  const tf::i64 first = tf::i64(tf::block_x()) * 256 + tf::thread_x();
  for (tf::i64 row = first; row < rows; row += tf::i64(tf::grid_dim_x()) * 256) {
    float sum = 0;
    for (tf::i64 k = 0; k < splits; ++k) sum += partial[row * splits + k];
    out[row] = tf::from_float<T>(sum);
  }
}
