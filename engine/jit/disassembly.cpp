#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/disassembly.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {
namespace {

int count(std::string_view text, std::string_view word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + word.size())) {
    ++found;
  }
  return found;
}

int count_any(std::string_view text, std::initializer_list<std::string_view> words) {
  int found = 0;
  for (const std::string_view word : words) found += count(text, word);
  return found;
}

std::string disassembler_for(bool is_amd) {
  if (is_amd) {
    // Newer ones know every older target.
    for (const char* const name :
         {"llvm-objdump-20", "llvm-objdump-19", "llvm-objdump", "llvm-objdump-15"}) {
      if (std::string program = find_program(name); !program.empty()) return program;
    }
    const std::string rocm = "/opt/rocm/llvm/bin/llvm-objdump";
    return access(rocm.c_str(), X_OK) == 0 ? rocm : std::string();
  }
  if (std::string program = find_program("nvdisasm"); !program.empty()) return program;
  const char* const home = std::getenv("CUDA_HOME");
  const std::string cuda =
      std::string(home != nullptr ? home : "/usr/local/cuda") + "/bin/nvdisasm";
  return access(cuda.c_str(), X_OK) == 0 ? cuda : std::string();
}

}  // namespace

MemoryInstructions memory_instructions_in(std::string_view disassembly, std::string_view target) {
  if (target.starts_with("gfx")) {
    return {count_any(disassembly, {"global_load_dwordx4", "flat_load_dwordx4", "global_load_b128",
                                    "flat_load_b128"}),
            count_any(disassembly, {"global_store_dwordx4", "flat_store_dwordx4",
                                    "global_store_b128", "flat_store_b128"}),
            count_any(disassembly, {"scratch_load", "scratch_store", "buffer_load_dword",
                                    "buffer_store_dword"})};
  }
  // LDG.E.128, LDG.E.EF.128.CONSTANT and so on: one instruction per line.
  MemoryInstructions found;
  while (!disassembly.empty()) {
    const std::size_t end = disassembly.find('\n');
    const std::string_view line = disassembly.substr(0, end);
    disassembly.remove_prefix(end == std::string_view::npos ? disassembly.size() : end + 1);
    const bool is_wide = line.find(".128") != std::string_view::npos;
    if (is_wide && line.find("LDG.") != std::string_view::npos) ++found.wide_loads;
    if (is_wide && line.find("STG.") != std::string_view::npos) ++found.wide_stores;
    found.scratch += count_any(line, {" LDL", " STL"});
  }
  return found;
}

std::string disassemble(const std::string& code, std::string_view target) {
  const bool is_amd = target.starts_with("gfx");
  const std::string program = disassembler_for(is_amd);
  if (program.empty()) return {};
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/object";
  std::ofstream(path, std::ios::binary) << code;
  std::vector<std::string> command = {program, is_amd ? "-d" : "-c", path};
  return run_process(command).output;
}

}  // namespace truefuse::jit
