// Readers of text: contracts, layouts, architectures, the includes of kernels.

#include "text_targets.h"

#include <algorithm>
#include <string>

#include <truefuse/contract/contract.h>
#include <truefuse/core/error.h>
#include <truefuse/jit/arch.h>
#include <truefuse/jit/source.h>
#include <truefuse/layout/compare.h>
#include <truefuse/layout/convert.h>
#include <truefuse/layout/emit.h>

#include "json_reader.h"

namespace truefuse::fuzz {
namespace {

/// The part up to `separator`, which is taken off the front with it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

/// The last line of an error of the small languages is a caret.
void require_caret(const Error& error) {
  require(std::string_view(error.what()).ends_with('^'), "the error shows no place");
}

void check_offsets(const layout::Bound& bound) {
  require(bound.size() >= 1, "a layout holds nothing");
  const std::int64_t end = bound.size();
  for (const std::int64_t offset : {std::int64_t{0}, end / 3, end / 2, end - 1}) {
    const layout::Element element = bound.element_at(offset);
    const layout::Segment& segment = bound.segments()[element.segment];
    require(segment.offset(element.index) == offset, "an element lies elsewhere than its offset");
  }
  const layout::Comparison same = layout::compare(bound, bound);
  require(same.is_same(), "a layout differs from itself");
  for (const std::string& language : layout::languages()) {
    require(!layout::emit(bound, language).empty(), "no address functions");
  }
}

void check_pair(const layout::Bound& a, const layout::Bound& b) {
  try {
    require(layout::compare(a, b).is_same() == layout::compare(b, a).is_same(),
            "a comparison depends on its direction");
    layout::convert(a, b);
  } catch (const Error&) {  // They need not hold the same.
  }
}

}  // namespace

void run_arch(std::string_view input) {
  jit::Arch arch;
  try {
    arch = jit::parse_arch(input);
  } catch (const Error& error) {
    require(std::string_view(error.what()).starts_with("architecture \""), "which architecture?");
    return;
  }
  require(jit::parse_arch(arch.text) == arch, "the canonical text is another architecture");
  const std::vector<jit::Arch> targets = jit::targets_for(arch);
  require(!targets.empty() && targets.front() == arch, "a device's own name does not come first");
  for (const jit::Arch& target : targets) {
    require(jit::runs_on(target, arch), "a target does not run on the device");
    require(jit::parse_arch(target.text) == target, "a target cannot be written down");
  }
}

void run_contract(std::string_view input) {
  try {
    const Contract contract = Contract::parse(input);
    require(contract.text() == input, "a contract has another text");
    require(!contract.arguments().empty(), "a contract without arguments");
    require(is_json(contract.json()), "the contract's data is no JSON");
  } catch (const Error& error) {
    require_caret(error);
  }
}

/// Sizes, a layout and perhaps a second one, on lines of their own.
void run_layout(std::string_view input) {
  try {
    const layout::Sizes sizes = layout::parse_sizes(take_until(input, '\n'));
    const layout::Bound a = layout::Layout::parse(take_until(input, '\n')).bind(sizes);
    check_offsets(a);
    if (input.empty()) return;
    const layout::Bound b = layout::Layout::parse(input).bind(sizes);
    check_offsets(b);
    check_pair(a, b);
  } catch (const Error& error) {
    require_caret(error);
  }
}

/// Files, separated by NUL: the first line of each is its name, the rest its text.
void run_source(std::string_view input) {
  jit::Source source;
  while (!input.empty()) {
    std::string_view file = take_until(input, '\0');
    std::string name(take_until(file, '\n'));
    if (source.name.empty()) source.name = name;
    source.files.emplace(std::move(name), file);
  }
  try {
    const jit::Program program = jit::resolve(source, {{"TF_N", "4"}});
    require(program.name == jit::kProgramName, "a program with a name of its own");
    require(program.headers.contains(source.name), "the main file is left out");
    for (const auto& [name, text] : program.headers) {
      require(source.files.contains(name), "a header that nobody gave");
    }
  } catch (const Error&) {
  }
}

}  // namespace truefuse::fuzz
