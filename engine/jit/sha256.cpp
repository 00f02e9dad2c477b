#include <algorithm>
#include <bit>
#include <cstring>

#include <truefuse/jit/sha256.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace truefuse::jit {
namespace {

constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t load_big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

void store_big_endian(std::uint8_t* p, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) p[i] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - i)));
}

using State = std::array<std::uint32_t, 8>;

void compress_portable(State& state, const std::uint8_t* block) {
  std::array<std::uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const State add{a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += add[i];
}

#if defined(__x86_64__)

// Whole compiler libraries are hashed, so the SHA instructions (several times faster) are used
// where the processor has them. The instructions want the state as (a b e f) and (c d g h), last
// word first.
__attribute__((target("sha,sse4.1"))) void compress_x86(State& state, const std::uint8_t* block) {
  const auto load = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
  const auto word = [&](int i) { return static_cast<int>(state[i]); };
  const __m128i abef_before = _mm_set_epi32(word(0), word(1), word(4), word(5));
  const __m128i cdgh_before = _mm_set_epi32(word(2), word(3), word(6), word(7));
  const __m128i swap_bytes = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  __m128i w[4];
  for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(load(block + 16 * i), swap_bytes);
  __m128i abef = abef_before;
  __m128i cdgh = cdgh_before;
#pragma GCC unroll 16  // So that w[] stays in registers.
  for (int i = 0; i < 16; ++i) {
    const __m128i input = _mm_add_epi32(w[i & 3], load(&kRound[4 * i]));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, input);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(input, 0x0e));
    const __m128i last = w[(i + 3) & 3];
    const __m128i seven_back = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]), seven_back);
    w[i & 3] = _mm_sha256msg2_epu32(sum, last);
  }
  abef = _mm_add_epi32(abef, abef_before);
  cdgh = _mm_add_epi32(cdgh, cdgh_before);
  const auto out = [](__m128i v, std::uint32_t* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  };
  std::uint32_t first[4], second[4];
  out(abef, first);
  out(cdgh, second);
  state = {first[3], first[2], second[3], second[2], first[1], first[0], second[1], second[0]};
}

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

#endif

using Compress = void (*)(State&, const std::uint8_t*);

Compress fastest_compress() {
#if defined(__x86_64__)
  if (has_sha_instructions()) return compress_x86;
#endif
  return compress_portable;
}

}  // namespace

void Sha256::update(std::string_view bytes) {
  static const Compress best = fastest_compress();
  if (bytes.empty()) return;
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t left = bytes.size();
  const Compress compress = portable_ ? compress_portable : best;
  const std::size_t held = total_ % kBlock;
  total_ += left;
  if (held != 0) {
    const std::size_t take = std::min(left, kBlock - held);
    std::memcpy(pending_.data() + held, data, take);
    data += take;
    left -= take;
    if (held + take < kBlock) return;
    compress(state_, pending_.data());
  }
  for (; left >= kBlock; data += kBlock, left -= kBlock) compress(state_, data);
  std::memcpy(pending_.data(), data, left);
}

Sha256::Digest Sha256::finish() {
  const std::uint64_t bits = total_ * 8;
  std::array<std::uint8_t, kBlock + 8> padding{0x80};
  // One 1 bit, then zeros until 8 bytes are left in the block, then the length in bits.
  const std::size_t zeros_to = (kBlock + kBlock - 8 - total_ % kBlock - 1) % kBlock + 1;
  store_big_endian(padding.data() + zeros_to, bits, 8);
  update({reinterpret_cast<const char*>(padding.data()), zeros_to + 8});
  Digest digest;
  for (int i = 0; i < 8; ++i) store_big_endian(digest.data() + 4 * i, state_[i], 4);
  return digest;
}

Sha256::Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string to_hex(const Sha256::Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) { return to_hex(sha256(bytes)); }

}  // namespace truefuse::jit
