#include <algorithm>
#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>
#include <vector>

#include <truefuse/jit/diagnostics.h>

namespace truefuse::jit {
namespace {

constexpr std::size_t kShown = 3;
constexpr std::size_t kLongest = 160;  // Characters of a line that are worth showing.

struct Diagnostic {
  std::string file;  // Of the program.
  std::size_t line = 0;
  std::string message;

  friend bool operator==(const Diagnostic&, const Diagnostic&) = default;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

/// Compilers may put a directory of their own in front of a file's name.
std::optional<std::string> file_named(const Program& program, const std::string& path) {
  for (const auto& [name, text] : program.headers) {
    if (path == name || path.ends_with("/" + name)) return name;
  }
  return std::nullopt;
}

std::string cut(const std::string& text) {
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + " ...";
}

/// "file(12): error: text" (NVRTC, nvcc), "file:12:5: error: text" (clang, g++).
std::vector<Diagnostic> errors_in(const Program& program, const std::vector<std::string>& lines) {
  static const std::regex kError(
      R"(^\s*([^\s:][^:]*?)(?:\((\d+)\)|:(\d+)(?::\d+)?)\s*:\s*(?:fatal |catastrophic )?error(?:\s*#[\w-]+)?\s*:\s*(.*)$)");
  std::vector<Diagnostic> errors;
  for (const std::string& line : lines) {
    std::smatch found;
    if (line.size() > 2000 || !std::regex_match(line, found, kError)) continue;
    const std::optional<std::string> file = file_named(program, found[1]);
    if (!file) continue;
    const std::string number = found[2].matched ? found[2] : found[3];
    Diagnostic error{*file, std::strtoull(number.c_str(), nullptr, 10), cut(found[4])};
    if (std::find(errors.begin(), errors.end(), error) == errors.end())
      errors.push_back(std::move(error));
  }
  return errors;
}

std::string excerpt(const std::string& text, std::size_t line) {
  const std::vector<std::string> lines = lines_of(text);
  std::string result;
  for (std::size_t n = line > 1 ? line - 1 : 1; n <= line + 1 && n <= lines.size(); ++n) {
    std::string number = std::to_string(n);
    number.insert(0, number.size() < 4 ? 4 - number.size() : 0, ' ');
    result += "\n  " + std::string(n == line ? ">" : " ") + number + " | " + cut(lines[n - 1]);
  }
  return result;
}

}  // namespace

std::string on_one_screen(const Program& program, const std::string& words) {
  const std::vector<std::string> lines = lines_of(words);
  const std::vector<Diagnostic> errors = errors_in(program, lines);
  if (errors.empty()) return words;
  std::string result = errors_in(program, {lines.front()}).empty() ? cut(lines.front()) : "";
  for (std::size_t i = 0; i < std::min(errors.size(), kShown); ++i) {
    const Diagnostic& error = errors[i];
    result += (result.empty() ? "" : "\n") + error.file + ":" + std::to_string(error.line) +
              ": error: " + error.message +
              excerpt(program.headers.find(error.file)->second, error.line);
  }
  if (errors.size() > kShown) {
    result += "\nand " + std::to_string(errors.size() - kShown) + " more";
  }
  return result + "\nTRUEFUSE_LOG=1 shows all that the compiler said.";
}

}  // namespace truefuse::jit
