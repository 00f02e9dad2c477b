#pragma once

// What the simulator and the executable that it starts say to each other: one shared file, laid out
// by the simulator. It begins with Control; offsets count from the start of the file. Both sides
// are built on the same machine, so plain structs do.

namespace tf_sim {

using u32 = unsigned int;
using u64 = unsigned long long;

enum class State : u32 { not_started, running, done, faulted, refused };

/// Interleaved: lanes give way at every tf::load, tf::store and atomic (in a kernel compiled for
/// races, at every access), and blocks take turns lane by lane instead of barrier by barrier.
enum class Order : u32 { forward, reverse, random, interleaved };

enum class Fault : u32 {
  none,
  global_read_out_of_bounds,
  global_write_out_of_bounds,
  shared_read_out_of_bounds,
  shared_write_out_of_bounds,
  shared_read_uninitialised,
  access_before_wait,  // Of a launch that starts early, before it has waited for those before it.
  write_to_read_only,
  misaligned_access,
  divergent_barrier,       // Lanes of a block wait at different barriers.
  exited_lane_at_barrier,  // Lanes wait at a barrier that another lane never reaches.
  divergent_collective,    // Lanes of a wave are not at the same exchange.
  exited_lane_read,        // An exchange reads from a lane that has returned or never was.
  operand_out_of_range,    // The mask, delta or index of an exchange.
  race,                    // Two lanes use the same bytes, one of them writes, nothing orders them.
  undefined_behaviour,
  memory_fault,  // Any other illegal access.
  stack_overflow,
  time_limit,
  crash,
};

struct Where {
  char file[256];
  u32 line;  // 0: unknown.
  u64 pc;    // 0: none; else an address in the executable that stands for file and line.
};

/// Strings end with a zero; longer ones are cut.
struct Report {
  Fault fault;
  Where where;
  Where other;  // Second place, of a divergence or a race.
  char message[512];
};

struct Parameter {
  u64 value_offset;  // Of its bytes.
  u32 size;
  u32 is_pointer;  // Then the value is the address of buffer `buffer` plus `byte_offset`.
  u32 buffer;
  u64 byte_offset;
};

struct Buffer {
  u64 data_offset;
  u64 bytes;
  u32 misalignment;  // Bytes past a multiple of 256.
  u32 is_writable;
};

/// One access to a buffer, as the trace holds it.
struct Transaction {
  u64 block;  // Linear, like the thread.
  u64 byte_offset;
  u64 pc;  // 0: `line` says where; else an address in the executable.
  u32 buffer;
  u32 thread;
  u32 bytes;
  u32 line;
  u32 is_write;
};

struct Control {
  State state;
  Report report;

  // Of the lane that ran last.
  u32 thread[3];
  u32 block[3];
  u64 lane_switches;

  char kernel[256];
  u32 grid[3];
  u32 block_dim[3];
  u32 shared_bytes;
  u32 starts_early;
  Order lane_order;
  Order block_order;
  u64 seed;
  u32 resident_blocks;
  char trace[256];  // Path of the trace to write; empty: none.

  u32 parameter_count;
  u32 buffer_count;
  u64 parameters_offset;
  u64 buffers_offset;
};

}  // namespace tf_sim
