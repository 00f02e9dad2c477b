#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace truefuse {

/// "a", "a or b", "a, b or c".
std::string either(std::span<const std::string> items);

/// "an x", "a bias": the name with the article that it is spoken with.
std::string with_article(std::string_view name);

/// "1 element", "7 elements"; `count` is a number or a symbolic expression.
std::string counted(std::string_view count, std::string_view noun);

/// The shortest text that reads back as the same number; "nan", "inf".
std::string number_text(double value);

}  // namespace truefuse
