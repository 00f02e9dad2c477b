#include <algorithm>
#include <regex>

#include <truefuse/core/scanner.h>
#include <truefuse/description/signature.h>

namespace truefuse::description {
namespace {

/// Comments and string literals as blanks, so that places stay.
std::string code_of(std::string_view text) {
  std::string code(text);
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, code.size()); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
    return end;
  };
  for (std::size_t i = 0; i < code.size();) {
    if (code.compare(i, 2, "//") == 0) {
      i = blank(i, std::min(code.find('\n', i), code.size()));
    } else if (code.compare(i, 2, "/*") == 0) {
      const std::size_t end = code.find("*/", i + 2);
      i = blank(i, end == std::string::npos ? code.size() : end + 2);
    } else if (code[i] == '"' || code[i] == '\'') {
      std::size_t end = i + 1;
      while (end < code.size() && code[end] != code[i] && code[end] != '\n') {
        end += code[end] == '\\' ? 2 : 1;
      }
      i = blank(i + 1, end) + 1;
    } else {
      ++i;
    }
  }
  return code;
}

struct Definition {
  std::string name, max_threads;
  std::size_t place = 0, parameters = 0;  // Of the name; after the opening bracket.
  std::string hidden;                     // Why nobody can look it up by its name; else empty.
};

std::size_t skip_blanks(std::string_view code, std::size_t at) {
  return std::min(code.find_first_not_of(" \t\r\n", at), code.size());
}

/// After the bracket that closes one opened just before `at`.
std::size_t close(std::string_view code, std::size_t at) {
  for (int depth = 1; at < code.size(); ++at) {
    if (code[at] == '(') ++depth;
    if (code[at] == ')' && --depth == 0) return at + 1;
  }
  return at;
}

/// `begin` is where the definition of a kernel begins with TF_KERNEL or __global__.
std::string why_hidden(const std::string& code, std::size_t begin) {
  static const std::regex kTemplate(R"(\btemplate\s*<)"), kExtern(R"(\bextern\b)"),
      kBlock(R"(\bextern\s*"[^"]*"\s*\{)");
  const std::size_t before = begin == 0 ? std::string::npos : code.find_last_of(";{}", begin - 1);
  const std::string head = code.substr(before + 1, begin - before - 1);
  if (std::regex_search(head, kTemplate)) {
    return "a kernel is looked up by its name, which a template does not have: make it a function, "
           "and its types and numbers constants of the description";
  }
  const bool is_plain = code.compare(begin, 2, "__") == 0;
  if (is_plain && !std::regex_search(head, kExtern) && !std::regex_search(code, kBlock)) {
    return "a kernel is looked up by its name: write extern \"C\" in front of __global__";
  }
  return {};
}

std::vector<Definition> definitions_in(const std::string& code) {
  static const std::regex kBegin(R"(\b(?:TF_KERNEL(?:_RESIDENT)?\s*\(|__global__\b))");
  static const std::regex kRest(
      R"(^(?:\s*__launch_bounds__\s*\(([^)]*)\))?\s*void(?:\s+__launch_bounds__\s*\(([^)]*)\))?\s+(\w+)\s*\()");
  std::vector<Definition> found;
  for (auto at = std::sregex_iterator(code.begin(), code.end(), kBegin);
       at != std::sregex_iterator(); ++at) {
    Definition definition;
    auto after = static_cast<std::size_t>(at->position() + at->length());
    if (code[after - 1] == '(') {
      const std::size_t end = close(code, after);
      definition.max_threads = code.substr(after, end - 1 - after);
      definition.max_threads.resize(
          std::min(definition.max_threads.find(','), definition.max_threads.size()));
      after = end;
    }
    std::smatch rest;
    const auto begin = code.cbegin() + static_cast<std::ptrdiff_t>(after);
    if (!std::regex_search(begin, code.cend(), rest, kRest,
                           std::regex_constants::match_continuous)) {
      continue;
    }
    definition.hidden = why_hidden(code, static_cast<std::size_t>(at->position()));
    if (rest[1].matched) definition.max_threads = rest[1];
    if (rest[2].matched) definition.max_threads = rest[2];
    definition.name = rest[3];
    definition.place = after + static_cast<std::size_t>(rest.position(3));
    definition.parameters = after + static_cast<std::size_t>(rest.length(0));
    found.push_back(std::move(definition));
  }
  return found;
}

/// Words and signs of a declaration.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (std::size_t i = skip_blanks(text, 0); i < text.size(); i = skip_blanks(text, i)) {
    const std::size_t begin = i;
    const auto is_word = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
    };
    while (i < text.size() && is_word(text[i])) ++i;
    if (i == begin) ++i;
    tokens.emplace_back(text.substr(begin, i - begin));
  }
  return tokens;
}

KernelParameter parameter_of(std::string_view file, std::string_view text, std::size_t begin,
                             std::size_t end) {
  KernelParameter parameter;
  parameter.place = skip_blanks(text, begin);
  std::vector<std::string> tokens = tokens_of(text.substr(begin, end - begin));
  bool is_plain = tokens.size() >= 2;
  if (is_plain) {
    parameter.name = tokens.back();
    tokens.pop_back();
  }
  for (const std::string& token : tokens) {
    if (token == "const") {
      // In front of the * it is about what the pointer points at.
      if (!parameter.is_pointer) parameter.is_const = true;
    } else if (token == "*") {
      is_plain = is_plain && !parameter.is_pointer;
      parameter.is_pointer = true;
    } else if (token == "__restrict__" || token == "__restrict" || token == "TF_PARAMETER") {
      continue;
    } else {
      const char first = token.front();
      is_plain = is_plain && (std::isalpha(static_cast<unsigned char>(first)) != 0 ||
                              first == '_' || first == ':');
      parameter.type += (parameter.type.empty() ? "" : " ") + token;
    }
  }
  if (!is_plain || parameter.type.empty()) {
    Scanner::in_file(file, text, parameter.place, end)
        .fail(parameter.place,
              "a described kernel takes scalars and pointers to scalars, each with a name");
  }
  return parameter;
}

}  // namespace

std::optional<KernelSignature> find_signature(std::string_view file, std::string_view text,
                                              std::string_view kernel) {
  const std::string code = code_of(text);
  const std::vector<Definition> all = definitions_in(code);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Definition& one) { return one.name == kernel; });
  if (found == all.end()) return std::nullopt;
  if (!found->hidden.empty()) {
    Scanner::in_file(file, text, found->place, text.size()).fail(found->place, found->hidden);
  }
  KernelSignature signature;
  signature.max_threads = found->max_threads;
  signature.place = found->place;
  const std::size_t end = close(code, found->parameters) - 1;
  // Blanked code has the same places; errors show the text itself.
  std::size_t begin = found->parameters;
  if (skip_blanks(code, begin) == end) return signature;
  while (begin <= end) {
    const std::size_t comma = std::min(code.find(',', begin), end);
    const std::string_view view = code;
    KernelParameter parameter = parameter_of(file, view, begin, comma);
    signature.parameters.push_back(std::move(parameter));
    begin = comma + 1;
  }
  return signature;
}

std::vector<std::string> kernel_names(std::string_view text) {
  std::vector<std::string> names;
  for (const Definition& definition : definitions_in(code_of(text)))
    names.push_back(definition.name);
  return names;
}

}  // namespace truefuse::description
