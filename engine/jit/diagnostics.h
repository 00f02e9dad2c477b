#pragma once

#include <string>
#include <string_view>

#include <truefuse/jit/source.h>

namespace truefuse::jit {

/// What a compiler said of a program, on one screen: the line in front of its output, then the
/// first errors, each with file, line and the source around it. `words` is that line and the output
/// of any of the compilers here. Returned as it is if no error in it has a place in the program.
std::string on_one_screen(const Program& program, const std::string& words);

}  // namespace truefuse::jit
