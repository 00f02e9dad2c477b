#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace truefuse {

/// Throws Error "<subject>: <sentence>." followed by the line of `text` that holds `position`, with
/// a caret under the place.
[[noreturn]] void fail_at(std::string_view subject, std::string_view text, std::size_t position,
                          std::string_view sentence);

/// Reads a text of one of the library's small languages from left to right, skipping white space.
/// Every failure is an Error of fail_at; `subject` says what the text is ("contract", "layout").
class Scanner {
 public:
  Scanner(std::string_view subject, std::string_view text)
      : subject_(subject), text_(text), end_(text.size()) {
    skip_space();
  }

  /// Reads the bytes [begin, end) of the text of a file, in whose errors lines have numbers:
  /// "<file>:<line>: ...".
  static Scanner in_file(std::string_view file, std::string_view text, std::size_t begin,
                         std::size_t end);

  std::size_t position() const { return position_; }
  bool at_end() const { return position_ == end_; }

  /// Takes `token` if the text continues with it.
  bool accept(std::string_view token);
  void expect(std::string_view token);
  bool next_is(std::string_view token) const { return rest().substr(0, token.size()) == token; }

  /// Letters, digits, underscores and hyphens between letters; not taken. Empty if there is none.
  std::string_view peek_word() const;
  /// Takes the word ahead if it is `word`.
  bool accept_word(std::string_view word);

  /// A letter or underscore, then letters, digits and underscores.
  std::string name(std::string_view what);
  /// Digits without a sign, at most the largest std::int64_t.
  std::int64_t integer(std::string_view what);
  /// A decimal number with an optional sign.
  double number(std::string_view what);

  /// The text between two double quotes on one line; there are no escapes.
  std::string quoted();

  /// "<subject>: expected WHAT, found '...'."
  [[noreturn]] void fail_expected(std::string_view what) const;
  [[noreturn]] void fail(std::size_t position, std::string_view sentence) const;

 private:
  std::string_view rest() const { return text_.substr(position_, end_ - position_); }
  void advance(std::size_t count);
  void skip_space();

  std::string_view subject_;
  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t end_;
  bool is_file_ = false;
};

}  // namespace truefuse
