#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include <truefuse/core/error.h>
#include <truefuse/jit/arch.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/cache.h>
#include <truefuse/jit/diagnostics.h>
#include <truefuse/jit/log.h>
#include <truefuse/jit/statistics.h>

namespace truefuse::jit {
namespace {

// Changes whenever the meaning of an entry changes.
constexpr const char* kFormat = "1";

std::mutex paths_mutex;

SearchPaths& paths() {
  static SearchPaths instance;
  return instance;
}

/// Decided anew for each build, as for each question about the cache: both see the same directory.
Cache current_cache() { return Cache(Cache::default_directory()); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void refuse_to_compile_if_forbidden(const BuildRequest& request) {
  if (request.may_compile) return;
  throw Error(request.label + " is not compiled for " + request.arch +
              ", and TRUEFUSE_NO_COMPILE forbids to do it now. Compile ahead with "
              "truefuse.prepare(...), which may, or unset the variable");
}

void add_source(Key& key, const BuildRequest& request) {
  for (const std::string& option : request.options) key.add("option", option);
  key.add("program", request.program.text);
  for (const auto& [name, text] : request.program.headers) key.add_digest("file " + name, text);
}

/// As each compiler would be given it here and now.
std::vector<std::string> request_digests(const BuildRequest& request) {
  std::vector<std::string> digests;
  for (const auto& instructions : instructions_for(request.arch)) {
    Key key;
    key.add("format", kFormat);
    for (const auto& [name, value] : instructions) key.add(name, value);
    add_source(key, request);
    digests.push_back(request_digest(key));
  }
  return digests;
}

/// From an entry that some compiler made.
Built built_from(CacheEntry entry) {
  Built built;
  built.target = entry.key.value_of("target");
  built.compiler = entry.key.value_of("compiler");
  built.key = std::move(entry.key);
  built.from_cache = true;
  built.compile_seconds = entry.compile_seconds;
  built.code = std::move(entry.code);
  return built;
}

/// From the bundle, if there is one and it holds the kernel.
std::optional<Built> find_in_bundle(const BuildRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<const Bundle> bundle = Bundle::current();
  if (bundle == nullptr || !request.compiler.empty()) return std::nullopt;
  const Arch device = parse_arch(request.arch);
  const CacheEntry* const entry = bundle->find(request_digests(request), device);
  if (entry == nullptr) {
    log_decision("bundle miss (" + request.label + ") for " + device.text);
    return std::nullopt;
  }
  Built built = built_from(*entry);
  log_decision("bundle hit (" + request.label + "): built for " + built.target +
               (built.target == device.text ? "" : ", which runs on " + device.text));
  built.seconds = seconds_since(begin);
  record(Event::bundle, built.seconds);
  return built;
}

/// Where there is no compiler, no entry is of another than would be used now: one of the same
/// request serves, as in a bundle. `truefuse cache unpack` puts such entries there.
std::optional<Built> find_whoever_compiled(const BuildRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const Cache cache = current_cache();
  std::vector<CacheEntry> kept;
  for (Key& key : cache.keys()) {
    if (may_be_used(key.value_of("compiler"))) kept.push_back({"", std::move(key), "", 0});
  }
  Bundle entries(std::move(kept));
  const std::vector<std::string> requests = request_digests(request);
  const Arch device = parse_arch(request.arch);
  // A damaged entry may have a sound key: then the next best is asked.
  while (const CacheEntry* const found = entries.find(requests, device)) {
    std::optional<CacheEntry> entry = cache.lookup(found->key);
    if (!entry) {
      entries.remove(found);
      continue;
    }
    Built built = built_from(std::move(*entry));
    log_decision("no compiler that may be used is here: the entry for " + built.target + " by " +
                 built.compiler + " is used (" + request.label + ")");
    built.seconds = seconds_since(begin);
    record(Event::disk, built.seconds);
    return built;
  }
  return std::nullopt;
}

CacheEntry compile(Compiler& compiler, const BuildRequest& request, const Key& key) {
  refuse_to_compile_if_forbidden(request);
  const auto begin = std::chrono::steady_clock::now();
  CacheEntry entry;
  try {
    entry.code = compiler.compile(request.program, request.arch, request.options).code;
  } catch (const Error& error) {
    record(Event::failed, seconds_since(begin));
    log_decision(error.what());
    throw Error(on_one_screen(request.program, error.what()));
  } catch (...) {
    record(Event::failed, seconds_since(begin));
    throw;
  }
  entry.compile_seconds = seconds_since(begin);
  entry.label = request.label;
  entry.key = key;
  return entry;
}

}  // namespace

void set_search_paths(SearchPaths new_paths) {
  const std::scoped_lock lock(paths_mutex);
  paths() = std::move(new_paths);
}

SearchPaths search_paths() {
  const std::scoped_lock lock(paths_mutex);
  return paths();
}

bool compiling_is_forbidden() {
  const char* text = std::getenv("TRUEFUSE_NO_COMPILE");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

Key key_of(const BuildRequest& request, const Compiler& compiler, const std::string& target) {
  Key key;
  key.add("format", kFormat);
  for (const auto& [name, value] : compiler.identity()) key.add(name, value);
  key.add("target", target);
  add_source(key, request);
  return key;
}

Built build_with(Compiler& compiler, const BuildRequest& request) {
  Built built;
  built.compiler = compiler.name();
  built.target = compiler.target_for(request.arch);
  built.key = key_of(request, compiler, built.target);

  const auto begin = std::chrono::steady_clock::now();
  CacheEntry entry;
  if (request.use_cache) {
    entry = current_cache().lookup_or_compile(
        built.key, [&] { return compile(compiler, request, built.key); }, &built.from_cache);
  } else {
    entry = compile(compiler, request, built.key);
  }
  built.seconds = seconds_since(begin);
  record(built.from_cache ? Event::disk : Event::compiled, built.seconds);
  built.compile_seconds = entry.compile_seconds;
  built.code = std::move(entry.code);
  return built;
}

Built build(const BuildRequest& request) {
  const SearchPaths paths = search_paths();
  if (request.use_cache) {
    if (std::optional<Built> built = find_in_bundle(request)) return std::move(*built);
    // An entry for the device's own target exists only if the compiler took it; so a hit needs no
    // question to it, and a compiler library, which takes longer to load than an entry, stays on
    // disk. For an earlier target the compiler must first have refused the device's own, which
    // build_with() asks. Only the preferred compiler is looked up here: to identify nvcc or hipcc
    // means to run them.
    const auto begin = std::chrono::steady_clock::now();
    const Arch arch = parse_arch(request.arch);
    const auto compilers = compilers_for(request.arch, paths, request.compiler);
    std::vector<Arch> targets = {arch};
    if (request.arch_is_reported_by_device) targets = targets_for(arch);
    if (compilers.empty()) {
      targets.clear();
      // A compiler that is named but not there is a mistake, which its error below tells.
      if (request.compiler.empty() && !is_any_named(request.arch)) {
        if (std::optional<Built> built = find_whoever_compiled(request)) return std::move(*built);
      }
    }
    for (const Arch& target : targets) {
      // Code for an earlier chip of the family runs too, but is not what this one's compiler makes.
      if (target.base != arch.base && request.may_compile) break;
      Built built;
      built.key = key_of(request, *compilers.front(), target.text);
      std::optional<CacheEntry> entry = current_cache().lookup(built.key, false);
      if (!entry) continue;
      built.compiler = compilers.front()->name();
      built.target = target.text;
      built.from_cache = true;
      built.compile_seconds = entry->compile_seconds;
      built.code = std::move(entry->code);
      built.seconds = seconds_since(begin);
      record(Event::disk, built.seconds);
      return built;
    }
  }
  refuse_to_compile_if_forbidden(request);  // Asking a compiler may mean to compile a probe.
  return build_with(
      *compiler_for(request.arch, paths, request.compiler, request.arch_is_reported_by_device),
      request);
}

}  // namespace truefuse::jit
