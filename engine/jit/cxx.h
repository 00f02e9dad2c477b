#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/jit/process.h>

namespace truefuse::jit {

/// A C++ compiler for this machine itself, g++ or compatible: what simulated kernels and the C++
/// functions of descriptions are compiled with.
class Cxx {
 public:
  explicit Cxx(std::string program) : program_(std::move(program)) {}

  /// Path of the compiler that a user of this machine means: the first of $TRUEFUSE_CXX, $CXX, g++,
  /// c++ that exists. Nothing if there is none. Throws Error if $TRUEFUSE_CXX is set and names no
  /// program.
  static std::optional<std::string> find();

  const std::string& program() const { return program_; }
  std::string version() const;  ///< One line.

  /// Key parts: what --version says, the program, and the cc1plus that it starts.
  std::vector<std::pair<std::string, std::string>> identity() const;

  /// Runs it in a directory, without the environment variables that would let it read or write
  /// files which no key knows.
  ProcessResult run(const std::vector<std::string>& arguments, const std::string& directory) const;

 private:
  struct Facts {
    std::string version;  ///< All that --version says.
    std::string worker;   ///< Path of cc1plus.
  };
  const Facts& facts() const;
  std::string ask(const std::string& question) const;

  std::string program_;
  mutable std::once_flag facts_once_;
  mutable Facts facts_;
};

/// Options under which names in reports and in __FILE__ are those that #include directives use,
/// wherever the directory with the sources is.
std::vector<std::string> prefix_maps(const std::string& directory);

}  // namespace truefuse::jit
