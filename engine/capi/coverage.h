#pragma once

#include <truefuse/capi/truefuse.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Compiles every variant of every operator for an arch, at most `jobs` at once, with the best
/// compiler for it, from the cache where it is there:
/// [{operator, label, compiler, target, error} or {operator, label, compiler, target, registers,
/// shared_bytes, scratch_bytes, spills, max_threads, wave (-1: the object does not say), occupancy,
/// occupancy_maximum, occupancy_unit, wide_loads, wide_stores (-1: no disassembler), code_bytes}]
TRUEFUSE_EXPORT char* truefuse_compile_table(const char* arch, int jobs);

#ifdef __cplusplus
}
#endif
