#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::jit {

/// Texts by name, for instance "truefuse/device.h": plain relative paths with '/'. Give every file
/// a directory: compilers that read files are pointed at these names before their own, so a bare
/// "math.h" here would hide the system's.
using Files = std::map<std::string, std::string, std::less<>>;

/// A compile-time constant of a kernel: becomes `#define NAME VALUE` in front of the source. Names
/// are long and prefixed (TF_...), because short macros break the headers that hipRTC injects.
struct Constant {
  std::string name;
  std::string value;

  friend bool operator==(const Constant&, const Constant&) = default;
};

/// A kernel before compilation: a main file and everything that it may include.
struct Source {
  std::string name;  ///< Name of the main file in `files`.
  Files files;
};

/// A kernel whose includes are all found: nothing outside this value can change what is compiled,
/// except the compiler itself with its own headers.
struct Program {
  std::string name;  ///< Always kProgramName: no directory, so no compiler searches there.
  std::string text;  ///< Constants, then `#include` of the main file.
  Files headers;     ///< Exactly the files reached from `text`.
};

inline constexpr std::string_view kProgramName = "truefuse_program.hip";

/// Headers that a compiler brings along. `#include <name>` of one of these is left to the compiler,
/// whose identity covers it, unless Source::files holds the name. Write it under an #if that is
/// true only for compilers that have it; the run-time compilers have none.
inline constexpr std::array<std::string_view, 1> kCompilerHeaders{"hip/hip_runtime.h"};

/// What becomes of `<name>` that is not among a source's files.
enum class Outside {
  refused,           ///< All but kCompilerHeaders.
  left_to_compiler,  ///< For a compiler whose headers the key covers.
};

/// Follows every #include and __has_include from the main file, also in inactive branches.
///
/// `#include "name"` means the file of that name beside the including file, else the file of
/// exactly that name; `#include <name>` means the file of exactly that name. Because compilers
/// search differently (NVRTC knows no "beside" but reads the working directory), each name in the
/// texts of the Program is replaced, on its line, by `<full name>`: one spelling for one file,
/// searched for by exact name only.
///
/// Throws Error, with file and line, for a name that `source.files` does not hold (see `outside`
/// for those in angle brackets) and for whatever
/// scan_includes() refuses; for a constant whose name is not an identifier with the prefix TF_ or
/// TRUEFUSE_, is given twice, or whose value is not a part of one line.
Program resolve(const Source& source, const std::vector<Constant>& constants,
                Outside outside = Outside::refused);

}  // namespace truefuse::jit
