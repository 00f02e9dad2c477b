#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <truefuse/core/dtype.h>

namespace truefuse {

/// How the work of a launch is cut up: what tuning may choose, apart from what is computed. (A sum
/// over rows is added in another order.)
struct LaunchPolicy {
  int threads = 0;  ///< Of a block: 128, 256 or 512. 0: as the plan has it.
  int rows = 0;  ///< That a thread loads at once, in vectors: 1, 2, 4 or 8. 0: as the plan has it.
  int bytes = 16;  ///< Of a vector: 8 or 16, but at least two elements.

  /// This; what is 0 as in `standard`.
  LaunchPolicy or_else(const LaunchPolicy& standard) const {
    return {threads > 0 ? threads : standard.threads, rows > 0 ? rows : standard.rows, bytes};
  }
};

/// What was chosen for an operator and the dtype of its first tensor.
struct TunedPolicy {
  std::string op;
  DType dtype = DType::f32;
  LaunchPolicy policy;
};

/// The user's choices for an architecture, from the file that `truefuse tune --save` writes:
/// TRUEFUSE_TUNING, else tuning.txt in $XDG_CONFIG_HOME/truefuse or ~/.config/truefuse. A line
/// holds an architecture without its features, operator, dtype and a policy, `#` begins a comment:
///
///   gfx90a bias_gelu bf16 threads=256 rows=2 bytes=16
///
/// A line that says something else costs a warning and is left out. No file: none.
std::vector<TunedPolicy> tuned_policies(std::string_view arch);

/// Of the text of such a file; `name` is for warnings.
std::vector<TunedPolicy> parse_tuning(std::string_view text, std::string_view arch,
                                      const std::string& name);

}  // namespace truefuse
