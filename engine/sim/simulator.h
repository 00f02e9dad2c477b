#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <truefuse/sim/runtime/protocol.h>

namespace truefuse::sim {

/// Device memory of a simulated launch.
struct SimBuffer {
  std::vector<std::byte> bytes;
  std::uint32_t misalignment = 0;  ///< It begins this many bytes past a multiple of 256; below 256.
  bool is_writable = true;         ///< Otherwise a change is a fault.
};

/// A kernel's arguments, in order. Pointers name a buffer of the launch and a byte in it.
class SimParameters {
 public:
  template <class T>
  requires(std::is_trivially_copyable_v<T> &&
           !std::is_pointer_v<T>) SimParameters& add(const T& value) {
    return add_bytes(reinterpret_cast<const std::byte*>(&value), sizeof(T));
  }
  SimParameters& add_bytes(const std::byte* bytes, std::size_t size) {
    list_.push_back({std::vector<std::byte>(bytes, bytes + size), std::nullopt, 0});
    return *this;
  }
  SimParameters& add_pointer(std::uint32_t buffer, std::uint64_t byte_offset = 0) {
    list_.push_back({std::vector<std::byte>(sizeof(void*)), buffer, byte_offset});
    return *this;
  }
  SimParameters& add_null() { return add(std::uintptr_t{0}); }

  struct Item {
    std::vector<std::byte> bytes;  ///< The value; eight bytes for a pointer.
    std::optional<std::uint32_t> buffer;
    std::uint64_t byte_offset = 0;
  };
  const std::vector<Item>& list() const { return list_; }

 private:
  std::vector<Item> list_;
};

struct SimLaunch {
  std::string kernel;
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t shared_bytes = 0;  ///< Dynamic shared memory.
  SimParameters parameters;
  bool starts_early = false;  ///< As in Launch: then the kernel has to wait for those before it.
};

/// In which order the lanes of a block, and the blocks of a grid, get their turns.
using SimOrder = tf_sim::Order;

struct SimOptions {
  SimOrder lane_order = SimOrder::forward;
  SimOrder block_order = SimOrder::forward;
  std::uint64_t seed = 1;             ///< Of random orders.
  std::uint32_t resident_blocks = 2;  ///< Blocks that are alive at once and take turns.
  std::chrono::milliseconds time_limit{60'000};
  bool trace = false;  ///< Of an executable compiled with --trace.
};

/// One access to a buffer: at most 16 bytes that one lane moves at once.
struct SimAccess {
  std::uint64_t block = 0;   ///< Linear, x fastest.
  std::uint32_t thread = 0;  ///< Linear in the block; waves are runs of consecutive threads.
  std::uint32_t buffer = 0;
  std::uint64_t byte_offset = 0;
  std::uint32_t bytes = 0;
  bool is_write = false;
  int line = 0;  ///< In the kernel's source; 0: not known.
};

using SimFaultKind = tf_sim::Fault;

/// "misaligned_access" and so on.
std::string_view name_of(SimFaultKind kind);

/// A place in the source, by the name that #include directives use. Line 0: not known.
struct SimPlace {
  std::string file;
  int line = 0;
};

struct SimFault {
  SimFaultKind kind = SimFaultKind::none;
  std::string message;
  SimPlace place;
  SimPlace other;                                  ///< The second place of a divergence or a race.
  std::array<std::uint32_t, 3> thread{}, block{};  ///< The lane at fault, or that ran last.
  std::string details;                             ///< What a sanitizer printed.

  /// One line: "kernel.hip:12: misaligned_access: ... (thread 3,0,0 of block 0,0,0)".
  std::string text() const;
};

struct SimOutcome {
  std::optional<SimFault> fault;
  std::vector<SimBuffer> buffers;  ///< As the kernel left them; unchanged after a fault.
  std::uint64_t lane_switches = 0;
  double seconds = 0;               ///< Of the run as a whole. Says nothing about a device.
  std::vector<SimAccess> accesses;  ///< If SimOptions::trace, in the order in which lanes ran.
};

/// Runs one launch in `executable`, the code that HostCompiler made, in a process of its own; its
/// wave size and sanitizers are those it was compiled with. A fault of the kernel is an outcome.
/// Throws Error for a launch that no device would take (unknown kernel, wrong number or sizes of
/// parameters, more threads than the kernel's bound, an empty or too large grid), and where the
/// process cannot be started.
SimOutcome run(const std::string& executable, const SimLaunch& launch,
               std::vector<SimBuffer> buffers, const SimOptions& options = {});

}  // namespace truefuse::sim
