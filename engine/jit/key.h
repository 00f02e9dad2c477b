#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace truefuse::jit {

/// Everything that can change a compiled kernel, as named parts of text. The digest addresses the
/// cache entry; the parts are stored beside the code, so that two keys can be compared in words.
class Key {
 public:
  /// A name may be used again (one part per option); order then matters as it does everywhere.
  void add(std::string_view name, std::string_view value);

  /// For long values (source texts): the part holds "sha256:" and the digest of `content`.
  void add_digest(std::string_view name, std::string_view content);

  const std::vector<std::pair<std::string, std::string>>& parts() const { return parts_; }

  /// The value of the first part of that name; empty if there is none.
  std::string value_of(std::string_view name) const;

  /// SHA-256 over length-prefixed parts, 64 hex digits. Depends on order, names and values.
  std::string digest() const;

  friend bool operator==(const Key&, const Key&) = default;

 private:
  std::vector<std::pair<std::string, std::string>> parts_;
};

/// The parts in which `now` differs from `before`, one sentence each, in the order of `now`,
/// removed parts last: "compiler NVRTC 13.0 build 91ab -> 4d07". Long values are shortened around
/// the first difference. Empty only for equal keys.
std::vector<std::string> differences(const Key& before, const Key& now);

}  // namespace truefuse::jit
