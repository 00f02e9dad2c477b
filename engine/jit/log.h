#pragma once

#include <string>
#include <string_view>

namespace truefuse::jit {

/// Receives one sentence, without a newline. Called from any thread, one call at a time.
using WarningSink = void (*)(const std::string& text);

/// Null: standard error, which is also the default.
void set_warning_sink(WarningSink sink);

/// Gives `text` to the warning sink unless a warning of this `kind` was given before in this
/// process.
void warn_once(std::string_view kind, const std::string& text);

/// True if TRUEFUSE_LOG=1: every decision about compiling and caching is one line on standard
/// error.
bool logging();

/// Writes the line if logging().
void log_decision(const std::string& text);

}  // namespace truefuse::jit
