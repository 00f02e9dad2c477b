#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <truefuse/jit/cache_directory.h>

namespace truefuse::jit {
namespace {

constexpr std::uint64_t kFuse = 0x65735546;

struct FileSystem {
  std::uint64_t type;
  std::string_view name;
};

// Numbers as statfs(2) reports them.
constexpr std::array kNetwork{
    FileSystem{0x6969, "NFS"},          FileSystem{0x517b, "SMB"},
    FileSystem{0xff534d42, "CIFS"},     FileSystem{0xfe534d42, "SMB2"},
    FileSystem{0x0bd00bd0, "Lustre"},   FileSystem{0x47504653, "GPFS"},
    FileSystem{0x19830326, "BeeGFS"},   FileSystem{0x00c36400, "CephFS"},
    FileSystem{0x5346414f, "AFS"},      FileSystem{0x73757245, "Coda"},
    FileSystem{0x01021997, "9P"},       FileSystem{0xaad7aaea, "PanFS"},
    FileSystem{0x20030528, "OrangeFS"}, FileSystem{0x01161970, "GFS2"},
    FileSystem{0x7461636f, "OCFS2"},
};

// FUSE file systems that are local; every other one is taken for remote.
constexpr std::array<std::string_view, 7> kLocalFuse{
    "fuseblk",      "fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.bindfs",
    "fuse.ntfs-3g", "fuse.exfat",          "virtiofs"};

// Makes every missing directory on the way. Returns 0, or an errno value.
int make_directories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (::mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST &&
        (slash == std::string::npos || ::access(path.substr(0, slash).c_str(), F_OK) != 0)) {
      return errno;
    }
    if (slash == std::string::npos) return 0;
  }
}

std::string octal(unsigned mode) {
  std::string digits;
  for (int shift = 9; shift >= 0; shift -= 3)
    digits += static_cast<char>('0' + (mode >> shift) % 8);
  return digits;
}

std::string user(unsigned id) { return "user " + std::to_string(id); }

std::string_view network_file_system_of(int fd, const struct stat& status) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return "unknown";
  // f_type is signed and 32 or 64 bits wide.
  const auto type = static_cast<std::uint64_t>(static_cast<std::uint32_t>(system.f_type));
  if (type != kFuse) return network_file_system(type, {});
  std::ifstream file("/proc/self/mountinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return network_file_system(type, mount_type(text, major(status.st_dev), minor(status.st_dev)));
}

}  // namespace

std::string_view network_file_system(std::uint64_t type, std::string_view fuse_type) {
  for (const FileSystem& system : kNetwork) {
    if (system.type == type) return system.name;
  }
  if (type != kFuse) return {};
  for (const std::string_view local : kLocalFuse) {
    if (fuse_type == local) return {};
  }
  return "FUSE";
}

std::string_view mount_type(std::string_view mountinfo, std::uint32_t major, std::uint32_t minor) {
  // "36 35 98:0 /root /mount/point options optional... - type source options"
  const std::string device = std::to_string(major) + ":" + std::to_string(minor);
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first == line.npos ? first : first + 1);
    const std::size_t separator = line.find(" - ");
    if (second == line.npos || separator == line.npos) continue;
    const std::string_view rest = line.substr(second + 1);
    if (rest.substr(0, rest.find(' ')) != device) continue;
    const std::string_view type = line.substr(separator + 3);
    return type.substr(0, type.find(' '));
  }
  return {};
}

bool is_trusted_file(std::uint32_t owner, std::uint32_t mode) {
  return (owner == ::geteuid() || owner == 0) && (mode & 022) == 0;
}

CacheDirectory open_cache_directory(std::string path, IfMissing if_missing) {
  CacheDirectory directory;
  directory.exists = true;
  // A slash at the end would follow a symbolic link.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!path.starts_with('/')) {
    directory.problem = "its path is not absolute";
    return directory;
  }
  const auto open = [&] {
    return Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  Descriptor fd = open();
  if (!fd && errno == ENOENT) {
    directory.exists = false;
    if (if_missing == IfMissing::leave) {
      directory.problem = "it does not exist";
      return directory;
    }
    if (const int error = make_directories(path); error != 0) {
      directory.problem = "it cannot be made (" + error_words(error) + ")";
      return directory;
    }
    fd = open();
  }
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    const int error = errno;
    const bool is_link = ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
    directory.problem = is_link ? "it is a symbolic link; name the directory that it points to"
                                : "it cannot be opened (" + error_words(error) + ")";
    return directory;
  }
  const uid_t self = ::geteuid();
  if (!is_trusted_file(status.st_uid, status.st_mode)) {
    directory.problem =
        (status.st_mode & 022) != 0
            ? "others than its owner can write it (mode " + octal(status.st_mode & 07777) +
                  "); run chmod 700 on it if all files in it are yours"
            : "it belongs to " + user(status.st_uid) + ", but this process runs as " + user(self);
    return directory;
  }
  const std::string_view network = network_file_system_of(fd.get(), status);
  if (status.st_uid != self) {
    directory.problem = "it belongs to " + user(status.st_uid);
  } else if (!network.empty()) {
    directory.problem = "it is on a network file system (" + std::string(network) + ")";
  } else if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    directory.problem = "it cannot be written (" + error_words(errno) + ")";
  } else {
    directory.writable = true;
  }
  directory.fd = std::move(fd);
  return directory;
}

}  // namespace truefuse::jit
