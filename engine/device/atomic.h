#pragma once

#include "truefuse/device/types.h"

// Atomics on global and on shared memory, for u32, i32, u64 and float. All lanes of the device see
// them; they return the value that was there before.
//
//   if (tf::atomic_add<tf::MemoryOrder::acq_rel>(counter, 1u) == blocks - 1) { ... the last one ...
//   }

namespace tf {

/// relaxed: only the operation itself is atomic. acq_rel: besides, what the lane did before it
/// (and, after a block_sync, what its block did) can be relied on by whoever reads the result with
/// acq_rel; on a GPU that is two fences and not free.
enum class MemoryOrder { relaxed, acq_rel };

/// What the lane did before comes before its later atomics, for all lanes of the device that read
/// those and then make a fence too.
TF_DEVICE void device_fence() {
#if defined(TF_PLATFORM_SIM)
  ::tf_sim::fence();
#else
  __threadfence();
#endif
}

namespace detail {

template <class T>
struct IsAtomic {
  static constexpr bool value = IsSame<T, u32>::value || IsSame<T, i32>::value ||
                                IsSame<T, u64>::value || IsSame<T, float>::value;
};

template <class T>
struct Itself {
  using type = T;
};

#if defined(TF_PLATFORM_SIM)
template <class T>
constexpr ::tf_sim::Number number_of() {
  if (IsSame<T, i32>::value) return ::tf_sim::Number::i32;
  if (IsSame<T, u64>::value) return ::tf_sim::Number::u64;
  return IsSame<T, float>::value ? ::tf_sim::Number::f32 : ::tf_sim::Number::u32;
}

template <class T>
TF_DEVICE T simulated(::tf_sim::Atomic operation, T* address, T operand, T compare TF_SITE) {
  using Bits = typename Itself<u64>::type;
  const auto bits_of = [](T value) {
    if constexpr (sizeof(T) == 8) {
      return static_cast<Bits>(value);
    } else {
      return static_cast<Bits>(bit_cast<u32>(value));
    }
  };
  const u64 old = ::tf_sim::atomic(operation, number_of<T>(), address, bits_of(operand),
                                   bits_of(compare), site);
  if constexpr (sizeof(T) == 8) {
    return old;
  } else {
    return bit_cast<T>(static_cast<u32>(old));
  }
}
#endif

template <MemoryOrder Order, class T, class Operation>
TF_DEVICE T ordered(Operation operation) {
  static_assert(IsAtomic<T>::value, "atomics are for tf::u32, tf::i32, tf::u64 and float");
  if constexpr (Order == MemoryOrder::acq_rel) device_fence();
  const T result = operation();
  if constexpr (Order == MemoryOrder::acq_rel) device_fence();
  return result;
}

}  // namespace detail

#if defined(TF_PLATFORM_SIM)
#define TF_ATOMIC(name, builtin, simulation)                                                \
  template <MemoryOrder Order = MemoryOrder::relaxed, class T>                              \
  TF_DEVICE T name(T* address, typename detail::Itself<T>::type value TF_SITE) {            \
    return detail::ordered<Order, T>([&] {                                                  \
      return detail::simulated<T>(::tf_sim::Atomic::simulation, address, value, T{}, site); \
    });                                                                                     \
  }
#else
#define TF_ATOMIC(name, builtin, simulation)                                     \
  template <MemoryOrder Order = MemoryOrder::relaxed, class T>                   \
  TF_DEVICE T name(T* address, typename detail::Itself<T>::type value) {         \
    return detail::ordered<Order, T>([&] { return ::builtin(address, value); }); \
  }
#endif

/// The sum; wraps around for integers. A float's sum depends on the order of the additions, which
/// no GPU repeats.
TF_ATOMIC(atomic_add, atomicAdd, add)
/// The smaller or larger of both; for integers.
TF_ATOMIC(atomic_min, atomicMin, min)
TF_ATOMIC(atomic_max, atomicMax, max)
/// Bit by bit; for integers.
TF_ATOMIC(atomic_and, atomicAnd, bit_and)
TF_ATOMIC(atomic_or, atomicOr, bit_or)
TF_ATOMIC(atomic_xor, atomicXor, bit_xor)
/// The new value, whatever was there.
TF_ATOMIC(atomic_exchange, atomicExch, exchange)

#undef TF_ATOMIC

/// `value` where `expected` is; for integers. It has happened if the result equals `expected`.
template <MemoryOrder Order = MemoryOrder::relaxed, class T>
TF_DEVICE T atomic_compare_exchange(T* address, typename detail::Itself<T>::type expected,
                                    typename detail::Itself<T>::type value TF_SITE) {
  static_assert(!IsSame<T, float>::value, "compare bits: a float NaN equals nothing");
  return detail::ordered<Order, T>([&] {
#if defined(TF_PLATFORM_SIM)
    return detail::simulated<T>(::tf_sim::Atomic::compare_exchange, address, value, expected, site);
#else
    return ::atomicCAS(address, expected, value);
#endif
  });
}

template <MemoryOrder Order = MemoryOrder::relaxed, class T>
TF_DEVICE T atomic_load(const T* address TF_SITE) {
  return detail::ordered<Order, T>([&] {
#if defined(TF_PLATFORM_SIM)
    return detail::simulated<T>(::tf_sim::Atomic::load, const_cast<T*>(address), T{}, T{}, site);
#else
    return *static_cast<const volatile T*>(address);
#endif
  });
}

template <MemoryOrder Order = MemoryOrder::relaxed, class T>
TF_DEVICE void atomic_store(T* address, typename detail::Itself<T>::type value TF_SITE) {
  detail::ordered<Order, T>([&] {
#if defined(TF_PLATFORM_SIM)
    return detail::simulated<T>(::tf_sim::Atomic::store, address, value, T{}, site);
#else
    *static_cast<volatile T*>(address) = value;
    return value;
#endif
  });
}

}  // namespace tf
