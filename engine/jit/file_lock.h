#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <truefuse/jit/file.h>

namespace truefuse::jit {

/// An exclusive lock between threads and processes of this machine: a file in a directory, locked
/// with flock(), so that the kernel releases it when its owner dies. Inside is who owns it. The
/// file exists only while somebody holds the lock or died holding it.
class FileLock {
 public:
  enum class Result { locked, timed_out, impossible };

  /// Waits at most `patience`; `on_long_wait` is called once, after a second of waiting, with words
  /// for the owner: "process 123 (python3) on host gpu7". `directory` must stay open as long as the
  /// lock lives. Never throws by itself.
  FileLock(int directory, std::string name, std::chrono::nanoseconds patience,
           const std::function<void(const std::string& owner)>& on_long_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  Result result() const { return result_; }

 private:
  bool is_file_of(int fd) const;

  int directory_;
  std::string name_;
  Descriptor fd_;  // Open only while locked.
  Result result_ = Result::impossible;
};

}  // namespace truefuse::jit
