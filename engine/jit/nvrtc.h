#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/compiler.h>
#include <truefuse/jit/rtc_library.h>

namespace truefuse::jit {

/// NVIDIA's run-time compiler. Each compile has a process of its own, for there are kernels over
/// which it crashes or does not end. Gives cubins, which unlike PTX do not depend on the age of the
/// driver.
class Nvrtc final : public Compiler {
 public:
  /// `library` is an absolute path. It is loaded at the first use, not here.
  explicit Nvrtc(std::string library) : path_(std::move(library)) {}

  std::string name() const override { return "NVRTC"; }
  std::string version() const override;
  std::string path() const override { return path_; }
  std::vector<std::pair<std::string, std::string>> identity() const override;
  std::string refusal(std::string_view arch) override;
  void trust_reported(std::string_view arch) override { choices_.trust(arch); }
  std::string target_for(std::string_view arch) override;
  CodeObject compile(const Program& program, std::string_view arch,
                     const std::vector<std::string>& options) override;

 private:
  const RtcLibrary& library() const;
  CodeObject compile_for(const Program& program, const std::string& target,
                         const std::vector<std::string>& options) const;
  TargetChoices::Choice choose(const Arch& arch);
  /// Files named libnvrtc-builtins.so.* beside the library, which it opens by bare name.
  std::vector<std::string> builtins() const;

  std::string path_;
  mutable std::mutex mutex_;
  mutable std::optional<RtcLibrary> library_;
  TargetChoices choices_;
};

}  // namespace truefuse::jit
