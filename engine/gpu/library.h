#pragma once

#include <initializer_list>
#include <optional>
#include <string>

namespace truefuse::gpu {

/// A shared library that stays loaded for the rest of the process: driver state must not disappear
/// while kernels run.
class Library {
 public:
  /// The first of `names` that is already mapped into the process (under any path), else the first
  /// that the loader finds. Nothing if there is none.
  static std::optional<Library> open(std::initializer_list<const char*> names);

  /// Only what is already mapped. A name matches a mapped file whose base name is the name or
  /// starts with it and a dot ("libamdhip64.so" matches "libamdhip64.so.6").
  static std::optional<Library> mapped(std::initializer_list<const char*> names);

  const std::string& path() const { return path_; }

  void* find(const char* symbol) const;     ///< Null if the library does not export it.
  void* require(const char* symbol) const;  ///< Throws Error naming library and symbol.

 private:
  Library(void* handle, std::string path);

  void* handle_;
  std::string path_;
};

}  // namespace truefuse::gpu
