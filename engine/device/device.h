#pragma once

// The one header a kernel includes:  #include "truefuse/device.h"
//
// It gives CUDA, HIP (AMD and Hygon) and the CPU simulator one dialect, in namespace tf, so that a
// kernel is written once. It includes no system header under a run-time compiler and needs C++17.
//
//   TF_KERNEL(256) void scale(const tf::bf16* x, tf::bf16* y, float factor, tf::u32 count) {
//     const tf::u32 i = (tf::block_x() * tf::block_dim_x() + tf::thread_x()) * 8;
//     if (i + 8 > count) return;
//     auto v = tf::to_float(tf::load_streaming<8>(x + i));
//     TF_UNROLL for (int k = 0; k < 8; ++k) v[k] *= factor;
//     tf::store(y + i, tf::from_float<tf::bf16>(v));
//   }
//
// Wave sizes differ (32 and 64): a kernel names the width of its subgroups, no larger than 32 or
// TF_WAVE itself, and does no arithmetic with masks or warpSize. Blocks are whole waves wherever a
// subgroup or block function is used.
//
// GPU compilers may fuse a * b + c into one rounding, the simulator never does. Where it matters,
// write tf::fma; where it must not happen, compile with contraction off.
//
// A plain host compiler may include it too: it then offers types, conversions, vectors and math,
// so that a formula can be shared with a CPU path.

#include "truefuse/device/math.h"
#include "truefuse/device/platform.h"
#include "truefuse/device/rows.h"
#include "truefuse/device/types.h"
#include "truefuse/device/vector.h"
#if !defined(TF_PLATFORM_HOST)
#include "truefuse/device/atomic.h"
#include "truefuse/device/block.h"
#include "truefuse/device/bulk.h"
#include "truefuse/device/cluster.h"
#include "truefuse/device/early.h"
#include "truefuse/device/index.h"
#include "truefuse/device/subgroup.h"
#include "truefuse/device/vote.h"
#endif
