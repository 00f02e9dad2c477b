#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace truefuse::jit {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// "Permission denied"; the words for an errno value, from any thread.
std::string error_words(int error);

/// At most `limit` bytes from the start of the file. Returns 0, or an errno value.
int read_all(int fd, std::size_t limit, std::string* bytes);

/// Returns 0, or an errno value. A file size limit of the process is an error, not a signal.
int write_all(int fd, std::string_view bytes);

/// The names in a directory, in no order; those read so far if reading fails.
std::vector<std::string> names_in(int directory);

}  // namespace truefuse::jit
