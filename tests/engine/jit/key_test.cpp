#include <algorithm>
#include <gtest/gtest.h>

#include <truefuse/jit/key.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

using Parts = std::vector<std::pair<std::string, std::string>>;
using Sentences = std::vector<std::string>;

Key key_of_parts(const Parts& parts) {
  Key key;
  for (const auto& [name, value] : parts) key.add(name, value);
  return key;
}

TEST(Key, DigestIsSha256OfLengthPrefixedParts) {
  const std::string bytes("\4\0\0\0\0\0\0\0arch\6\0\0\0\0\0\0\0gfx906", 26);
  EXPECT_EQ(key_of_parts({{"arch", "gfx906"}}).digest(), sha256_hex(bytes));
  EXPECT_EQ(Key().digest(), sha256_hex(""));
}

TEST(Key, DigestDependsOnOrderNamesValuesAndBoundaries) {
  const Parts keys[] = {{},
                        {{"", ""}},
                        {{"a", ""}},
                        {{"", "a"}},
                        {{"a", "b"}},
                        {{"b", "a"}},
                        {{"ab", ""}},
                        {{"a", "b"}, {"c", "d"}},
                        {{"c", "d"}, {"a", "b"}},
                        {{"a", "bc"}, {"", "d"}},
                        {{"a", "b"}, {"a", "b"}},
                        {{"a", std::string("b\0", 2)}}};
  for (const Parts& a : keys) {
    for (const Parts& b : keys) {
      EXPECT_EQ(key_of_parts(a).digest() == key_of_parts(b).digest(), &a == &b);
      EXPECT_EQ(key_of_parts(a) == key_of_parts(b), &a == &b);
    }
  }
}

TEST(Key, AValueIsThatOfTheFirstPartOfItsName) {
  Key key;
  key.add("option", "-a");
  key.add("target", "sm_90a");
  key.add("option", "-b");
  EXPECT_EQ(key.value_of("option"), "-a");
  EXPECT_EQ(key.value_of("target"), "sm_90a");
  EXPECT_EQ(key.value_of("tar"), "");
}

TEST(Key, WholeArchitectureStringsDiffer) {
  const char* const archs[] = {"gfx906", "gfx908", "gfx90a", "gfx90a:xnack+", "gfx90a:xnack-"};
  for (const char* a : archs) {
    for (const char* b : archs) {
      EXPECT_EQ(key_of_parts({{"arch", a}}).digest() == key_of_parts({{"arch", b}}).digest(),
                a == b);
    }
  }
}

TEST(Key, DigestPartHoldsTheDigest) {
  Key key;
  key.add_digest("source", "abc");
  EXPECT_EQ(key.parts(),
            (Parts{{"source",
                    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}));
}

TEST(Differences, NoneForEqualKeys) {
  const Key key = key_of_parts({{"option", "-O3"}, {"option", "-g"}, {"arch", "sm_90a"}});
  EXPECT_TRUE(differences(key, key).empty());
}

TEST(Differences, SaysWhatBothBeginWithOnce) {
  EXPECT_EQ(differences(key_of_parts({{"compiler", "NVRTC 13.0 build 91ab"}, {"arch", "sm_90a"}}),
                        key_of_parts({{"compiler", "NVRTC 13.0 build 4d07"}, {"arch", "sm_90a"}})),
            Sentences{"compiler NVRTC 13.0 build 91ab -> 4d07"});
  EXPECT_EQ(differences(key_of_parts({{"arch", "gfx906"}}), key_of_parts({{"arch", "gfx908"}})),
            Sentences{"arch gfx906 -> gfx908"});
  EXPECT_EQ(differences(key_of_parts({{"flags", "-O3"}}), key_of_parts({{"flags", "-O3 -G"}})),
            Sentences{"flags -O3 -> -O3 -G"});
  EXPECT_EQ(differences(key_of_parts({{"flags", ""}}), key_of_parts({{"flags", "-G"}})),
            Sentences{"flags (empty) -> -G"});
  EXPECT_EQ(differences(key_of_parts({{"flags", "-G "}}), key_of_parts({{"flags", "-G -O"}})),
            Sentences{"flags -G  -> -G -O"});
}

TEST(Differences, AddedRemovedRepeated) {
  const Key before = key_of_parts({{"arch", "a"}, {"option", "-O3"}, {"env", "X=1"}});
  const Key now = key_of_parts({{"option", "-O2"}, {"option", "-g"}, {"arch", "a"}});
  EXPECT_EQ(differences(before, now),
            (Sentences{"option -O3 -> -O2", "option was added: -g", "env was removed: X=1"}));
  EXPECT_EQ(differences(now, before),
            (Sentences{"option -O2 -> -O3", "env was added: X=1", "option was removed: -g"}));
}

TEST(Differences, OnlyTheOrder) {
  EXPECT_EQ(
      differences(key_of_parts({{"a", "1"}, {"b", "2"}}), key_of_parts({{"b", "2"}, {"a", "1"}})),
      Sentences{"the order of the parts"});
}

TEST(Differences, LongValuesShowTheDifference) {
  const std::string head(1000, 'x');
  const std::string tail(1000, 'y');
  const Sentences said = differences(key_of_parts({{"text", head + "BEFORE" + tail}}),
                                     key_of_parts({{"text", head + "NOW" + tail}}));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_LT(said[0].size(), 150u);
  EXPECT_NE(said[0].find("xxBEFOREyy"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("xxNOWyy"), std::string::npos) << said[0];

  Key before, now;
  before.add_digest("bias_gelu/kernel.hip", "abc");
  now.add_digest("bias_gelu/kernel.hip", "");
  EXPECT_EQ(differences(before, now),
            Sentences{"bias_gelu/kernel.hip sha256:ba7816bf8f01... -> sha256:e3b0c44298fc..."});
}

TEST(Differences, StaysOnOneLineAndWholeCharacters) {
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xc3\xa4";
  const Sentences said = differences(key_of_parts({{"a", "x\ny"}, {"b", umlauts + "1"}}),
                                     key_of_parts({{"a", "x\nz"}, {"b", umlauts + "2"}}));
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], "a x y -> x z");
  // Each half of the character appears as often as the other.
  EXPECT_EQ(std::count(said[1].begin(), said[1].end(), '\xc3'),
            std::count(said[1].begin(), said[1].end(), '\xa4'));
  EXPECT_NE(said[1].find("1 -> "), std::string::npos);
}

}  // namespace
}  // namespace truefuse::jit
