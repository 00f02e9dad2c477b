// out = x where x is positive, else x / 8. The parameters are matched by name to what
// description.txt knows. Constants: TF_STORAGE (the dtype), TF_VECTOR (elements per access).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

// Half types are computed in float.
TF_DEVICE float value_of(float x) { return x > 0 ? x : 0.125f * x; }

TF_KERNEL(256) void my_operator(T* out, const T* x, tf::i64 count) {
  const tf::i64 first = tf::i64(tf::block_x()) * 256 + tf::thread_x();
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * 256;
  const tf::i64 vectors = count / TF_VECTOR;
  for (tf::i64 i = first; i < vectors; i += step) {
    auto value = tf::to_float(tf::load<TF_VECTOR>(x + i * TF_VECTOR));
    TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] = value_of(value[k]);
    tf::store(out + i * TF_VECTOR, tf::from_float<T>(value));
  }
  // What is left over is less than one vector.
  for (tf::i64 i = vectors * TF_VECTOR + first; i < count; i += step) {
    out[i] = tf::from_float<T>(value_of(tf::to_float(x[i])));
  }
}
