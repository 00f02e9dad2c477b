#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/process.h>

extern char** environ;

namespace truefuse::jit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxOutput = std::size_t{256} << 20;

struct Pipe {
  Descriptor read, write;

  /// Returns 0, or an errno value.
  int create() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno;
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
    fcntl(read.get(), F_SETFL, O_NONBLOCK);
    return 0;
  }

  /// Takes what is there; closes at the end of the stream.
  void drain(std::string& text) {
    std::array<char, 65536> buffer;
    while (read) {
      const ssize_t count = ::read(read.get(), buffer.data(), buffer.size());
      if (count > 0) {
        // Beyond the limit, bytes are read and dropped: a blocked child would only run into its
        // limit.
        text.append(buffer.data(), std::min(static_cast<std::size_t>(count),
                                            kMaxOutput - std::min(kMaxOutput, text.size())));
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else {
        if (count == 0 || errno != EAGAIN) read.reset();
        return;
      }
    }
  }
};

/// An anonymous file with the child's input: unlike a pipe it can neither block nor raise SIGPIPE.
/// Returns 0, or an errno value.
int open_input(const std::string& input, Descriptor& descriptor) {
  descriptor = Descriptor(input.empty() ? open("/dev/null", O_RDONLY | O_CLOEXEC)
                                        : memfd_create("truefuse-input", MFD_CLOEXEC));
  if (!descriptor) return errno;
  if (const int error = write_all(descriptor.get(), input)) return error;
  return lseek(descriptor.get(), 0, SEEK_SET) < 0 ? errno : 0;
}

std::vector<std::string> child_environment(const ProcessOptions& options) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, std::min(text.find('='), text.size()));
    if (std::none_of(options.environment.begin(), options.environment.end(),
                     [&](const auto& setting) { return setting.first == name; })) {
      entries.emplace_back(text);
    }
  }
  for (const auto& [name, value] : options.environment) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

int spawn(pid_t& pid, std::vector<std::string> command, const ProcessOptions& options, int input,
          int output, int errors) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
  if (!options.directory.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());
  }
  // A host program (Python, a server) may ignore or block signals that a compiler relies on.
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) {
    sigaddset(&defaults, number);
  }
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> environment = child_environment(options);
  const int failure = posix_spawnp(&pid, command[0].c_str(), &actions, &attributes,
                                   pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

enum class State { running, ended, lost };

/// A child that has ended stays a zombie, so that the id of its process group stays ours. `lost`:
/// this program ignores SIGCHLD, or something else in it has collected the status.
State state_of(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return errno == ECHILD ? State::lost : State::running;
  }
  return info.si_pid == pid ? State::ended : State::running;
}

}  // namespace

std::string ProcessResult::how_it_ended() const {
  if (!started) return "could not be started: " + errors;
  if (timed_out) {
    return "did not end within " + std::to_string((time_limit.count() + 999) / 1000) +
           " s and was killed";
  }
  if (signal != 0) {
    const char* name = sigabbrev_np(signal);
    const char* description = sigdescr_np(signal);
    return "was killed by " +
           (name != nullptr ? "SIG" + std::string(name) : std::to_string(signal)) +
           (description != nullptr ? " (" + std::string(description) + ")" : "");
  }
  if (exit_code < 0) return "ended, but its status was lost: this program does not keep SIGCHLD";
  return "ended with exit code " + std::to_string(exit_code);
}

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  ProcessResult result;
  result.time_limit = options.time_limit;
  Descriptor input;
  Pipe output, errors;
  if (command.empty()) throw Error("run_process: no program is named");
  int failure = open_input(options.input, input);
  if (failure == 0) failure = output.create();
  if (failure == 0) failure = errors.create();
  pid_t pid = 0;
  if (failure == 0) {
    failure = spawn(pid, command, options, input.get(), output.write.get(), errors.write.get());
  }
  if (failure != 0) {
    result.errors = error_words(failure);
    return result;
  }
  result.started = true;
  output.write.reset();
  errors.write.reset();

  const Clock::time_point deadline = Clock::now() + options.time_limit;
  State state = State::running;
  while ((state = state_of(pid)) == State::running) {
    if (Clock::now() >= deadline) {
      result.timed_out = true;
      break;
    }
    std::array<pollfd, 2> polled = {pollfd{output.read.get(), POLLIN, 0},
                                    pollfd{errors.read.get(), POLLIN, 0}};
    const bool quiet = !output.read && !errors.read;
    poll(polled.data(), polled.size(), quiet ? 1 : 20);
    output.drain(result.output);
    errors.drain(result.errors);
  }
  if (state != State::lost) kill(-pid, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(pid, &status, 0);
  } while (waited < 0 && errno == EINTR);
  output.drain(result.output);
  errors.drain(result.errors);
  if (waited == pid && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (waited == pid && WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::string find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view list = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!list.empty()) {
    const std::string_view directory = list.substr(0, std::min(list.find(':'), list.size()));
    list.remove_prefix(std::min(directory.size() + 1, list.size()));
    // Relative entries would make the answer depend on the working directory.
    if (!directory.starts_with('/')) continue;
    const std::string candidate = std::string(directory) + "/" + std::string(name);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) &&
        access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return {};
}

}  // namespace truefuse::jit
