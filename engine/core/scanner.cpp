#include <algorithm>
#include <charconv>
#include <system_error>

#include <truefuse/core/error.h>
#include <truefuse/core/scanner.h>

namespace truefuse {
namespace {

// Not <cctype>: a text means the same in every locale.
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// A NUL would end the message, others would move the terminal's cursor.
std::string printable(std::string text) {
  for (char& c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '?';
  }
  return text;
}

std::size_t name_length(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return 0;
  std::size_t length = 1;
  while (length < text.size() && (is_letter(text[length]) || is_digit(text[length]))) ++length;
  return length;
}

}  // namespace

Scanner Scanner::in_file(std::string_view file, std::string_view text, std::size_t begin,
                         std::size_t end) {
  Scanner scanner(file, text);
  scanner.is_file_ = true;
  scanner.position_ = begin;
  scanner.end_ = end;
  scanner.skip_space();
  return scanner;
}

void Scanner::advance(std::size_t count) {
  position_ += count;
  skip_space();
}

void Scanner::skip_space() {
  while (position_ < end_ && is_space(text_[position_])) ++position_;
}

bool Scanner::accept(std::string_view token) {
  if (!next_is(token)) return false;
  advance(token.size());
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) fail_expected("'" + std::string(token) + "'");
}

std::string_view Scanner::peek_word() const {
  const std::string_view text = rest();
  std::size_t length = name_length(text);
  while (length != 0 && length + 1 < text.size() && text[length] == '-' &&
         is_letter(text[length + 1])) {
    length += 1 + name_length(text.substr(length + 1));
  }
  return text.substr(0, length);
}

bool Scanner::accept_word(std::string_view word) {
  if (peek_word() != word) return false;
  advance(word.size());
  return true;
}

std::string Scanner::name(std::string_view what) {
  const std::string_view found = rest().substr(0, name_length(rest()));
  if (found.empty()) fail_expected(what);
  advance(found.size());
  return std::string(found);
}

std::int64_t Scanner::integer(std::string_view what) {
  std::int64_t value = 0;
  const char* begin = rest().data();
  if (at_end() || !is_digit(*begin)) fail_expected(what);
  const auto [end, error] = std::from_chars(begin, begin + rest().size(), value);
  if (error != std::errc()) fail(position_, "the number does not fit in 64 bits");
  advance(static_cast<std::size_t>(end - begin));
  return value;
}

double Scanner::number(std::string_view what) {
  double value = 0;
  const std::string_view text = rest();
  const std::size_t sign = text.substr(0, 1) == "-" ? 1 : 0;
  // from_chars also reads words such as "nan", which no bound may be.
  if (text.size() == sign || !(is_digit(text[sign]) || text[sign] == '.')) fail_expected(what);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument) fail_expected(what);
  if (error != std::errc()) fail(position_, "the number does not fit in a double");
  advance(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string Scanner::quoted() {
  if (!next_is("\"")) fail_expected("a string in double quotes");
  const std::size_t length = rest().substr(1).find_first_of("\"\n");
  if (length == std::string_view::npos || rest()[length + 1] != '"') {
    fail(position_, "this string has no closing quote");
  }
  std::string value(rest().substr(1, length));
  advance(length + 2);
  return value;
}

void Scanner::fail_expected(std::string_view what) const {
  std::string found = "the end";
  if (!at_end()) {
    std::size_t length = peek_word().size();
    if (length == 0) {
      do {
        ++length;
      } while (position_ + length < end_ && is_continuation(text_[position_ + length]));
    }
    found = "'" + std::string(rest().substr(0, length)) + "'";
  }
  fail(position_, "expected " + std::string(what) + ", found " + found);
}

void Scanner::fail(std::size_t position, std::string_view sentence) const {
  if (!is_file_) fail_at(subject_, text_, position, sentence);
  const auto line = 1 + std::count(text_.begin(), text_.begin() + position, '\n');
  fail_at(std::string(subject_) + ":" + std::to_string(line), text_, position, sentence);
}

void fail_at(std::string_view subject, std::string_view text, std::size_t position,
             std::string_view sentence) {
  const std::size_t before =
      position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  std::string message = printable(std::string(subject) + ": " + std::string(sentence) + ".") +
                        "\n  " + printable(std::string(line)) + "\n  ";
  for (const char c : text.substr(begin, position - begin)) {
    if (!is_continuation(c)) message += c == '\t' ? '\t' : ' ';
  }
  throw Error(message + '^');
}

}  // namespace truefuse
