#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/source.h>

namespace truefuse::jit {

/// What one kernel of a code object needs, read back from the object itself. -1: not stated there.
struct Resources {
  std::string kernel;
  int registers = -1;         ///< Per thread; VGPRs (with AGPRs) on AMD.
  int scalar_registers = -1;  ///< SGPRs on AMD.
  int shared_bytes = -1;      ///< Static shared memory (LDS) per block.
  int scratch_bytes = -1;     ///< Local memory (scratch) per thread.
  int spills = -1;            ///< Spilled registers (AMD) or spilled bytes (NVIDIA).
  int max_threads = -1;       ///< Launch bound per block.
  int wave = -1;              ///< Lanes per wave (warp).
};

struct CodeObject {
  std::string code;    ///< Bytes of a cubin, an AMD code object or an executable.
  std::string log;     ///< What the compiler said although it succeeded.
  std::string target;  ///< What it was compiled for: target_for(arch).
};

/// A compiler found on this machine. Compiling is deterministic for equal programs and equal
/// identity; everything it reads besides the program is in identity().
class Compiler {
 public:
  virtual ~Compiler() = default;

  virtual std::string name() const = 0;     ///< "NVRTC", "hipRTC", "nvcc", "hipcc", "g++ (sim)".
  virtual std::string version() const = 0;  ///< For people; the key uses identity().
  virtual std::string path() const = 0;     ///< Library or program that was found.

  /// Key parts: build-ids or digests of every file involved and every environment variable that
  /// it reads; never a path, a modification time or hiprtcVersion.
  virtual std::vector<std::pair<std::string, std::string>> identity() const = 0;

  /// Those of identity() that say how it is told to compile, not of which files it consists: its
  /// name, the arguments that it always gets, the variables that it reads. Also of a compiler that
  /// is not here.
  virtual std::vector<std::pair<std::string, std::string>> instructions() const;

  /// Empty if `arch` can be compiled for, else a sentence saying why not. Never aborts.
  virtual std::string refusal(std::string_view arch) = 0;

  /// A device of this machine reported `arch`. Such an architecture is never refused because a list
  /// does not hold it: a compile of one line decides.
  virtual void trust_reported(std::string_view /*arch*/) {}

  /// The target that compile() gives the compiler: `arch`, or for a reported one the first of
  /// targets_for() that the compiler takes. Part of the key. Throws Error with refusal()'s
  /// sentence.
  virtual std::string target_for(std::string_view arch) { return std::string(arch); }

  /// Throws Error with the compiler's own words, or with ours where it says nothing.
  /// `options` are passed one element each and are part of the key.
  virtual CodeObject compile(const Program& program, std::string_view arch,
                             const std::vector<std::string>& options) = 0;
};

}  // namespace truefuse::jit
