#include <dlfcn.h>
#include <link.h>
#include <string_view>

#include <truefuse/core/error.h>
#include <truefuse/gpu/library.h>

namespace truefuse::gpu {
namespace {

bool names_library(std::string_view path, std::string_view name) {
  const std::size_t slash = path.rfind('/');
  const std::string_view base = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return base == name || (base.size() > name.size() && base.substr(0, name.size()) == name &&
                          base[name.size()] == '.');
}

std::string mapped_path(std::string_view name) {
  struct Search {
    std::string_view name;
    std::string path;
  } search{name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& state = *static_cast<Search*>(data);
        if (info->dlpi_name == nullptr || !names_library(info->dlpi_name, state.name)) return 0;
        state.path = info->dlpi_name;
        return 1;
      },
      &search);
  return search.path;
}

}  // namespace

Library::Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

std::optional<Library> Library::mapped(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string path = mapped_path(name);
    if (path.empty()) continue;
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)) return Library(handle, path);
  }
  return std::nullopt;
}

std::optional<Library> Library::open(std::initializer_list<const char*> names) {
  if (auto library = mapped(names)) return library;
  for (const char* name : names) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      const std::string path = mapped_path(name);
      return Library(handle, path.empty() ? name : path);
    }
  }
  return std::nullopt;
}

void* Library::find(const char* symbol) const { return dlsym(handle_, symbol); }

void* Library::require(const char* symbol) const {
  if (void* address = find(symbol)) return address;
  throw Error(path_ + " does not export " + symbol +
              ", which truefuse needs; is its version older than the floor (CUDA 11.8, ROCm 5.2)?");
}

}  // namespace truefuse::gpu
