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
/// A kernel is found by what was compiled and how (request_digest()) and by a target that runs on
/// the device; which release of the compiler made it does not matter, so none need be there.
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

  /// The kernel of one of these request_digest()s for `device`: built for exactly its arch, else
  /// for one that runs on it, the most specific first. Null if there is none.
  const CacheEntry* find(const std::vector<std::string>& requests, const Arch& device) const;

  /// Removes what find() returned.
  void remove(const CacheEntry* found);

  const std::vector<CacheEntry>& entries() const { return entries_; }

 private:
  std::vector<CacheEntry> entries_;
  std::vector<std::string> requests_;  ///< Of each entry.
};

/// The digest of those parts of a key that say what is compiled and how the compiler is told to:
/// not of which files it consists, where they are, nor for which target it compiles.
std::string request_digest(const Key& key);

/// The variables among a key's parts that told the compiler how to compile.
std::vector<std::string> instructing_variables(const Key& key);

}  // namespace truefuse::jit
