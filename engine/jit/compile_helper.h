#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/jit/compiler.h>

namespace truefuse::jit {

/// What the compile helper, a program of its own, is asked to do: one hipRTC compile in a process
/// whose death harms nobody.
struct HelperRequest {
  std::vector<std::string> preload;  ///< Libraries to load first, by path: comgr.
  std::string hiprtc;                ///< Path of the library.
  std::string target;
  std::vector<std::string> options;  ///< Complete, with the target.
  Program program;
};

std::string serialize(const HelperRequest& request);
/// Nothing if the bytes are not one whole request.
std::optional<HelperRequest> parse_helper_request(std::string_view bytes);

/// What the helper answers on its standard output.
struct HelperReply {
  bool ok = false;
  CodeObject object;    ///< If ok.
  std::string message;  ///< Else.
};
std::string serialize(const HelperReply& reply);
std::optional<HelperReply> parse_helper_reply(std::string_view bytes);

/// Path of the helper: TRUEFUSE_COMPILE_HELPER, else `truefuse-compile-helper` in the directory of
/// the library that holds this function, in its `bin` or in `../bin`. Empty if there is none;
/// `looked_at` (optional) gets the places.
std::string find_compile_helper(std::string* looked_at = nullptr);

/// Compiles in the helper process. Throws Error: the compiler's words, or how the
/// helper ended, a signal or a hang included, or that there is no helper.
CodeObject compile_in_helper(const HelperRequest& request,
                             std::chrono::milliseconds time_limit = std::chrono::seconds(60));

}  // namespace truefuse::jit
