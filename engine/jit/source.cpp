#include <algorithm>
#include <optional>
#include <set>

#include <truefuse/core/error.h>
#include <truefuse/jit/include_scanner.h>
#include <truefuse/jit/source.h>

namespace truefuse::jit {
namespace {

// "op/sub/../a.h" as "op/a.h"; nothing if it leaves the root or is absolute.
std::optional<std::string> normalised(std::string_view path) {
  std::vector<std::string_view> components;
  if (path.starts_with('/')) return std::nullopt;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (component.empty() || component == ".") continue;
    if (component != "..") {
      components.push_back(component);
    } else if (components.empty()) {
      return std::nullopt;
    } else {
      components.pop_back();
    }
  }
  std::string joined;
  for (const std::string_view component : components) {
    if (!joined.empty()) joined += '/';
    joined += component;
  }
  return joined;
}

// Compilers that read files get them below a directory of their own, so a name must stay there.
void check_file_name(const std::string& name) {
  const bool plain = !name.empty() && normalised(name) == name && name != kProgramName &&
                     std::none_of(name.begin(), name.end(), [](char c) {
                       return static_cast<unsigned char>(c) < 0x20 || c == '\x7f' ||
                              std::string_view("\"<>\\").find(c) != std::string_view::npos;
                     });
  if (!plain) {
    throw Error("the kernel's file name \"" + name +
                "\" cannot be used; give it a plain relative path such as \"my_op/kernel.hip\"");
  }
}

bool is_constant_name(std::string_view name) {
  return (name.starts_with("TF_") || name.starts_with("TRUEFUSE_")) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

std::string definition(const Constant& constant) {
  if (!is_constant_name(constant.name)) {
    throw Error("the constant \"" + constant.name +
                "\" must be an identifier that begins with TF_ or TRUEFUSE_, because other names "
                "break headers that compilers bring along");
  }
  const std::string& value = constant.value;
  if (value.find_first_of("\n\r") != std::string::npos || value.ends_with('\\')) {
    throw Error("the value of the constant " + constant.name +
                " must be a part of one line: without a newline, not ending with a backslash");
  }
  const std::string line = "#define " + constant.name + " " + value + "\n";
  if (!scan_includes("constant " + constant.name, line).empty()) {
    throw Error("the value of the constant " + constant.name + " must not name a file");
  }
  return line;
}

// The name in `files` that a reference in the file `from` means.
std::optional<std::string> find(const Files& files, const std::string& from,
                                const IncludeReference& reference) {
  if (reference.quoted && !reference.name.starts_with('/')) {
    const std::size_t slash = from.rfind('/');
    const std::string directory = slash == std::string::npos ? "" : from.substr(0, slash + 1);
    const std::optional<std::string> beside = normalised(directory + reference.name);
    if (beside && files.contains(*beside)) return beside;
  }
  if (files.contains(reference.name)) return reference.name;
  return std::nullopt;
}

bool is_left_to_compiler(const IncludeReference& reference, Outside outside) {
  if (outside == Outside::left_to_compiler) return !reference.quoted;
  return !reference.quoted && !reference.has_include &&
         std::find(kCompilerHeaders.begin(), kCompilerHeaders.end(), reference.name) !=
             kCompilerHeaders.end();
}

[[noreturn]] void fail_unresolved(const std::string& from, std::string_view written,
                                  const IncludeReference& reference) {
  throw Error(from + ":" + std::to_string(reference.line) + ": " +
              (reference.has_include ? "__has_include(" : "#include ") + std::string(written) +
              (reference.has_include ? ")" : "") +
              " names a file that is not there; put it beside the file that includes it "
              "(compilers are not let to search directories)");
}

}  // namespace

Program resolve(const Source& source, const std::vector<Constant>& constants, Outside outside) {
  Program program;
  program.name = kProgramName;
  std::set<std::string_view> defined;
  for (const Constant& constant : constants) {
    program.text += definition(constant);
    if (!defined.insert(constant.name).second) {
      throw Error("the constant " + constant.name + " is given twice");
    }
  }
  if (!source.files.contains(source.name)) {
    throw Error("the kernel's main file \"" + source.name + "\" is not among its files");
  }
  program.text += "#include <" + source.name + ">\n";

  std::vector<std::string> pending{source.name};
  while (!pending.empty()) {
    const std::string name = std::move(pending.back());
    pending.pop_back();
    if (program.headers.contains(name)) continue;
    check_file_name(name);
    const std::string_view text = source.files.find(name)->second;
    std::string rewritten;
    std::size_t copied = 0;
    for (const IncludeReference& reference : scan_includes(name, text)) {
      const std::optional<std::string> target = find(source.files, name, reference);
      if (!target && is_left_to_compiler(reference, outside)) continue;
      if (!target) {
        fail_unresolved(name, text.substr(reference.begin, reference.end - reference.begin),
                        reference);
      }
      rewritten += text.substr(copied, reference.begin - copied);
      rewritten += "<" + *target + ">";
      copied = reference.end;
      pending.push_back(*target);
    }
    rewritten += text.substr(copied);
    program.headers.emplace(name, std::move(rewritten));
  }
  return program;
}

}  // namespace truefuse::jit
