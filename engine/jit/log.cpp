#include <cstdlib>
#include <mutex>
#include <set>
#include <unistd.h>

#include <truefuse/jit/log.h>

namespace truefuse::jit {
namespace {

// One write, so that lines of several processes do not mix. Nobody can be told if it fails.
void write_line(const std::string& text) {
  const std::string line = "truefuse: " + text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

struct Warnings {
  std::mutex mutex;
  std::set<std::string, std::less<>> given;
  WarningSink sink = write_line;
};

// Never destroyed: a thread may still compile while the process exits.
Warnings& warnings() {
  static Warnings* const all = new Warnings;
  return *all;
}

}  // namespace

void set_warning_sink(WarningSink sink) {
  const std::lock_guard lock(warnings().mutex);
  warnings().sink = sink != nullptr ? sink : write_line;
}

void warn_once(std::string_view kind, const std::string& text) {
  const std::lock_guard lock(warnings().mutex);
  if (warnings().given.emplace(kind).second) warnings().sink(text);
}

bool logging() {
  const char* const value = std::getenv("TRUEFUSE_LOG");
  return value != nullptr && std::string_view(value) == "1";
}

void log_decision(const std::string& text) {
  if (logging()) write_line(text);
}

}  // namespace truefuse::jit
