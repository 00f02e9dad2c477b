#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace truefuse::jit {

enum class Vendor { nvidia, amd };  ///< `amd`: every gfx target, Hygon's included.

/// A GPU architecture, taken whole: "sm_90a", "gfx936:sramecc+:xnack-".
struct Arch {
  Vendor vendor = Vendor::nvidia;
  std::string text;  ///< Canonical: features in alphabetical order, as devices report them.
  std::string base;  ///< Without features: "gfx936", "sm_90a".
  std::vector<std::pair<std::string, bool>> features;  ///< "sramecc" -> on; sorted, AMD only.
  int number = 0;         ///< NVIDIA: 90 of "sm_90a". AMD: major version, 9 of "gfx90a".
  char suffix = 0;        ///< NVIDIA: 'a' (this architecture only), 'f' (its family) or 0.
  int wave = 32;          ///< Lanes per wave (warp).
  bool is_hygon = false;  ///< A DCU by its name. Z100 calls itself gfx906 and cannot be told here.

  friend bool operator==(const Arch&, const Arch&) = default;
};

/// Reads an architecture string. Throws Error saying what is wrong with it and how a right one
/// looks. Any well-formed name is accepted, also one that no list knows: whether a compiler can
/// handle it is the compiler's answer.
Arch parse_arch(std::string_view text);

/// Whether code built for `target` runs on `device`. AMD: same base, and every feature that the
/// target states is stated alike by the device. NVIDIA: same major version and no higher minor one;
/// with 'a' the same number, with 'f' the same family.
bool runs_on(const Arch& target, const Arch& device);

/// What may be compiled for a device that reports `device`, best first: its own name; then what a
/// compiler older than the device may know and runs_on() holds for. AMD: the base name. NVIDIA: the
/// name without its suffix, then lower minor versions of the same major one.
std::vector<Arch> targets_for(const Arch& device);

}  // namespace truefuse::jit
