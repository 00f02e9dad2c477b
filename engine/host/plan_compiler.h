#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/compiler.h>
#include <truefuse/jit/cxx.h>

namespace truefuse::host {

/// Compiles the C++ file of a description to a shared library.
class PlanCompiler : public jit::Compiler {
 public:
  explicit PlanCompiler(std::string program) : cxx_(std::move(program)) {}

  std::string name() const override { return "g++ (host)"; }
  std::string version() const override { return cxx_.version(); }
  std::string path() const override { return cxx_.program(); }
  std::vector<std::pair<std::string, std::string>> identity() const override;
  std::string refusal(std::string_view arch) override;

  /// The program with its preprocessed text among the headers. Whatever the standard library's
  /// headers say is in there, and so in the key; and nothing else is compiled. Throws Error with
  /// the compiler's words.
  jit::Program preprocessed(jit::Program program) const;

  /// Of a program that is preprocessed.
  jit::CodeObject compile(const jit::Program& program, std::string_view arch,
                          const std::vector<std::string>& options) override;

 private:
  jit::ProcessResult run(const jit::Program& program, const std::vector<std::string>& arguments,
                         const std::string& directory) const;

  jit::Cxx cxx_;
};

/// The architecture that it compiles for.
inline constexpr std::string_view kHostArch = "host";

}  // namespace truefuse::host
