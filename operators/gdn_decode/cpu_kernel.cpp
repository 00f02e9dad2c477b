// The CPU path's arithmetic. Compiled once per instruction set, each time with the level's name as
// TRUEFUSE_CPU_LEVEL and the compiler options that switch it on; see common_cpu/vector.h for what
// such a file must not do. The one name that it gives to the linker is its table of kernels.

#include <truefuse/operators/common_cpu/vector.h>
#include <truefuse/operators/gdn_decode/cpu_kernel.h>

namespace truefuse::gdn_decode {
namespace {

using cpu::Bf16;
using cpu::F16;
using Value = cpu::Vector<float>;
constexpr int kWidth = Value::kCount;
static_assert(kPad % kWidth == 0);

/// The sum of all lanes.
float sum(Value value) {
#if defined(TRUEFUSE_CPU_AVX512)
  const __m256 halves = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, value.native, 0),
                                      _mm512_maskz_extractf32x8_ps(0xff, value.native, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
#elif defined(TRUEFUSE_CPU_AVX2)
  __m128 four =
      _mm_add_ps(_mm256_castps256_ps128(value.native), _mm256_extractf128_ps(value.native, 1));
#endif
#if defined(TRUEFUSE_CPU_AVX512) || defined(TRUEFUSE_CPU_AVX2)
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
#else
  float total = 0;
  for (int i = 0; i < kWidth; ++i) total += value.native[i];
  return total;
#endif
}

/// e^x to 2 ulp; at the end of float's range the nearest normal number. A NaN stays one.
Value exp(Value x) {
  constexpr float kLog2E = 0x1.715476p+0F, kLn2High = 0x1.62e400p-1F, kLn2Low = 0x1.7f7d1cp-20F;
  const Value limited = cpu::max(Value(-87.3F), cpu::min(Value(88.3F), x));
  const Value magic(0x1.8p+23F);  // Adding it rounds to an integer.
  const Value m = cpu::fma(limited, Value(kLog2E), magic);
  const Value n = m - magic;
  const Value r = cpu::fma(-n, Value(kLn2Low), cpu::fma(-n, Value(kLn2High), limited));
  // 1 + r + ... + r^7 / 7!, whose rest is below 2^-29 for |r| < ln(2) / 2.
  Value p = cpu::fma(r, Value(1.0F / 5040), Value(1.0F / 720));
  p = cpu::fma(p, r, Value(1.0F / 120));
  p = cpu::fma(p, r, Value(1.0F / 24));
  p = cpu::fma(p, r, Value(1.0F / 6));
  p = cpu::fma(p, r, Value(0.5F));
  p = cpu::fma(p, r, Value(1.0F));
  p = cpu::fma(p, r, Value(1.0F));
  return cpu::shift_exponent(p, m);
}

Value sigmoid(Value x) { return Value(1.0F / (Value(1.0F) + exp(-x)).native); }

Value quotient(Value a, Value b) { return a.native / b.native; }

Value silu(Value x) { return quotient(x, Value(1.0F) + exp(-x)); }

float square_root(float x) { return __builtin_sqrtf(x); }

/// step(i) for the beginnings of vectors that cover [0, count), the last one reaching beyond it.
template <class Step>
void for_each_padded(std::int64_t count, const Step& step) {
  for (std::int64_t i = 0; i < count; i += kWidth) step(i);
}

/// Up to a vector of elements: those beyond `count` are zero.
template <class T>
Value load_part(const T* from, std::int64_t count) {
  T padded[kWidth] = {};
  __builtin_memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(T));
  return cpu::load(padded);
}

template <class T>
void store_part(T* to, Value value, std::int64_t count) {
  T padded[kWidth];
  cpu::store(padded, value);
  __builtin_memcpy(to, padded, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void widen(const void* from_data, std::int64_t stride, float* to, std::int64_t count) {
  const T* from = static_cast<const T*>(from_data);
  std::int64_t i = 0;
  if (stride == 1) {
    for (; i + kWidth <= count; i += kWidth) cpu::store(to + i, cpu::load(from + i));
    if (i < count) cpu::store(to + i, load_part(from + i, count - i));
    return;
  }
  for (; i < count; i += kWidth) {
    const int n = count - i < kWidth ? static_cast<int>(count - i) : kWidth;
    T gathered[kWidth] = {};
    for (int j = 0; j < n; ++j) gathered[j] = from[(i + j) * stride];
    cpu::store(to + i, cpu::load(gathered));
  }
}

template <class T>
void narrow(const float* from, void* to_data, std::int64_t count) {
  T* to = static_cast<T*>(to_data);
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) cpu::store(to + i, cpu::load(from + i));
  if (i < count) store_part(to + i, cpu::load(from + i), count - i);
}

template <class T>
void round(float* values, std::int64_t count) {
  if constexpr (sizeof(T) == 2) {
    for_each_padded(count, [&](std::int64_t i) {
      T rounded[kWidth];
      cpu::store(rounded, cpu::load(values + i));
      cpu::store(values + i, cpu::load(rounded));
    });
  }
}

void convolve(const float* x, const float* weight, const float* bias, std::int64_t stride, int taps,
              float* y, std::int64_t count) {
  for_each_padded(count, [&](std::int64_t i) {
    Value value = bias != nullptr ? cpu::load(bias + i) : Value(0.0F);
    for (int w = 0; w < taps; ++w) {
      value = cpu::fma(cpu::load(weight + w * stride + i), cpu::load(x + w * stride + i), value);
    }
    cpu::store(y + i, value);
  });
}

void silu_of(float* values, std::int64_t count) {
  for_each_padded(count,
                  [&](std::int64_t i) { cpu::store(values + i, silu(cpu::load(values + i))); });
}

void l2_normalise(float* values, std::int64_t count, float eps, float scale) {
  Value squares(0.0F);
  for_each_padded(count, [&](std::int64_t i) {
    const Value value = cpu::load(values + i);
    squares = cpu::fma(value, value, squares);
  });
  const Value factor(scale / square_root(sum(squares) + eps));
  for_each_padded(count,
                  [&](std::int64_t i) { cpu::store(values + i, cpu::load(values + i) * factor); });
}

/// Inner product of two padded vectors that are zero beyond count.
float dot(const float* a, const float* b, std::int64_t count) {
  Value total(0.0F);
  for_each_padded(
      count, [&](std::int64_t i) { total = cpu::fma(cpu::load(a + i), cpu::load(b + i), total); });
  return sum(total);
}

inline Value decayed(const Decay& decay, Value x) {
  return cpu::fma(Value(decay.part), x, Value(decay.whole) * x);
}
inline float decayed(const Decay& decay, float x) { return decay.part * x + decay.whole * x; }

/// The state [V, K]: each row once for its products with k and q, once more, from the nearest
/// cache, for the update. With S' = decay S: out = S' q + d (k q).
template <class T>
void delta_rule_keys_last(const HeadStep& s) {
  const float kq = dot(s.k, s.q, s.K);
  const std::int64_t whole = s.K / kWidth * kWidth;
  const std::int64_t rest = s.K - whole;
  for (std::int64_t row = 0; row < s.V; ++row) {
    const T* const from = static_cast<const T*>(s.from) + row * s.K;
    T* const to = static_cast<T*>(s.to) + row * s.K;
    Value with_k(0.0F), with_q(0.0F);
    const auto add = [&](Value state, std::int64_t i) {
      with_k = cpu::fma(state, cpu::load(s.k + i), with_k);
      with_q = cpu::fma(state, cpu::load(s.q + i), with_q);
    };
    for (std::int64_t i = 0; i < whole; i += kWidth) add(cpu::load(from + i), i);
    if (rest != 0) add(load_part(from + whole, rest), whole);
    const float d = s.beta * (s.v[row] - decayed(s.decay, sum(with_k)));
    s.out[row] = decayed(s.decay, sum(with_q)) + d * kq;
    const auto updated = [&](Value state, std::int64_t i) {
      return cpu::fma(Value(d), cpu::load(s.k + i), decayed(s.decay, state));
    };
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      cpu::store(to + i, updated(cpu::load(from + i), i));
    }
    if (rest != 0) store_part(to + whole, updated(load_part(from + whole, rest), whole), rest);
  }
}

/// `count` columns of the state [K, V] that begin at `column`, in vectors of which the last may be
/// partial.
template <class T, int kVectors>
void delta_rule_columns(const HeadStep& s, std::int64_t column, std::int64_t count, float kq) {
  const T* const from = static_cast<const T*>(s.from) + column;
  T* const to = static_cast<T*>(s.to) + column;
  const auto load = [&](std::int64_t row, int i) {
    const std::int64_t left = count - i * kWidth;
    const T* const at = from + row * s.V + i * kWidth;
    return left >= kWidth ? cpu::load(at) : load_part(at, left);
  };
  Value with_k[kVectors], with_q[kVectors];
  for (int i = 0; i < kVectors; ++i) with_k[i] = with_q[i] = Value(0.0F);
  for (std::int64_t row = 0; row < s.K; ++row) {
    const Value k(s.k[row]), q(s.q[row]);
    for (int i = 0; i < kVectors; ++i) {
      const Value state = load(row, i);
      with_k[i] = cpu::fma(state, k, with_k[i]);
      with_q[i] = cpu::fma(state, q, with_q[i]);
    }
  }
  Value d[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const std::int64_t at = column + i * kWidth;
    d[i] = Value(s.beta) * (cpu::load(s.v + at) - decayed(s.decay, with_k[i]));
    cpu::store(s.out + at, cpu::fma(d[i], Value(kq), decayed(s.decay, with_q[i])));
  }
  for (std::int64_t row = 0; row < s.K; ++row) {
    const Value k(s.k[row]);
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t left = count - i * kWidth;
      const Value state = cpu::fma(d[i], k, decayed(s.decay, load(row, i)));
      T* const at = to + row * s.V + i * kWidth;
      left >= kWidth ? cpu::store(at, state) : store_part(at, state, left);
    }
  }
}

