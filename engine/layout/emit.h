#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

/// "triton", "hip", "python".
std::vector<std::string> languages();

/// One function per segment, q_offset(h, k), that gives an element's offset: for Python, for a
/// Triton kernel (its indices may be tensors), or for HIP and CUDA device code (which g++ takes
/// too). The sizes are numbers in it. Triton's indices are made int64 if offsets need more than 32
/// bits. Throws Error that lists the languages.
std::string emit(const Bound& bound, std::string_view language);

}  // namespace truefuse::layout
