#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <truefuse/description/description.h>
#include <truefuse/description/geometry.h>
#include <truefuse/description/samples.h>
#include <truefuse/description/schema_names.h>
#include <truefuse/host/plan_library.h>

namespace truefuse::description {
namespace {

constexpr std::array<std::string_view, 15> kKeys{
    "operator", "summary", "schema",   "contract",  "kernel", "plan", "let",     "constants",
    "scratch",  "launch",  "examples", "reference", "cpu",    "gpu",  "backward"};
constexpr std::array<std::string_view, 5> kNeeded{"operator", "summary", "schema", "contract",
                                                  "reference"};
/// What is said of a kernel, beside its file's name.
constexpr std::array<std::string_view, 6> kOfKernel{"launch",    "plan",    "let",
                                                    "constants", "scratch", "examples"};

/// A contract and the expressions over it, which live as long as the operator's plan.
struct Program {
  Program(const std::string& name, Contract parsed)
      : contract(std::move(parsed)), geometry(name, contract) {}
  Contract contract;
  Geometry geometry;
};

std::size_t line_of(const File& file, std::size_t place) {
  return 1 + static_cast<std::size_t>(std::count(
                 file.text.begin(), file.text.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
}

std::string place_of(const File& file, const Entry& entry) {
  return file.name + ":" + std::to_string(line_of(file, entry.place));
}

class Reader {
 public:
  explicit Reader(const Sources& sources)
      : sources_(sources), file_(without_comments(sources.name, sources.text)) {
    for (Entry& entry : entries_of(file_)) {
      if (std::find(kKeys.begin(), kKeys.end(), entry.key) == kKeys.end()) {
        file_.fail(entry.place, "there is no entry '" + entry.key + "'; there are " + list(kKeys));
      }
      if (entry.key != "launch" && find(entry.key) != nullptr) {
        file_.fail(entry.place, entry.key + " is given twice");
      }
      entries_.push_back(std::move(entry));
    }
    for (const std::string_view key : kNeeded) {
      if (find(key) == nullptr) {
        throw Error(file_.name + ": the entry '" + std::string(key) +
                    ":' is missing; a description needs " + list(kNeeded) +
                    ", and kernel and launch, or functions in cpu or gpu");
      }
    }
  }

  std::unique_ptr<Described> read() {
    auto described = std::make_unique<Described>();
    Operator& op = described->op;
    read_names(op);
    op.summary = find("summary")->plain(file_);
    op.contract = read_contract();
    require_arguments(op.contract);
    read_functions(*described);
    if (find("kernel") != nullptr) {
      read_kernel(op);
    } else {
      do_without_kernel(*described);
    }
    described->schema_place = place_of(file_, *find("schema"));
    return described;
  }

 private:
  template <std::size_t n>
  static std::string list(const std::array<std::string_view, n>& words) {
    std::string text;
    for (const std::string_view word : words)
      text += (text.empty() ? "" : ", ") + std::string(word);
    return text;
  }

  const Entry* find(std::string_view key) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    return found == entries_.end() ? nullptr : &*found;
  }

  void read_names(Operator& op) const {
    Scanner scanner = find("operator")->scanner(file_);
    op.name_space = scanner.name("a namespace, as in my_ops::name");
    if (!scanner.accept("::")) scanner.fail_expected("'::' and a name, as in my_ops::name");
    op.name = scanner.name("the operator's name");
    if (!scanner.at_end()) scanner.fail_expected("the end of the entry");
    const Entry& entry = *find("schema");
    op.schema = entry.plain(file_);
    if (!op.schema.starts_with(op.name + "(")) {
      file_.fail(entry.begin,
                 "the schema must begin with the operator's name: " + op.name + "(...)");
    }
    if (!sources_.op_name.empty()) {
      op.schema = sources_.op_name + op.schema.substr(op.name.size());
      op.name = sources_.op_name;
    }
    if (!sources_.name_space.empty()) op.name_space = sources_.name_space;
  }

  Contract read_contract() const {
    const Entry& entry = *find("contract");
    try {
      // As it stands first: the caret of an error then is under the line that the file has.
      Contract::parse(std::string_view(file_.text).substr(entry.begin, entry.end - entry.begin));
      return Contract::parse(entry.plain(file_));
    } catch (const Error& error) {
      throw Error(place_of(file_, entry) + ": " + error.what());
    }
  }

  /// Names that only one of schema and contract has, before a kernel's parameter of that name is
  /// called unknown. The rest of the schema is for PyTorch to read.
  void require_arguments(const Contract& contract) const {
    const Entry& entry = *find("schema");
    const auto& arguments = contract.arguments();
    for (const auto& [name, place] : schema_arguments(file_, entry)) {
      if (std::none_of(arguments.begin(), arguments.end(),
                       [&](const ArgumentSpec& argument) { return argument.name == name; })) {
        file_.fail(place, "the contract says nothing of " + name +
                              ", an argument of the schema: add '" + name + ": ...' to it");
      }
    }
  }

  void read_kernel(Operator& op) const {
    const Entry& kernel = *find("kernel");
    if (const Entry* gpu = find("gpu")) {
      file_.fail(gpu->place,
                 "the kernel runs on a GPU; a function in 'gpu:' stands in its place, "
                 "so one of the two has to go");
    }
    if (find("launch") == nullptr) {
      file_.fail(kernel.place,
                 "the entry 'launch:' is missing, which says how many blocks of the kernel run");
    }
    const auto program = std::make_shared<Program>(op.name, op.contract);
    Geometry& geometry = program->geometry;
    read_geometry(geometry);
    op.source = source_of(kernel, kernel.plain(file_));
    geometry.bind(file_, op.source.name, op.source.files.find(op.source.name)->second);
    use_plan(geometry);
    op.constants = geometry.constant_names();
    op.plan = [program](const Call& call, const DeviceFacts& device, Plan& plan) {
      program->geometry.plan(call, device, plan);
    };
    op.variants = read_variants(op, geometry);
  }

  /// Functions of Python are all that there is: its plan says so.
  void do_without_kernel(Described& described) const {
    for (const std::string_view key : kOfKernel) {
      if (const Entry* entry = find(key)) {
        file_.fail(entry->place,
                   std::string(key) +
                       " is about a kernel, and the entry 'kernel:' is missing, which "
                       "names its file");
      }
    }
    if (described.cpu.empty() && described.gpu.empty()) {
      throw Error(file_.name +
                  ": the entry 'kernel:' is missing, which names the kernel's file. Without a "
                  "kernel a description names Python functions that run in its place: in 'gpu:', "
                  "in 'cpu:', or both");
    }
    described.has_kernel = false;
    described.op.plan = [name = described.op.name](const Call& /*call*/,
                                                   const DeviceFacts& /*device*/, Plan& /*plan*/) {
      throw Error(name +
                  " has no kernel that truefuse could run: its description names Python "
                  "functions in its place");
    };
  }

  void read_geometry(Geometry& geometry) const {
    if (const Entry* entry = find("plan")) {
      Scanner scanner = Scanner::in_file(file_.name, file_.text, arrow_of(*entry) + 2, entry->end);
      geometry.read_plan(file_, scanner);
    }
    if (const Entry* entry = find("let")) geometry.read_let(file_, *entry);
    if (const Entry* entry = find("constants")) geometry.read_constants(file_, *entry);
    if (const Entry* entry = find("scratch")) geometry.read_scratch(file_, *entry);
    for (const Entry& entry : entries_) {
      if (entry.key == "launch") geometry.read_launch(file_, entry);
    }
  }

  /// Of `plan: plan.cpp -> splits`.
  std::size_t arrow_of(const Entry& entry) const {
    const std::size_t arrow = file_.text.find("->", entry.begin);
    if (arrow < entry.end) return arrow;
    file_.fail(entry.begin,
               "a plan is a C++ file and the values that it gives: plan.cpp -> splits");
  }

  /// The function is compiled once the texts are known to fit.
  void use_plan(Geometry& geometry) const {
    const Entry* entry = find("plan");
    if (entry == nullptr) return;
    Entry name = *entry;
    name.end = arrow_of(*entry);
    const jit::Source source = source_of(*entry, name.plain(file_));
    geometry.use_plan(source.name, host::load_plan(source, source.name));
  }

  /// Of a file beside the description, which an entry names.
  jit::Source source_of(const Entry& entry, const std::string& name) const {
    if (!sources_.files.contains(name)) {
      std::string known;
      for (const auto& [file, text] : sources_.files) known += (known.empty() ? "" : ", ") + file;
      file_.fail(entry.begin, "there is no file '" + name + "' beside the description; there are " +
                                  (known.empty() ? "none" : known));
    }
    jit::Source source;
    source.name = sources_.prefix + "/" + name;
    for (const auto& [file, text] : sources_.files)
      source.files[sources_.prefix + "/" + file] = text;
    return source;
  }

  std::vector<Example> read_examples(const Contract& contract) const {
    std::vector<Example> examples;
    const Entry* entry = find("examples");
    if (entry == nullptr) {
      // A round number and an odd one.
      for (const std::int64_t size : {1024, 7}) {
        Example& example = examples.emplace_back();
        for (const Symbol& symbol : contract.symbols()) example[symbol.name] = size;
      }
      return examples;
    }
    Scanner scanner = entry->scanner(file_);
    do {
      Example& example = examples.emplace_back();
      const std::size_t begin = scanner.position();
      do {
        const std::size_t place = scanner.position();
        const std::string name = scanner.name("a size or an int argument");
        scanner.expect("=");
        if (!is_number(contract, name))
          file_.fail(place, "no size and no int argument is named " + name);
        example[name] = scanner.integer("a whole number");
      } while (scanner.accept(","));
      for (const Symbol& symbol : contract.symbols()) {
        if (!example.contains(symbol.name))
          file_.fail(begin, "this example gives no " + symbol.name);
      }
    } while (scanner.accept(";") && !scanner.at_end());
    if (!scanner.at_end()) scanner.fail_expected("',', ';' or the end of the entry");
    return examples;
  }

  static bool is_number(const Contract& contract, const std::string& name) {
    for (const Symbol& symbol : contract.symbols()) {
      if (symbol.name == name) return true;
    }
    for (const ArgumentSpec& argument : contract.arguments()) {
      const auto* scalar = std::get_if<ScalarSpec>(&argument.spec);
      if (argument.name == name && scalar != nullptr && std::holds_alternative<IntSpec>(*scalar))
        return true;
    }
    return false;
  }

  std::vector<Operator::NamedVariant> read_variants(const Operator& op,
                                                    const Geometry& geometry) const {
    const std::vector<Example> examples = read_examples(op.contract);
    try {
      return variants_of(op.name, op.contract, geometry, examples);
    } catch (const Error& error) {
      const Entry* entry = find("examples");
      throw Error(entry != nullptr ? place_of(file_, *entry) + ": " + error.what()
                                   : file_.name + ": " + error.what() +
                                         ". Give an 'examples:' entry with sizes that fit");
    }
  }

  std::string read_name(std::string_view key, std::string_view what) const {
    Scanner scanner = find(key)->scanner(file_);
    std::string name = scanner.name(what);
    if (!scanner.at_end()) scanner.fail_expected("the end of the entry");
    return name;
  }

  void read_functions(Described& described) const {
    described.reference = read_name("reference", "the name of a Python function");
    if (find("cpu") != nullptr) {
      described.cpu = read_name("cpu", "'simulator' or the name of a Python function");
      if (described.cpu == "simulator") described.cpu.clear();
    }
    if (find("gpu") != nullptr) described.gpu = read_name("gpu", "the name of a Python function");
    const Entry* entry = find("backward");
    if (entry == nullptr) return;
    if (const std::string file = entry->plain(file_); file.ends_with(".txt")) {
      described.backward_file = file;
      return;
    }
    Scanner scanner = entry->scanner(file_);
    described.backward_function =
        scanner.name("a description ending in .txt, or the name of a Python function");
    scanner.expect("->");
    do {
      const std::size_t place = scanner.position();
      const std::string name = scanner.name("an argument's name");
      const auto& arguments = described.op.contract.arguments();
      if (std::none_of(arguments.begin(), arguments.end(), [&](const ArgumentSpec& argument) {
            return argument.name == name && argument.tensor() != nullptr;
          })) {
        file_.fail(place, "no tensor argument is named " + name);
      }
      described.gradients.push_back(name);
    } while (scanner.accept(","));
    if (!scanner.at_end()) scanner.fail_expected("',' or the end of the entry");
  }

  const Sources& sources_;
  File file_;
  std::vector<Entry> entries_;
};

}  // namespace

std::unique_ptr<Described> read(const Sources& sources) { return Reader(sources).read(); }

}  // namespace truefuse::description
