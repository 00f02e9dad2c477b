#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <truefuse/jit/file.h>

namespace truefuse::jit {

void Descriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string error_words(int error) { return std::generic_category().message(error); }

int read_all(int fd, std::size_t limit, std::string* bytes) {
  bytes->resize(limit);
  std::size_t have = 0;
  while (have < limit) {
    const ssize_t got = ::pread(fd, bytes->data() + have, limit - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes->resize(have);
  return 0;
}

int write_all(int fd, std::string_view bytes) {
  // Writing past the limit would raise SIGXFSZ, which ends the process. It is a limit of files, not
  // of pipes.
  rlimit limit{};
  struct stat file {};
  if (::fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
      bytes.size() > limit.rlim_cur) {
    return EFBIG;
  }
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  // Opened anew, because reading moves the position of a shared descriptor.
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = fd >= 0 ? ::fdopendir(fd) : nullptr;
  if (stream == nullptr) {
    if (fd >= 0) ::close(fd);
    return names;
  }
  while (const dirent* entry = ::readdir(stream)) names.emplace_back(entry->d_name);
  ::closedir(stream);
  return names;
}

}  // namespace truefuse::jit
