#pragma once

#include <string>

#include <truefuse/jit/file.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {

/// A private directory under $TMPDIR (else /tmp), removed with everything in it at the end. That of
/// a process that was killed stays behind, and goes when another process makes its first one there:
/// each is locked with flock(), which ends with its owner whatever end that has.
class TemporaryDirectory {
 public:
  /// Throws Error naming the directory that cannot be written to.
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor lock_;
};

}  // namespace truefuse::jit
