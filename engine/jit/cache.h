#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/jit/entry.h>
#include <truefuse/jit/key.h>

namespace truefuse::jit {

/// A directory of self-verifying entries, one file DIGEST.tfk each. No member ever throws because
/// of the file system: a lookup that fails is a miss, a publication that fails is a warning, given
/// once per kind of problem in a process (log.h). A Cache holds nothing but the path, and the
/// directory is looked at anew by each member: it may vanish, or lose its permissions, at any time.
/// Members may be called from several threads at once.
class Cache {
 public:
  /// Empty directory: no disk cache at all.
  explicit Cache(std::string directory) : directory_(std::move(directory)) {}

  /// The directory a process should use; ask once. TRUEFUSE_CACHE_DIR, else
  /// $XDG_CACHE_HOME/truefuse, else ~/.cache/truefuse, else /tmp/truefuse-UID: the first that only
  /// the effective user can write, on a file system of this machine. A directory that can only be
  /// read (read-only mount, network file system, owned by root) is chosen if it holds entries; then
  /// nothing is written. `reasons` (optional) gets a sentence for each that is passed over or only
  /// read. Empty (memory only) if there is none, or with TRUEFUSE_CACHE=off.
  static std::string default_directory(std::vector<std::string>* reasons = nullptr);

  const std::string& directory() const { return directory_; }

  /// The entry of exactly this key. Never waits for a lock. `log_miss`: whether a miss is a
  /// decision, for TRUEFUSE_LOG, or one of several places where an entry may be.
  std::optional<CacheEntry> lookup(const Key& key, bool log_miss = true) const;

  /// Makes the entry visible to others, whole, at once; it replaces what was there. Entries that
  /// were used longest ago make room if all together exceed TRUEFUSE_CACHE_LIMIT (cache_limit.h).
  void publish(const CacheEntry& entry) const;

  /// Runs `compile` in at most one thread of one process of this machine at a time for this key,
  /// then publishes what it returns under `key`. Waits for another that compiles (killed ones are
  /// noticed) at most TRUEFUSE_CACHE_WAIT seconds (60), then compiles privately. An exception of
  /// `compile` passes through; those who waited then try themselves. Throws Error if `compile`
  /// returns no code.
  CacheEntry lookup_or_compile(const Key& key, const std::function<CacheEntry()>& compile,
                               bool* was_hit = nullptr) const;

  struct Listing {
    std::string digest, label, path;
    std::int64_t bytes = 0;
    std::int64_t modified_unix_seconds = 0;
    bool valid =
        false;  ///< False: `label`, `key` and its cost are empty; the next lookup is a miss.
    Key key;
    double compile_seconds = 0;
  };
  /// All entries, newest first.
  std::vector<Listing> list() const;

  /// The keys of all entries, newest first, without reading their code. What is damaged may be
  /// among them: only lookup() vouches for an entry.
  std::vector<Key> keys() const;

  /// Removes what is no valid entry; returns how many. They cost nothing but the room.
  int remove_damaged() const;

  /// Removes all entries, temporary and lock files, and nothing else; returns how many entries.
  int clear() const;

 private:
  std::string directory_;
};

}  // namespace truefuse::jit
