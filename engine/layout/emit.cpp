#include <algorithm>
#include <limits>

#include <truefuse/core/error.h>
#include <truefuse/layout/emit.h>

namespace truefuse::layout {
namespace {

struct Language {
  std::string_view name;
  std::string_view comment, divide;
  std::string_view prologue;                      // Of the file.
  std::string_view before, parameter, open, end;  // Of a function.
  std::string_view widen, widened;                // Around an index, make 64 bits of it.
};

constexpr Language kLanguages[] = {
    {"triton", "# ", " // ", "import triton\nimport triton.language as tl\n",
     "\n\n@triton.jit\ndef ", "", "):\n    return ", "\n", "tl.cast(", ", tl.int64)"},
    {"hip", "// ", " / ",
     "#if defined(__HIP__) || defined(__HIPCC__) || defined(__CUDACC__)\n"
     "#define LAYOUT_FUNCTION __host__ __device__ inline\n#else\n"
     "#define LAYOUT_FUNCTION inline\n#endif\n",
     "\nLAYOUT_FUNCTION long long ", "long long ", ") {\n  return ", ";\n}\n", "", ""},
    {"python", "# ", " // ", "", "\n\ndef ", "", "):\n    return ", "\n", "", ""},
};

/// A parameter for each axis: a small letter where it is one letter, else i_NAME, so that none is a
/// word of a language and none is met twice.
std::vector<std::string> parameters(const Segment& segment) {
  std::vector<std::string> names;
  for (const Axis& axis : segment.axes) {
    std::string name = "i_" + axis.name;
    if (axis.name.size() == 1 && axis.name[0] >= 'A' && axis.name[0] <= 'Z') {
      name = std::string(1, static_cast<char>(axis.name[0] - 'A' + 'a'));
    } else if (axis.name.size() == 1) {
      const auto is_capital = [&](const Axis& other) {
        return other.name.size() == 1 && other.name[0] - 'A' + 'a' == axis.name[0];
      };
      if (std::none_of(segment.axes.begin(), segment.axes.end(), is_capital)) name = axis.name;
    }
    names.push_back(name);
  }
  return names;
}

void add_term(std::string& sum, const std::string& index, const Part& part, bool is_outermost,
              const Language& language) {
  if (part.extent == 1) return;
  std::string term = index;
  if (part.divisor > 1) {
    term = '(' + term + std::string(language.divide) + std::to_string(part.divisor) + ')';
  }
  if (!is_outermost) term = '(' + term + " % " + std::to_string(part.extent) + ')';
  if (part.stride != 1) term += " * " + std::to_string(part.stride);
  sum += (sum.empty() ? "" : " + ") + term;
}

std::string sum_of(const Segment& segment, const std::vector<std::string>& indices,
                   const Language& language) {
  std::string sum = segment.base == 0 ? "" : std::to_string(segment.base);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto& parts = segment.axes[i].parts;
    for (const Part& part : parts) {
      add_term(sum, indices[i], part, &part == parts.data(), language);
    }
  }
  return sum.empty() ? "0" : sum;
}

}  // namespace

std::vector<std::string> languages() {
  std::vector<std::string> names;
  for (const Language& language : kLanguages) names.emplace_back(language.name);
  return names;
}

std::string emit(const Bound& bound, std::string_view name) {
  const auto* language =
      std::find_if(std::begin(kLanguages), std::end(kLanguages),
                   [&](const Language& candidate) { return candidate.name == name; });
  if (language == std::end(kLanguages)) {
    std::string known;
    for (const Language& other : kLanguages) {
      known += (known.empty() ? "" : ", ") + std::string(other.name);
    }
    throw Error("layout: there is no language " + std::string(name) + "; there are " + known);
  }
  std::string described = bound.text();
  std::replace(described.begin(), described.end(), '\n', ' ');
  std::replace(described.begin(), described.end(), '\r', ' ');
  std::string code = std::string(language->comment) + "Offsets in elements: " + described + "\n" +
                     std::string(language->prologue);
  const bool is_large = bound.size() > std::numeric_limits<std::int32_t>::max();
  for (const Segment& segment : bound.segments()) {
    if (segment.is_padding()) continue;
    const std::vector<std::string> names = parameters(segment);
    code += std::string(language->before) + segment.name + "_offset(";
    for (std::size_t i = 0; i < names.size(); ++i) {
      code += (i == 0 ? "" : ", ") + std::string(language->parameter) + names[i];
    }
    std::vector<std::string> indices = names;
    for (std::string& index : indices) {
      // Not index.to(...): a number that a kernel passes is no tensor.
      if (is_large) index = std::string(language->widen) + index + std::string(language->widened);
    }
    code += std::string(language->open) + sum_of(segment, indices, *language) +
            std::string(language->end);
  }
  return code;
}

}  // namespace truefuse::layout
