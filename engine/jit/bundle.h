#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/jit/arch.h>
#include <truefuse/jit/entry.h>

namespace truefuse::jit {

/// Compiled kernels in one file, for machines that shall not compile: read-only, the same wherever
/// it lies, trusted because its SHA-256 is known and not because of who owns it.
///
/// A kernel is found by its source (program, headers, constants, options) and by a target that runs
/// on the device; which compiler made it does not matter, so none need be there.
///
///   "truefuse-bundle\n"   16 bytes
///   u32 entries           little-endian, like all integers
///   entries times         u64 size, the bytes of serialize_entry()
class Bundle {
 public:
  explicit Bundle(std::vector<CacheEntry> entries);

  static std::string pack(const std::vector<CacheEntry>& entries);

  /// Nothing for bytes that pack() did not make. Safe for any input.
  static std::optional<Bundle> parse(std::string_view bytes);

  /// "PATH#SHA256" as in TRUEFUSE_BUNDLE. Throws Error if the text has another form, the file
  /// cannot be read, has another digest, or is no bundle.
  static Bundle open(const std::string& spec);

  /// The bundle that TRUEFUSE_BUNDLE names, read once; null if it names none. One that cannot be
  /// used is a warning and null.
  static std::shared_ptr<const Bundle> current();

  /// The kernel of that source_digest() for `device`: built for exactly its arch, else for one that
  /// runs on it, the most specific first. Null if there is none.
  const CacheEntry* find(const std::string& source, const Arch& device) const;

  const std::vector<CacheEntry>& entries() const { return entries_; }

 private:
  std::vector<CacheEntry> entries_;
  std::vector<std::string> sources_;  ///< Of each entry.
};

/// The digest of those parts of a key that say what is compiled, not by whom nor for which target.
std::string source_digest(const Key& key);

}  // namespace truefuse::jit