template <class T>
void delta_rule_values_last(const HeadStep& s) {
  constexpr int kVectors = 4;
  const float kq = dot(s.k, s.q, s.K);
  std::int64_t column = 0;
  for (; column + kVectors * kWidth <= s.V; column += kVectors * kWidth) {
    delta_rule_columns<T, kVectors>(s, column, kVectors * kWidth, kq);
  }
  for (; column < s.V; column += kWidth) {
    const std::int64_t left = s.V - column;
    delta_rule_columns<T, 1>(s, column, left < kWidth ? left : kWidth, kq);
  }
}

void gated_norm(const NormStep& s, void (*rounding)(float*, std::int64_t),
                void (*rounding_weighted)(float*, std::int64_t)) {
  float squares = 0;
  {
    Value total(0.0F);
    const std::int64_t whole = s.V / kWidth * kWidth;
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      total = cpu::fma(cpu::load(s.core + i), cpu::load(s.core + i), total);
    }
    if (whole < s.V) {
      const Value last = load_part(s.core + whole, s.V - whole);
      total = cpu::fma(last, last, total);
    }
    squares = sum(total);
  }
  const Value factor(1.0F / square_root(squares / static_cast<float>(s.V) + s.eps));
  for_each_padded(s.V, [&](std::int64_t i) {
    float values[kWidth];
    cpu::store(values, cpu::load(s.core + i) * factor);
    if (rounding != nullptr) rounding(values, kWidth);
    cpu::store(values, cpu::load(values) * cpu::load(s.weight + i));
    if (rounding_weighted != nullptr) rounding_weighted(values, kWidth);
    const Value z = cpu::load(s.gate + i);
    const Value gate = s.gate_is_sigmoid ? sigmoid(z) : silu(z);
    cpu::store(s.out + i, cpu::load(values) * gate);
  });
}

}  // namespace

const CpuKernels TRUEFUSE_TABLE_OF_LEVEL(kCpuKernels) = {
    {widen<float>, widen<F16>, widen<Bf16>},
    {narrow<float>, narrow<F16>, narrow<Bf16>},
    {round<float>, round<F16>, round<Bf16>},
    convolve,
    silu_of,
    l2_normalise,
    {{delta_rule_values_last<float>, delta_rule_keys_last<float>},
     {delta_rule_values_last<F16>, delta_rule_keys_last<F16>},
     {delta_rule_values_last<Bf16>, delta_rule_keys_last<Bf16>}},
    gated_norm,
};

}  // namespace truefuse::gdn_decode
