#pragma once

#include <truefuse/jit/program_compiler.h>

namespace truefuse::jit {

/// NVIDIA's compiler driver, for machines without NVRTC. It needs a host compiler (g++) in PATH.
/// Its log always holds the report of `ptxas -v`, which resources_of() reads.
class Nvcc final : public ProgramCompiler {
 public:
  explicit Nvcc(std::string program) : ProgramCompiler(std::move(program), Vendor::nvidia) {}

  std::string name() const override { return "nvcc"; }

 protected:
  std::vector<std::string> arguments(const std::string& target,
                                     const std::vector<std::string>& options,
                                     const std::string& input,
                                     const std::string& output) const override;
  std::string_view suffix() const override { return ".cu"; }
  std::string version_in(const std::string& text) const override;
  std::vector<Queries> queries(const std::string& input) const override;
  std::vector<std::pair<std::string, std::string>> more_identity() const override;
};

}  // namespace truefuse::jit
