#include <utility>

#include <truefuse/description/entries.h>

namespace truefuse::description {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

void File::fail(std::size_t position, std::string_view sentence) const {
  Scanner::in_file(name, text, position, text.size()).fail(position, sentence);
}

Scanner Entry::scanner(const File& file) const {
  return Scanner::in_file(file.name, file.text, begin, end);
}

std::string Entry::plain(const File& file) const {
  std::string result;
  for (std::size_t i = begin; i < end; ++i) {
    const char c = file.text[i];
    if (!is_blank(c)) {
      result += c;
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

File without_comments(std::string name, std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // Some editors begin UTF-8 with it.
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  File file{std::move(name), std::string(text)};
  bool is_quoted = false, is_comment = false;
  for (char& c : file.text) {
    if (c == '\n') {
      is_quoted = is_comment = false;
    } else if (is_comment) {
      c = ' ';
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == '#' && !is_quoted) {
      is_comment = true;
      c = ' ';
    }
  }
  return file;
}

std::vector<Entry> entries_of(const File& file) {
  std::vector<Entry> entries;
  for (std::size_t begin = 0; begin < file.text.size();) {
    const std::size_t end = std::min(file.text.find('\n', begin), file.text.size());
    const std::string_view line = std::string_view(file.text).substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == 0) {
      const std::size_t colon = line.find(':');
      Entry entry;
      Scanner scanner = Scanner::in_file(file.name, file.text, begin, end);
      entry.key = scanner.name("a key and a colon, such as 'contract:'");
      scanner.expect(":");
      entry.place = begin;
      entry.begin = begin + colon + 1;
      entry.end = end;
      entries.push_back(std::move(entry));
    } else if (first != std::string_view::npos) {
      if (entries.empty())
        file.fail(begin + first, "an indented line goes on with an entry, and there is none yet");
      entries.back().end = end;
    }
    begin = end + 1;
  }
  return entries;
}

}  // namespace truefuse::description
