#pragma once

#include "truefuse/device/types.h"

// Memory accesses of 1 to 16 bytes as 32-bit words; kernels use tf::load and tf::store instead.

namespace tf::detail {

#if defined(TF_PLATFORM_CUDA)

using Raw16 = uint4;
using Raw8 = uint2;
using Raw4 = u32;
using Raw2 = u16;
using Raw1 = u8;

template <class Raw>
TF_DEVICE Raw raw_load(const void* pointer, bool streaming) {
  const Raw* const p = static_cast<const Raw*>(pointer);
  return streaming ? __ldcs(p) : *p;
}
template <class Raw>
TF_DEVICE void raw_store(void* pointer, Raw value, bool streaming) {
  Raw* const p = static_cast<Raw*>(pointer);
  if (streaming) {
    __stcs(p, value);
  } else {
    *p = value;
  }
}

#else

#if defined(TF_PLATFORM_HIP)
using Raw16 = u32 __attribute__((ext_vector_type(4), may_alias));
using Raw8 = u32 __attribute__((ext_vector_type(2), may_alias));
#else
struct __attribute__((aligned(16), may_alias)) Raw16 {
  u32 x, y, z, w;
};
struct __attribute__((aligned(8), may_alias)) Raw8 {
  u32 x, y;
};
#endif
using Raw4 = u32 __attribute__((may_alias));
using Raw2 = u16 __attribute__((may_alias));
using Raw1 = u8 __attribute__((may_alias));

template <class Raw>
TF_DEVICE Raw raw_load(const void* pointer, [[maybe_unused]] bool streaming) {
  const Raw* const p = static_cast<const Raw*>(pointer);
#if defined(TF_PLATFORM_HIP)
  if (streaming) return __builtin_nontemporal_load(p);
#endif
  return *p;
}
template <class Raw>
TF_DEVICE void raw_store(void* pointer, Raw value, [[maybe_unused]] bool streaming) {
  Raw* const p = static_cast<Raw*>(pointer);
#if defined(TF_PLATFORM_HIP)
  if (streaming) {
    __builtin_nontemporal_store(value, p);
    return;
  }
#endif
  *p = value;
}

#endif

template <int Bytes>
struct Words {
  u32 w[Bytes < 4 ? 1 : Bytes / 4];
};

template <int Bytes>
TF_DEVICE Words<Bytes> load_words(const void* pointer, bool streaming) {
  Words<Bytes> words;
  if constexpr (Bytes >= 16) {
    const Raw16* const p = static_cast<const Raw16*>(pointer);
    TF_UNROLL for (int i = 0; i < Bytes / 16; ++i) {
      const Raw16 raw = raw_load<Raw16>(p + i, streaming);
      words.w[4 * i] = raw.x;
      words.w[4 * i + 1] = raw.y;
      words.w[4 * i + 2] = raw.z;
      words.w[4 * i + 3] = raw.w;
    }
  } else if constexpr (Bytes == 8) {
    const Raw8 raw = raw_load<Raw8>(pointer, streaming);
    words.w[0] = raw.x;
    words.w[1] = raw.y;
  } else if constexpr (Bytes == 4) {
    words.w[0] = raw_load<Raw4>(pointer, streaming);
  } else if constexpr (Bytes == 2) {
    words.w[0] = raw_load<Raw2>(pointer, streaming);
  } else {
    words.w[0] = raw_load<Raw1>(pointer, streaming);
  }
  return words;
}

template <int Bytes>
TF_DEVICE void store_words(void* pointer, const Words<Bytes>& words, bool streaming) {
  if constexpr (Bytes >= 16) {
    Raw16* const p = static_cast<Raw16*>(pointer);
    TF_UNROLL for (int i = 0; i < Bytes / 16; ++i) {
      const Raw16 raw = {words.w[4 * i], words.w[4 * i + 1], words.w[4 * i + 2],
                         words.w[4 * i + 3]};
      raw_store<Raw16>(p + i, raw, streaming);
    }
  } else if constexpr (Bytes == 8) {
    const Raw8 raw = {words.w[0], words.w[1]};
    raw_store<Raw8>(pointer, raw, streaming);
  } else if constexpr (Bytes == 4) {
    raw_store<Raw4>(pointer, words.w[0], streaming);
  } else if constexpr (Bytes == 2) {
    raw_store<Raw2>(pointer, static_cast<u16>(words.w[0]), streaming);
  } else {
    raw_store<Raw1>(pointer, static_cast<u8>(words.w[0]), streaming);
  }
}

}  // namespace tf::detail
