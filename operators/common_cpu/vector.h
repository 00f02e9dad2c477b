#pragma once

// Vectors of the instruction set that the including file is compiled for: 64 bytes with AVX-512, 32
// with AVX2, else 16, which every processor of the architecture has.
//
// Only files that are compiled once per level include this, and all of it lies in an anonymous
// namespace. An inline function of such a file must not become visible to the linker: it would
// merge the copies of all levels and might keep the one that an older processor cannot run. For the
// same reason nothing of the standard library that has code is used here or there.

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace truefuse::cpu {
namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TRUEFUSE_CPU_AVX512 1
constexpr int kVectorBytes = 64;
// The unmasked intrinsics draw false warnings of g++ 11 and 12 about uninitialised values.
constexpr __mmask16 kAllLanes = 0xffff;
constexpr __mmask8 kAllDoubleLanes = 0xff;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TRUEFUSE_CPU_AVX2 1
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

/// The 16-bit types as they lie in memory; computed in float.
struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

template <class T>
struct NativeOf;
template <>
struct NativeOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
  typedef std::int32_t Bits __attribute__((vector_size(kVectorBytes)));
};
template <>
struct NativeOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
  typedef std::int64_t Bits __attribute__((vector_size(kVectorBytes)));
};

template <class T>
struct Vector {
  using Native = typename NativeOf<T>::Type;
  using Bits = typename NativeOf<T>::Bits;
  static constexpr int kCount = kVectorBytes / static_cast<int>(sizeof(T));

  Native native;

  Vector() = default;
  Vector(Native value) : native(value) {}
  explicit Vector(T value) : native(value - Native{}) {}

  friend Vector operator+(Vector a, Vector b) { return a.native + b.native; }
  friend Vector operator-(Vector a, Vector b) { return a.native - b.native; }
  friend Vector operator*(Vector a, Vector b) { return a.native * b.native; }
  friend Vector operator-(Vector a) { return -a.native; }
};

template <class T>
Vector<T> fma(Vector<T> a, Vector<T> b, Vector<T> c) {
#if defined(TRUEFUSE_CPU_AVX512)
  if constexpr (sizeof(T) == 4) return _mm512_fmadd_ps(a.native, b.native, c.native);
  if constexpr (sizeof(T) == 8) return _mm512_fmadd_pd(a.native, b.native, c.native);
#elif defined(TRUEFUSE_CPU_AVX2)
  if constexpr (sizeof(T) == 4) return _mm256_fmadd_ps(a.native, b.native, c.native);
  if constexpr (sizeof(T) == 8) return _mm256_fmadd_pd(a.native, b.native, c.native);
#else
  if constexpr (sizeof(T) == 4) {
    // In double the product is exact: two roundings, the first of which is negligible.
    typedef double Wide __attribute__((vector_size(2 * kVectorBytes)));
    const Wide sum =
        __builtin_convertvector(a.native, Wide) * __builtin_convertvector(b.native, Wide) +
        __builtin_convertvector(c.native, Wide);
    return __builtin_convertvector(sum, typename Vector<T>::Native);
  } else {
    Vector<T> result;
    for (int i = 0; i < Vector<T>::kCount; ++i) {
      result.native[i] = __builtin_fma(a.native[i], b.native[i], c.native[i]);
    }
    return result;
  }
#endif
}

/// The smaller one; b if one of them is a NaN.
template <class T>
Vector<T> min(Vector<T> a, Vector<T> b) {
#if defined(TRUEFUSE_CPU_AVX512)
  if constexpr (sizeof(T) == 4) return _mm512_maskz_min_ps(kAllLanes, a.native, b.native);
  if constexpr (sizeof(T) == 8) return _mm512_maskz_min_pd(kAllDoubleLanes, a.native, b.native);
#elif defined(TRUEFUSE_CPU_AVX2)
  if constexpr (sizeof(T) == 4) return _mm256_min_ps(a.native, b.native);
  if constexpr (sizeof(T) == 8) return _mm256_min_pd(a.native, b.native);
#else
  return a.native < b.native ? a.native : b.native;
#endif
}

/// The larger one; b if one of them is a NaN or both are zeros.
template <class T>
Vector<T> max(Vector<T> a, Vector<T> b) {
#if defined(TRUEFUSE_CPU_AVX512)
  if constexpr (sizeof(T) == 4) return _mm512_maskz_max_ps(kAllLanes, a.native, b.native);
  if constexpr (sizeof(T) == 8) return _mm512_maskz_max_pd(kAllDoubleLanes, a.native, b.native);
#elif defined(TRUEFUSE_CPU_AVX2)
  if constexpr (sizeof(T) == 4) return _mm256_max_ps(a.native, b.native);
  if constexpr (sizeof(T) == 8) return _mm256_max_pd(a.native, b.native);
#else
  return a.native > b.native ? a.native : b.native;
#endif
}

template <class T>
Vector<T> abs(Vector<T> a) {
  using Bits = typename Vector<T>::Bits;
  const Bits sign = reinterpret_cast<Bits>(Vector<T>(T(-0.0)).native);
  return reinterpret_cast<typename Vector<T>::Native>(reinterpret_cast<Bits>(a.native) & ~sign);
}

/// 1 / d for normal numbers of moderate size, to 2^-13 or, in double, exact.
template <class T>
Vector<T> rough_reciprocal(Vector<T> d) {
#if defined(TRUEFUSE_CPU_AVX512)
  if constexpr (sizeof(T) == 4) return _mm512_maskz_rcp14_ps(kAllLanes, d.native);
#endif
  return T(1) / d.native;
}

