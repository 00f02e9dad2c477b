#pragma once

#include "truefuse/sim/atomic.h"
#include "truefuse/sim/instrument.h"
#include "truefuse/sim/schedule.h"
#include "truefuse/sim/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The executable: maps the shared file that its one argument names, runs the launch in it, leaves
// results or a report there.

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)());
extern "C" void* __asan_get_report_address();
extern "C" int __asan_get_report_access_type();
extern "C" size_t __asan_get_report_access_size();
extern "C" int __asan_report_present();
#endif

namespace tf_sim {

Lane* current_lane;

// --- what kernels call ---------------------------------------------------------------------------

unsigned long long exchange(int kind, int width, unsigned long long bits, int operand, Site site) {
  LaneState* const self = running();
  self->kind = kind;
  self->width = width;
  self->operand = operand;
  self->bits = bits;
  wait_for(Wait::exchange, site);
  return self->result;
}

void block_barrier(Site site) { wait_for(Wait::barrier, site); }

void wait_for_earlier_launches() { running()->has_waited = true; }

/// What one block can have: on AMD and DCU, and by request on NVIDIA since sm_90.
inline void check_shared(u64 bytes) {
  const u64 most = (wave == 64 ? 64 : 227) << 10;
  if (bytes > most) {
    refuse(
        "a block with %llu bytes of shared memory cannot be launched; with waves of %d lanes %llu "
        "are the most",
        bytes, wave, most);
  }
}

void* dynamic_shared() { return running()->owner->dynamic_region.begin; }

void* static_shared(const void* identity, unsigned long size) {
  Block& block = *running()->owner;
  for (int i = 0; i < block.static_count; ++i) {
    if (block.identities[i] == identity) return block.static_regions[i].begin;
  }
  if (block.static_count == kMaxStaticShared) {
    refuse("the kernel declares more than %d shared arrays", kMaxStaticShared);
  }
  u64 whole = size + control->shared_bytes;
  for (int i = 0; i < block.static_count; ++i) whole += block.static_regions[i].size;
  check_shared(whole);
  const int i = block.static_count++;
  block.identities[i] = identity;
  block.static_regions[i] = make_shared(size);
  race_begin_shared(block.static_regions[i]);
  return block.static_regions[i].begin;
}

void vector_access(const volatile void* address, unsigned long alignment, unsigned long size,
                   bool writes, Site site) {
  give_way_if_interleaved();
  check_alignment(address, alignment, size, site);
  trace_vector(const_cast<const void*>(address), size, writes, site);
}

void unsupported(const char* what, Site site) { refuse("%s:%d: %s", site.file, site.line, what); }

// --- faults that others find ---------------------------------------------------------------------

/// The buffer or shared array that the address is in or next to.
inline Region nearest_region(const char* address, bool* is_shared) {
  Region nearest;
  const auto consider = [&](const Region& region, bool shared) {
    if (distance(region, address) >= distance(nearest, address)) return;
    nearest = region;
    *is_shared = shared;
  };
  for (u32 i = 0; i < control->buffer_count; ++i) consider(buffers[i], false);
  if (current_lane != nullptr) {
    const Block& block = *running()->owner;
    consider(block.dynamic_region, true);
    for (int i = 0; i < block.static_count; ++i) consider(block.static_regions[i], true);
  }
  return nearest;
}

inline void describe_access(const char* address, bool writes, size_t size) {
  Report& report = control->report;
  bool is_shared = false;
  const Region region = nearest_region(address, &is_shared);
  if (distance(region, address) > 4096) {
    report.fault = Fault::memory_fault;
    snprintf(report.message, sizeof report.message,
             "a lane %s %zu bytes at an address that belongs to no buffer and no shared array",
             writes ? "writes" : "reads", size);
    return;
  }
  report.fault =
      is_shared ? (writes ? Fault::shared_write_out_of_bounds : Fault::shared_read_out_of_bounds)
                : (writes ? Fault::global_write_out_of_bounds : Fault::global_read_out_of_bounds);
  char name[64];
  if (is_shared) {
    snprintf(name, sizeof name, "an array in shared memory");
  } else {
    snprintf(name, sizeof name, "buffer %u", region.buffer);
  }
  snprintf(report.message, sizeof report.message,
           "a lane %s %zu bytes at byte %lld of %s, which has %zu bytes",
           writes ? "writes" : "reads", size, static_cast<long long>(address - region.begin), name,
           region.size);
}

#if defined(__SANITIZE_ADDRESS__)

inline void on_death() {
  if (control->state != State::running) return;
  if (__asan_report_present() != 0 && __asan_get_report_address() != nullptr) {
    describe_access(static_cast<const char*>(__asan_get_report_address()),
                    __asan_get_report_access_type() != 0, __asan_get_report_access_size());
  }
  control->state = State::faulted;
}

inline void watch_for_faults() { __sanitizer_set_death_callback(on_death); }

#else

inline void on_signal(int number, siginfo_t* info, void*) {
  Report& report = control->report;
  const char* const address = static_cast<const char*>(info->si_addr);
  const char* text = "the kernel was stopped by a signal";
  report.fault = Fault::crash;
  if (number == SIGFPE) {
    report.fault = Fault::undefined_behaviour;
    text = "a lane divides an integer by zero";
  } else if (number == SIGSEGV || number == SIGBUS) {
    report.fault = Fault::memory_fault;
    text =
        "a lane uses an address that is not mapped; compiled with --sanitize=address the kernel "
        "would say where";
    if (current_lane != nullptr) {
      const char* const bottom = static_cast<const char*>(running()->fiber.stack.bottom);
      if (address < bottom && address >= bottom - kGuardBytes) {
        report.fault = Fault::stack_overflow;
        text = "a lane uses more than its 256 KiB of stack";
      }
    }
  }
  snprintf(report.message, sizeof report.message, "%s", text);
  stop(State::faulted);
}

inline void watch_for_faults() {
  stack_t stack = {};
  stack.ss_size = 64 << 10;
  stack.ss_sp = malloc(stack.ss_size);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  for (const int number : numbers) sigaction(number, &action, nullptr);
}

#endif

// --- the run -------------------------------------------------------------------------------------

inline void find_kernel() {
  for (u32 i = 0; i < kernel_count; ++i) {
    if (strcmp(kernels[i].name, control->kernel) == 0) kernel = &kernels[i];
  }
  if (kernel == nullptr) {
    refuse("the source has no kernel named \"%s\"; a kernel is defined with TF_KERNEL",
           control->kernel);
  }
  u64 threads = 1;
  for (const u32 dim : control->block_dim) threads *= dim;
  if (threads == 0 || threads > 1024) {
    refuse("a block of %llu threads cannot be launched; 1 to 1024 can", threads);
  }
  if (threads > static_cast<u64>(kernel->max_threads)) {
    refuse("kernel %s is compiled for at most %ld threads per block; the launch has %llu",
           kernel->name, kernel->max_threads, threads);
  }
}

/// Copies each argument to memory of its own, with pointers made real.
inline void make_arguments() {
  const char* const base = reinterpret_cast<const char*>(control);
  const Parameter* const parameters =
      reinterpret_cast<const Parameter*>(base + control->parameters_offset);
  if (control->parameter_count != kernel->parameter_count) {
    refuse("kernel %s takes %u parameters; the launch passes %u", kernel->name,
           kernel->parameter_count, control->parameter_count);
  }
  arguments = new void*[kernel->parameter_count + 1];
  for (u32 i = 0; i < kernel->parameter_count; ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.size != kernel->parameter_sizes[i]) {
      refuse("parameter %u of kernel %s has %u bytes; the launch passes %u", i, kernel->name,
             kernel->parameter_sizes[i], parameter.size);
    }
    if (posix_memalign(&arguments[i], 64, parameter.size) != 0) refuse("out of memory");
    if (parameter.is_pointer != 0) {
      const char* const pointer = buffers[parameter.buffer].begin + parameter.byte_offset;
      memcpy(arguments[i], &pointer, sizeof pointer);
    } else {
      memcpy(arguments[i], base + parameter.value_offset, parameter.size);
    }
  }
}

inline void map_control(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) _exit(2);
  void* const memory = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE,
                            MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) _exit(2);
  control = static_cast<Control*>(memory);
  control->state = State::running;
}

}  // namespace tf_sim

int main(int argc, char** argv) {
  using namespace tf_sim;
  if (argc != 2) return 2;
  map_control(argv[1]);
  find_main_stack();
  watch_for_faults();
  find_kernel();
  make_buffers();
  make_arguments();
  check_shared(control->shared_bytes);
  race_begin_buffers();
  trace_begin();
  run_grid();
  current_lane = nullptr;
  trace_end();
  return_buffers();
  stop(State::done);
}
