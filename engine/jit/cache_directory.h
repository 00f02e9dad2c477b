#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <truefuse/jit/file.h>

namespace truefuse::jit {

/// A cache directory, opened and looked at.
struct CacheDirectory {
  Descriptor fd;        ///< Open if entries in it may be trusted.
  bool exists = false;  ///< Something is at the path, or may be: only ENOENT says no.
  bool writable = false;
  std::string problem;  ///< Why it cannot be written or even read: "it belongs to user 1000, ...".
};

enum class IfMissing { leave, create };

/// Trusted is a real directory (no symbolic link) that only its owner can write; the owner is the
/// effective user, or root for reading alone. Writable is one of the effective user's, on a file
/// system of this machine that is not mounted read-only. Missing directories are made with mode
/// 0700. Never throws.
CacheDirectory open_cache_directory(std::string path, IfMissing if_missing);

/// True if a file owned by `owner` with `mode` can have been written only by us or by root.
bool is_trusted_file(std::uint32_t owner, std::uint32_t mode);

/// The name of a network file system by its statfs type, or empty. `fuse_type` is what the mount
/// table calls it ("fuse.sshfs"), for the types that share FUSE's number.
std::string_view network_file_system(std::uint64_t type, std::string_view fuse_type);

/// The file system type of a device ("8:1" is major 8, minor 1) in the text of
/// /proc/self/mountinfo, or empty.
std::string_view mount_type(std::string_view mountinfo, std::uint32_t major, std::uint32_t minor);

}  // namespace truefuse::jit
