// (a, b) becomes (a cos - b sin, b cos + a sin) for each pair of a head. Constants: TF_STORAGE,
// TF_ADJACENT: pairs are (2 i, 2 i + 1), else (i, i + half).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(256)
void rotary_embedding(T* out, const T* x, const float* cos, const float* sin, tf::i64 heads,
                      tf::i64 half, tf::i64 count) {
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * 256;
  for (tf::i64 i = tf::i64(tf::block_x()) * 256 + tf::thread_x(); i < count; i += step) {
    const tf::i64 head = truefuse::common::divide(i, half);
    const tf::i64 pair = i - head * half;
    const tf::i64 angle = truefuse::common::divide(head, heads) * half + pair;
    const tf::i64 first = head * 2 * half + (TF_ADJACENT ? 2 * pair : pair);
    const tf::i64 second = first + (TF_ADJACENT ? 1 : half);
    const float a = tf::to_float(x[first]), b = tf::to_float(x[second]);
    out[first] = tf::from_float<T>(a * cos[angle] - b * sin[angle]);
    out[second] = tf::from_float<T>(b * cos[angle] + a * sin[angle]);
  }
}
