// residual = residual + x; out = residual / rms(residual) * weight. A block takes a row, and walks
// on by the grid's size. Constants: TF_STORAGE, TF_VECTOR, TF_ONE_PLUS (weight is 1 + w),
// TF_ROUNDED (the sum is rounded before its squares are taken).

#include "truefuse/device.h"
#include "truefuse/operators/common/tiles.h"

using T = truefuse::common::StorageOf<TF_STORAGE>::Type;
using Values = tf::Vector<float, TF_VECTOR>;

// Squares of the largest numbers overflow; scaled by this, sums of up to 2^60 of them do not.
constexpr float kSmall = 1.0f / 79228162514264337593543950336.0f;  // 2^-96

TF_DEVICE Values sum_at(const T* x, const T* residual, tf::i64 at) {
  Values sum = tf::to_float(tf::load<TF_VECTOR>(x + at));
  const Values other = tf::to_float(tf::load<TF_VECTOR>(residual + at));
  TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) sum[k] += other[k];
  return TF_ROUNDED ? tf::to_float(tf::from_float<T>(sum)) : sum;
}

TF_KERNEL(256)
void add_rms_norm(T* out, const T* x, T* residual, const T* weight, float eps, tf::i64 rows,
                  tf::i64 hidden) {
  const tf::i64 first = tf::i64(tf::thread_x()) * TF_VECTOR;
  for (tf::i64 row = tf::block_x(); row < rows; row += tf::grid_dim_x()) {
    const tf::i64 begin = row * hidden;
    float squares = 0, scaled = 0;
    for (tf::i64 column = first; column < hidden; column += 256 * TF_VECTOR) {
      const Values sum = sum_at(x, residual, begin + column);
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) {
        squares = tf::fma(sum[k], sum[k], squares);
        scaled = tf::fma(sum[k] * kSmall, sum[k] * kSmall, scaled);
      }
    }
    squares = tf::block_sum(squares);
    scaled = tf::block_sum(scaled);
    const bool is_huge = squares == tf::infinity<float>();
    const float before = is_huge ? kSmall : 1.0f;
    const float factor =
        is_huge ? tf::rsqrt(scaled / float(hidden)) : tf::rsqrt(squares / float(hidden) + eps);
    for (tf::i64 column = first; column < hidden; column += 256 * TF_VECTOR) {
      const tf::i64 at = begin + column;
      const Values sum = sum_at(x, residual, at);
      const Values scale = tf::to_float(tf::load<TF_VECTOR>(weight + column));
      Values result;
      TF_UNROLL for (int k = 0; k < TF_VECTOR; ++k) {
        result[k] = sum[k] * before * factor * (TF_ONE_PLUS ? 1 + scale[k] : scale[k]);
      }
      tf::store(residual + at, tf::from_float<T>(sum));
      tf::store(out + at, tf::from_float<T>(result));
    }
  }
}
