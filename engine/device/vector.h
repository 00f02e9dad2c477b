#pragma once

#include "truefuse/device/access.h"
#include "truefuse/device/types.h"

// Short vectors, and the accesses that move 16 bytes at once.

namespace tf {

/// N elements of T in registers: index it with constants or in TF_UNROLL loops. N * sizeof(T) is a
/// power of two.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vector {
  static_assert(N > 0 && ((N * sizeof(T)) & (N * sizeof(T) - 1)) == 0,
                "tf::Vector: the bytes of a vector must be a power of two");
  static constexpr int count = N;

  T elements[N];

  TF_DEVICE T& operator[](int i) { return elements[i]; }
  TF_DEVICE const T& operator[](int i) const { return elements[i]; }
};

namespace detail {

// Between elements and words with shifts: LLVM 15 may place a union of a vector and an array into
// shared memory.

template <int Size>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = u8;
};
template <>
struct BitsOf<2> {
  using type = u16;
};
template <>
struct BitsOf<4> {
  using type = u32;
};
template <>
struct BitsOf<8> {
  using type = u64;
};

template <class T, int N>
TF_DEVICE Vector<T, N> vector_of(const Words<N* static_cast<int>(sizeof(T))>& words) {
  using Bits = typename BitsOf<sizeof(T)>::type;
  constexpr int kSize = sizeof(T);
  Vector<T, N> vector;
  TF_UNROLL for (int i = 0; i < N; ++i) {
    if constexpr (kSize == 8) {
      vector[i] = bit_cast<T>(words.w[2 * i] | static_cast<u64>(words.w[2 * i + 1]) << 32);
    } else {
      const u32 word = words.w[i * kSize / 4] >> (i * kSize % 4 * 8);
      vector[i] = bit_cast<T>(static_cast<Bits>(word));
    }
  }
  return vector;
}

template <class T, int N>
TF_DEVICE Words<N* static_cast<int>(sizeof(T))> words_of(const Vector<T, N>& vector) {
  using Bits = typename BitsOf<sizeof(T)>::type;
  constexpr int kSize = sizeof(T);
  Words<N* kSize> words = {};
  TF_UNROLL for (int i = 0; i < N; ++i) {
    const Bits bits = bit_cast<Bits>(vector[i]);
    if constexpr (kSize == 8) {
      words.w[2 * i] = static_cast<u32>(bits);
      words.w[2 * i + 1] = static_cast<u32>(bits >> 32);
    } else {
      words.w[i * kSize / 4] |= static_cast<u32>(bits) << (i * kSize % 4 * 8);
    }
  }
  return words;
}

template <class T, int N>
TF_DEVICE Vector<T, N> load(const T* pointer, bool streaming TF_SITE) {
#if defined(TF_PLATFORM_SIM)
  ::tf_sim::vector_access(pointer, alignof(Vector<T, N>), N * sizeof(T), false, site);
#endif
  return vector_of<T, N>(load_words<N* static_cast<int>(sizeof(T))>(pointer, streaming));
}

template <class T, int N>
TF_DEVICE void store(T* pointer, const Vector<T, N>& vector, bool streaming TF_SITE) {
#if defined(TF_PLATFORM_SIM)
  ::tf_sim::vector_access(pointer, alignof(Vector<T, N>), N * sizeof(T), true, site);
#endif
  store_words<N* static_cast<int>(sizeof(T))>(pointer, words_of(vector), streaming);
}

}  // namespace detail

/// N elements at `pointer`: one access of N * sizeof(T) bytes up to 16, or several of 16. `pointer`
/// is a multiple of the smaller of N * sizeof(T) and 16. N == 1 is a plain access. T has 1, 2, 4 or
/// 8 bytes.
template <int N, class T>
TF_DEVICE Vector<T, N> load(const T* pointer TF_SITE) {
  return detail::load<T, N>(pointer, false TF_PASS_SITE);
}

/// The same for data that is read once: it should not push other data out of the cache.
template <int N, class T>
TF_DEVICE Vector<T, N> load_streaming(const T* pointer TF_SITE) {
  return detail::load<T, N>(pointer, true TF_PASS_SITE);
}

/// Writes all elements, under the same rules as load.
template <class T, int N>
TF_DEVICE void store(T* pointer, const Vector<T, N>& vector TF_SITE) {
  detail::store<T, N>(pointer, vector, false TF_PASS_SITE);
}

/// The same for data that nobody on the device reads soon.
template <class T, int N>
TF_DEVICE void store_streaming(T* pointer, const Vector<T, N>& vector TF_SITE) {
  detail::store<T, N>(pointer, vector, true TF_PASS_SITE);
}

/// Loads that arrive together: `add` every vector that was loaded, then `hold` one back, which is
/// not used before all are there. A compiler that saves registers may else ask for the next only
/// when the one before is used up, and so wait for memory once for each.
class Arrival {
 public:
  template <class T, int N>
  TF_DEVICE void add([[maybe_unused]] const Vector<T, N>& vector) {
#if defined(TF_PLATFORM_CUDA)
    last_words_ |= detail::words_of(vector).w[kWords<T, N> - 1];
#endif
  }

  template <class T, int N>
  TF_DEVICE void hold([[maybe_unused]] Vector<T, N>& vector) const {
#if defined(TF_PLATFORM_CUDA)
    // No lane has the last bit of this mask, which only the hardware knows: nothing changes, but
    // the vector depends on all.
    u32 lanes_before;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes_before));
    const u32 nothing = last_words_ & lanes_before & 0x80000000u;
    auto words = detail::words_of(vector);
    TF_UNROLL for (int i = 0; i < kWords<T, N>; ++i) words.w[i] |= nothing;
    vector = detail::vector_of<T, N>(words);
#endif
  }

 private:
  template <class T, int N>
  static constexpr int kWords = (N * static_cast<int>(sizeof(T)) + 3) / 4;

  [[maybe_unused]] u32 last_words_ = 0;
};

/// Elementwise tf::to_float.
template <class T, int N>
TF_DEVICE Vector<Compute<T>, N> to_float(const Vector<T, N>& vector) {
  Vector<Compute<T>, N> result;
  TF_UNROLL for (int i = 0; i < N; ++i) result[i] = to_float(vector[i]);
  return result;
}

/// Elementwise tf::from_float<T>; from sm_80 on, 16-bit types are converted two at a time.
template <class T, int N>
TF_DEVICE Vector<T, N> from_float(const Vector<Compute<T>, N>& vector) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    detail::Words<2 * N> words;
    TF_UNROLL for (int i = 0; i < N / 2; ++i) {
      words.w[i] = detail::convert_pair<T>(vector[2 * i], vector[2 * i + 1]);
    }
    return detail::vector_of<T, N>(words);
  } else {
    Vector<T, N> result;
    TF_UNROLL for (int i = 0; i < N; ++i) result[i] = from_float<T>(vector[i]);
    return result;
  }
}

}  // namespace tf
