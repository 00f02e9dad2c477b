#include <algorithm>
#include <cctype>

#include <truefuse/description/schema_names.h>

namespace truefuse::description {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The last word of one argument in front of its default: of "float eps=1e-5" eps.
void add_name(const File& file, std::size_t begin, std::size_t end,
              std::vector<SchemaName>& names) {
  end = std::min(end, file.text.find('=', begin));
  while (end > begin && !is_word(file.text[end - 1])) --end;
  std::size_t first = end;
  while (first > begin && is_word(file.text[first - 1])) --first;
  if (first != end) names.push_back({file.text.substr(first, end - first), first});
}

}  // namespace

std::vector<SchemaName> schema_arguments(const File& file, const Entry& entry) {
  std::vector<SchemaName> names;
  std::size_t begin = file.text.find('(', entry.begin);
  if (begin >= entry.end) return names;
  int depth = 0;
  char quote = 0;
  for (std::size_t i = ++begin; i < entry.end; ++i) {
    const char c = file.text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (depth > 0) {
      if (c == ')' || c == ']') --depth;
    } else if (c == ',' || c == ')') {
      add_name(file, begin, i, names);
      begin = i + 1;
      if (c == ')') return names;
    }
  }
  return names;
}

}  // namespace truefuse::description
