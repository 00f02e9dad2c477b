#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

#include <truefuse/jit/cache.h>
#include <truefuse/jit/cache_directory.h>
#include <truefuse/jit/log.h>

namespace truefuse::jit {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Candidate {
  std::string path;
  std::string origin;   // Where the path comes from.
  std::string problem;  // Why it is not even looked at.
};

// $HOME is not made, and not used if it is somebody else's (sudo keeps HOME).
std::string problem_with_home(const std::string& home) {
  struct stat status {};
  if (home.empty()) return "HOME is not set";
  if (!home.starts_with('/')) return "HOME is not an absolute path";
  if (::stat(home.c_str(), &status) != 0) return "HOME cannot be used (" + error_words(errno) + ")";
  if (status.st_uid != ::geteuid()) {
    return "HOME belongs to user " + std::to_string(status.st_uid) +
           ", but this process runs as user " + std::to_string(::geteuid());
  }
  return "";
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
  if (const std::string path = environment("TRUEFUSE_CACHE_DIR"); !path.empty()) {
    all.push_back({path, "TRUEFUSE_CACHE_DIR", ""});
  }
  if (const std::string path = environment("XDG_CACHE_HOME"); !path.empty()) {
    all.push_back({path + "/truefuse", "XDG_CACHE_HOME", ""});
  }
  const std::string home = environment("HOME");
  all.push_back({home + "/.cache/truefuse", "HOME", problem_with_home(home)});
  all.push_back({"/tmp/truefuse-" + std::to_string(::geteuid()), "the last resort", ""});
  return all;
}

bool holds_entries(const CacheDirectory& directory) {
  const std::vector<std::string> names = names_in(directory.fd.get());
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".tfk"); });
}

}  // namespace

std::string Cache::default_directory(std::vector<std::string>* reasons) {
  std::vector<std::string> unwanted;
  std::vector<std::string>& said = reasons != nullptr ? *reasons : unwanted;
  const std::string wish = environment("TRUEFUSE_CACHE");
  if (wish == "off") {
    said.push_back("TRUEFUSE_CACHE=off: nothing is kept on disk");
    return "";
  }
  if (!wish.empty() && wish != "on") {
    warn_once("TRUEFUSE_CACHE", "TRUEFUSE_CACHE=" + wish + " is neither on nor off; it stays on");
  }
  for (const Candidate& candidate : candidates()) {
    const std::string name =
        "the cache directory " + candidate.path + " (" + candidate.origin + ")";
    if (!candidate.problem.empty()) {
      said.push_back(name + " is passed over: " + candidate.problem);
      continue;
    }
    const CacheDirectory directory = open_cache_directory(candidate.path, IfMissing::create);
    if (directory.writable) return candidate.path;
    const bool worth_reading = directory.fd && holds_entries(directory);
    said.push_back(name + (worth_reading ? " is only read: " : " is passed over: ") +
                   directory.problem);
    // Somebody asked for this one.
    if (candidate.origin == "TRUEFUSE_CACHE_DIR")
      warn_once("cache directory " + candidate.path, said.back());
    if (worth_reading) return candidate.path;
  }
  warn_once("no cache directory",
            "no directory can hold compiled kernels; each process compiles its own. Set "
            "TRUEFUSE_CACHE_DIR to a directory that only you can write");
  return "";
}

}  // namespace truefuse::jit
