#pragma once

#include <string>
#include <string_view>

namespace truefuse::jit {

/// What an object's instructions say about memory.
struct MemoryInstructions {
  int wide_loads = 0;   ///< 16 bytes per lane from global memory.
  int wide_stores = 0;  ///< The same to it.
  int scratch = 0;      ///< To and from a lane's own memory: spills, arrays that are indexed.
};

/// Counted in a disassembler's text, for the target that it is of ("gfx906", "sm_90a").
MemoryInstructions memory_instructions_in(std::string_view disassembly, std::string_view target);

/// The text of the disassembler for an object's target: llvm-objdump, or nvdisasm of a CUDA
/// toolkit. Empty if there is none here.
std::string disassemble(const std::string& code, std::string_view target);

}  // namespace truefuse::jit
