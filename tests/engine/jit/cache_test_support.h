#pragma once

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <truefuse/jit/cache.h>
#include <truefuse/jit/log.h>

namespace truefuse::jit {

/// A new directory, mode 0700, removed with all that is in it.
class TestDirectory {
 public:
  TestDirectory() {
    char path[] = "/tmp/truefuse_test_XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Standard output of a shell command.
inline std::string shell(const std::string& command) {
  std::string output;
  FILE* const pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.append(buffer, got);
  }
  ::pclose(pipe);
  return output;
}

/// Starts a process that runs `body` and exits 0, or 1 if an expectation in it failed.
inline pid_t start_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// Exit status, or 128 + the signal.
inline int wait_for(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Runs `body` in a process of its own: it may change users, mounts and the environment, and its
/// "once per process" warnings are its own.
inline void in_child(const std::function<void()>& body) {
  EXPECT_EQ(wait_for(start_child(body)), 0);
}

constexpr uid_t kOtherUser = 65534;

/// Becomes another user for good.
inline void become_other_user() {
  if (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0) ADD_FAILURE() << "setuid failed";
}

inline bool is_root() { return ::geteuid() == 0; }

/// The warnings of this process from now on.
inline std::vector<std::string>& collect_warnings() {
  static std::vector<std::string> warnings;
  warnings.clear();
  set_warning_sink([](const std::string& text) { warnings.push_back(text); });
  return warnings;
}

inline Key make_key(const std::string& source) {
  Key key;
  key.add("compiler", "NVRTC 13.0 build 91ab");
  key.add("arch", "sm_90a");
  key.add_digest("source", source);
  return key;
}

inline CacheEntry make_entry(const Key& key, const std::string& code = std::string("\x7f"
                                                                                   "ELF\0code",
                                                                                   9)) {
  return {"bias_gelu sm_90a", key, code, 0.125};
}

inline std::string path_of(const Cache& cache, const Key& key) {
  return cache.directory() + "/" + key.digest() + ".tfk";
}

inline std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    names.push_back(file.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace truefuse::jit