/// The same to 2 ulp.
template <class T>
Vector<T> reciprocal(Vector<T> d) {
  const Vector<T> rough = rough_reciprocal(d);
#if defined(TRUEFUSE_CPU_AVX512)
  if constexpr (sizeof(T) == 4) return fma(fma(-d, rough, Vector<T>(T(1))), rough, rough);
#endif
  return rough;
}

/// e 2^n where m is 1.5 2^23 + n (float) or 1.5 2^52 + n (double) and the product a normal number.
template <class T>
Vector<T> shift_exponent(Vector<T> e, Vector<T> m) {
  using Bits = typename Vector<T>::Bits;
  const Bits shifted = reinterpret_cast<Bits>(m.native) << (sizeof(T) == 4 ? 23 : 52);
  return reinterpret_cast<typename Vector<T>::Native>(reinterpret_cast<Bits>(e.native) + shifted);
}

// load(p): Vector::kCount elements at any address. store(p, v): rounds to the nearest, ties to
// even.

template <class Native>
Native load_bytes(const void* from) {
  Native native;
  __builtin_memcpy(&native, from, sizeof native);
  return native;
}

template <class T>
Vector<T> load(const T* from) {
  return load_bytes<typename Vector<T>::Native>(from);
}
template <class T>
void store(T* to, Vector<T> value) {
  __builtin_memcpy(to, &value.native, sizeof value.native);
}

typedef std::int32_t Words __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t UnsignedWords __attribute__((vector_size(kVectorBytes)));
typedef std::uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));

inline Vector<float> load(const Bf16* from) {
  const auto words = __builtin_convertvector(load_bytes<Halves>(from), UnsignedWords);
  return reinterpret_cast<Vector<float>::Native>(words << 16);
}

inline void store(Bf16* to, Vector<float> value) {
  const auto bits = reinterpret_cast<UnsignedWords>(value.native);
  const UnsignedWords rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const UnsignedWords quiet_nan =
      UnsignedWords{} + 0x7fffu;  // Rounding may turn a NaN into infinity.
  const UnsignedWords words = value.native == value.native ? rounded : quiet_nan;
  const auto halves = __builtin_convertvector(words, Halves);
  __builtin_memcpy(to, &halves, sizeof halves);
}

#if defined(TRUEFUSE_CPU_AVX512)

inline Vector<float> load(const F16* from) {
  return _mm512_maskz_cvtph_ps(kAllLanes, load_bytes<__m256i>(from));
}
inline void store(F16* to, Vector<float> value) {
  const __m256i halves = _mm512_maskz_cvtps_ph(kAllLanes, value.native, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(to, &halves, sizeof halves);
}

#elif defined(TRUEFUSE_CPU_AVX2)

inline Vector<float> load(const F16* from) { return _mm256_cvtph_ps(load_bytes<__m128i>(from)); }
inline void store(F16* to, Vector<float> value) {
  const __m128i halves = _mm256_cvtps_ph(value.native, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(to, &halves, sizeof halves);
}

#else

inline Vector<float> load(const F16* from) {
  using Native = Vector<float>::Native;
  const auto bits = __builtin_convertvector(load_bytes<Halves>(from), UnsignedWords);
  const UnsignedWords sign = (bits & 0x8000u) << 16;
  const UnsignedWords magnitude = bits & 0x7fffu;
  const UnsignedWords normal = (magnitude << 13) + 0x38000000u;
  const UnsignedWords special = (magnitude << 13) | 0x7f800000u;
  // A subnormal is a multiple of 2^-24, which is float's spacing just above 1/2.
  const Native tiny = reinterpret_cast<Native>(magnitude + 0x3f000000u) - 0.5f;
  UnsignedWords result = magnitude < 0x400u ? reinterpret_cast<UnsignedWords>(tiny) : normal;
  result = magnitude >= 0x7c00u ? special : result;
  return reinterpret_cast<Native>(result | sign);
}

inline void store(F16* to, Vector<float> value) {
  using Native = Vector<float>::Native;
  const auto bits = reinterpret_cast<UnsignedWords>(value.native);
  const UnsignedWords sign = (bits >> 16) & 0x8000u;
  const UnsignedWords magnitude = bits & 0x7fffffffu;
  const UnsignedWords normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Native shifted = reinterpret_cast<Native>(magnitude) + 0.5f;
  const UnsignedWords tiny = reinterpret_cast<UnsignedWords>(shifted) - 0x3f000000u;
  const UnsignedWords infinity = UnsignedWords{} + 0x7c00u;
  const UnsignedWords quiet_nan = UnsignedWords{} + 0x7fffu;
  UnsignedWords result = magnitude < 0x38800000u ? tiny : normal;  // Below 2^-14.
  result = magnitude >= 0x477ff000u ? infinity : result;           // 65520 and above.
  result = magnitude > 0x7f800000u ? quiet_nan : result;
  const auto halves = __builtin_convertvector(result | sign, Halves);
  __builtin_memcpy(to, &halves, sizeof halves);
}

#endif

/// Calls step(i) for the beginnings i of vectors of `width` elements that together cover [0,
/// count); the last one may overlap the one before it. For count >= width.
template <int width, class Step>
void for_each_vector(std::int64_t count, const Step& step) {
  std::int64_t i = 0;
  for (; i + width <= count; i += width) step(i);
  if (i < count) step(count - width);
}

}  // namespace
}  // namespace truefuse::cpu
