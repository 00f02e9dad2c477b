#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/jit/comgr.h>
#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/compiler.h>
#include <truefuse/jit/rtc_library.h>

namespace truefuse::jit {

/// AMD's run-time compiler (and Hygon's, which has the same interface). hipRTC is not safe to call
/// from several threads, and ends the process when it is given an architecture that it does not
/// know, or some kernels. So each compile has a process of its own; where that cannot be, one lock
/// is held around it here. An architecture reaches the library only after comgr has said that it
/// knows it, or after a compile of one line has succeeded. The latter is what decides for
/// architectures that a device has reported: no comgr from AMD knows the names of Hygon's devices.
class HipRtc final : public Compiler {
 public:
  /// Absolute paths; `comgr` may be empty. Nothing is loaded before the first use.
  HipRtc(std::string library, std::string comgr)
      : path_(std::move(library)), comgr_path_(std::move(comgr)) {}

  std::string name() const override { return "hipRTC"; }
  std::string version() const override;
  std::string path() const override { return path_; }
  std::vector<std::pair<std::string, std::string>> identity() const override;
  std::string refusal(std::string_view arch) override;
  void trust_reported(std::string_view arch) override { choices_.trust(arch); }
  std::string target_for(std::string_view arch) override;
  CodeObject compile(const Program& program, std::string_view arch,
                     const std::vector<std::string>& options) override;

 private:
  TargetChoices::Choice choose(std::string_view arch);
  std::string probe(const Arch& target, bool is_reported);
  HelperRequest request_for(const Program& program, const std::string& target,
                            const std::vector<std::string>& options) const;

  std::string path_;
  std::string comgr_path_;
  mutable std::mutex mutex_;  ///< Guards the two below.
  std::optional<Comgr> comgr_;
  std::optional<RtcLibrary> library_;
  TargetChoices choices_;
};

}  // namespace truefuse::jit
