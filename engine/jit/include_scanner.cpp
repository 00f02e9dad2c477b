#include <algorithm>
#include <array>

#include <truefuse/core/error.h>
#include <truefuse/jit/include_scanner.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kBlanks = " \t\v\f\r";

constexpr std::array<std::string_view, 5> kRawPrefixes{"R", "LR", "uR", "UR", "u8R"};

template <std::size_t N>
bool one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_identifier_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_identifier(char c) { return is_identifier_start(c) || is_digit(c); }

class Scanner {
 public:
  Scanner(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  std::vector<IncludeReference> run() {
    check_text();
    skip_splices();
    bool at_line_start = true;
    while (!done()) {
      if (skip_blank_or_comment()) continue;
      if (peek() == '\n') {
        take();
        at_line_start = true;
        operand_of_defined_ = Operand::no;
        in_directive_ = false;
        continue;
      }
      if (at_line_start && directive_mark()) {
        in_directive_ = true;
        directive();
      } else {
        token();
      }
      at_line_start = false;
    }
    return std::move(references_);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& problem) const {
    throw Error(std::string(file_) + ":" + std::to_string(line_of(text_, offset)) + ": " + problem);
  }

  // What compilers are known to read differently is refused, so that all of them see the includes
  // that this scanner sees.
  void check_text() const {
    if (text_.starts_with("\xef\xbb\xbf")) {
      fail(0,
           "the file begins with a UTF-8 byte order mark (BOM), which NVRTC rejects; save it "
           "without one");
    }
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const std::string_view rest = text_.substr(i);
      switch (text_[i]) {
        case '\0':
          fail(i, "a NUL byte ends the source for a compiler; remove it");
        case '\r':
          if (!rest.starts_with("\r\n")) {
            fail(i,
                 "a carriage return without a newline is a line's end for some compilers only; "
                 "write newlines");
          }
          break;
        case '?':
          if (rest.starts_with("\?\?=") || rest.starts_with("\?\?/")) {
            fail(i, "trigraphs are read by some compilers only; write the character itself");
          }
          break;
        case '\\': {
          const std::size_t next = rest.find_first_not_of(" \t\v\f", 1);
          if (next != std::string_view::npos && next > 1 &&
              (rest[next] == '\n' || rest[next] == '\r')) {
            fail(i,
                 "blanks follow the backslash at the end of the line, which continues the line "
                 "for some compilers only; remove them");
          }
          break;
        }
        default:
          break;
      }
    }
  }

  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  // The position after the character at `at` and after line continuations that follow it.
  std::size_t after(std::size_t at) const { return past_splices(at + 1); }

  std::size_t past_splices(std::size_t at) const {
    for (;;) {
      const std::string_view rest = text_.substr(std::min(at, text_.size()));
      if (rest.starts_with("\\\n")) {
        at += 2;
      } else if (rest.starts_with("\\\r\n")) {
        at += 3;
      } else {
        return at;
      }
    }
  }

  void skip_splices() { at_ = past_splices(at_); }

  char take() {
    const char c = text_[at_];
    at_ = after(at_);
    return c;
  }

  bool next_are(char first, char second) const {
    const std::size_t next = after(at_);
    return peek() == first && next < text_.size() && text_[next] == second;
  }

  bool skip_blank_or_comment() {
    if (kBlanks.find(peek()) != std::string_view::npos) {
      take();
      return true;
    }
    if (next_are('/', '/')) {
      while (!done() && peek() != '\n') take();
      return true;
    }
    if (next_are('/', '*')) {
      const std::size_t begin = at_;
      take();
      take();
      while (!done() && !next_are('*', '/')) take();
      if (done()) fail(begin, "the comment that begins here never ends");
      take();
      take();
      return true;
    }
    return false;
  }

  void skip_blanks_and_comments() {
    while (!done() && skip_blank_or_comment()) {
    }
  }

  // Takes the # (or its digraph %:) of a directive if it is next.
  bool directive_mark() {
    if (next_are('%', ':'))
      take();
    else if (peek() != '#')
      return false;
    take();
    return true;
  }

  std::string take_identifier() {
    std::string word;
    while (!done() && is_identifier(peek())) word += take();
    return word;
  }

  void directive() {
    skip_blanks_and_comments();
    const std::size_t begin = at_;
    const std::string word = take_identifier();
    if (word == "include") {
      skip_blanks_and_comments();
      header_name(begin, "#include", false);
    } else if (word == "include_next" || word == "import" || word == "embed") {
      fail(begin, "#" + word + " is not supported; use #include");
    } else if (word == "ifdef" || word == "ifndef" || word == "elifdef" || word == "elifndef") {
      skip_blanks_and_comments();
      take_identifier();  // May be __has_include: whether it exists is a fair question.
    }
  }

  void token() {
    const char c = peek();
    const Operand operand = operand_of_defined_;
    operand_of_defined_ = Operand::no;
    if (is_identifier_start(c)) {
      identifier(operand != Operand::no);
    } else if (is_digit(c) || (c == '.' && is_digit(second()))) {
      number();
    } else if (c == '"' || c == '\'') {
      literal();
    } else {
      take();
      if (c == '(' && operand == Operand::next) operand_of_defined_ = Operand::in_parentheses;
    }
  }

