#pragma once

#include "truefuse/sim/lane.h"
#include "truefuse/sim/protocol.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// How a run ends when something is wrong: the report goes into the shared file, the process stops.

namespace tf_sim {

inline Control* control;

/// Exit codes tell nothing; the simulator reads Control::state.
[[noreturn]] inline void stop(State state) {
  control->state = state;
  _exit(state == State::done ? 0 : 1);
}

inline void set_where(Where* where, Site site) {
  snprintf(where->file, sizeof where->file, "%s", site.file);
  where->line = static_cast<u32>(site.line);
}

inline void set_message(const char* format, va_list arguments) {
  vsnprintf(control->report.message, sizeof control->report.message, format, arguments);
}

/// The launch cannot be run at all.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_message(format, arguments);
  stop(State::refused);
}

[[noreturn]] __attribute__((format(printf, 4, 5))) inline void fail(Fault fault, Site site,
                                                                    const Site* other,
                                                                    const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_message(format, arguments);
  control->report.fault = fault;
  set_where(&control->report.where, site);
  if (other != nullptr) set_where(&control->report.other, *other);
  stop(State::faulted);
}

inline void set_running(const Lane& lane) {
  const Index t = lane.thread, b = lane.block;
  control->thread[0] = t.x, control->thread[1] = t.y, control->thread[2] = t.z;
  control->block[0] = b.x, control->block[1] = b.y, control->block[2] = b.z;
}

}  // namespace tf_sim
