#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <set>
#include <string.h>

#include <truefuse/jit/elf.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/shared_library.h>

namespace truefuse::jit {
namespace {

namespace fs = std::filesystem;

void append_directories(std::vector<std::string>& directories, std::string_view list,
                        const std::string& origin) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, std::min(list.find(':'), list.size()));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    std::string directory(item);
    for (const std::string_view variable : {"${ORIGIN}", "$ORIGIN"}) {
      if (const std::size_t at = directory.find(variable); at != std::string::npos) {
        directory.replace(at, variable.size(), origin);
      }
    }
    if (directory.starts_with('/')) directories.push_back(directory);
  }
}

/// Where the loader looks for the dependencies of a library, in its order.
std::vector<std::string> loader_directories(const Elf& elf, const std::string& library_path) {
  const std::string origin = fs::path(library_path).parent_path().string();
  std::vector<std::string> directories;
  const std::vector<std::string> runpath = elf.dynamic(Elf::kRunpath);
  if (runpath.empty()) {
    for (const std::string& list : elf.dynamic(Elf::kRpath)) {
      append_directories(directories, list, origin);
    }
  }
  if (const char* list = std::getenv("LD_LIBRARY_PATH"))
    append_directories(directories, list, origin);
  for (const std::string& list : runpath) append_directories(directories, list, origin);
  for (std::string& directory : system_library_directories()) {
    directories.push_back(std::move(directory));
  }
  return directories;
}

std::string resolve(const std::string& name, const std::vector<std::string>& directories,
                    const std::vector<std::string>& mapped) {
  // A library that is already mapped under this name is the one the loader will use.
  for (const std::string& path : mapped) {
    if (fs::path(path).filename() == name) return path;
  }
  for (const std::string& directory : directories) {
    std::error_code ignored;
    const std::string path = directory + "/" + name;
    if (fs::is_regular_file(path, ignored)) return path;
  }
  return {};
}

}  // namespace

std::optional<SharedLibrary> SharedLibrary::open(const std::string& path, std::string* why) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* message = dlerror();
    if (why != nullptr) *why = message != nullptr ? message : "the loader gives no reason";
    return std::nullopt;
  }
  return SharedLibrary(handle, path);
}

void* SharedLibrary::address(const char* name) const { return dlsym(handle_, name); }

std::vector<std::string> mapped_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
          static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::vector<std::string> system_library_directories() {
  return {"/lib/x86_64-linux-gnu",
          "/usr/lib/x86_64-linux-gnu",
          "/lib64",
          "/usr/lib64",
          "/lib",
          "/usr/lib",
          "/usr/local/lib"};
}

std::string library_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path path = fs::canonical(info.dli_fname, ignored);
  return ignored ? std::string(info.dli_fname) : path.string();
}

bool exports(const std::string& library_path, std::string_view symbol) {
  const MappedFile file(library_path);
  const auto elf = Elf::parse(file.bytes());
  if (!elf) return false;
  const auto symbols = elf->symbols(Elf::kDynamicSymbols);
  return std::any_of(symbols.begin(), symbols.end(), [&](const Elf::Symbol& candidate) {
    return candidate.section != 0 && candidate.name == symbol;
  });
}

std::vector<std::string> dependencies(const std::string& root,
                                      const std::vector<std::string>& prefixes,
                                      bool in_this_process) {
  const std::vector<std::string> mapped =
      in_this_process ? mapped_libraries() : std::vector<std::string>{};
  std::vector<std::string> found;
  std::set<std::string> seen;  // Files, whatever the names they are found under.
  std::vector<std::string> pending = {root};
  while (!pending.empty()) {
    const std::string path = pending.back();
    pending.pop_back();
    const MappedFile file(path);
    const auto elf = Elf::parse(file.bytes());
    if (!elf) continue;
    const std::vector<std::string> directories = loader_directories(*elf, path);
    for (const std::string& name : elf->dynamic(Elf::kNeeded)) {
      if (std::none_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); })) {
        continue;
      }
      const std::string file_path = resolve(name, directories, mapped);
      if (file_path.empty()) continue;
      std::error_code ignored;
      if (!seen.insert(fs::canonical(file_path, ignored).string()).second) continue;
      found.push_back(file_path);
      pending.push_back(file_path);
    }
  }
  return found;
}

std::vector<std::string> versions_in(const std::string& directory, std::string_view stem) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const bool is_version = name.size() > stem.size() + 1 && name.starts_with(stem) &&
                            name[stem.size()] == '.' &&
                            name.find_first_not_of("0123456789.", stem.size()) == std::string::npos;
    if (name == stem || is_version) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    if ((a == stem) != (b == stem)) return a == stem;
    return strverscmp(a.c_str(), b.c_str()) > 0;
  });
  std::vector<std::string> paths;
  std::set<std::string> files;
  for (const std::string& name : names) {
    const fs::path file = fs::canonical(fs::path(directory) / name, ignored);
    if (!ignored && files.insert(file.string()).second) paths.push_back(directory + "/" + name);
  }
  return paths;
}

}  // namespace truefuse::jit
