#include <fstream>
#include <sstream>

#include <truefuse/core/error.h>
#include <truefuse/host/plan_compiler.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/diagnostics.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::host {
namespace {

constexpr const char* kPreprocessed = "truefuse/preprocessed.ii";

/// Two libraries with the same names are loaded side by side, so none shows its own to the other.
const std::vector<std::string> kArguments = {"-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden"};

/// Of the one line that a program's text is.
std::string_view file_of(const jit::Program& program) {
  const std::size_t begin = program.text.find('<') + 1;
  return std::string_view(program.text).substr(begin, program.text.find('>') - begin);
}

std::vector<std::string> with(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PlanCompiler::identity() const {
  std::vector<std::pair<std::string, std::string>> parts = cxx_.identity();
  parts.emplace_back("arguments", jit::joined(kArguments));
  return parts;
}

std::string PlanCompiler::refusal(std::string_view arch) {
  if (arch == kHostArch) return {};
  return name() + " compiles for this machine, not for " + std::string(arch);
}

jit::ProcessResult PlanCompiler::run(const jit::Program& program,
                                     const std::vector<std::string>& arguments,
                                     const std::string& directory) const {
  jit::ProcessResult result = cxx_.run(arguments, directory);
  if (result.ok()) return result;
  throw Error("the C++ compiler " + path() + " " + result.how_it_ended() + " on " +
              std::string(file_of(program)) + ":\n" + result.errors);
}

jit::Program PlanCompiler::preprocessed(jit::Program program) const {
  const jit::TemporaryDirectory directory;
  const std::string source = jit::write_program(program, directory.path(), ".cpp");
  try {
    // Relative names: the text must not say where the directory is. Without -MMD, a header that is
    // not there is only a warning where DEPENDENCIES_OUTPUT is set.
    const auto arguments = with(kArguments, {"-I.", "-MMD", "-MF", "/dev/null", "-E", source});
    const jit::ProcessResult result = run(program, arguments, directory.path());
    program.headers[kPreprocessed] = result.output;
  } catch (const Error& error) {
    throw Error(jit::on_one_screen(program, error.what()));
  }
  return program;
}

jit::CodeObject PlanCompiler::compile(const jit::Program& program, std::string_view arch,
                                      const std::vector<std::string>& options) {
  if (const std::string reason = refusal(arch); !reason.empty()) throw Error(reason);
  const jit::TemporaryDirectory directory;
  const jit::Program alone{"plan.ii", program.headers.find(kPreprocessed)->second, {}};
  const std::string source = jit::write_program(alone, directory.path(), ".ii");
  std::vector<std::string> arguments = with(kArguments, options);
  // What is missing is missed here, in the linker's words, and not when it is loaded.
  arguments = with(arguments, {"-shared", "-Wl,-z,defs", source, "-o", "plan.so"});
  jit::CodeObject object;
  object.log = run(program, arguments, directory.path()).errors;
  std::ostringstream code;
  code << std::ifstream(directory.path() + "/plan.so", std::ios::binary).rdbuf();
  object.code = code.str();
  object.target = arch;
  jit::check_object(object, name());
  return object;
}

}  // namespace truefuse::host
