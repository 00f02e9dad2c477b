#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/cache.h>
#include <truefuse/jit/cache_directory.h>
#include <truefuse/jit/cache_limit.h>
#include <truefuse/jit/file_lock.h>
#include <truefuse/jit/log.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kEntrySuffix = ".tfk";
constexpr std::string_view kLockSuffix = ".lock";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kDigestLength = 64;
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
constexpr std::int64_t kFirstPiece = std::int64_t{64} << 10;
constexpr std::int64_t kStaleSeconds = 3600;
constexpr double kDefaultPatience = 60;

bool is_digest(std::string_view text) {
  return text.size() == kDigestLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

enum class FileKind { other, entry, lock, temporary };

// DIGEST.tfk, DIGEST.lock, .DIGEST.PID-RANDOM.tmp
FileKind kind_of(std::string_view name) {
  if (name.starts_with('.')) {
    return is_digest(name.substr(1, kDigestLength)) && name.ends_with(kTemporarySuffix)
               ? FileKind::temporary
               : FileKind::other;
  }
  if (!is_digest(name.substr(0, kDigestLength))) return FileKind::other;
  const std::string_view suffix = name.substr(kDigestLength);
  return suffix == kEntrySuffix  ? FileKind::entry
         : suffix == kLockSuffix ? FileKind::lock
                                 : FileKind::other;
}

std::string short_digest(const std::string& digest) { return digest.substr(0, 12); }

std::string milliseconds_since(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", passed.count());
  return text;
}

void warn_unusable(const std::string& path, const CacheDirectory& directory) {
  warn_once("cache directory " + path,
            "the cache directory " + path + " is not " + (directory.fd ? "written: " : "used: ") +
                directory.problem +
                "; set TRUEFUSE_CACHE_DIR to a directory of your own, or "
                "TRUEFUSE_CACHE=off");
}

// Opens DIGEST.tfk. On failure `problem` says why; it stays empty where there is no such file.
Descriptor open_entry(int directory, const std::string& name, struct stat* status,
                      std::string* problem) {
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  Descriptor fd(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd || ::fstat(fd.get(), status) != 0) {
    if (errno != ENOENT) *problem = "cannot be opened (" + error_words(errno) + ")";
    return {};
  }
  if (!S_ISREG(status->st_mode) || !is_trusted_file(status->st_uid, status->st_mode)) {
    *problem = "is not a regular file that only you or root can write";
    return {};
  }
  return fd;
}

// Reads DIGEST.tfk; `problem` as above.
std::optional<CacheEntry> read_entry(int directory, const std::string& name, std::string* problem) {
  struct stat status {};
  const Descriptor fd = open_entry(directory, name, &status, problem);
  if (!fd) return std::nullopt;
  std::string bytes;
  if (status.st_size > kMostBytes) {
    *problem = "is too large";
  } else if (const int error =
                 read_all(fd.get(), static_cast<std::size_t>(status.st_size), &bytes)) {
    *problem = "cannot be read (" + error_words(error) + ")";
  } else if (std::optional<CacheEntry> entry = parse_entry(bytes)) {
    if (entry->key.digest() + std::string(kEntrySuffix) == name) return entry;
    *problem = "holds the entry of another key";
  } else {
    *problem = "is damaged";
  }
  return std::nullopt;
}

std::string temporary_name(const std::string& digest) {
  // Unique within the process by the count, and on the machine by the process; the random number
  // tells processes apart that share a directory but not their process numbers (containers).
  static std::atomic<unsigned> count{0};
  unsigned random = 0;
  if (::getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) random = 0;
  return "." + digest + "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + "-" +
         std::to_string(random) + std::string(kTemporarySuffix);
}

// Writes `bytes` under `name`, whole or not at all. Returns 0, or an errno value.
int write_atomically(int directory, const std::string& temporary, const std::string& name,
                     std::string_view bytes) {
  Descriptor fd(::openat(directory, temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno;
  int error = write_all(fd.get(), bytes);
  if (error == 0 && ::fsync(fd.get()) != 0) error = errno;
  fd.reset();
  if (error == 0 && ::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) ::unlinkat(directory, temporary.c_str(), 0);
  return error;
}

// What publishers left that were killed.
void remove_stale_temporaries(int directory) {
  const std::int64_t now = std::time(nullptr);
  for (const std::string& name : names_in(directory)) {
    struct stat status {};
    if (kind_of(name) == FileKind::temporary &&
        ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode) && status.st_mtime < now - kStaleSeconds) {
      ::unlinkat(directory, name.c_str(), 0);
    }
  }
}

std::chrono::nanoseconds patience() {
  const char* const text = std::getenv("TRUEFUSE_CACHE_WAIT");
  double seconds = kDefaultPatience;
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (*end == '\0' && value >= 0 && value <= 1e6) {
      seconds = value;
    } else {
      warn_once("TRUEFUSE_CACHE_WAIT", "TRUEFUSE_CACHE_WAIT=" + std::string(text) +
                                           " is not a number of seconds from 0 to 1000000; " +
                                           "60 is used");
    }
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

// Looks the key up in the directory `path`.
std::optional<CacheEntry> find(const std::string& path, const Key& key, bool log_miss) {
  if (path.empty()) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  const std::string digest = key.digest();
  const CacheDirectory directory = open_cache_directory(path, IfMissing::leave);
  if (!directory.fd) {
    if (directory.exists) warn_unusable(path, directory);
    return std::nullopt;
  }
  const std::string name = digest + std::string(kEntrySuffix);
  std::string problem;
  std::optional<CacheEntry> entry = read_entry(directory.fd.get(), name, &problem);
  // The digest in the name matched; a second kernel of that digest must not be believed either.
  if (entry && !(entry->key == key)) {
    entry.reset();
    problem = "holds the entry of another key";
  }
  if (entry && directory.writable) mark_used(directory.fd.get(), name);
  if (!problem.empty()) {
    warn_once("cache entry",
              "the cache entry " + path + "/" + name + " " + problem + "; it is compiled again");
  }
  if (logging() && (entry || log_miss)) {
    log_decision(entry ? "cache hit " + short_digest(digest) + " (" + entry->label + ") in " +
                             milliseconds_since(begin)
                       : "cache miss " + short_digest(digest) +
                             (problem.empty() ? ": no such entry" : ": the entry " + problem));
  }
  return entry;
}

}  // namespace

std::optional<CacheEntry> Cache::lookup(const Key& key, bool log_miss) const {
  return find(directory_, key, log_miss);
}

void Cache::publish(const CacheEntry& entry) const {
  if (directory_.empty() || entry.code.empty()) return;
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::create);
  if (!directory.writable) return warn_unusable(directory_, directory);
  const std::string digest = entry.key.digest();
  const std::string bytes = serialize_entry(entry);
  const int error = write_atomically(directory.fd.get(), temporary_name(digest),
                                     digest + std::string(kEntrySuffix), bytes);
  if (error != 0) {
    warn_once("cache write " + std::to_string(error),
              "the compiled kernel " + entry.label + " cannot be kept in the cache directory " +
                  directory_ + " (" + error_words(error) +
                  "); it works, but is compiled again next time");
  } else if (logging()) {
    log_decision("cache publish " + short_digest(digest) + " (" + entry.label + "), " +
                 std::to_string(bytes.size()) + " bytes");
  }
  remove_stale_temporaries(directory.fd.get());
  std::vector<std::string> entries = names_in(directory.fd.get());
  std::erase_if(entries, [](const std::string& name) { return kind_of(name) != FileKind::entry; });
  evict(directory.fd.get(), entries, cache_limit_bytes(), digest + std::string(kEntrySuffix));
}

CacheEntry Cache::lookup_or_compile(const Key& key, const std::function<CacheEntry()>& compile,
                                    bool* was_hit) const {
  const auto finish = [&](CacheEntry entry, bool hit) {
    if (was_hit != nullptr) *was_hit = hit;
    return entry;
  };
  const auto compile_and_publish = [&] {
    CacheEntry entry = compile();
    entry.key = key;
    if (entry.code.empty()) throw Error("compiling " + entry.label + " gave no code");
    publish(entry);
    return finish(std::move(entry), false);
  };
  if (std::optional<CacheEntry> entry = lookup(key)) return finish(std::move(*entry), true);
  if (directory_.empty()) return compile_and_publish();
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::create);
  if (!directory.writable) return compile_and_publish();

  const std::string digest = key.digest();
  const std::chrono::nanoseconds bound = patience();
  const std::string seconds =
      std::to_string(std::lround(std::chrono::duration<double>(bound).count()));
  const FileLock lock(
      directory.fd.get(), digest + std::string(kLockSuffix), bound, [&](const std::string& owner) {
        warn_once("cache wait " + digest, "waiting for " + owner + ", which compiles the kernel " +
                                              short_digest(digest) + "; at most " + seconds +
                                              " s (TRUEFUSE_CACHE_WAIT)");
      });
  if (lock.result() == FileLock::Result::timed_out) {
    warn_once("cache wait over", "another process still compiles the kernel " +
                                     short_digest(digest) + " after " + seconds +
                                     " s (TRUEFUSE_CACHE_WAIT); compiling it here too");
  } else if (lock.result() == FileLock::Result::impossible) {
    log_decision("cache lock " + short_digest(digest) + " cannot be had; compiling privately");
  }
  // Whoever held the lock before us has published.
  if (std::optional<CacheEntry> entry = find(directory_, key, false))
    return finish(std::move(*entry), true);
  return compile_and_publish();
}

