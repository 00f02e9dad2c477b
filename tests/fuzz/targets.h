#pragma once

#include <stdexcept>
#include <string_view>
#include <vector>

namespace truefuse::fuzz {

/// What must hold for every input does not hold for this one.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* sentence) {
  if (!holds) throw Broken(sentence);
}

/// A reader of bytes or text that somebody else wrote. `run` gives it one input and checks what it
/// makes of it; a refusal in words (truefuse::Error) is an answer like any other. Everything that
/// leaves `run`, and every crash or hang in it, is a finding.
struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
};

const std::vector<Target>& targets();

}  // namespace truefuse::fuzz
