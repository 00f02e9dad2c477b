#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::jit {

/// A shared library opened at run time. It is never closed again: vendor libraries start threads
/// and register exit handlers, and do not survive being unloaded.
class SharedLibrary {
 public:
  /// Nothing if the loader refuses; `why` (optional) gets its words.
  static std::optional<SharedLibrary> open(const std::string& path, std::string* why = nullptr);

  const std::string& path() const { return path_; }

  /// A function of the library or of what it depends on; null if there is none.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* address(const char* name) const;

  void* handle_;
  std::string path_;
};

/// Paths of the libraries that this process has mapped, in the order of loading.
std::vector<std::string> mapped_libraries();

/// Where the loader looks if nothing else is said.
std::vector<std::string> system_library_directories();

/// Path of the library (or program) that holds `address`; empty if unknown.
std::string library_of(const void* address);

/// Whether the library exports a symbol of this name; read from the file, nothing is loaded.
bool exports(const std::string& library_path, std::string_view symbol);

/// The files that the loader would take for the libraries that the one at `path` depends on (and
/// those on, and so on), as far as their names begin with one of `prefixes`. Nothing is loaded.
/// `in_this_process`: libraries that are mapped here are found first, as dlopen finds them.
std::vector<std::string> dependencies(const std::string& path,
                                      const std::vector<std::string>& prefixes,
                                      bool in_this_process = true);

/// Files of a directory whose names are `stem` (for instance "libnvrtc.so"), bare or followed by a
/// version; the bare name first, then the highest version first; different names of one file once.
std::vector<std::string> versions_in(const std::string& directory, std::string_view stem);

}  // namespace truefuse::jit
