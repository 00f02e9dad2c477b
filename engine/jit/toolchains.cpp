#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/core/json.h>
#include <truefuse/jit/arch.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/hipcc.h>
#include <truefuse/jit/hiprtc.h>
#include <truefuse/jit/nvcc.h>
#include <truefuse/jit/nvrtc.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/shared_library.h>
#include <truefuse/jit/toolchains.h>

namespace truefuse::jit {
namespace {

namespace fs = std::filesystem;

/// Nothing if the variable is not set; else its value, as an absolute path to a file, or empty.
std::optional<std::string> named_by(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  std::error_code ignored;
  const fs::path path = fs::absolute(value, ignored);
  return fs::is_regular_file(path, ignored) ? path.string() : std::string();
}

/// Directories `parent`/NAME/`below` with NAME beginning with `prefix`: the bare name first, then
/// the highest version first.
std::vector<std::string> installations(const std::string& parent, const std::string& prefix,
                                       const std::string& below) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(parent, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    if ((a == prefix) != (b == prefix)) return a == prefix;
    return strverscmp(a.c_str(), b.c_str()) > 0;
  });
  std::vector<std::string> directories;
  for (const std::string& name : names) {
    std::string directory = parent + "/" + name + "/" + below;
    if (fs::is_directory(directory, ignored)) directories.push_back(std::move(directory));
  }
  return directories;
}

void append(std::vector<std::string>& list, std::vector<std::string> more) {
  for (std::string& item : more) list.push_back(std::move(item));
}

std::vector<std::string> rocm_directories(const char* below) {
  std::vector<std::string> directories = installations("/opt", "rocm", below);
  append(directories, installations("/opt", "dtk", below));
  append(directories, installations("/opt", "dtk", std::string("hip/") + below));
  return directories;
}

std::string mapped(std::string_view stem) {
  for (const std::string& path : mapped_libraries()) {
    const std::string name = fs::path(path).filename().string();
    if (name == stem || name.starts_with(std::string(stem) + ".")) return path;
  }
  return {};
}

std::string find_executable(const char* variable, const char* name,
                            const std::vector<std::string>& directories) {
  if (const auto named = named_by(variable)) return *named;
  if (std::string path = find_program(name); !path.empty()) return path;
  for (const std::string& directory : directories) {
    std::string path = directory + "/" + name;
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

/// One object per kind and path. They are never destroyed: at the end of a process the libraries
/// behind them may be gone already.
std::shared_ptr<Compiler> shared(const std::string& kind, const std::string& path,
                                 const std::function<std::shared_ptr<Compiler>()>& make) {
  static auto& mutex = *new std::mutex;
  static auto& compilers = *new std::map<std::string, std::shared_ptr<Compiler>>;
  const std::lock_guard lock(mutex);
  auto& compiler = compilers[kind + " " + path];
  if (!compiler) compiler = make();
  return compiler;
}

struct Kind {
  const char* name;
  Vendor vendor;
  const char* variable;
  std::vector<std::string> probe_archs;  // The first that works is shown.
  const char* remedy;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"NVRTC",
       Vendor::nvidia,
       "TRUEFUSE_NVRTC",
       {"sm_80", "sm_90"},
       "pip install nvidia-cuda-nvrtc"},
      {"hipRTC",
       Vendor::amd,
       "TRUEFUSE_HIPRTC",
       {"gfx906", "gfx90a", "gfx936"},
       "Debian, Ubuntu: apt-get install hipcc libamdhip64-dev rocm-device-libs; Hygon DCU: source "
       "the "
       "env.sh of DTK (without set -u) before starting"},
      {"nvcc",
       Vendor::nvidia,
       "TRUEFUSE_NVCC",
       {"sm_80", "sm_90"},
       "install the CUDA toolkit and g++, and put nvcc into PATH"},
      {"hipcc",
       Vendor::amd,
       "TRUEFUSE_HIPCC",
       {"gfx906", "gfx90a", "gfx936"},
       "Debian, Ubuntu: apt-get install hipcc libamdhip64-dev rocm-device-libs; Hygon DCU: source "
       "the "
       "env.sh of DTK (without set -u) before starting"}};
  return list;
}

