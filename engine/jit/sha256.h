#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace truefuse::jit {

/// SHA-256 as FIPS 180-4 defines it.
class Sha256 {
 public:
  using Digest = std::array<std::uint8_t, 32>;

  enum class Code { fastest, portable };

  /// `portable` avoids the processor's SHA instructions; the result is the same.
  explicit Sha256(Code code = Code::fastest) : portable_(code == Code::portable) {}

  void update(std::string_view bytes);

  /// The digest of everything given to update(). Call it once, last.
  Digest finish();

 private:
  static constexpr std::size_t kBlock = 64;

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, kBlock> pending_{};
  std::uint64_t total_ = 0;
  bool portable_ = false;
};

Sha256::Digest sha256(std::string_view bytes);

/// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);
std::string to_hex(const Sha256::Digest& digest);

}  // namespace truefuse::jit