std::vector<Cache::Listing> Cache::list() const {
  std::vector<Listing> listings;
  if (directory_.empty()) return listings;
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::leave);
  if (!directory.fd) return listings;
  for (const std::string& name : names_in(directory.fd.get())) {
    struct stat status {};
    if (kind_of(name) != FileKind::entry ||
        ::fstatat(directory.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    Listing listing;
    listing.digest = name.substr(0, kDigestLength);
    listing.path = directory_ + "/" + name;
    listing.bytes = status.st_size;
    listing.modified_unix_seconds = status.st_mtime;
    std::string problem;
    if (std::optional<CacheEntry> entry = read_entry(directory.fd.get(), name, &problem)) {
      listing.valid = true;
      listing.label = std::move(entry->label);
      listing.key = std::move(entry->key);
      listing.compile_seconds = entry->compile_seconds;
    }
    listings.push_back(std::move(listing));
  }
  std::sort(listings.begin(), listings.end(), [](const Listing& a, const Listing& b) {
    return a.modified_unix_seconds != b.modified_unix_seconds
               ? a.modified_unix_seconds > b.modified_unix_seconds
               : a.digest < b.digest;
  });
  return listings;
}

std::vector<Key> Cache::keys() const {
  std::vector<std::pair<std::int64_t, Key>> found;
  if (directory_.empty()) return {};
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::leave);
  if (!directory.fd) return {};
  for (const std::string& name : names_in(directory.fd.get())) {
    if (kind_of(name) != FileKind::entry) continue;
    struct stat status {};
    std::string problem, bytes;
    const Descriptor fd = open_entry(directory.fd.get(), name, &status, &problem);
    if (!fd || status.st_size > kMostBytes) continue;
    // Nearly every key is in the first piece.
    for (const std::int64_t size : {std::min(kFirstPiece, status.st_size), status.st_size}) {
      if (read_all(fd.get(), static_cast<std::size_t>(size), &bytes) != 0) break;
      if (std::optional<Key> key = peek_key(bytes)) {
        found.emplace_back(status.st_mtime, std::move(*key));
        break;
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Key> keys;
  for (auto& [modified, key] : found) keys.push_back(std::move(key));
  return keys;
}

int Cache::remove_damaged() const {
  if (directory_.empty()) return 0;
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::leave);
  if (!directory.writable) return 0;
  int removed = 0;
  for (const Listing& entry : list()) {
    const std::string name = entry.digest + std::string(kEntrySuffix);
    removed += !entry.valid && ::unlinkat(directory.fd.get(), name.c_str(), 0) == 0;
  }
  return removed;
}

int Cache::clear() const {
  if (directory_.empty()) return 0;
  const CacheDirectory directory = open_cache_directory(directory_, IfMissing::leave);
  if (!directory.writable) {
    if (directory.exists) warn_unusable(directory_, directory);
    return 0;
  }
  int removed = 0;
  for (const std::string& name : names_in(directory.fd.get())) {
    const FileKind kind = kind_of(name);
    struct stat status {};
    if (kind != FileKind::other &&
        ::fstatat(directory.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode) && ::unlinkat(directory.fd.get(), name.c_str(), 0) == 0) {
      removed += kind == FileKind::entry;
    }
  }
  return removed;
}

}  // namespace truefuse::jit
