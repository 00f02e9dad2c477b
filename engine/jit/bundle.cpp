#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/log.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kMagic = "truefuse-bundle\n";
constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
constexpr std::string_view kEnvironment = "environment ";

/// Whether a key part is a variable that may change what the compiler makes of a source. HIP_PATH,
/// HIP_ROCCLR_HOME, NVCC_CCBIN and their like only say where its files are.
bool instructs(std::string_view part) {
  return part.starts_with(kEnvironment) && !part.ends_with("PATH") && !part.ends_with("_HOME") &&
         !part.ends_with("_CCBIN");
}

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

/// Takes an integer off the front; nothing if there are too few bytes.
template <class T>
std::optional<T> take(std::string_view& bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[i]));
  }
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::string read_bundle(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  std::string bytes;
  int error = 0;
  if (!file || ::fstat(file.get(), &status) != 0) {
    error = errno;
  } else if (!S_ISREG(status.st_mode) || status.st_size > kMostBytes) {
    throw Error("the bundle " + path + " is not a regular file of at most 4 GiB");
  } else {
    error = read_all(file.get(), static_cast<std::size_t>(status.st_size), &bytes);
  }
  if (error != 0) {
    throw Error("the bundle " + path + " cannot be read: " + error_words(error));
  }
  return bytes;
}

}  // namespace

std::string request_digest(const Key& key) {
  Key request;
  for (const auto& [name, value] : key.parts()) {
    if (name == "format" || name == "compiler" || name == "arguments" || name == "option" ||
        name == "program" || name.starts_with("file ") || instructs(name)) {
      request.add(name, value);
    }
  }
  return request.digest();
}

std::vector<std::string> instructing_variables(const Key& key) {
  std::vector<std::string> names;
  for (const auto& [name, value] : key.parts()) {
    if (instructs(name)) names.push_back(name.substr(kEnvironment.size()));
  }
  return names;
}

Bundle::Bundle(std::vector<CacheEntry> entries) : entries_(std::move(entries)) {
  for (const CacheEntry& entry : entries_) requests_.push_back(request_digest(entry.key));
}

std::string Bundle::pack(const std::vector<CacheEntry>& entries) {
  std::string out(kMagic);
  put<std::uint32_t>(out, static_cast<std::uint32_t>(entries.size()));
  for (const CacheEntry& entry : entries) {
    const std::string bytes = serialize_entry(entry);
    put<std::uint64_t>(out, bytes.size());
    out += bytes;
  }
  return out;
}

std::optional<Bundle> Bundle::parse(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  const std::optional<std::uint32_t> count = take<std::uint32_t>(bytes);
  if (!count) return std::nullopt;
  std::vector<CacheEntry> entries;
  for (std::uint32_t i = 0; i < *count; ++i) {
    const std::optional<std::uint64_t> size = take<std::uint64_t>(bytes);
    if (!size || *size > bytes.size()) return std::nullopt;
    std::optional<CacheEntry> entry = parse_entry(bytes.substr(0, *size));
    if (!entry) return std::nullopt;
    bytes.remove_prefix(*size);
    entries.push_back(std::move(*entry));
  }
  if (!bytes.empty()) return std::nullopt;
  return Bundle(std::move(entries));
}

Bundle Bundle::open(const std::string& spec) {
  const std::size_t hash = spec.rfind('#');
  const std::string digest = hash == std::string::npos ? std::string() : spec.substr(hash + 1);
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw Error(
        "a bundle is named PATH#SHA256, with 64 hexadecimal digits as `truefuse cache pack` "
        "prints them; this is \"" +
        spec + "\"");
  }
  const std::string path = spec.substr(0, hash);
  const std::string bytes = read_bundle(path);
  if (const std::string found = sha256_hex(bytes); found != digest) {
    throw Error("the bundle " + path + " has the SHA-256 " + found + ", not " + digest +
                " as was said; it is another one or damaged");
  }
  std::optional<Bundle> bundle = parse(bytes);
  if (!bundle) throw Error("the file " + path + " is no bundle of this version of truefuse");
  return std::move(*bundle);
}

std::shared_ptr<const Bundle> Bundle::current() {
  static std::mutex mutex;
  static std::string spec_read;
  static std::shared_ptr<const Bundle> bundle;
  const char* const text = std::getenv("TRUEFUSE_BUNDLE");
  const std::string spec = text == nullptr ? "" : text;
  const std::scoped_lock lock(mutex);
  if (spec == spec_read) return bundle;
  spec_read = spec;
  bundle = nullptr;
  if (spec.empty()) return bundle;
  try {
    bundle = std::make_shared<const Bundle>(open(spec));
  } catch (const Error& error) {
    warn_once("bundle " + spec, std::string("TRUEFUSE_BUNDLE is not used: ") + error.what());
  }
  return bundle;
}

const CacheEntry* Bundle::find(const std::vector<std::string>& requests, const Arch& device) const {
  const CacheEntry* best = nullptr;
  std::string best_target;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (std::find(requests.begin(), requests.end(), requests_[i]) == requests.end()) continue;
    const std::string target = entries_[i].key.value_of("target");
    if (target == device.text) return &entries_[i];
    bool runs = false;
    try {
      runs = runs_on(parse_arch(target), device);
    } catch (const Error&) {  // Of a target that is no GPU.
    }
    // The longer name states more.
    if (runs && (best == nullptr ||
                 std::pair(target.size(), target) > std::pair(best_target.size(), best_target))) {
      best = &entries_[i];
      best_target = target;
    }
  }
  return best;
}

void Bundle::remove(const CacheEntry* found) {
  const auto at = found - entries_.data();
  entries_.erase(entries_.begin() + at);
  requests_.erase(requests_.begin() + at);
}

}  // namespace truefuse::jit
