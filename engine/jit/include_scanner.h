#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::jit {

/// One name that a source text refers to, by #include or __has_include.
struct IncludeReference {
  std::string name;
  bool quoted = false;       ///< "name", else <name>.
  bool has_include = false;  ///< Only asked for.
  std::size_t begin = 0;     ///< Range in the text of the name with its delimiters; on one line.
  std::size_t end = 0;
  int line = 0;
};

/// Finds every reference, also in branches that no compiler takes, in the way a compiler reads
/// text: line continuations, comments, string, raw string and character literals, digraphs.
///
/// Throws Error "FILE:LINE: ..." for whatever would let a compiler read something that this
/// function cannot name (computed includes, #include_next, #import, #embed, .incbin, __DATE__,
/// __TIME__), and for text that compilers split into lines or tokens differently (byte order mark,
/// NUL, lone carriage return, trigraph, blanks between a backslash and the line's end).
std::vector<IncludeReference> scan_includes(std::string_view file, std::string_view text);

/// The line of a byte in a text, from 1.
int line_of(std::string_view text, std::size_t offset);

}  // namespace truefuse::jit