std::shared_ptr<Compiler> make(const Kind& kind, const SearchPaths& paths) {
  const std::string name = kind.name;
  if (name == "NVRTC") {
    const std::string path = find_nvrtc(paths);
    if (path.empty()) return nullptr;
    return shared(name, path, [&] { return std::make_shared<Nvrtc>(path); });
  }
  if (name == "hipRTC") {
    const std::string path = find_hiprtc(paths);
    if (path.empty()) return nullptr;
    return shared(name, path, [&] {
      std::vector<std::string> directories = {paths.torch_lib_dir};
      append(directories, rocm_directories("lib"));
      append(directories, system_library_directories());
      return std::make_shared<HipRtc>(path, find_comgr(path, directories));
    });
  }
  const std::string path = name == "nvcc" ? find_nvcc() : find_hipcc();
  if (path.empty()) return nullptr;
  return shared(name, path, [&]() -> std::shared_ptr<Compiler> {
    if (name == "nvcc") return std::make_shared<Nvcc>(path);
    return std::make_shared<Hipcc>(path);
  });
}

std::string not_found(const Kind& kind) {
  const char* named = std::getenv(kind.variable);
  if (named != nullptr && *named != '\0') {
    return std::string(kind.name) + " not found: " + kind.variable + "=" + named + " is no file";
  }
  return std::string(kind.name) + " not found";
}

/// Compiles a line with it, if it is there.
Finding find(const Kind& kind, const SearchPaths& paths) {
  Finding finding;
  finding.name = kind.name;
  try {
    if (const auto compiler = make(kind, paths)) {
      finding.path = compiler->path();
      finding.version = compiler->version();
      for (const std::string& arch : kind.probe_archs) {
        if (finding.works) break;
        finding.arch = arch;
        try {
          compiler->compile(probe_program(), arch, {});
          finding.works = true;
          finding.problem.clear();
        } catch (const Error& error) {
          if (finding.problem.empty()) finding.problem = error.what();
        }
      }
    } else {
      finding.problem = not_found(kind);
    }
  } catch (const Error& error) {
    finding.problem = error.what();
  }
  if (finding.works && !may_be_used(kind.name)) {
    finding.problem = "it works, but is not used because TRUEFUSE_RTC=0 is set";
  }
  if (!finding.works) finding.remedy = kind.remedy;
  return finding;
}

}  // namespace

bool rtc_allowed() {
  const char* value = std::getenv("TRUEFUSE_RTC");
  return value == nullptr || std::string_view(value) != "0";
}

bool may_be_used(std::string_view compiler) { return !compiler.ends_with("RTC") || rtc_allowed(); }

bool is_any_named(std::string_view arch) {
  const Vendor vendor = parse_arch(arch).vendor;
  return std::any_of(kinds().begin(), kinds().end(), [&](const Kind& kind) {
    return kind.vendor == vendor && named_by(kind.variable).has_value();
  });
}

std::vector<std::vector<std::pair<std::string, std::string>>> instructions_for(
    std::string_view arch) {
  if (parse_arch(arch).vendor == Vendor::nvidia) {
    return {Nvrtc({}).instructions(), Nvcc({}).instructions()};
  }
  return {HipRtc({}, {}).instructions(), Hipcc({}).instructions()};
}

std::string find_nvrtc(const SearchPaths& paths) {
  if (const auto named = named_by("TRUEFUSE_NVRTC")) return *named;
  if (std::string path = mapped("libnvrtc.so"); !path.empty()) return path;
  // PyTorch opens NVRTC through this library at its first use, so it is not mapped yet. Its own
  // search path says which copy that would be.
  if (!paths.torch_lib_dir.empty()) {
    for (const std::string& path :
         dependencies(paths.torch_lib_dir + "/libcaffe2_nvrtc.so", {"libnvrtc.so"})) {
      return path;
    }
  }
  std::vector<std::string> directories;
  if (!paths.torch_lib_dir.empty()) directories.push_back(paths.torch_lib_dir);
  for (const std::string& site : paths.python_site_dirs) {
    // Packages for CUDA 13 and later share nvidia/cu13 and so on; earlier ones have their own.
    for (std::string& directory : installations(site + "/nvidia", "cu", "lib")) {
      if (directory.find_first_of("0123456789", site.size()) == site.size() + 10) {
        directories.push_back(std::move(directory));
      }
    }
    directories.push_back(site + "/nvidia/cuda_nvrtc/lib");
  }
  append(directories, installations("/usr/local", "cuda", "lib64"));
  append(directories, installations("/usr/local", "cuda", "targets/x86_64-linux/lib"));
  append(directories, system_library_directories());
  for (const std::string& directory : directories) {
    const std::vector<std::string> found = versions_in(directory, "libnvrtc.so");
    if (!found.empty()) return found.front();
  }
  return {};
}

