#include <array>
#include <charconv>
#include <cstdio>

#include <truefuse/jit/process.h>
#include <truefuse/sim/symbols.h>

namespace truefuse::sim {
namespace {

constexpr std::string_view kRuntimeError = "runtime error: ";

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

/// "FILE:LINE" or "FILE:LINE:COLUMN"; line 0 for anything else and for files that are not a
/// kernel's.
SimPlace parse_place(std::string_view text) {
  SimPlace place;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return place;
  std::string_view file = text.substr(0, colon);
  while (file.starts_with("./")) file.remove_prefix(2);
  const bool is_kernel = !file.starts_with('/') && !file.starts_with("truefuse/device") &&
                         !file.starts_with("truefuse/sim/") && !file.starts_with("truefuse_sim") &&
                         !file.starts_with("../");
  int line = 0;
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), line);
  if (is_kernel && line > 0) place = {std::string(file), line};
  return place;
}

}  // namespace

SimPlace place_in_stack(std::string_view text) {
  bool is_in_stack = false;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::size_t hash = line.find_first_not_of(' ');
    const bool is_frame = hash != std::string_view::npos && line[hash] == '#';
    if (is_in_stack && !is_frame) return {};  // Later stacks tell of allocations.
    if (!is_frame) continue;
    is_in_stack = true;
    const std::size_t blank = line.rfind(' ');
    if (SimPlace place = parse_place(line.substr(blank + 1)); place.line > 0) return place;
  }
  return {};
}

std::string undefined_behaviour_in(std::string_view text) {
  const std::size_t found = text.find(kRuntimeError);
  if (found == std::string_view::npos) return {};
  std::string_view rest = text.substr(found + kRuntimeError.size());
  return std::string(next_line(rest));
}

std::pair<SimFaultKind, std::string> signal_in(std::string_view text) {
  constexpr std::string_view kStackOverflow = "AddressSanitizer: stack-overflow";
  constexpr std::string_view kSegv = "AddressSanitizer: SEGV on unknown address ";
  if (text.find(kStackOverflow) != std::string_view::npos) {
    return {SimFaultKind::stack_overflow, "a lane uses more than its 256 KiB of stack"};
  }
  if (text.find("AddressSanitizer: FPE") != std::string_view::npos) {
    return {SimFaultKind::undefined_behaviour, "a lane divides an integer by zero"};
  }
  const std::size_t found = text.find(kSegv);
  if (found == std::string_view::npos) return {SimFaultKind::crash, {}};
  std::string_view rest = text.substr(found + kSegv.size());
  const std::string address(rest.substr(0, rest.find_first_of(" \n")));
  return {SimFaultKind::memory_fault,
          "a lane uses address " + address + ", which belongs to no buffer and no shared array"};
}

SimPlace place_of_address(const std::string& executable_path, std::uint64_t pc) {
  if (pc == 0) return {};
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "0x%llx", static_cast<unsigned long long>(pc));
  jit::ProcessOptions options;
  options.time_limit = std::chrono::seconds(20);
  const jit::ProcessResult result =
      jit::run_process({"addr2line", "-i", "-e", executable_path, address.data()}, options);
  std::string_view text = result.output;
  while (!text.empty()) {
    if (SimPlace place = parse_place(next_line(text)); place.line > 0) return place;
  }
  return {};
}

}  // namespace truefuse::sim
