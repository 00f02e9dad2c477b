#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include <truefuse/core/error.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/program_compiler.h>
#include <truefuse/jit/sha256.h>
#include <truefuse/jit/shared_library.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {
namespace {

std::string log_of(const ProcessResult& result) {
  std::string log = result.errors + result.output;
  while (!log.empty() && log.back() == '\n') log.pop_back();
  return log;
}

/// Words of a command line as a shell would split it, with $NAME replaced from `variables`.
std::vector<std::string> words_of(std::string_view line,
                                  const std::map<std::string, std::string>& variables) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false, quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      quoted = !quoted;
      in_word = true;
    } else if (c == ' ' && !quoted) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else if (c == '$') {
      std::size_t end = i + 1;
      while (end < line.size() &&
             (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_')) {
        ++end;
      }
      const auto found = variables.find(std::string(line.substr(i + 1, end - i - 1)));
      if (found != variables.end()) word += found->second;
      in_word = true;
      i = end - 1;
    } else {
      word += c == '\\' && i + 1 < line.size() ? line[++i] : c;
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  return words;
}

std::string program_in(const std::string& word,
                       const std::map<std::string, std::string>& variables) {
  if (word.find('/') != std::string::npos) return word;
  const auto path = variables.find("PATH");
  std::string_view list = path == variables.end() ? std::string_view{} : path->second;
  while (!list.empty()) {
    const std::string directory(list.substr(0, list.find(':')));
    list.remove_prefix(std::min(directory.size() + 1, list.size()));
    std::error_code ignored;
    std::string candidate = directory + "/" + word;
    if (std::filesystem::is_regular_file(candidate, ignored)) return candidate;
  }
  return find_program(word);
}

void add_once(std::vector<std::string>& list, const std::string& value) {
  if (!value.empty() && std::find(list.begin(), list.end(), value) == list.end())
    list.push_back(value);
}

}  // namespace

DryRun parse_dry_run(std::string_view text) {
  DryRun result;
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    constexpr std::string_view kNvcc = "#$ ";
    if (line.starts_with(kNvcc)) {
      line.remove_prefix(kNvcc.size());
      const std::size_t equals = line.find('=');
      const std::string name(line.substr(0, std::min(equals, line.size())));
      if (equals != std::string_view::npos && name.find_first_of(" \"$/-") == std::string::npos) {
        const std::vector<std::string> value = words_of(line.substr(equals + 1), variables);
        variables[name] = value.empty() ? std::string() : value[0];
        // cicc is told in its environment.
        if (name == "NVVMIR_LIBRARY_DIR") add_once(result.library_directories, variables[name]);
        continue;
      }
    } else if (!line.starts_with(" \"")) {
      continue;  // A banner or a warning.
    }
    const std::vector<std::string> words = words_of(line, variables);
    if (words.empty()) continue;
    if (!words[0].starts_with("rm")) add_once(result.programs, program_in(words[0], variables));
    for (const std::string& word : words) {
      if (word.ends_with(".bc") && word.starts_with('/')) {
        add_once(result.library_directories, std::filesystem::path(word).parent_path().string());
      }
    }
  }
  return result;
}

std::vector<std::string> parse_make_rule(std::string_view text) {
  std::vector<std::string> files;
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) files.push_back(std::exchange(word, {}));
  };
  const std::size_t colon = text.find(": ");
  if (colon == std::string_view::npos) return files;
  text.remove_prefix(colon + 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
      word += text[++i];
    } else if (text[i] == ' ' || text[i] == '\n' || text[i] == '\\') {
      finish();
    } else {
      word += text[i];
    }
  }
  finish();
  return files;
}

