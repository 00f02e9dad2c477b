// For libFuzzer, which brings main(): FUZZ_TARGET=entry truefuse_fuzz [its flags] [folders of
// inputs]

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "targets.h"

namespace {

const truefuse::fuzz::Target& chosen() {
  const char* const wanted = std::getenv("FUZZ_TARGET");
  for (const truefuse::fuzz::Target& target : truefuse::fuzz::targets()) {
    if (wanted != nullptr && target.name == wanted) return target;
  }
  std::fprintf(stderr, "FUZZ_TARGET names no target\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const truefuse::fuzz::Target& target = chosen();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
