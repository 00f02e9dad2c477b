#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/jit/shared_library.h>

namespace truefuse::jit {

/// AMD's code object manager, the compiler inside hipRTC. It is asked whether it knows an
/// architecture before hipRTC is: releases of hipRTC abort the process for one that it does not
/// know.
class Comgr {
 public:
  /// Nothing if it cannot be loaded.
  static std::optional<Comgr> open(const std::string& path);

  /// Whether it knows "gfx90a:sramecc+:xnack-", processor and features.
  bool knows(const std::string& arch) const;

  const std::string& path() const { return library_.path(); }

 private:
  struct Node {
    std::uint64_t handle;
  };
  explicit Comgr(SharedLibrary library) : library_(std::move(library)) {}

  SharedLibrary library_;
  int (*metadata_)(const char*, Node*) = nullptr;
  int (*destroy_)(Node) = nullptr;
};

/// The comgr that the hipRTC at `hiprtc` will load: the one it names, mapped already, beside it, in
/// `more_directories` or where the loader looks. Empty if there is none.
std::string find_comgr(const std::string& hiprtc, const std::vector<std::string>& more_directories);

}  // namespace truefuse::jit
