#include <algorithm>
#include <filesystem>

#include <truefuse/jit/comgr.h>
#include <truefuse/jit/elf.h>
#include <truefuse/jit/file_identity.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kStem = "libamd_comgr.so";

/// "libamd_comgr.so.2": as a dependency, or as the text that a later dlopen is given.
std::string wanted_name(const std::string& hiprtc) {
  const MappedFile file(hiprtc);
  if (const auto elf = Elf::parse(file.bytes())) {
    for (const std::string& name : elf->dynamic(Elf::kNeeded)) {
      if (name.starts_with(kStem)) return name;
    }
  }
  const std::size_t at = file.bytes().find(kStem);
  if (at == std::string_view::npos) return std::string(kStem);
  const std::string_view rest = file.bytes().substr(at);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.", kStem.size())));
}

bool is_called(const std::string& path, const std::string& name) {
  if (name == kStem) return true;  // Any version.
  const MappedFile file(path);
  const auto elf = Elf::parse(file.bytes());
  if (!elf) return false;
  const std::vector<std::string> names = elf->dynamic(Elf::kSoname);
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<Comgr> Comgr::open(const std::string& path) {
  auto library = SharedLibrary::open(path);
  if (!library) return std::nullopt;
  Comgr comgr(*library);
  comgr.metadata_ = library->function<int(const char*, Node*)>("amd_comgr_get_isa_metadata");
  comgr.destroy_ = library->function<int(Node)>("amd_comgr_destroy_metadata");
  if (comgr.metadata_ == nullptr || comgr.destroy_ == nullptr) return std::nullopt;
  return comgr;
}

bool Comgr::knows(const std::string& arch) const {
  Node node{};
  if (metadata_(("amdgcn-amd-amdhsa--" + arch).c_str(), &node) != 0) return false;
  destroy_(node);
  return true;
}

std::string find_comgr(const std::string& hiprtc,
                       const std::vector<std::string>& more_directories) {
  const std::string name = wanted_name(hiprtc);
  std::vector<std::string> candidates;
  for (const std::string& path : mapped_libraries()) {
    if (std::filesystem::path(path).filename().string().starts_with(kStem))
      candidates.push_back(path);
  }
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(hiprtc, ignored);
  std::vector<std::string> directories = {std::filesystem::path(hiprtc).parent_path().string(),
                                          real.parent_path().string()};
  directories.insert(directories.end(), more_directories.begin(), more_directories.end());
  for (const std::string& directory : directories) {
    for (std::string& path : versions_in(directory, kStem)) candidates.push_back(std::move(path));
  }
  for (std::string& path : dependencies(hiprtc, {std::string(kStem)})) {
    candidates.push_back(std::move(path));
  }
  for (const std::string& path : candidates) {
    if (is_called(path, name)) return path;
  }
  return {};
}

}  // namespace truefuse::jit
