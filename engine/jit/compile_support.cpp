#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/elf.h>

extern char** environ;

namespace truefuse::jit {
namespace {

namespace fs = std::filesystem;

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    throw Error("the compiler's input " + path +
                " could not be written; set TMPDIR to a directory that is writable and has room");
  }
}

}  // namespace

Program probe_program() {
  Program program;
  program.name = "truefuse_probe";
  program.text =
      "#if defined(__HIP__) && !defined(__HIPCC_RTC__)\n"
      "#include <hip/hip_runtime.h>\n"
      "#endif\n"
      "extern \"C\" __global__ void truefuse_probe(float* out) { out[threadIdx.x] = 1.0f; }\n";
  return program;
}

void check_options(const std::vector<std::string>& options) {
  constexpr std::array<std::string_view, 14> kOwned = {"-arch",
                                                       "--gpu-architecture",
                                                       "-gencode",
                                                       "--generate-code",
                                                       "-code",
                                                       "--offload-arch",
                                                       "-std",
                                                       "--std",
                                                       "-I",
                                                       "--include-path",
                                                       "--amdgpu-target",
                                                       "-o",
                                                       "--output-file",
                                                       "-x"};
  for (const std::string& option : options) {
    const bool is_owned = std::any_of(kOwned.begin(), kOwned.end(), [&](std::string_view owned) {
      return option.starts_with(owned) &&
             (owned == "-I" || option.size() == owned.size() || option[owned.size()] == '=');
    });
    if (is_owned || option.find("--offload-arch") != std::string::npos) {
      throw Error(
          "compile option \"" + option +
          "\" cannot be given: target, language standard, include directories and output are "
          "set by the compiler object; pass the architecture as the argument `arch`");
    }
    if (!option.starts_with('-')) {
      throw Error("compile option \"" + option +
                  "\" does not begin with -; write an option and its value as one element "
                  "(-DNAME=VALUE)");
    }
  }
}

std::string joined(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += (text.empty() ? "" : " ") + argument;
  return text;
}

Arch parse_arch_for(Vendor vendor, std::string_view compiler, std::string_view arch) {
  Arch parsed = parse_arch(arch);
  if (parsed.vendor != vendor) {
    throw Error(std::string(compiler) + " compiles for " +
                (vendor == Vendor::nvidia ? "NVIDIA (sm_...)" : "AMD and Hygon (gfx...)") +
                " devices; " + parsed.text + " is none of them");
  }
  return parsed;
}

std::vector<std::pair<std::string, std::string>> environment_parts(
    const std::vector<std::string>& names, const std::vector<std::string>& prefixes) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (std::find(names.begin(), names.end(), name) != names.end() ||
        std::any_of(prefixes.begin(), prefixes.end(),
                    [&](const std::string& prefix) { return name.starts_with(prefix); })) {
      parts.emplace_back("environment " + std::string(name), text.substr(equals + 1));
    }
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

std::vector<std::pair<std::string, std::string>> instructions_in(
    std::vector<std::pair<std::string, std::string>> identity) {
  std::erase_if(identity, [](const auto& part) {
    return part.first != "compiler" && part.first != "arguments" &&
           !part.first.starts_with("environment ");
  });
  return identity;
}

std::vector<std::pair<std::string, std::string>> Compiler::instructions() const {
  return instructions_in(identity());
}

std::string write_program(const Program& program, const std::string& directory,
                          std::string_view suffix) {
  for (const auto& [name, text] : program.headers) {
    const fs::path path(name);
    if (path.empty() || path.is_absolute() ||
        std::find(path.begin(), path.end(), fs::path("..")) != path.end()) {
      throw Error("kernel header \"" + name +
                  "\" has no name inside the program's own directory; use a relative name without "
                  "\"..\"");
    }
    std::error_code ignored;  // write_file reports what is wrong.
    fs::create_directories((fs::path(directory) / path).parent_path(), ignored);
    write_file(directory + "/" + name, text);
  }
  std::string main;
  for (const char c : program.name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '.';
    main += is_plain ? c : '_';
  }
  if (!main.ends_with(suffix)) main += suffix;
  while (program.headers.contains(main)) main = "program_" + main;
  write_file(directory + "/" + main, program.text);
  return main;
}

void check_object(const CodeObject& object, std::string_view compiler) {
  if (Elf::parse(object.code)) return;
  throw Error(std::string(compiler) + " reported success but gave " +
              (object.code.empty()
                   ? "no code"
                   : std::to_string(object.code.size()) + " bytes that are no code object") +
              "; is the disk with TMPDIR (or /tmp) full?" +
              (object.log.empty() ? "" : "\n" + object.log));
}

void TargetChoices::trust(std::string_view arch) {
  const std::string text = parse_arch(arch).text;
  const std::lock_guard lock(mutex_);
  // What was refused before a device vouched for it is asked again.
  if (!std::exchange(trusted_[text], true)) choices_.erase(text);
}

bool TargetChoices::is_trusted(const Arch& arch) {
  const std::lock_guard lock(mutex_);
  return trusted_.contains(arch.text);
}

TargetChoices::Choice TargetChoices::choose(const Arch& arch, const Probe& probe) {
  const std::lock_guard lock(mutex_);
  if (const auto found = choices_.find(arch.text); found != choices_.end()) return found->second;
  const bool is_reported = trusted_.contains(arch.text);
  Choice choice;
  const std::vector<Arch> targets = is_reported ? targets_for(arch) : std::vector<Arch>{arch};
  for (const Arch& target : targets) {
    const std::string refusal = probe(target, is_reported);
    if (refusal.empty()) {
      choice = {target.text, {}};
      break;
    }
    if (!choice.refusal.empty()) choice.refusal += "\n" + target.text + " was tried too: ";
    choice.refusal += refusal;
  }
  return choices_.emplace(arch.text, choice).first->second;
}

}  // namespace truefuse::jit
