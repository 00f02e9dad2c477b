#pragma once

#include <string>

#include <truefuse/core/error.h>

namespace truefuse::testing {

/// The sentence of the Error that `call` throws; "no error" if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace truefuse::testing
