// swish and its gradient. Constants: TF_STORAGE (the dtype), TF_VECTOR (elements per access).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;
using Value = tf::Compute<T>;  // Half types are computed in float.

TF_DEVICE Value sigmoid(Value x) { return 1 / (1 + tf::exp(-x)); }

TF_DEVICE Value swish_of(Value x) {
  if (x == -tf::infinity<Value>()) return Value(-0.0);  // The limit: inf * 0 says nothing.
  return x / (1 + tf::exp(-x));
}

TF_DEVICE Value slope_of(Value x) {
  if (tf::abs(x) == tf::infinity<Value>()) return x > 0 ? Value(1) : Value(0);
  return sigmoid(x) * (1 + x * sigmoid(-x));
}

TF_KERNEL(256) void swish(T* out, const T* x, tf::i64 count) {
  const tf::i64 first = tf::i64(tf::block_x()) * 256 + tf::thread_x();
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * 256;
  const tf::i64 vectors = count / TF_VECTOR;
  for (tf::i64 i = first; i < vectors; i += step) {
    auto value = tf::to_float(tf::load<TF_VECTOR>(x + i * TF_VECTOR));
    TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] = swish_of(value[k]);
    tf::store(out + i * TF_VECTOR, tf::from_float<T>(value));
  }
  // What is left over is less than one vector.
  for (tf::i64 i = vectors * TF_VECTOR + first; i < count; i += step) {
    out[i] = tf::from_float<T>(swish_of(tf::to_float(x[i])));
  }
}

TF_KERNEL(256)
void swish_backward(T* grad_x, const T* grad_out, const T* x, tf::i64 count) {
  const tf::i64 first = tf::i64(tf::block_x()) * 256 + tf::thread_x();
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * 256;
  const tf::i64 vectors = count / TF_VECTOR;
  for (tf::i64 i = first; i < vectors; i += step) {
    auto value = tf::to_float(tf::load<TF_VECTOR>(grad_out + i * TF_VECTOR));
    const auto at = tf::to_float(tf::load<TF_VECTOR>(x + i * TF_VECTOR));
    TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] *= slope_of(at[k]);
    tf::store(grad_x + i * TF_VECTOR, tf::from_float<T>(value));
  }
  for (tf::i64 i = vectors * TF_VECTOR + first; i < count; i += step) {
    grad_x[i] = tf::from_float<T>(tf::to_float(grad_out[i]) * slope_of(tf::to_float(x[i])));
  }
}
