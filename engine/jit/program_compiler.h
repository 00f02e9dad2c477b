#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/compiler.h>
#include <truefuse/jit/process.h>

namespace truefuse::jit {

/// What nvcc and hipcc have in common: a program that compiles a file in a private directory, where
/// the program's text and all of its headers are written under their own names.
class ProgramCompiler : public Compiler {
 public:
  std::string version() const override;
  std::string path() const override { return path_; }
  std::vector<std::pair<std::string, std::string>> identity() const override;
  std::vector<std::pair<std::string, std::string>> instructions() const override;
  std::string refusal(std::string_view arch) override;
  void trust_reported(std::string_view arch) override { choices_.trust(arch); }
  std::string target_for(std::string_view arch) override;
  CodeObject compile(const Program& program, std::string_view arch,
                     const std::vector<std::string>& options) override;

 protected:
  ProgramCompiler(std::string path, Vendor vendor) : path_(std::move(path)), vendor_(vendor) {}

  /// Arguments that compile `input` to `output`, both in the working directory.
  virtual std::vector<std::string> arguments(const std::string& target,
                                             const std::vector<std::string>& options,
                                             const std::string& input,
                                             const std::string& output) const = 0;
  virtual std::string_view suffix() const = 0;  ///< Of source files.
  /// What the child's environment needs.
  virtual std::vector<std::pair<std::string, std::string>> environment() const { return {}; }
  /// The code object in what the compiler wrote.
  virtual std::string extract(std::string output, const std::string& target) const;
  /// The part of `--version`'s answer that people call the version.
  virtual std::string version_in(const std::string& text) const = 0;

  /// How to ask for the commands it would run, and for the files that a source includes.
  struct Queries {
    std::vector<std::string> dry_run;
    std::vector<std::string> includes;
  };
  /// Each a complete way to ask; the first that works is taken. `input` is the probe program.
  virtual std::vector<Queries> queries(const std::string& input) const = 0;
  /// Identity parts beyond the programs, bitcode libraries and headers that the queries name.
  virtual std::vector<std::pair<std::string, std::string>> more_identity() const = 0;

  ProcessResult run(const std::vector<std::string>& arguments, const std::string& directory) const;

 private:
  TargetChoices::Choice choose(const Arch& arch);
  CodeObject compile_for(const Program& program, const std::string& target,
                         const std::vector<std::string>& options) const;
  std::vector<std::pair<std::string, std::string>> find_identity() const;
  /// The part of the identity that may change in the life of a process.
  std::vector<std::pair<std::string, std::string>> how_it_is_run() const;

  std::string path_;
  Vendor vendor_;
  mutable std::mutex mutex_;  ///< Guards the two below.
  mutable std::optional<std::string> version_text_;
  mutable std::optional<std::vector<std::pair<std::string, std::string>>> identity_;
  TargetChoices choices_;
};

/// What the commands of a dry run (`nvcc -dryrun`, `hipcc -###`) use: absolute paths of the
/// programs, and of the directories with device libraries (bitcode).
struct DryRun {
  std::vector<std::string> programs;
  std::vector<std::string> library_directories;
};
DryRun parse_dry_run(std::string_view text);

/// The prerequisites of a make rule as compilers write them with -M.
std::vector<std::string> parse_make_rule(std::string_view text);

}  // namespace truefuse::jit