std::string find_hiprtc(const SearchPaths& paths) {
  if (const auto named = named_by("TRUEFUSE_HIPRTC")) return *named;
  constexpr std::string_view kFunction = "hiprtcCreateProgram";
  // A library of its own in newer releases, a part of the runtime in older ones and perhaps in DTK.
  const std::vector<std::string> stems = {"libhiprtc.so", "libamdhip64.so", "libgalaxyhip.so"};
  for (const std::string& stem : stems) {
    const std::string path = mapped(stem);
    if (!path.empty() && exports(path, kFunction)) return path;
  }
  std::vector<std::string> directories;
  if (!paths.torch_lib_dir.empty()) directories.push_back(paths.torch_lib_dir);
  // Beside the runtime that is mapped: never a second stack where one is in use.
  for (const char* runtime : {"libgalaxyhip.so", "libamdhip64.so"}) {
    if (const std::string path = mapped(runtime); !path.empty()) {
      directories.push_back(fs::path(path).parent_path().string());
    }
  }
  for (const std::string& site : paths.python_site_dirs) {
    directories.push_back(site + "/_rocm_sdk_core/lib");
  }
  append(directories, rocm_directories("lib"));
  append(directories, system_library_directories());
  for (const std::string& directory : directories) {
    for (const std::string& stem : stems) {
      for (std::string& path : versions_in(directory, stem)) {
        if (exports(path, kFunction)) return path;
      }
    }
  }
  return {};
}

std::string find_nvcc() {
  return find_executable("TRUEFUSE_NVCC", "nvcc", installations("/usr/local", "cuda", "bin"));
}

std::string find_hipcc() {
  return find_executable("TRUEFUSE_HIPCC", "hipcc", rocm_directories("bin"));
}

std::vector<std::shared_ptr<Compiler>> compilers_for(std::string_view arch,
                                                     const SearchPaths& paths,
                                                     std::string_view preference) {
  const Vendor vendor = parse_arch(arch).vendor;
  if (!preference.empty() && std::none_of(kinds().begin(), kinds().end(), [&](const Kind& kind) {
        return preference == kind.name;
      })) {
    throw Error("compiler \"" + std::string(preference) +
                "\" is not known; choose NVRTC, hipRTC, nvcc or hipcc");
  }
  std::vector<std::shared_ptr<Compiler>> compilers;
  for (const Kind& kind : kinds()) {
    if (kind.vendor != vendor || (!preference.empty() && preference != kind.name)) continue;
    if (!may_be_used(kind.name)) continue;
    if (auto compiler = make(kind, paths)) compilers.push_back(std::move(compiler));
  }
  return compilers;
}

std::shared_ptr<Compiler> compiler_for(std::string_view arch, const SearchPaths& paths,
                                       std::string_view preference, bool is_reported) {
  std::string refusals;
  std::vector<std::string> tried;
  for (const auto& compiler : compilers_for(arch, paths, preference)) {
    if (is_reported) compiler->trust_reported(arch);
    const std::string refusal = compiler->refusal(arch);
    if (refusal.empty()) return compiler;
    tried.push_back(compiler->name());
    refusals += "\n  " + refusal;
  }
  const Vendor vendor = parse_arch(arch).vendor;
  for (const Kind& kind : kinds()) {
    if (kind.vendor != vendor || std::find(tried.begin(), tried.end(), kind.name) != tried.end()) {
      continue;
    }
    if (!preference.empty() && preference != kind.name) {
      refusals += std::string("\n  ") + kind.name + " was not asked, because " +
                  std::string(preference) + " was chosen";
    } else if (!may_be_used(kind.name)) {
      refusals += std::string("\n  ") + kind.name + " was not asked, because TRUEFUSE_RTC=0 is set";
    } else {
      refusals += "\n  " + not_found(kind) + " (" + kind.remedy + ")";
    }
  }
  throw Error("no compiler here compiles for " + std::string(arch) + ":" + refusals);
}

std::vector<Finding> find_toolchains(const SearchPaths& paths) {
  // All at once: each has a process of its own.
  std::vector<std::future<Finding>> asked;
  for (const Kind& kind : kinds()) {
    asked.push_back(std::async(std::launch::async, [&kind, &paths] { return find(kind, paths); }));
  }
  std::vector<Finding> findings;
  for (std::future<Finding>& one : asked) findings.push_back(one.get());
  return findings;
}

std::string to_json(const std::vector<Finding>& findings) {
  JsonWriter json;
  json.begin_array();
  for (const Finding& finding : findings) {
    json.begin_object();
    json.key("name").string(finding.name).key("found").boolean(!finding.path.empty());
    json.key("path").string(finding.path).key("version").string(finding.version);
    json.key("default_arch").string(finding.arch);
    json.key("works").boolean(finding.works).key("problem").string(finding.problem);
    json.key("remedy").string(finding.remedy).end_object();
  }
  json.end_array();
  return json.text();
}

}  // namespace truefuse::jit
