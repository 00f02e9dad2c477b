#include <algorithm>
#include <array>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <truefuse/jit/elf.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

std::string identify(const std::string& path) {
  const MappedFile file(path);
  if (const auto elf = Elf::parse(file.bytes())) {
    if (const std::string id = elf->build_id(); !id.empty()) return "build-id:" + id;
  }
  return "sha256:" + sha256_hex(file.bytes());
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  struct stat status {};
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address != MAP_FAILED) bytes_ = {static_cast<const char*>(address), size};
  }
  close(descriptor);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

std::string file_identity(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "missing";
  using State = std::array<std::uint64_t, 7>;
  const State state = {static_cast<std::uint64_t>(status.st_dev),
                       static_cast<std::uint64_t>(status.st_ino),
                       static_cast<std::uint64_t>(status.st_size),
                       static_cast<std::uint64_t>(status.st_mtim.tv_sec),
                       static_cast<std::uint64_t>(status.st_mtim.tv_nsec),
                       static_cast<std::uint64_t>(status.st_ctim.tv_sec),
                       static_cast<std::uint64_t>(status.st_ctim.tv_nsec)};
  static std::mutex mutex;
  static std::map<State, std::string> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(state);
  if (found == known.end()) found = known.emplace(state, identify(path)).first;
  return found->second;
}

std::string directory_digest(const std::string& directory, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(name);
  }
  if (names.empty()) return {};
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names)
    text += name + " " + file_identity(directory + "/" + name) + "\n";
  return sha256_hex(text);
}

}  // namespace truefuse::jit
