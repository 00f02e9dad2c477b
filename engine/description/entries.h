#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/core/scanner.h>

namespace truefuse::description {

/// The text of a description file, comments blanked, and the name it has in errors.
struct File {
  std::string name;
  std::string text;

  /// Throws Error "<name>:<line>: <sentence>." with the line and a caret.
  [[noreturn]] void fail(std::size_t position, std::string_view sentence) const;
};

/// `key: value`. The value goes on over the indented lines below.
struct Entry {
  std::string key;
  std::size_t place = 0;           ///< Of the key, in the file's text.
  std::size_t begin = 0, end = 0;  ///< Of the value.

  Scanner scanner(const File& file) const;
  /// The value with white space around it removed and each run of white space made one blank.
  std::string plain(const File& file) const;
};

/// From `#` to the end of a line is a comment, which becomes blanks; inside double quotes it is
/// not.
File without_comments(std::string name, std::string_view text);

/// The entries in order. Throws Error where a line at the left margin does not begin with `key:`.
std::vector<Entry> entries_of(const File& file);

}  // namespace truefuse::description
