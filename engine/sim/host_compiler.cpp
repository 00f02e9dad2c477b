#include <algorithm>
#include <fstream>
#include <sstream>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/sha256.h>
#include <truefuse/jit/temporary_directory.h>
#include <truefuse/sim/embedded.h>
#include <truefuse/sim/host_compiler.h>
#include <truefuse/sim/registration.h>

namespace truefuse::sim {
namespace {

/// 32 or 64; 0 for an architecture that is not the simulator's.
int wave_of(std::string_view arch) {
  if (arch == "sim:wave32") return 32;
  if (arch == "sim:wave64") return 64;
  return 0;
}

struct Sanitizers {
  bool address = false, undefined = false, race = false, trace = false;
  std::vector<std::string> definitions;
};

Sanitizers parse_options(const std::vector<std::string>& options) {
  Sanitizers result;
  for (const std::string& option : options) {
    if (option == "--sanitize=address") {
      result.address = true;
    } else if (option == "--sanitize=undefined") {
      result.undefined = true;
    } else if (option == "--sanitize=race") {
      result.race = true;
    } else if (option == "--trace") {
      result.trace = true;
    } else if (option.starts_with("-DTF_") || option.starts_with("-DTRUEFUSE_")) {
      result.definitions.push_back(option);
    } else if (option != "--sanitize=none") {
      throw Error(
          "the simulator's compiler does not know the option \"" + option +
          "\"; it takes --sanitize=address, undefined, race or none, --trace, and -DTF_NAME=VALUE");
    }
  }
  if (result.address && (result.race || result.trace)) {
    throw Error(
        "--sanitize=address cannot be one executable with --sanitize=race or --trace; make two");
  }
  return result;
}

/// The addresses in a report are looked up in the file: no position-independent executable. The
/// runtime switches stacks, which a shadow stack forbids.
std::vector<std::string> fixed_options() {
  return {
    "-std=c++17", "-O1",
        "-g1",        // Functions and lines, also of what was inlined,
        "-gdwarf-4",  // with the right file: binutils 2.40 takes another one out of version 5.
        "-fno-omit-frame-pointer", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-pie",
        "-Wno-attributes",
#if defined(__x86_64__)
        "-fcf-protection=none",
#endif
  };
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

void write_text(const std::string& path, std::string_view text, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.close();
  if (!file) {
    throw Error("the compiler's input " + path +
                " could not be written; set TMPDIR to a directory that is writable and has room");
  }
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

std::unique_ptr<HostCompiler> HostCompiler::find() {
  const std::optional<std::string> program = jit::Cxx::find();
  return program ? std::make_unique<HostCompiler>(*program) : nullptr;
}

std::vector<std::pair<std::string, std::string>> HostCompiler::identity() const {
  std::vector<std::pair<std::string, std::string>> parts = cxx_.identity();
  std::string runtime;
  for (const auto& [name, text] : sim_runtime_files()) {
    runtime += name + "\n" + std::to_string(text.size()) + "\n" + text;
  }
  parts.emplace_back("simulator runtime", jit::sha256_hex(runtime));
  parts.emplace_back("arguments", jit::joined(fixed_options()));
  return parts;
}

std::string HostCompiler::refusal(std::string_view arch) {
  if (wave_of(arch) != 0) return {};
  return "the simulator knows sim:wave32 and sim:wave64, not " + std::string(arch);
}

/// What the compiler prints as warnings. Throws Error with its words if it fails.
std::string HostCompiler::run(const std::vector<std::string>& arguments,
                              const std::string& directory, const std::string& what) const {
  jit::ProcessResult result = cxx_.run(arguments, directory);
  if (!result.ok()) {
    throw Error("the simulator's compiler " + path() + " " + result.how_it_ended() + " on " + what +
                ":\n" + result.errors);
  }
  return std::move(result.errors);
}

/// Everything but the kernel, as an object file: the same for every kernel with these options.
const std::string& HostCompiler::runtime_object(const std::vector<std::string>& options) {
  const std::scoped_lock lock(runtimes_mutex_);
  std::string& object = runtimes_[options];
  if (!object.empty()) return object;
  const jit::TemporaryDirectory directory;
  const std::string at = directory.path() + "/";
  const jit::Program program{"runtime", "#include \"truefuse/sim/main.h\"\n", sim_runtime_files()};
  std::vector<std::string> command = options;
  append(command, jit::prefix_maps(directory.path()));
  append(command, {"-I" + at, "-c", jit::write_program(program, directory.path(), ".cpp"), "-o",
                   at + "runtime.o"});
  run(command, directory.path(), "its own runtime");
  return object = read_text(at + "runtime.o");
}

jit::CodeObject HostCompiler::compile(const jit::Program& program, std::string_view arch,
                                      const std::vector<std::string>& options) {
  if (const std::string reason = refusal(arch); !reason.empty()) throw Error(reason);
  const Sanitizers sanitizers = parse_options(options);
  const int wave = wave_of(arch);

  std::vector<std::string> common = fixed_options();
  append(common, sanitizers.definitions);
  if (sanitizers.address) common.push_back("-fsanitize=address");
  std::vector<std::string> of_runtime = common;
  if (sanitizers.race) of_runtime.push_back("-DTF_SIM_RACE=1");
  if (sanitizers.trace) of_runtime.push_back("-DTF_SIM_TRACE=1");
  const std::string& runtime = runtime_object(of_runtime);
  if (sanitizers.undefined) {
    append(common, {"-fsanitize=undefined", "-fno-sanitize-recover=all"});
  }

  jit::Program whole = program;
  for (const auto& [name, text] : sim_runtime_files()) whole.headers.insert_or_assign(name, text);
  const jit::TemporaryDirectory directory;
  append(common, jit::prefix_maps(directory.path()));
  const std::string source = jit::write_program(whole, directory.path(), ".cpp");
  const std::string at = directory.path() + "/";
  const std::string what = "kernel source " + program.name;

  std::vector<std::string> command = common;
  append(command, {"-DTRUEFUSE_SIM=1", "-DTF_WAVE=" + std::to_string(wave), "-I" + at});
  append(command, {"-include", "truefuse/sim/lane.h", "-E", source, "-o", "kernel.ii"});
  std::string log = run(command, directory.path(), what);

  const std::vector<KernelDefinition> kernels = find_kernels(read_text(at + "kernel.ii"));
  write_text(at + "kernel.ii", registration_of(kernels, wave), std::ios::app);

  command = common;
  if (sanitizers.race || sanitizers.trace) command.push_back("-fsanitize=thread");
  append(command, {"-c", "kernel.ii", "-o", "kernel.o"});
  log += run(command, directory.path(), what);

  write_text(at + "runtime.o", runtime, std::ios::trunc);
  command = common;
  append(command, {"-no-pie", "kernel.o", "runtime.o", "-o", "kernel", "-pthread"});
  log += run(command, directory.path(), what);

  jit::CodeObject object;
  object.code = read_text(at + "kernel");
  object.log = std::move(log);
  object.target = arch;
  jit::check_object(object, name());
  return object;
}

}  // namespace truefuse::sim