  char second() const {
    const std::size_t next = after(at_);
    return next < text_.size() ? text_[next] : '\0';
  }

  void identifier(bool is_operand_of_defined) {
    static constexpr std::array<std::string_view, 3> kOutside{"__DATE__", "__TIME__",
                                                              "__TIMESTAMP__"};
    static constexpr std::array<std::string_view, 2> kOtherQuestions{"__has_include_next",
                                                                     "__has_embed"};
    const std::size_t begin = at_;
    const std::string word = take_identifier();
    if (peek() == '"' && one_of(word, kRawPrefixes)) return raw_literal();
    if (word == "defined") operand_of_defined_ = Operand::next;
    if (is_operand_of_defined) return;
    if (one_of(word, kOutside)) {
      fail(begin, word + " makes the compiled kernel depend on when it was compiled; remove it");
    }
    if (one_of(word, kOtherQuestions)) fail(begin, word + " is not supported; use __has_include");
    if (word != "__has_include") return;
    skip_blanks_and_comments();
    if (peek() != '(') fail(begin, "__has_include must be followed by (\"name\") or (<name>)");
    take();
    skip_blanks_and_comments();
    header_name(begin, "__has_include", true);
  }

  // With digit separators, whose quote does not begin a literal: 1'000.
  void number() {
    char previous = take();
    while (!done()) {
      const char c = peek();
      const bool sign = (c == '+' || c == '-') &&
                        std::string_view("eEpP").find(previous) != std::string_view::npos;
      const bool separator = c == '\'' && is_identifier(second());
      if (!is_identifier(c) && c != '.' && !sign && !separator) break;
      previous = take();
    }
  }

  // A quote without its partner ends with the line: "#error don't" is legal.
  void literal() {
    const std::size_t begin = at_;
    const char quote = take();
    std::string content;
    while (!done() && peek() != '\n') {
      const char c = take();
      if (c == quote) break;
      content += c;
      if (c == '\\' && !done() && peek() != '\n') content += take();
    }
    check_literal(begin, content);
    literal_suffix();
  }

  // "x"R"(" is a literal with the suffix R for some compilers, and two literals for others.
  void literal_suffix() {
    const std::size_t begin = at_;
    const bool is_raw_prefix = one_of(take_identifier(), kRawPrefixes);
    if (is_raw_prefix && peek() == '"') fail(begin, "put a blank between the two string literals");
  }

  void raw_literal() {
    const std::size_t begin = at_;
    const std::size_t open = text_.find('(', begin);
    const std::string delimiter(
        text_.substr(begin + 1, open == std::string_view::npos ? 0 : open - begin - 1));
    if (open == std::string_view::npos || delimiter.size() > 16 ||
        delimiter.find_first_of(" ()\\\t\v\f\r\n\"") != std::string::npos) {
      fail(begin, "the raw string literal has no valid delimiter");
    }
    const std::size_t close = text_.find(")" + delimiter + "\"", open + 1);
    if (close == std::string_view::npos) fail(begin, "the raw string literal never ends");
    const std::string_view content = text_.substr(open + 1, close - open - 1);
    if (in_directive_ && content.find('\n') != std::string_view::npos) {
      fail(begin,
           "a raw string literal in a directive ends with the line for some compilers only; "
           "write it on one line");
    }
    check_literal(begin, content);
    at_ = past_splices(close + delimiter.size() + 2);
    literal_suffix();
  }

  // Assembler text can read files, too.
  void check_literal(std::size_t begin, std::string_view content) const {
    for (const std::string_view word : {".incbin", ".include"}) {
      if (content.find(word) != std::string_view::npos) {
        fail(begin,
             std::string(word) + " in a string may make the assembler read a file; remove it");
      }
    }
  }

  void header_name(std::size_t begin, const std::string& what, bool has_include) {
    const char open = peek();
    if (open != '"' && open != '<') {
      const std::string word = take_identifier();
      fail(begin, what + (word.empty() ? " without a name" : " of the macro " + word) +
                      "; write the name in the directive, because what is included must be known "
                      "before a compiler runs");
    }
    const std::size_t close = text_.find_first_of(open == '"' ? "\"\\\n" : ">\\\n", at_ + 1);
    if (close == std::string_view::npos || text_[close] == '\n' || text_[close] == '\\') {
      fail(begin, what + ": the name must end on this line and hold no backslash");
    }
    if (close == at_ + 1) fail(begin, what + " of an empty name");
    references_.push_back({std::string(text_.substr(at_ + 1, close - at_ - 1)), open == '"',
                           has_include, at_, close + 1, line_of(text_, begin)});
    at_ = past_splices(close + 1);
  }

  enum class Operand { no, next, in_parentheses };

  std::string_view file_;
  std::string_view text_;
  std::size_t at_ = 0;  // Never on a line continuation, except inside a raw string.
  bool in_directive_ = false;
  Operand operand_of_defined_ = Operand::no;
  std::vector<IncludeReference> references_;
};

}  // namespace

std::vector<IncludeReference> scan_includes(std::string_view file, std::string_view text) {
  return Scanner(file, text).run();
}

int line_of(std::string_view text, std::size_t offset) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(offset, text.size()));
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

}  // namespace truefuse::jit
