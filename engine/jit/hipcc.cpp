#include <filesystem>

#include <truefuse/core/error.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/hipcc.h>
#include <truefuse/jit/offload_bundle.h>

namespace truefuse::jit {

std::vector<std::string> Hipcc::arguments(const std::string& target,
                                          const std::vector<std::string>& options,
                                          const std::string& input,
                                          const std::string& output) const {
  std::vector<std::string> result = {"--genco", "--offload-arch=" + target, "-std=c++17", "-O3",
                                     "-I."};
  result.insert(result.end(), options.begin(), options.end());
  result.insert(result.end(), {"-o", output, input});
  return result;
}

std::vector<std::pair<std::string, std::string>> Hipcc::environment() const {
  // Where it finds no program called clang++ but an nvcc, it would compile for NVIDIA.
  return {{"HIP_PLATFORM", "amd"}};
}

std::string Hipcc::extract(std::string output, const std::string& target) const {
  if (is_compressed_bundle(output)) {
    throw Error(
        "hipcc wrote a compressed bundle; set HIPCC_COMPILE_FLAGS_APPEND=--no-offload-compress");
  }
  const auto object = unbundle(output, target);
  if (!object) {
    throw Error("hipcc reported success but its output holds no code object for " + target);
  }
  return std::string(*object);
}

std::string Hipcc::version_in(const std::string& text) const {
  // "HIP version: 5.2.21153-0"
  constexpr std::string_view kLabel = "HIP version: ";
  const std::size_t at = text.find(kLabel);
  if (at == std::string::npos) return "unknown";
  return text.substr(at + kLabel.size(), text.find('\n', at) - at - kLabel.size());
}

std::vector<ProgramCompiler::Queries> Hipcc::queries(const std::string& input) const {
  // The answers do not depend on the target, but one that is supported must be named: without any,
  // hipcc asks the devices of this machine.
  std::vector<Queries> result;
  for (const char* arch : {"gfx906", "gfx90a", "gfx936"}) {
    const std::string target = std::string("--offload-arch=") + arch;
    result.push_back({{"-###", "--genco", target, "-std=c++17", "-O3", "-o", "unused", input},
                      {"-M", "--genco", target, "-std=c++17", "-O3", input}});
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> Hipcc::more_identity() const {
  auto parts =
      environment_parts({"HIP_CLANG_PATH", "HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH", "HIP_PATH",
                         "ROCM_PATH", "HSA_PATH", "HIP_ROCCLR_HOME", "HIP_LIB_PATH", "HIP_COMPILER",
                         "HIP_RUNTIME", "HIP_COMPILE_CXX_AS_HIP", "HIP_CLANG_HCC_COMPAT_MODE",
                         "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"},
                        {"HIPCC_"});
  // hipcc is often a few lines that start one of these.
  std::error_code ignored;
  const auto directory = std::filesystem::canonical(path(), ignored).parent_path();
  for (const char* name : {"hipcc.pl", "hipcc.bin", "hipvars.pm"}) {
    const std::string file = (directory / name).string();
    if (std::filesystem::is_regular_file(file, ignored)) {
      parts.emplace_back(std::string("hipcc uses ") + name, file_identity(file));
    }
  }
  return parts;
}

}  // namespace truefuse::jit
