#pragma once

#include <string>
#include <vector>

#include <truefuse/jit/compiler.h>
#include <truefuse/jit/key.h>
#include <truefuse/jit/source.h>
#include <truefuse/jit/toolchains.h>

namespace truefuse::jit {

struct BuildRequest {
  Program program;
  std::string label;  ///< For people: shown by `truefuse cache list`.
  std::string arch;   ///< Whole: "gfx90a:sramecc+:xnack-", "sm_90a", "sim:wave64".
  /// An arch that a device itself reports is never refused by a list.
  bool arch_is_reported_by_device = false;
  std::vector<std::string> options;  ///< One element each, passed through to the compiler.
  std::string compiler;              ///< Name of the compiler to use; empty: the best one found.
  bool use_cache = true;    ///< False: neither read nor written (measuring a cold compile).
  bool may_compile = true;  ///< False: a miss throws (TRUEFUSE_NO_COMPILE).
};

struct Built {
  std::string code;
  Key key;
  std::string compiler;  ///< Name and version, for people.
  std::string target;    ///< The arch string that was really compiled for.
  bool from_cache = false;
  double seconds = 0;          ///< What this call cost: compile or cached load.
  double compile_seconds = 0;  ///< What compiling cost, now or when the entry was made.
};

/// Where compilers may be found besides the usual places. For the whole process; set by whoever
/// knows PyTorch.
void set_search_paths(SearchPaths paths);
SearchPaths search_paths();

/// Whether TRUEFUSE_NO_COMPILE turns a late compile into an error.
bool compiling_is_forbidden();

/// Everything that decides the code: compiler identity, target, options, program and headers.
Key key_of(const BuildRequest& request, const Compiler& compiler, const std::string& target);

/// Source to code object by a given compiler: makes the key, asks the cache, compiles on a miss.
/// Throws Error: the compiler's own words, or a forbidden compile.
Built build_with(Compiler& compiler, const BuildRequest& request);

/// The same by the best compiler for the arch (or the one that the request names). What is in the
/// cache is found without loading any compiler. Throws Error also if nothing found compiles for the
/// arch, with what to install.
Built build(const BuildRequest& request);

}  // namespace truefuse::jit
