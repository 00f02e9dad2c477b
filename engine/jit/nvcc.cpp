#include <truefuse/jit/nvcc.h>

namespace truefuse::jit {

std::vector<std::string> Nvcc::arguments(const std::string& target,
                                         const std::vector<std::string>& options,
                                         const std::string& input,
                                         const std::string& output) const {
  std::vector<std::string> result = {"-cubin", "-arch=" + target, "-std=c++17", "-Xptxas=-v",
                                     "-I."};
  result.insert(result.end(), options.begin(), options.end());
  result.insert(result.end(), {"-o", output, input});
  return result;
}

std::string Nvcc::version_in(const std::string& text) const {
  // "Cuda compilation tools, release 13.0, V13.0.88"
  const std::size_t at = text.find(", V");
  return at == std::string::npos ? "unknown" : text.substr(at + 3, text.find('\n', at) - at - 3);
}

std::vector<ProgramCompiler::Queries> Nvcc::queries(const std::string& input) const {
  return {
      {{"-dryrun", "-cubin", "-std=c++17", "-o", "unused", input}, {"-M", "-std=c++17", input}}};
}

std::vector<std::pair<std::string, std::string>> Nvcc::more_identity() const {
  return environment_parts({"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH",
                            "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"},
                           {});
}

}  // namespace truefuse::jit
