#include <algorithm>
#include <array>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <truefuse/jit/file_lock.h>

namespace truefuse::jit {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string own_words() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return "process " + std::to_string(::getpid()) + " (" + program_invocation_short_name +
         ") on host " + host.data();
}

// Whoever locks the file writes it a moment later, so it may be empty or half written.
std::string owner_words(int fd) {
  std::string words;
  if (read_all(fd, 300, &words) != 0 || words.empty()) return "another process";
  for (char& c : words) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return words;
}

}  // namespace

FileLock::FileLock(int directory, std::string name, std::chrono::nanoseconds patience,
                   const std::function<void(const std::string&)>& on_long_wait)
    : directory_(directory), name_(std::move(name)) {
  const Clock::time_point begin = Clock::now();
  bool told = false;
  for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds{20})) {
    Descriptor fd(
        ::openat(directory_, name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return;
    // The owner before us may have removed the file after we opened it; then the lock that counts
    // is on a newer file.
    const bool is_ours = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!is_ours && errno != EWOULDBLOCK && errno != EINTR) {
      // No locks here; a file that means nothing need not stay.
      ::unlinkat(directory_, name_.c_str(), 0);
      return;
    }
    if (is_ours && is_file_of(fd.get())) {
      if (::ftruncate(fd.get(), 0) == 0) write_all(fd.get(), own_words());
      fd_ = std::move(fd);
      result_ = Result::locked;
      return;
    }
    const auto waited = Clock::now() - begin;
    if (waited >= patience) {
      result_ = Result::timed_out;
      return;
    }
    if (is_ours) continue;
    if (!told && waited >= std::chrono::seconds{1}) {
      told = true;
      on_long_wait(owner_words(fd.get()));
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, patience - waited));
  }
}

FileLock::~FileLock() {
  if (!fd_) return;
  if (is_file_of(fd_.get())) ::unlinkat(directory_, name_.c_str(), 0);
  // Explicitly, because a child forked meanwhile holds the same open file.
  ::flock(fd_.get(), LOCK_UN);
}

bool FileLock::is_file_of(int fd) const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 &&
         ::fstatat(directory_, name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace truefuse::jit
