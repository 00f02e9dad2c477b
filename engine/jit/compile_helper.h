#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/core/error.h>
#include <truefuse/jit/compiler.h>
#include <truefuse/jit/rtc_library.h>

namespace truefuse::jit {

/// What the helper writes to its standard output before it loads any compiler: it runs here, and
/// speaks this version. The number counts changes of the arguments, the request and the reply.
inline constexpr std::string_view kHelperGreeting = "truefuse compile helper 3\n";

/// What the compile helper, a program of its own, is asked to do: one compile by a run-time
/// compiler in a process whose death harms nobody.
struct HelperRequest {
  RtcLibrary::Kind kind = RtcLibrary::Kind::hiprtc;
  std::vector<std::string> preload;  ///< Libraries to load first, by path: comgr, builtins.
  std::string library;               ///< Path of the compiler.
  std::string target;
  std::vector<std::string> options;  ///< Complete, with the target.
  Program program;
};

std::string serialize(const HelperRequest& request);
/// Nothing if the bytes are not one whole request.
std::optional<HelperRequest> parse_helper_request(std::string_view bytes);

/// What the helper answers on its standard output, after its greeting.
struct HelperReply {
  bool loaded = false;  ///< Whether the compiler could be loaded there.
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

/// There is no helper, or none that runs or can load the compiler; nothing is known about the
/// program.
struct HelperUnavailable : Error {
  using Error::Error;
};

/// Compiles in the helper process. Throws Error: the compiler's words, or how the
/// helper ended, a signal or a hang included. Throws HelperUnavailable.
CodeObject compile_in_helper(const HelperRequest& request,
                             std::chrono::milliseconds time_limit = std::chrono::seconds(60));

/// The same with more time, and by `compile_here` where the helper is unavailable: a library may be
/// found only by a process that PyTorch is in.
CodeObject compile_apart(const HelperRequest& request,
                         const std::function<CodeObject()>& compile_here);

}  // namespace truefuse::jit
