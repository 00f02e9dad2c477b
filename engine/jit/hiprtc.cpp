#include <filesystem>

#include <truefuse/core/error.h>
#include <truefuse/jit/elf.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/hiprtc.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {
namespace {

/// LLVM inside hipRTC is one per process, whatever the number of compiler objects.
std::mutex& process_lock() {
  static std::mutex mutex;
  return mutex;
}

std::vector<std::string> arguments(const std::string& target,
                                   const std::vector<std::string>& options) {
  // Each option its own string, and always a target: without one, hipRTC loads a second HIP runtime
  // to ask for the device.
  std::vector<std::string> result = {"--offload-arch=" + target, "-std=c++17", "-O3"};
  result.insert(result.end(), options.begin(), options.end());
  return result;
}

}  // namespace

std::string HipRtc::version() const {
  // hiprtcVersion answers 9.0 for every release. The file's name tells more, where it is versioned.
  std::error_code ignored;
  const std::string file = std::filesystem::canonical(path_, ignored).filename().string();
  const std::size_t at = file.find(".so.");
  return at == std::string::npos ? "unknown" : file.substr(at + 4);
}

std::vector<std::pair<std::string, std::string>> HipRtc::identity() const {
  const std::vector<std::string> prefixes = {"libamdhip64",  "libhiprtc", "libamd_comgr",
                                             "libgalaxyhip", "libLLVM",   "libclang"};
  std::vector<std::pair<std::string, std::string>> parts = {
      {"compiler", "hipRTC"},
      {"arguments", joined(arguments("TARGET", {}))},
      {"hipRTC library", file_identity(path_)},
      {"comgr", comgr_path_.empty() ? "not found" : file_identity(comgr_path_)}};
  for (const std::string& file : dependencies(path_, prefixes)) {
    if (file != comgr_path_) parts.emplace_back("hipRTC dependency", file_identity(file));
  }
  if (!comgr_path_.empty()) {
    for (const std::string& file : dependencies(comgr_path_, prefixes)) {
      parts.emplace_back("comgr dependency", file_identity(file));
    }
  }
  // The header that is put in front of every source is a library beside hipRTC, opened by name.
  std::error_code ignored;
  const auto directory = std::filesystem::canonical(path_, ignored).parent_path().string();
  for (const std::string& file : versions_in(directory, "libhiprtc-builtins.so")) {
    parts.emplace_back("hipRTC builtins", file_identity(file));
  }
  for (auto& part :
       environment_parts({"HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH", "LLVM_PATH", "CPATH",
                          "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"},
                         {"HIPRTC_", "AMD_COMGR_"})) {
    parts.push_back(std::move(part));
  }
  return parts;
}

HelperRequest HipRtc::request_for(const Program& program, const std::string& target,
                                  const std::vector<std::string>& options) const {
  HelperRequest request;
  request.kind = RtcLibrary::Kind::hiprtc;
  // By path: the library may want it under a name that no file has, which the loader then knows.
  if (!comgr_path_.empty()) request.preload.push_back(comgr_path_);
  request.library = path_;
  request.target = target;
  request.options = arguments(target, options);
  request.program = program;
  return request;
}

std::string HipRtc::probe(const Arch& target, bool is_reported) {
  const std::scoped_lock lock(process_lock(), mutex_);
  if (!comgr_ && !comgr_path_.empty()) comgr_ = Comgr::open(comgr_path_);
  if (comgr_ && comgr_->knows(target.text)) return {};
  if (comgr_ && !is_reported) {
    std::string sentence = "hipRTC (" + path_ + ") does not compile for " + target.text;
    if (!target.features.empty() && comgr_->knows(target.base)) {
      return sentence + ": it knows " + target.base + ", but not with these features";
    }
    sentence += ": its code object manager (" + comgr_path_ + ") does not know this architecture";
    if (target.is_hygon) {
      sentence +=
          "; " + target.base +
          " is a Hygon DCU, which only the compilers of Hygon's DTK know (source its env.sh)";
    }
    return sentence;
  }
  try {
    compile_in_helper(request_for(probe_program(), target.text, {}));
    return {};
  } catch (const HelperUnavailable&) {
    // No answer about the target, and not remembered as one: TMPDIR may be full, for instance.
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

TargetChoices::Choice HipRtc::choose(std::string_view text) {
  const Arch arch = parse_arch_for(Vendor::amd, name(), text);
  return choices_.choose(
      arch, [this](const Arch& target, bool is_reported) { return probe(target, is_reported); });
}

std::string HipRtc::refusal(std::string_view arch) {
  try {
    return choose(arch).refusal;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string HipRtc::target_for(std::string_view arch) {
  const TargetChoices::Choice choice = choose(arch);
  if (choice.target.empty()) throw Error(choice.refusal);
  return choice.target;
}

CodeObject HipRtc::compile(const Program& program, std::string_view arch,
                           const std::vector<std::string>& options) {
  check_options(options);
  const std::string target = target_for(arch);
  return compile_apart(request_for(program, target, options), [&] {
    // hipRTC writes intermediate files and, where it cannot, fails without a word.
    { const TemporaryDirectory writable; }
    const std::scoped_lock lock(process_lock(), mutex_);
    if (!library_) library_.emplace(RtcLibrary::Kind::hiprtc, path_);
    return library_->compile(program, target, arguments(target, options));
  });
}

}  // namespace truefuse::jit
