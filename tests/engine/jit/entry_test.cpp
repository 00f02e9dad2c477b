#include <gtest/gtest.h>
#include <limits>
#include <random>

#include <truefuse/jit/entry.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string text(std::string_view bytes) {
  return little_endian(bytes.size(), 8) + std::string(bytes);
}

std::string sealed(const std::string& body) {
  const Sha256::Digest digest = sha256(body);
  return body + std::string(digest.begin(), digest.end());
}

std::string header(std::uint32_t format, std::uint32_t parts) {
  return "truefuse-kernel\n" + little_endian(format, 4) + little_endian(parts, 4) +
         little_endian(1500000, 8);
}

CacheEntry example() {
  CacheEntry entry{"bias_gelu sm_90a",
                   {},
                   std::string("\x7f"
                               "ELF\0\xff",
                               6),
                   1.5};
  entry.key.add("arch", "sm_90a");
  entry.key.add("text", std::string("line\nline\0end", 13));
  entry.key.add("", "");
  return entry;
}

TEST(Entry, BytesAreAsDocumented) {
  const std::string body = header(1, 3) + text("bias_gelu sm_90a") + text("arch") + text("sm_90a") +
                           text("text") + text(std::string("line\nline\0end", 13)) + text("") +
                           text("") +
                           text(std::string("\x7f"
                                            "ELF\0\xff",
                                            6));
  EXPECT_EQ(serialize_entry(example()), sealed(body));
}

TEST(Entry, RoundTrip) {
  const CacheEntry entry = example();
  const std::optional<CacheEntry> back = parse_entry(serialize_entry(entry));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->label, entry.label);
  EXPECT_EQ(back->key, entry.key);
  EXPECT_EQ(back->code, entry.code);
  EXPECT_DOUBLE_EQ(back->compile_seconds, 1.5);
}

TEST(Entry, SecondsAreSane) {
  CacheEntry entry = example();
  for (const double odd : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    entry.compile_seconds = odd;
    EXPECT_EQ(parse_entry(serialize_entry(entry))->compile_seconds, 0) << odd;
  }
  entry.compile_seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(parse_entry(serialize_entry(entry))->compile_seconds, 1e9);
}

TEST(Entry, EveryFlippedBitIsNoticed) {
  const std::string good = serialize_entry(example());
  ASSERT_TRUE(parse_entry(good));
  for (std::size_t i = 0; i < 8 * good.size(); ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << i % 8));
    ASSERT_FALSE(parse_entry(bad)) << "bit " << i;
  }
}

TEST(Entry, EveryOtherLengthIsNoticed) {
  const std::string good = serialize_entry(example());
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(parse_entry(std::string_view(good).substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_entry(good + '\0'));
  EXPECT_FALSE(parse_entry(good + good));
}

TEST(Entry, TheKeyIsThereOnceItsBytesAre) {
  const CacheEntry entry = example();
  const std::string good = serialize_entry(entry);
  const std::size_t whole = good.size() - 32 - entry.code.size() - 8;
  for (std::size_t size = 0; size <= good.size(); ++size) {
    const std::optional<Key> key = peek_key(std::string_view(good).substr(0, size));
    ASSERT_EQ(key.has_value(), size >= whole) << size;
    if (key) {
      ASSERT_EQ(*key, entry.key);
    }
  }
  EXPECT_FALSE(peek_key(header(2, 0) + text("label") + text("code"))) << "another format";
}

// Whoever can make files can make the digest fit; the sizes must still be harmless.
TEST(Entry, SealedNonsenseIsRefused) {
  const std::string code = text("code");
  ASSERT_TRUE(parse_entry(sealed(header(1, 0) + text("label") + code)));
  const std::string bodies[] = {
      "truefuse-kernel\n",
      header(1, 0),
      header(2, 0) + text("label") + code,           // another format
      header(1, 0) + text("label"),                  // no code
      header(1, 0) + text("label") + text(""),       // empty code
      header(1, 0) + text("label") + code + "x",     // something after it
      header(1, 1) + text("label") + code,           // fewer parts than said
      header(1, 0xffffffff) + text("label") + code,  // far fewer
      header(1, 1) + text("label") + text("a") + text("b") + code + code,
      header(1, 0) + little_endian(~0ull, 8) + code,  // sizes beyond the end
      header(1, 0) + little_endian(1ull << 63, 8) + code,
      header(1, 0) + text("label") + little_endian(5, 8) + "code",
      header(1, 1) + text("label") + little_endian(~0ull - 7, 8) + text("b") + code,
  };
  for (const std::string& body : bodies) EXPECT_FALSE(parse_entry(sealed(body))) << body;
}

TEST(Entry, RandomBodiesNeverCrash) {
  std::mt19937 random(7);
  const std::string good =
      header(1, 2) + text("label") + text("a") + text("b") + text("c") + text("d") + text("code");
  for (int round = 0; round < 20000; ++round) {
    std::string body = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = 16 + random() % (body.size() - 16);
      if (random() % 4 == 0)
        body.erase(at, random() % 4);
      else
        body[at] = static_cast<char>(random());
    }
    if (const auto entry = parse_entry(sealed(body))) {
      EXPECT_EQ(serialize_entry(*entry), sealed(body));
    }
  }
}

}  // namespace
}  // namespace truefuse::jit
