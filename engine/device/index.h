#pragma once

#include "truefuse/device/types.h"

// Where a thread is: in its block, its block in the grid, its lane in the wave.

namespace tf {

#if defined(TF_PLATFORM_SIM)
#define TF_INDEX(function, field, builtin)                                 \
  TF_DEVICE u32 function##_x() { return ::tf_sim::current_lane->field.x; } \
  TF_DEVICE u32 function##_y() { return ::tf_sim::current_lane->field.y; } \
  TF_DEVICE u32 function##_z() { return ::tf_sim::current_lane->field.z; }
#else
#define TF_INDEX(function, field, builtin)           \
  TF_DEVICE u32 function##_x() { return builtin.x; } \
  TF_DEVICE u32 function##_y() { return builtin.y; } \
  TF_DEVICE u32 function##_z() { return builtin.z; }
#endif

TF_INDEX(thread, thread, threadIdx)
TF_INDEX(block, block, blockIdx)
TF_INDEX(block_dim, block_dim, blockDim)
TF_INDEX(grid_dim, grid_dim, gridDim)

#undef TF_INDEX

/// The thread's number in its block, x fastest. Waves are runs of TF_WAVE consecutive numbers.
TF_DEVICE u32 thread_linear() {
  return thread_x() + block_dim_x() * (thread_y() + block_dim_y() * thread_z());
}

/// Threads in a block.
TF_DEVICE u32 block_threads() { return block_dim_x() * block_dim_y() * block_dim_z(); }

/// The thread's number in its wave, and the wave's number in its block.
TF_DEVICE u32 lane() { return thread_linear() % TF_WAVE; }
TF_DEVICE u32 wave() { return thread_linear() / TF_WAVE; }

}  // namespace tf
