#include <cstdlib>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/operators/common_cpu/level.h>

namespace truefuse::cpu {
namespace {

Level chosen_level() {
  const char* const wanted = std::getenv("TRUEFUSE_CPU_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return best_level();
  for (const Level level : {Level::kBase, Level::kAvx2, Level::kAvx512}) {
    if (wanted != name_of(level)) continue;
    if (level > best_level()) {
      throw Error("TRUEFUSE_CPU_LEVEL is \"" + std::string(wanted) +
                  "\", which this processor does " + "not run; its best level is \"" +
                  std::string(name_of(best_level())) +
                  "\". Unset the variable or name that level or a weaker one");
    }
    return level;
  }
  throw Error("TRUEFUSE_CPU_LEVEL is \"" + std::string(wanted) +
              "\"; it must be base, avx2 or avx512. Unset the variable or name one of these");
}

}  // namespace

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kAvx512:
      return "avx512";
    case Level::kAvx2:
      return "avx2";
    case Level::kBase:
      break;
  }
  return "base";
}

Level best_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      return Level::kAvx512;
    }
    return Level::kAvx2;
  }
#endif
  return Level::kBase;
}

Level level() {
  static const Level chosen = chosen_level();
  return chosen;
}

}  // namespace truefuse::cpu
