#include <algorithm>
#include <filesystem>

#include <truefuse/core/error.h>
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
      rtc.compile(probe_program(), target.text, arguments(target.text, {}));
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
  return library().compile(program, target, arguments(target, options));
}

}  // namespace truefuse::jit
