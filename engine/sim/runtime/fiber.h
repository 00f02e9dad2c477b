#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(TF_SIM_UCONTEXT)
#include <ucontext.h>
#endif

// Fibers: stacks that the scheduler enters and that give control back. On x86-64 a switch saves the
// registers that a call keeps and nothing else; elsewhere ucontext does it, at ten times the cost.
// AddressSanitizer is told of every switch.

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom,
                                                size_t* size);
#endif

namespace tf_sim {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 64 << 10;

struct Stack {
  void* bottom = nullptr;
  size_t size = 0;
};

#if defined(__x86_64__) && !defined(TF_SIM_UCONTEXT)

using Context = void*;  // The stack pointer; everything else lies on the stack.

extern "C" void tf_sim_switch(Context* from, Context to);
asm(R"(
.text
.globl tf_sim_switch
.type tf_sim_switch, @function
tf_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tf_sim_switch, . - tf_sim_switch
)");

inline void switch_context(Context* from, Context* to) { tf_sim_switch(from, *to); }

inline void make_context(Context* context, Stack stack, void (*entry)()) {
  uint64_t* top = reinterpret_cast<uint64_t*>(static_cast<char*>(stack.bottom) + stack.size);
  *--top = 0;  // Keeps the alignment of a called function, and ends backtraces.
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  *context = top;
}

#else

using Context = ucontext_t;

inline void switch_context(Context* from, Context* to) { swapcontext(from, to); }

inline void make_context(Context* context, Stack stack, void (*entry)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack.bottom;
  context->uc_stack.ss_size = stack.size;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

#endif

struct Fiber {
  Context context;
  Stack stack;
  void* fake_stack = nullptr;
};

/// The stack that main() runs on. Fibers are entered from here and return here.
inline Fiber main_fiber;

inline void find_main_stack() {
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &main_fiber.stack.bottom, &main_fiber.stack.size);
  pthread_attr_destroy(&attributes);
}

inline void switch_fiber(Fiber* from, Fiber* to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack.bottom, to->stack.size);
#endif
  switch_context(&from->context, &to->context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

/// To be called first by a fiber's entry.
inline void fiber_entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

/// `entry` never returns.
inline void make_fiber(Fiber* fiber, void (*entry)()) {
  const size_t bytes = kGuardBytes + kStackBytes;
  void* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* const bottom = static_cast<char*>(memory) + kGuardBytes;
  if (memory == MAP_FAILED || mprotect(bottom, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    fprintf(stderr, "no memory for the stack of a lane\n");
    _Exit(1);
  }
  fiber->stack = {bottom, kStackBytes};
  make_context(&fiber->context, fiber->stack, entry);
}

}  // namespace tf_sim
