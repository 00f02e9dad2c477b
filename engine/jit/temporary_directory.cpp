#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <ftw.h>
#include <mutex>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {
namespace {

// Not what releases before the lock called theirs: one of theirs without a lock may be in use.
constexpr std::string_view kPrefix = "truefuse-tmp-";
constexpr std::string_view kPattern = "XXXXXX";  // mkdtemp() fills it in.

void remove_tree(const std::string& path) {
  // Not std::filesystem::remove_all: in a program that links PyTorch 2.11 for CUDA 13 before the
  // C++ library, that is PyTorch's copy, which calls a null pointer.
  constexpr int kOpenDirectories = 8;
  const auto remove_one = [](const char* file, const struct stat*, int, FTW*) {
    std::remove(file);  // What cannot be removed stays, and the rest goes.
    return 0;
  };
  nftw(path.c_str(), remove_one, kOpenDirectories, FTW_DEPTH | FTW_PHYS);
}

Descriptor open_directory(const std::string& path) {
  return Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/// False where somebody else has removed it.
bool is_there(const std::string& path, const Descriptor& opened) {
  struct stat own {};
  struct stat named {};
  return fstat(opened.get(), &own) == 0 && lstat(path.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/// Those whose owner has ended: nobody holds their locks. Where a file system has no locks for
/// directories, nothing is removed.
void remove_abandoned(const std::string& parent) {
  const Descriptor opened(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return;
  for (const std::string& name : names_in(opened.get())) {
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kPattern.size()) continue;
    const std::string path = parent + "/" + name;
    const Descriptor lock = open_directory(path);
    struct stat found {};
    if (!lock || fstat(lock.get(), &found) != 0 || found.st_uid != geteuid()) continue;
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) remove_tree(path);
  }
}

/// Once for each parent: a process may make many, and /tmp may be large.
void remove_abandoned_once(const std::string& parent) {
  static std::mutex mutex;
  static auto* const seen = new std::set<std::string>;
  const std::scoped_lock lock(mutex);
  if (seen->insert(parent).second) remove_abandoned(parent);
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  const char* named = std::getenv("TMPDIR");
  const std::string directory = named != nullptr && named[0] != '\0' ? named : "/tmp";
  // Absolute, because whoever gets it may work in another directory.
  std::error_code ignored;
  const std::string parent = std::filesystem::absolute(directory, ignored).string();
  remove_abandoned_once(parent);
  const auto refuse = [&](int reason) {
    throw Error("compilers need a directory for intermediate files, and none can be made in " +
                directory + " (" + error_words(reason) +
                "); set TMPDIR to a directory that exists, is writable and has room");
  };
  do {
    path_ = parent + "/" + std::string(kPrefix) + std::string(kPattern);
    if (mkdtemp(path_.data()) == nullptr) refuse(errno);
    lock_ = open_directory(path_);
    if (!lock_ && errno != ENOENT) refuse(errno);
    while (lock_ && flock(lock_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
    // Another process may have taken it for abandoned before it was locked.
  } while (!lock_ || !is_there(path_, lock_));
}

TemporaryDirectory::~TemporaryDirectory() { remove_tree(path_); }

}  // namespace truefuse::jit
