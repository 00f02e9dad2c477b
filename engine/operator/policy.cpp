#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>

#include <truefuse/jit/log.h>
#include <truefuse/operator/policy.h>

namespace truefuse {
namespace {

std::optional<int> value_of(std::string_view word, std::string_view name,
                            std::initializer_list<int> allowed) {
  if (!word.starts_with(name)) return std::nullopt;
  for (const int value : allowed) {
    if (word.substr(name.size()) == std::to_string(value)) return value;
  }
  return std::nullopt;
}

/// Nothing if the line is not what it should be.
std::optional<TunedPolicy> parse_line(std::istringstream& words) {
  TunedPolicy tuned;
  std::string dtype, word;
  if (!(words >> tuned.op >> dtype)) return std::nullopt;
  const std::optional<DType> known = parse_dtype(dtype);
  if (!known) return std::nullopt;
  tuned.dtype = *known;
  while (words >> word) {
    if (const auto threads = value_of(word, "threads=", {128, 256, 512})) {
      tuned.policy.threads = *threads;
    } else if (const auto rows = value_of(word, "rows=", {1, 2, 4, 8})) {
      tuned.policy.rows = *rows;
    } else if (const auto bytes = value_of(word, "bytes=", {8, 16})) {
      tuned.policy.bytes = *bytes;
    } else {
      return std::nullopt;
    }
  }
  return tuned;
}

std::string file_name() {
  if (const char* file = std::getenv("TRUEFUSE_TUNING")) return file;
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0') {
    return std::string(folder) + "/truefuse/tuning.txt";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::string() : std::string(home) + "/.config/truefuse/tuning.txt";
}

}  // namespace

std::vector<TunedPolicy> parse_tuning(std::string_view text, std::string_view arch,
                                      const std::string& name) {
  const std::string_view base = arch.substr(0, arch.find(':'));
  std::vector<TunedPolicy> found;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string target;
    if (!(words >> target) || target != base) continue;
    if (std::optional<TunedPolicy> tuned = parse_line(words)) {
      found.push_back(std::move(*tuned));
      continue;
    }
    jit::warn_once("tuning",
                   name + ", line " + std::to_string(number) + ": \"" + line +
                       "\" is left out; a line is like \"gfx90a bias_gelu bf16 threads=256 "
                       "rows=2 bytes=16\", with 128, 256 or 512 threads, 1, 2, 4 or 8 rows and "
                       "vectors of 8 or 16 bytes. `truefuse tune --save` writes it");
  }
  return found;
}

std::vector<TunedPolicy> tuned_policies(std::string_view arch) {
  const std::string name = file_name();
  std::ifstream file(name);
  if (name.empty() || !file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return parse_tuning(text.str(), arch, name);
}

}  // namespace truefuse
