// out[row, column] = gelu(x[row, column] + bias[column]). Each thread owns TF_VECTOR columns, loads
// their bias once and walks down the rows. Constants: TF_STORAGE, TF_VECTOR, TF_EXACT.

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;
using Value = tf::Compute<T>;

TF_DEVICE Value gelu(Value v) {
  if (v == -tf::infinity<Value>()) return Value(-0.0);  // The limit: inf * 0 says nothing.
#if TF_EXACT
  return Value(0.5) * v * tf::erfc(v * Value(-0.70710678118654752));
#else
  // 0.5 (1 + tanh(u)) is 1 / (1 + exp(-2 u)), which does not cancel.
  const Value twice = Value(1.5957691216057308) * (v + Value(0.044715) * v * v * v);
  return v / (1 + tf::exp(-twice));
#endif
}

TF_KERNEL(128)
void bias_gelu(T* out, const T* x, const T* bias, tf::i64 rows, tf::i64 hidden, tf::i64 columns) {
  const tf::i64 column = tf::i64(tf::block_x()) * 128 + tf::thread_x();
  if (column >= columns) return;
  const auto added = tf::to_float(tf::load<TF_VECTOR>(bias + column * TF_VECTOR));
  for (tf::i64 row = tf::block_y(); row < rows; row += tf::grid_dim_y()) {
    const tf::i64 at = row * hidden + column * TF_VECTOR;
    auto value = tf::to_float(tf::load<TF_VECTOR>(x + at));
    TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) value[k] = gelu(value[k] + added[k]);
    tf::store(out + at, tf::from_float<T>(value));
  }
}
