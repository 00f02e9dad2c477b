#pragma once

#include <string>

#include <truefuse/host/plan.h>
#include <truefuse/jit/source.h>

namespace truefuse::host {

/// The function of a C++ file that includes "truefuse/host/plan.h": compiled, or taken from the
/// cache, and loaded. `source` holds the file and what it includes with quotes; the standard
/// library's headers are the compiler's. The same text gives the same function, which stays valid
/// for the rest of the process: calls may be running in it.
///
/// Throws Error: no compiler, the compiler's words with the place in the file, a file that exports
/// no plan or one for another version of the header.
abi::Function& load_plan(const jit::Source& source, const std::string& label);

}  // namespace truefuse::host
