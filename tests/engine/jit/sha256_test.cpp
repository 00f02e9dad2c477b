#include <cstdio>
#include <gtest/gtest.h>
#include <random>

#include <truefuse/jit/sha256.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

std::string digest_of(std::string_view text, Sha256::Code code) {
  Sha256 hash(code);
  hash.update(text);
  return to_hex(hash.finish());
}

// FIPS 180-4 and NIST's example values.
TEST(Sha256, PublishedVectors) {
  const struct {
    std::string message;
    const char* digest;
  } vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "o"
       "pqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& vector : vectors) {
    EXPECT_EQ(digest_of(vector.message, Sha256::Code::portable), vector.digest);
    EXPECT_EQ(digest_of(vector.message, Sha256::Code::fastest), vector.digest);
    EXPECT_EQ(sha256_hex(vector.message), vector.digest);
  }
}

TEST(Sha256, PiecesDoNotMatter) {
  std::string text(200, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(7 * i);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (const std::size_t second : {first, (first + text.size()) / 2, text.size()}) {
      Sha256 hash;
      hash.update(text.substr(0, first));
      hash.update(text.substr(first, second - first));
      hash.update(text.substr(second));
      ASSERT_EQ(to_hex(hash.finish()), sha256_hex(text)) << first << " " << second;
    }
  }
}

TEST(Sha256, AgreesWithCoreutils) {
  if (shell("command -v sha256sum").empty()) GTEST_SKIP() << "no sha256sum";
  const TestDirectory directory;
  std::mt19937 random(20260716);
  std::string found;
  // All lengths around one and two blocks, then random ones.
  for (int i = 0; i < 180; ++i) {
    const std::size_t length = i < 140 ? static_cast<std::size_t>(i) : random() % 100000;
    std::string text(length, '\0');
    for (char& c : text) c = static_cast<char>(random());
    char name[16];
    std::snprintf(name, sizeof name, "/%04d", i);
    write_file(directory.path() + name, text);
    found += digest_of(text, Sha256::Code::portable) + "\n";
    ASSERT_EQ(digest_of(text, Sha256::Code::fastest), digest_of(text, Sha256::Code::portable));
  }
  EXPECT_EQ(shell("cd " + directory.path() + " && sha256sum * | cut -c1-64"), found);
}

}  // namespace
}  // namespace truefuse::jit
