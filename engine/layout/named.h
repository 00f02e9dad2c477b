#pragma once

#include <span>
#include <string>
#include <string_view>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

/// A layout that a model or a library uses.
struct Named {
  std::string_view name;        ///< "qwen3-next/qkvz"
  std::string_view text;        ///< In the language.
  std::string_view provenance;  ///< Whose it is and where it is met, one line.
};

std::span<const Named> named();

/// The layout of that name, or else the text parsed. Throws Error; if the text looks like a name
/// ("qwen3-next/kqvz"), it lists the names.
Layout named_or_parsed(std::string_view name_or_text);

}  // namespace truefuse::layout
