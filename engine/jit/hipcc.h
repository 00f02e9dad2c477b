#pragma once

#include <truefuse/jit/program_compiler.h>

namespace truefuse::jit {

/// The compiler driver of ROCm and DTK, for machines without hipRTC. The program's text must
/// include <hip/hip_runtime.h> for it (not for hipRTC).
class Hipcc final : public ProgramCompiler {
 public:
  explicit Hipcc(std::string program) : ProgramCompiler(std::move(program), Vendor::amd) {}

  std::string name() const override { return "hipcc"; }

 protected:
  std::vector<std::string> arguments(const std::string& target,
                                     const std::vector<std::string>& options,
                                     const std::string& input,
                                     const std::string& output) const override;
  std::string_view suffix() const override { return ".hip"; }
  std::vector<std::pair<std::string, std::string>> environment() const override;
  std::string extract(std::string output, const std::string& target) const override;
  std::string version_in(const std::string& text) const override;
  std::vector<Queries> queries(const std::string& input) const override;
  std::vector<std::pair<std::string, std::string>> more_identity() const override;
};

}  // namespace truefuse::jit
