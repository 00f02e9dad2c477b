#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/arch.h>
#include <truefuse/jit/compiler.h>

namespace truefuse::jit {

/// The program that shows whether a compiler works for an architecture: one kernel of one line, in
/// the dialect that every compiler here reads.
Program probe_program();

/// Throws Error for options that belong to the compiler object: target, language standard, include
/// directories, output. Given a second time they would win, fail or, in hipRTC, abort the process.
void check_options(const std::vector<std::string>& options);

/// The arguments with spaces between them: those that a compiler object adds by itself are a key
/// part.
std::string joined(const std::vector<std::string>& arguments);

/// Parses `arch` and throws Error if `compiler` does not compile for its vendor.
Arch parse_arch_for(Vendor vendor, std::string_view compiler, std::string_view arch);

/// ("environment NAME", value) for each variable that is set and named in `names` or begins with
/// one of `prefixes`; in alphabetical order.
std::vector<std::pair<std::string, std::string>> environment_parts(
    const std::vector<std::string>& names, const std::vector<std::string>& prefixes);

/// The parts among those of an identity that are instructions (Compiler::instructions()).
std::vector<std::pair<std::string, std::string>> instructions_in(
    std::vector<std::pair<std::string, std::string>> identity);

/// Writes the program's text and headers into a directory. Returns the name of the file with the
/// text, which no header has. Throws Error for a header whose name would lie outside.
std::string write_program(const Program& program, const std::string& directory,
                          std::string_view suffix);

/// Throws Error unless `object.code` is an ELF file; a compiler that "succeeds" with an empty or
/// cut file must not reach the cache.
void check_object(const CodeObject& object, std::string_view compiler);

/// What a compiler answered for each architecture, remembered: which target it takes, or why it
/// takes none. Thread-safe.
class TargetChoices {
 public:
  /// A device reported this arch.
  void trust(std::string_view arch);
  bool is_trusted(const Arch& arch);

  /// `probe` gets a target, returns an empty string if the compiler takes it, else why not. Tries
  /// the arch itself, then, for a reported one, the others of targets_for(). Empty `target`:
  /// refused, and `refusal` says why.
  struct Choice {
    std::string target;
    std::string refusal;
  };
  using Probe = std::function<std::string(const Arch& target, bool is_reported)>;
  Choice choose(const Arch& arch, const Probe& probe);

 private:
  std::mutex mutex_;
  std::map<std::string, Choice, std::less<>> choices_;
  std::map<std::string, bool, std::less<>> trusted_;
};

}  // namespace truefuse::jit
