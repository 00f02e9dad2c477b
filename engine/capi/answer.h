#pragma once

#include <cstdlib>
#include <cstring>
#include <exception>

#include <truefuse/core/json.h>

namespace truefuse::capi {

inline char* copy_of(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

/// The JSON that `write` makes, or {"error": ...} if it throws: no exception leaves a C function.
template <class Write>
char* answer(Write&& write) noexcept {
  try {
    JsonWriter json;
    write(json);
    return copy_of(json.text());
  } catch (const std::exception& error) {
    return copy_of(
        JsonWriter().begin_object().key("error").string(error.what()).end_object().text());
  } catch (...) {
    return copy_of(R"({"error":"an exception that is no std::exception"})");
  }
}

}  // namespace truefuse::capi
