#include <algorithm>
#include <filesystem>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/nvrtc.h>

namespace truefuse::jit {
namespace {

std::vector<std::string> arguments(const std::string& target,
                                   const std::vector<std::string>& options) {
  std::vector<std::string> result = {"--gpu-architecture=" + target, "--std=c++17"};
  result.insert(result.end(), options.begin(), options.end());
  return result;
}

}  // namespace

std::vector<std::string> Nvrtc::builtins() const {
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(path_, ignored);
  const std::string directory =
      (ignored ? std::filesystem::path(path_) : real).parent_path().string();
  return versions_in(directory, "libnvrtc-builtins.so");
}

const RtcLibrary& Nvrtc::library() const {
  const std::lock_guard lock(mutex_);
  if (!library_) {
    // The library looks for its builtins by bare name only; one that is loaded already is found.
    for (const std::string& file : builtins()) SharedLibrary::open(file);
    library_.emplace(RtcLibrary::Kind::nvrtc, path_);
  }
  return *library_;
}

std::string Nvrtc::version() const { return library().version(); }

std::vector<std::pair<std::string, std::string>> Nvrtc::identity() const {
  std::vector<std::pair<std::string, std::string>> parts = {
      {"compiler", "NVRTC"},
      {"arguments", joined(arguments("TARGET", {}))},
      {"NVRTC library", file_identity(path_)}};
  for (const std::string& file : builtins()) {
    parts.emplace_back("NVRTC builtins", file_identity(file));
  }
  for (auto& part : environment_parts({}, {"NVRTC_"})) parts.push_back(std::move(part));
  return parts;
}

CodeObject Nvrtc::compile_for(const Program& program, const std::string& target,
                              const std::vector<std::string>& options) const {
  HelperRequest request;
  request.kind = RtcLibrary::Kind::nvrtc;
  request.preload = builtins();
  request.library = path_;
  request.target = target;
  request.options = arguments(target, options);
  request.program = program;
  return compile_apart(request,
                       [&] { return library().compile(program, target, request.options); });
}

TargetChoices::Choice Nvrtc::choose(const Arch& arch) {
  const RtcLibrary& rtc = library();  // One that cannot be loaded is no answer about a target.
  return choices_.choose(arch, [&](const Arch& target, bool) -> std::string {
    const std::vector<int> known = rtc.supported_archs();
    if (!known.empty() && std::find(known.begin(), known.end(), target.number) == known.end()) {
      std::string list;
      for (const int number : known) list += (list.empty() ? "" : ", ") + std::to_string(number);
      return "NVRTC " + version() + " (" + path_ + ") does not compile for " + target.text +
             "; it knows sm_ " + list;
    }
    // The list holds numbers only; whether a suffix exists for one is seen by compiling.
    if (!known.empty() && target.suffix == 0) return {};
    try {
      compile_for(probe_program(), target.text, {});
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  });
}

std::string Nvrtc::refusal(std::string_view arch) {
  try {
    return choose(parse_arch_for(Vendor::nvidia, name(), arch)).refusal;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string Nvrtc::target_for(std::string_view text) {
  const Arch arch = parse_arch_for(Vendor::nvidia, name(), text);
  // Only for reported ones may the target differ; for others the compile itself will tell.
  if (!choices_.is_trusted(arch)) return arch.text;
  const TargetChoices::Choice choice = choose(arch);
  if (choice.target.empty()) throw Error(choice.refusal);
  return choice.target;
}

CodeObject Nvrtc::compile(const Program& program, std::string_view arch,
                          const std::vector<std::string>& options) {
  check_options(options);
  const std::string target = target_for(arch);
  return compile_for(program, target, options);
}

}  // namespace truefuse::jit
