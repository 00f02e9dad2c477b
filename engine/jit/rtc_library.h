#pragma once

#include <string>
#include <vector>

#include <truefuse/jit/compiler.h>
#include <truefuse/jit/shared_library.h>

namespace truefuse::jit {

/// The C interface that NVRTC and hipRTC share, call for call, under different names.
class RtcLibrary {
 public:
  enum class Kind { nvrtc, hiprtc };

  /// Throws Error if the library cannot be loaded or lacks a function.
  RtcLibrary(Kind kind, const std::string& path);

  /// "13.5". hipRTC answers 9.0 whatever it is: for people only.
  std::string version() const;

  /// Numbers of the architectures that the library compiles for; empty if it cannot say (hipRTC,
  /// and NVRTC before 11.2).
  std::vector<int> supported_archs() const;

  /// Compiles with exactly these options. Throws Error with the library's words. Headers are given
  /// in memory. `target` is for the messages.
  CodeObject compile(const Program& program, const std::string& target,
                     const std::vector<std::string>& options) const;

 private:
  using Handle = void*;

  Kind kind_;
  std::string name_;
  SharedLibrary library_;
  int (*create_)(Handle*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile_)(Handle, int, const char* const*);
  int (*destroy_)(Handle*);
  int (*log_size_)(Handle, std::size_t*);
  int (*log_)(Handle, char*);
  int (*code_size_)(Handle, std::size_t*);
  int (*code_)(Handle, char*);
  int (*version_)(int*, int*);
  const char* (*error_string_)(int);
};

/// "NVRTC", "hipRTC".
std::string name_of(RtcLibrary::Kind kind);

}  // namespace truefuse::jit
