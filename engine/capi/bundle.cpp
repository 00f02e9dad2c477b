#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/bundle.h>
#include <truefuse/capi/parallel.h>
#include <truefuse/core/error.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/cache.h>
#include <truefuse/jit/cache_limit.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/sha256.h>
#include <truefuse/operator/operator.h>

namespace truefuse::capi {
namespace {

std::vector<std::string> words_in(const char* text) {
  std::vector<std::string> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

std::vector<const Operator*> operators_named(const std::vector<std::string>& names) {
  if (names.empty()) return registered_operators();
  std::vector<const Operator*> found;
  for (const std::string& name : names) {
    found.push_back(find_operator(name));
    if (found.back() == nullptr) throw Error("there is no operator \"" + name + "\"");
  }
  return found;
}

/// Where the variable is not set, as on most machines, another kernel is wanted.
void refuse_instructing_variables(const jit::Built& built) {
  const std::vector<std::string> names = jit::instructing_variables(built.key);
  if (names.empty()) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error("a bundle's kernels are compiled without flags from the environment, but " +
              built.compiler + " reads " + list + ", which is set here: unset it and pack again");
}

std::vector<jit::CacheEntry> compile_all(const std::vector<const Operator*>& operators,
                                         const std::vector<std::string>& archs, int jobs) {
  std::vector<jit::BuildRequest> requests;
  for (const std::string& arch : archs) {
    const DeviceFacts device = facts_of_absent(arch);
    for (const Operator* op : operators) {
      for (const Operator::NamedVariant& variant : variants_for(*op, device)) {
        jit::BuildRequest& request = requests.emplace_back();
        request.program = program_of(*op, variant.variant);
        request.label = op->name + " " + variant.label;
        request.arch = arch;
      }
    }
  }
  if (requests.empty()) throw Error("none of these operators has a kernel for these targets");
  std::vector<jit::CacheEntry> entries(requests.size());
  in_parallel(requests.size(), jobs, [&](std::size_t i) {
    jit::Built built = jit::build(requests[i]);
    refuse_instructing_variables(built);
    entries[i] = {requests[i].label, built.key, std::move(built.code), built.compile_seconds};
  });
  return entries;
}

/// A file that takes its place when it is whole, so that a bundle in use is never half another.
/// Made before the work that fills it, which may take long.
class FileInTheMaking {
 public:
  explicit FileInTheMaking(std::string path)
      : path_(std::move(path)),
        temporary_(path_ + "." + std::to_string(std::random_device()()) + ".tmp") {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) fail(EISDIR);
    fd_ =
        jit::Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd_) fail(errno);
  }
  ~FileInTheMaking() { ::unlink(temporary_.c_str()); }
  FileInTheMaking(const FileInTheMaking&) = delete;
  FileInTheMaking& operator=(const FileInTheMaking&) = delete;

  void finish(std::string_view bytes) {
    if (const int error = jit::write_all(fd_.get(), bytes)) fail(error);
    if (::fsync(fd_.get()) != 0) fail(errno);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  }

 private:
  [[noreturn]] void fail(int error) const {
    throw Error("the bundle " + path_ + " cannot be written (" + jit::error_words(error) + ")");
  }

  std::string path_, temporary_;
  jit::Descriptor fd_;
};

}  // namespace
}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_bundle_pack(const char* path, const char* ops, const char* archs, int jobs) {
  return capi::answer([&](JsonWriter& json) {
    const std::vector<std::string> targets = capi::words_in(archs);
    if (targets.empty()) throw Error("a bundle needs at least one architecture to compile for");
    const std::vector<const Operator*> wanted = capi::operators_named(capi::words_in(ops));
    capi::FileInTheMaking file(path);
    const std::vector<jit::CacheEntry> entries = capi::compile_all(wanted, targets, jobs);
    const std::string bytes = jit::Bundle::pack(entries);
    file.finish(bytes);
    json.begin_object();
    json.key("path").string(path);
    json.key("entries").integer(static_cast<std::int64_t>(entries.size()));
    json.key("bytes").integer(static_cast<std::int64_t>(bytes.size()));
    json.key("sha256").string(jit::sha256_hex(bytes));
    json.end_object();
  });
}

char* truefuse_bundle_unpack(const char* spec) {
  return capi::answer([&](JsonWriter& json) {
    const jit::Bundle bundle = jit::Bundle::open(spec);
    const jit::Cache cache(jit::Cache::default_directory());
    if (cache.directory().empty()) throw Error("there is no cache folder to unpack into");
    for (const jit::CacheEntry& entry : bundle.entries()) cache.publish(entry);
    // Only now: to keep one may have removed another.
    int published = 0;
    for (const jit::CacheEntry& entry : bundle.entries()) {
      published += cache.lookup(entry.key).has_value();
    }
    if (published < static_cast<int>(bundle.entries().size())) {
      throw Error("only " + std::to_string(published) + " of " +
                  std::to_string(bundle.entries().size()) + " kernels are in the cache folder " +
                  cache.directory() +
                  " now: `truefuse doctor` says whether it can be written; TRUEFUSE_CACHE_LIMIT "
                  "says how much it may hold");
    }
    json.begin_object();
    json.key("directory").string(cache.directory());
    json.key("entries").integer(published);
    json.end_object();
  });
}

char* truefuse_cache_verify(int repair) {
  return capi::answer([&](JsonWriter& json) {
    const jit::Cache cache(jit::Cache::default_directory());
    const std::vector<jit::Cache::Listing> entries = cache.list();
    std::int64_t bytes = 0;
    for (const jit::Cache::Listing& entry : entries) bytes += entry.bytes;
    json.begin_object();
    json.key("directory").string(cache.directory());
    json.key("entries").integer(static_cast<std::int64_t>(entries.size()));
    json.key("bytes").integer(bytes);
    json.key("limit").integer(jit::cache_limit_bytes());
    json.key("damaged").begin_array();
    for (const jit::Cache::Listing& entry : entries) {
      if (!entry.valid) json.string(entry.path);
    }
    json.end_array();
    json.key("removed").integer(repair != 0 ? cache.remove_damaged() : 0);
    json.end_object();
  });
}

}  // extern "C"