ProcessResult ProgramCompiler::run(const std::vector<std::string>& arguments,
                                   const std::string& directory) const {
  std::vector<std::string> command = {path_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  ProcessOptions options;
  options.directory = directory;
  options.environment = environment();
  // Intermediate files go with the directory, also where the compiler is killed.
  if (!directory.empty()) options.environment.emplace_back("TMPDIR", directory);
  return run_process(command, options);
}

std::string ProgramCompiler::version() const {
  const std::lock_guard lock(mutex_);
  if (!version_text_) version_text_ = run({"--version"}, {}).output;
  return version_in(*version_text_);
}

std::vector<std::pair<std::string, std::string>> ProgramCompiler::identity() const {
  std::vector<std::pair<std::string, std::string>> parts;
  {
    const std::lock_guard lock(mutex_);
    if (!identity_) identity_ = find_identity();
    parts = *identity_;
  }
  for (auto& part : how_it_is_run()) parts.push_back(std::move(part));
  return parts;
}

std::vector<std::pair<std::string, std::string>> ProgramCompiler::instructions() const {
  // Without find_identity(), which runs the program.
  std::vector<std::pair<std::string, std::string>> parts = {{"compiler", name()}};
  for (auto& part : how_it_is_run()) parts.push_back(std::move(part));
  return instructions_in(std::move(parts));
}

std::vector<std::pair<std::string, std::string>> ProgramCompiler::how_it_is_run() const {
  std::vector<std::pair<std::string, std::string>> parts = {
      {"arguments", joined(arguments("TARGET", {}, "INPUT", "OUTPUT"))}};
  for (auto& part : more_identity()) parts.push_back(std::move(part));
  return parts;
}

std::vector<std::pair<std::string, std::string>> ProgramCompiler::find_identity() const {
  const TemporaryDirectory directory;
  const std::string input = write_program(probe_program(), directory.path(), suffix());
  ProcessResult dry_run, includes;
  for (const Queries& query : queries(input)) {
    dry_run = run(query.dry_run, directory.path());
    if (!dry_run.ok()) continue;
    includes = run(query.includes, directory.path());
    if (includes.ok()) break;
  }
  if (!dry_run.ok() || !includes.ok()) {
    const ProcessResult& failed = dry_run.ok() ? includes : dry_run;
    throw Error(name() + " (" + path_ + ") does not work: asked what it consists of, it " +
                failed.how_it_ended() + ":\n" + log_of(failed));
  }
  const ProcessResult version = run({"--version"}, {});
  std::vector<std::pair<std::string, std::string>> parts = {
      {"compiler", name()},
      {name() + " --version", sha256_hex(version.output)},
      {name() + " program", file_identity(path_)}};
  const DryRun used = parse_dry_run(dry_run.errors + dry_run.output);
  for (const std::string& program : used.programs) {
    const std::string file = std::filesystem::path(program).filename().string();
    parts.emplace_back(name() + " uses " + file, file_identity(program));
    for (const std::string& library :
         dependencies(program, {"libLLVM", "libclang", "liblld"}, /*in_this_process=*/false)) {
      parts.emplace_back(file + " dependency", file_identity(library));
    }
  }
  for (const std::string& path : used.library_directories) {
    parts.emplace_back("device libraries", directory_digest(path, ".bc"));
  }
  std::set<std::string> headers;
  for (const std::string& file : parse_make_rule(includes.output)) {
    if (file.starts_with('/')) headers.insert(file_identity(file));
  }
  std::string text;
  for (const std::string& header : headers) text += header + "\n";
  parts.emplace_back(name() + " headers", sha256_hex(text));
  return parts;
}

TargetChoices::Choice ProgramCompiler::choose(const Arch& arch) {
  return choices_.choose(arch, [this](const Arch& target, bool) -> std::string {
    // A full or missing TMPDIR is no answer about the target, and is not remembered as one.
    { const TemporaryDirectory writable; }
    try {
      compile_for(probe_program(), target.text, {});
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  });
}

std::string ProgramCompiler::refusal(std::string_view arch) {
  try {
    return choose(parse_arch_for(vendor_, name(), arch)).refusal;
  } catch (const Error& error) {
    return error.what();
  }
}

std::string ProgramCompiler::target_for(std::string_view text) {
  const Arch arch = parse_arch_for(vendor_, name(), text);
  // Only for reported ones may the target differ; for others the compile itself will tell.
  if (!choices_.is_trusted(arch)) return arch.text;
  const TargetChoices::Choice choice = choose(arch);
  if (choice.target.empty()) throw Error(choice.refusal);
  return choice.target;
}

CodeObject ProgramCompiler::compile(const Program& program, std::string_view arch,
                                    const std::vector<std::string>& options) {
  check_options(options);
  return compile_for(program, target_for(arch), options);
}

CodeObject ProgramCompiler::compile_for(const Program& program, const std::string& target,
                                        const std::vector<std::string>& options) const {
  const TemporaryDirectory directory;
  const std::string input = write_program(program, directory.path(), suffix());
  const std::string output = "truefuse_output.bin";
  const ProcessResult result = run(arguments(target, options, input, output), directory.path());
  CodeObject object;
  object.target = target;
  object.log = log_of(result);
  if (!result.ok()) {
    throw Error(name() + " (" + path_ + ") could not compile \"" + program.name + "\" for " +
                target + ": it " + result.how_it_ended() +
                (object.log.empty() ? "" : ":\n" + object.log));
  }
  std::ifstream file(directory.path() + "/" + output, std::ios::binary);
  object.code = extract(std::string(std::istreambuf_iterator<char>(file), {}), target);
  check_object(object, name());
  return object;
}

std::string ProgramCompiler::extract(std::string output, const std::string&) const {
  return output;
}

}  // namespace truefuse::jit
