#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/compiler.h>

namespace truefuse::jit {

/// Where the host program's own libraries may be; both may be empty.
struct SearchPaths {
  std::string torch_lib_dir;                  ///< ".../site-packages/torch/lib"
  std::vector<std::string> python_site_dirs;  ///< ".../site-packages"
};

/// Absolute path of each, empty if there is none. In order: the environment variable named (which,
/// if set, is the only place), what this process has mapped already, what PyTorch would load,
/// Python packages, vendor directories, the loader's directories.
std::string find_nvrtc(const SearchPaths& paths);   ///< TRUEFUSE_NVRTC
std::string find_hiprtc(const SearchPaths& paths);  ///< TRUEFUSE_HIPRTC
std::string find_nvcc();                            ///< TRUEFUSE_NVCC
std::string find_hipcc();                           ///< TRUEFUSE_HIPCC

/// False if TRUEFUSE_RTC=0: then only nvcc and hipcc are used.
bool rtc_allowed();
/// False for the name of a compiler that TRUEFUSE_RTC=0 excludes.
bool may_be_used(std::string_view compiler);

/// Whether an environment variable names a compiler for the vendor of `arch`, there or not.
bool is_any_named(std::string_view arch);

/// How each compiler for the vendor of `arch` would be told to compile (Compiler::instructions()),
/// best first, whether it is here or not.
std::vector<std::vector<std::pair<std::string, std::string>>> instructions_for(
    std::string_view arch);

/// The compilers found for the vendor of `arch`, best first: NVRTC before nvcc, hipRTC before
/// hipcc. One object per compiler for the life of the process, so that what it has learnt is kept.
/// Loads nothing and compiles nothing. `preference`: the name of the one compiler to use, or empty.
/// Throws Error for a malformed arch or an unknown preference.
std::vector<std::shared_ptr<Compiler>> compilers_for(std::string_view arch,
                                                     const SearchPaths& paths,
                                                     std::string_view preference = {});

/// The first of compilers_for() that compiles for `arch`, decided by asking it. `is_reported`: a
/// device of this machine reported the arch. Throws Error with each refusal and what to install.
std::shared_ptr<Compiler> compiler_for(std::string_view arch, const SearchPaths& paths,
                                       std::string_view preference = {}, bool is_reported = false);

struct Finding {
  std::string name;  ///< "NVRTC", "hipRTC", "nvcc", "hipcc".
  std::string path;  ///< Empty: not found.
  std::string version;
  std::string arch;  ///< That a line was compiled for.
  bool works = false;
  std::string problem;  ///< One paragraph; empty if it works.
  std::string remedy;   ///< What to install or set; empty if it works.
};

/// All four, found or not, each tried on one line. Never throws because of a compiler.
std::vector<Finding> find_toolchains(const SearchPaths& paths);

/// A JSON array of objects with the members of Finding.
std::string to_json(const std::vector<Finding>& findings);

}  // namespace truefuse::jit
