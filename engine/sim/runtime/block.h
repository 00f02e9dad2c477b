#pragma once

#include "truefuse/sim/fiber.h"
#include "truefuse/sim/happens_before.h"
#include "truefuse/sim/lane.h"
#include "truefuse/sim/memory.h"
#include "truefuse/sim/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// A block and its lanes, as the scheduler sees them.

namespace tf_sim {

struct Block;

enum class Wait { none, exchange, barrier, returned };

struct LaneState : Lane {
  Fiber fiber;
  Block* owner = nullptr;
  u32 number = 0;  ///< Linear in the block.
  Wait wait = Wait::returned;
  Site site = {"", 0};
  bool has_waited = false;  ///< For the launches before this one.
  // An exchange in progress.
  int kind = 0, width = 0, operand = 0;
  u64 bits = 0, result = 0;
  // Who comes before whom.
  u32 epoch = 0;        ///< Releases made.
  Knowledge known;      ///< Beyond what the whole block knows.
  Knowledge seen;       ///< Read from atomic variables; known from the next fence on.
  Knowledge announced;  ///< Known at the last fence: what relaxed atomics release.
};

constexpr int kMaxStaticShared = 64;

struct Block {
  LaneState* lanes = nullptr;
  u32* order = nullptr;
  u32 live = 0;  ///< Lanes that have not returned.
  bool in_use = false;
  u64 linear = 0;
  u32 phase = 0;  ///< Barriers passed.
  u32* wave_phases = nullptr;
  Knowledge known;  ///< By each of its lanes.
  Region dynamic_region;
  Region static_regions[kMaxStaticShared];
  const void* identities[kMaxStaticShared];
  int static_count = 0;
};

inline const Kernel* kernel;
inline u32 lanes_per_block;

inline LaneState* running() { return static_cast<LaneState*>(current_lane); }

inline void wait_for(Wait wait, Site site) {
  LaneState* const self = running();
  self->wait = wait;
  self->site = site;
  switch_fiber(&self->fiber, &main_fiber);
}

[[noreturn]] __attribute__((format(printf, 4, 5))) inline void fail_at(const LaneState& lane,
                                                                       Fault fault,
                                                                       const Site* other,
                                                                       const char* format, ...) {
  va_list list;
  va_start(list, format);
  char text[sizeof control->report.message];
  vsnprintf(text, sizeof text, format, list);
  set_running(lane);
  fail(fault, lane.site, other, "%s", text);
}

}  // namespace tf_sim
