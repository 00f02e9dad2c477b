#pragma once

// What a kernel sees of the simulator: included in front of the kernel's source, so it brings no
// system header.

namespace tf_sim {

/// A place in the kernel's source.
struct Site {
  const char* file;
  int line;
};

/// As a default argument: the place of the call. In a template, only a function like this one gives
/// it; the built-ins themselves give the template's own place.
constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

struct Index {
  unsigned int x, y, z;
};

struct Lane {
  Index thread, block, block_dim, grid_dim;
};

/// The lane that is running. One thread runs them all, so that this is a plain variable.
extern Lane* current_lane;

/// What a lane and the others of its wave do together, over subgroups of `width` lanes: exchange
/// `bits`, vote, meet. `kind` numbers tf::detail::Exchange.
unsigned long long exchange(int kind, int width, unsigned long long bits, int operand, Site site);

enum class Atomic {
  load,
  store,
  add,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  exchange,
  compare_exchange
};
enum class Number { u32, i32, u64, f32 };

/// Returns the bits that were there before.
unsigned long long atomic(Atomic operation, Number type, void* address, unsigned long long bits,
                          unsigned long long compare, Site site);

/// What the lane did before it comes before its next atomics; what it saw by atomics, before all
/// that follows.
void fence();

void block_barrier(Site site);

void wait_for_earlier_launches();

/// The block's dynamic shared memory: exactly as many bytes as the launch asked for.
void* dynamic_shared();

/// The block's memory for the variable that `identity` stands for, made when a lane first asks.
void* static_shared(const void* identity, unsigned long size);

/// One access of `size` bytes, or several of 16: reports an address that is no multiple of
/// `alignment`.
void vector_access(const volatile void* address, unsigned long alignment, unsigned long size,
                   bool writes, Site site);

/// Ends the run: the kernel uses what the simulator does not have.
void unsupported(const char* what, Site site);

/// A kernel of this executable, as the compiler's registration lists it.
struct Kernel {
  const char* name;
  long max_threads;
  void (*call)(void* const* arguments);
  unsigned int parameter_count;
  const unsigned int* parameter_sizes;
};
extern const Kernel kernels[];
extern const unsigned int kernel_count;
extern const int wave;

template <int N, int... I>
struct Sequence : Sequence<N - 1, N - 1, I...> {};
template <int... I>
struct Sequence<0, I...> {};

template <class Function>
struct Signature;
template <class... P>
struct Signature<void(P...)> {
  static constexpr unsigned int count = sizeof...(P);
  static constexpr unsigned int sizes[] = {sizeof(P)..., 0};

  template <void (*F)(P...)>
  static void call(void* const* arguments) {
    call_with<F>(arguments, Sequence<sizeof...(P)>{});
  }
  template <void (*F)(P...), int... I>
  static void call_with([[maybe_unused]] void* const* arguments, Sequence<0, I...>) {
    F(*static_cast<P*>(arguments[I])...);
  }
};

}  // namespace tf_sim
