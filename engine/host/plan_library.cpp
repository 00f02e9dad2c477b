#include <fstream>
#include <map>
#include <memory>
#include <mutex>

#include <truefuse/core/error.h>
#include <truefuse/host/embedded.h>
#include <truefuse/host/plan_compiler.h>
#include <truefuse/host/plan_library.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/shared_library.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::host {
namespace {

/// Never destroyed: functions are called until the process ends.
struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<PlanCompiler>> compilers;  // By path.
  std::map<std::string, abi::Function*> functions;                 // By digest of the texts.
};

Loaded& loaded() {
  static auto* instance = new Loaded;
  return *instance;
}

PlanCompiler& compiler_of(Loaded& all, const std::string& file) {
  const std::optional<std::string> program = jit::Cxx::find();
  if (!program) {
    throw Error(file +
                ": a plan in C++ needs a C++ compiler, and there is none here: install g++, or "
                "name one in TRUEFUSE_CXX");
  }
  std::unique_ptr<PlanCompiler>& compiler = all.compilers[*program];
  if (!compiler) compiler = std::make_unique<PlanCompiler>(*program);
  return *compiler;
}

/// Loads the library from a file of a new name: the loader takes one of a name that it knows for
/// the one that it has. Once loaded, it needs no file.
jit::SharedLibrary open(const std::string& code, const std::string& file) {
  const jit::TemporaryDirectory directory;
  const std::string path = directory.path() + "/plan.so";
  std::ofstream(path, std::ios::binary) << code;
  std::string why;
  std::optional<jit::SharedLibrary> library = jit::SharedLibrary::open(path, &why);
  if (!library) {
    throw Error(file + " is compiled, but cannot be loaded: " + why +
                ". TMPDIR must be a directory with room, on a file system that programs may be "
                "run from");
  }
  return *std::move(library);
}

abi::Function& exported(const jit::SharedLibrary& library, const std::string& file) {
  auto* const exported = library.function<abi::Export>(abi::kExport);
  if (exported == nullptr) {
    throw Error(file +
                " exports no plan; write TRUEFUSE_PLAN(name of the function) below the function, "
                "outside of any namespace");
  }
  const abi::Plan* const plan = exported();
  if (plan == nullptr || plan->version != abi::kVersion || plan->function == nullptr) {
    throw Error(file + " is made for " +
                (plan == nullptr ? "no version" : "version " + std::to_string(plan->version)) +
                " of truefuse/host/plan.h; this truefuse has version " +
                std::to_string(abi::kVersion) +
                ". Include its own \"truefuse/host/plan.h\", and no copy of an older one");
  }
  return *plan->function;
}

}  // namespace

abi::Function& load_plan(const jit::Source& given, const std::string& label) {
  jit::Source source = given;
  for (const auto& [name, text] : host_files()) source.files.insert_or_assign(name, text);
  const jit::Program program = jit::resolve(source, {}, jit::Outside::left_to_compiler);
  jit::Key texts;
  texts.add("program", program.text);
  for (const auto& [name, text] : program.headers) texts.add_digest(name, text);

  Loaded& all = loaded();
  const std::scoped_lock lock(all.mutex);
  abi::Function*& function = all.functions[texts.digest()];
  if (function != nullptr) return *function;
  PlanCompiler& compiler = compiler_of(all, source.name);
  jit::BuildRequest request;
  request.program = compiler.preprocessed(program);
  request.label = label;
  request.arch = kHostArch;
  request.may_compile = !jit::compiling_is_forbidden();
  const jit::Built built = jit::build_with(compiler, request);
  function = &exported(open(built.code, source.name), source.name);
  return *function;
}

}  // namespace truefuse::host
