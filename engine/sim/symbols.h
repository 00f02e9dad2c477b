#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <truefuse/sim/simulator.h>

namespace truefuse::sim {

/// The first place in a list of stack frames as a sanitizer prints them ("#1 0x4 in f file:12")
/// that lies in a kernel's source, not in the device headers, the runtime or a library.
SimPlace place_in_stack(std::string_view text);

/// UndefinedBehaviorSanitizer's finding without its place: "load of misaligned address ...". Empty
/// if the text holds none.
std::string undefined_behaviour_in(std::string_view text);

/// What AddressSanitizer says of a signal, as kind and sentence; crash and nothing if it says none.
std::pair<SimFaultKind, std::string> signal_in(std::string_view text);

/// The kernel's source line for an address in an executable, by addr2line; line 0 where that cannot
/// be told.
SimPlace place_of_address(const std::string& executable_path, std::uint64_t pc);

}  // namespace truefuse::sim
