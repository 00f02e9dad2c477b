#pragma once

#include <string_view>

namespace truefuse::cpu {

/// The instruction sets that CPU paths are compiled for, weakest first. kAvx2 means AVX2, FMA and
/// F16C; kAvx512 means AVX-512 F, DQ, BW and VL beside those.
enum class Level { kBase, kAvx2, kAvx512 };

/// "base", "avx2", "avx512".
std::string_view name_of(Level level);

/// The strongest level that this processor and operating system run.
Level best_level();

/// The level that operators use: best_level(), or what the environment variable TRUEFUSE_CPU_LEVEL
/// names. Read at the first call. Throws Error if the variable holds another word or names a level
/// that this processor does not run.
Level level();

}  // namespace truefuse::cpu

// The one of the tables NAME_base, NAME_avx2 and NAME_avx512 that belongs to cpu::level().
#if defined(__x86_64__)
#define TRUEFUSE_KERNELS_OF_LEVEL(name)                                        \
  (::truefuse::cpu::level() == ::truefuse::cpu::Level::kAvx512 ? name##_avx512 \
   : ::truefuse::cpu::level() == ::truefuse::cpu::Level::kAvx2 ? name##_avx2   \
                                                               : name##_base)
#else
#define TRUEFUSE_KERNELS_OF_LEVEL(name) name##_base
#endif

// In a file that is compiled once per level: NAME_<level>.
#define TRUEFUSE_CONCATENATED(a, b) a##_##b
#define TRUEFUSE_CONCATENATE(a, b) TRUEFUSE_CONCATENATED(a, b)
#define TRUEFUSE_TABLE_OF_LEVEL(name) TRUEFUSE_CONCATENATE(name, TRUEFUSE_CPU_LEVEL)
