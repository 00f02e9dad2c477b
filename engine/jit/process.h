#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace truefuse::jit {

struct ProcessOptions {
  std::chrono::milliseconds time_limit{120'000};
  std::string directory;  ///< Working directory; empty: this process's.
  std::string input;      ///< What the child reads from its standard input.
  /// Set in the child's environment, over what it inherits.
  std::vector<std::pair<std::string, std::string>> environment;
};

struct ProcessResult {
  bool started = false;
  bool timed_out = false;
  int exit_code = -1;  ///< Of a child that ended by itself.
  int signal = 0;      ///< That ended it, else 0.
  std::string output;  ///< Standard output; at most 256 MiB.
  std::string errors;  ///< Standard error, or why the program could not be started.

  bool ok() const { return started && !timed_out && signal == 0 && exit_code == 0; }
  /// "ended with exit code 1", "was killed by SIGABRT (Aborted)", "did not end within 120 s and was
  /// killed", "could not be started: No such file or directory".
  std::string how_it_ended() const;

  std::chrono::milliseconds time_limit{0};
};

/// Runs a program and waits for its end or the time limit. No shell: `command[0]` is a path or
/// found through PATH, the rest are its arguments as they are. The child is the leader of its own
/// process group, which is killed as a whole at the end, so that nothing it started stays behind.
ProcessResult run_process(const std::vector<std::string>& command,
                          const ProcessOptions& options = {});

/// Path of an executable file of this name in PATH; empty if there is none.
std::string find_program(std::string_view name);

}  // namespace truefuse::jit
