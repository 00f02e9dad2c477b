#pragma once

#include <string>
#include <string_view>

namespace truefuse::jit {

/// A file's bytes, mapped read-only. Empty if the file cannot be read or is empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

/// What a file is, wherever it lies and whenever it was written: "build-id:..." if the linker left
/// one, else "sha256:..." of the content, "missing" if there is no such file. Remembered for the
/// life of the process until the file's inode, size or times change.
std::string file_identity(const std::string& path);

/// SHA-256 over names and contents of the files of a directory whose names end in `suffix`; empty
/// if there are none.
std::string directory_digest(const std::string& directory, std::string_view suffix);

}  // namespace truefuse::jit
