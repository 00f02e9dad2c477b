#include <algorithm>
#include <cctype>

#include <truefuse/core/error.h>
#include <truefuse/sim/registration.h>

namespace truefuse::sim {
namespace {

constexpr std::string_view kMarker = "[[truefuse::kernel(";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Reads tokens of preprocessed text; line markers count as blanks.
class Reader {
 public:
  Reader(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  /// Up to the parenthesis that closes one opened just before; that one is skipped.
  std::string inside_parentheses() {
    const std::size_t begin = at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '(') ++depth;
      if (text_[at_] == ')' && --depth == 0) return std::string(text_.substr(begin, at_++ - begin));
    }
    return {};
  }

  bool skip(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  std::string word() {
    skip_blanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#' && (at_ == 0 || text_[at_ - 1] == '\n')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_;
};

}  // namespace

std::vector<KernelDefinition> find_kernels(std::string_view preprocessed) {
  std::vector<KernelDefinition> kernels;
  for (std::size_t at = preprocessed.find(kMarker); at != std::string_view::npos;
       at = preprocessed.find(kMarker, at + 1)) {
    Reader reader(preprocessed, at + kMarker.size());
    KernelDefinition kernel;
    kernel.max_threads = reader.inside_parentheses();
    const bool is_function = reader.skip("]]") && reader.word() == "void";
    kernel.name = reader.word();
    if (!is_function || kernel.name.empty() || !reader.skip("(")) {
      throw Error("after TF_KERNEL(" + kernel.max_threads +
                  ") the simulator expects `void name(parameters)`; kernels return void, are no "
                  "templates and have no further attributes");
    }
    if (std::none_of(kernels.begin(), kernels.end(),
                     [&](const KernelDefinition& known) { return known.name == kernel.name; })) {
      kernels.push_back(std::move(kernel));
    }
  }
  return kernels;
}

std::string registration_of(const std::vector<KernelDefinition>& kernels, int wave) {
  std::string text = "\n# 1 \"truefuse/sim/registration\"\nnamespace tf_sim {\n";
  text += "extern const Kernel kernels[] = {\n";
  for (const KernelDefinition& kernel : kernels) {
    const std::string signature = "Signature<decltype(::" + kernel.name + ")>";
    text += "{\"" + kernel.name + "\", (" + kernel.max_threads + "), &" + signature +
            "::call<&::" + kernel.name + ">, " + signature + "::count, " + signature +
            "::sizes},\n";
  }
  text += "{nullptr, 0, nullptr, 0, nullptr}};\n";
  text += "extern const unsigned int kernel_count = " + std::to_string(kernels.size()) + ";\n";
  text += "extern const int wave = " + std::to_string(wave) + ";\n}\n";
  return text;
}

}  // namespace truefuse::sim
