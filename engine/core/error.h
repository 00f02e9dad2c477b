#pragma once

#include <stdexcept>
#include <string>

namespace truefuse {

/// The one exception of the library. Its text is a sentence for the caller: it names what is wrong,
/// what was found, what is wanted and what to do. PyTorch shows it as a RuntimeError.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace truefuse
