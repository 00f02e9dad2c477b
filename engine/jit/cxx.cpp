#include <algorithm>
#include <cstdlib>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/cxx.h>
#include <truefuse/jit/file_identity.h>

namespace truefuse::jit {
namespace {

/// Variables that would let g++ read or write files that the key does not know. To g++ an empty
/// path is none at all, but an empty DEPENDENCIES_OUTPUT is a file name.
const std::vector<std::pair<std::string, std::string>> kCleanEnvironment = {
    {"CPATH", ""},        {"CPLUS_INCLUDE_PATH", ""},
    {"LIBRARY_PATH", ""}, {"DEPENDENCIES_OUTPUT", "/dev/null"},
    {"LC_ALL", "C"},
};

/// A path as it is if it names a program, else what PATH knows under the name; may be empty.
std::string program_named(const std::string& name) {
  if (name.find('/') == std::string::npos) return find_program(name);
  return access(name.c_str(), X_OK) == 0 ? name : std::string();
}

}  // namespace

std::optional<std::string> Cxx::find() {
  if (const char* const wanted = std::getenv("TRUEFUSE_CXX"); wanted != nullptr && *wanted != 0) {
    std::string program = program_named(wanted);
    if (program.empty()) {
      throw Error("TRUEFUSE_CXX is \"" + std::string(wanted) +
                  "\", which is no program here; name a C++ compiler, or unset it");
    }
    return program;
  }
  const char* const cxx = std::getenv("CXX");
  for (const char* const candidate : {cxx != nullptr ? cxx : "", "g++", "c++"}) {
    if (*candidate == 0) continue;
    if (std::string program = program_named(candidate); !program.empty()) return program;
  }
  return std::nullopt;
}

std::string Cxx::ask(const std::string& question) const {
  ProcessOptions options;
  options.environment = kCleanEnvironment;
  options.time_limit = std::chrono::seconds(20);
  const ProcessResult result = run_process({program_, question}, options);
  return result.ok() ? result.output : std::string();
}

const Cxx::Facts& Cxx::facts() const {
  std::call_once(facts_once_, [&] {
    facts_.version = ask("--version");
    // `program_` is a driver, or a wrapper such as ccache; what compiles is found through it.
    facts_.worker = ask("-print-prog-name=cc1plus");
    while (facts_.worker.ends_with('\n')) facts_.worker.pop_back();
  });
  return facts_;
}

std::string Cxx::version() const { return facts().version.substr(0, facts().version.find('\n')); }

std::vector<std::pair<std::string, std::string>> Cxx::identity() const {
  std::vector<std::pair<std::string, std::string>> parts;
  // Without the first word, which is the name that the program was called by.
  const std::string& version = facts().version;
  parts.emplace_back("g++ version", version.substr(std::min(version.find(' '), version.size())));
  parts.emplace_back("g++", file_identity(program_));
  if (facts().worker.starts_with('/')) {
    parts.emplace_back("cc1plus", file_identity(facts().worker));
  }
  return parts;
}

ProcessResult Cxx::run(const std::vector<std::string>& arguments,
                       const std::string& directory) const {
  std::vector<std::string> command = {program_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProcessOptions process;
  process.directory = directory;
  process.environment = kCleanEnvironment;
  process.time_limit = std::chrono::minutes(5);
  return run_process(command, process);
}

std::vector<std::string> prefix_maps(const std::string& directory) {
  return {"-ffile-prefix-map=" + directory + "/=", "-fdebug-prefix-map=" + directory + "=."};
}

}  // namespace truefuse::jit
