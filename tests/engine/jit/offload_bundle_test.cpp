#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <truefuse/jit/offload_bundle.h>

namespace truefuse::jit {
namespace {

void put(std::string& bytes, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::string bundle(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::uint64_t offset = 32;
  for (const auto& [name, code] : entries) offset += 24 + name.size();
  std::string bytes = "__CLANG_OFFLOAD_BUNDLE__", codes;
  put(bytes, entries.size());
  for (const auto& [name, code] : entries) {
    put(bytes, offset + codes.size());
    put(bytes, code.size());
    put(bytes, name.size());
    bytes += name;
    codes += code;
  }
  return bytes + codes;
}

const std::string kHost = "host-x86_64-unknown-linux";
const std::string kPrefix = "hipv4-amdgcn-amd-amdhsa--";

TEST(OffloadBundle, FindsTheTarget) {
  const std::string bytes = bundle({{kHost, ""},
                                    {kPrefix + "gfx906", "code of 906"},
                                    {kPrefix + "gfx90a:sramecc+:xnack-", "code of 90a"},
                                    {"hip-amdgcn-amd-amdhsa-gfx803", "old spelling"}});
  EXPECT_EQ(unbundle(bytes, "gfx906"), "code of 906");
  EXPECT_EQ(unbundle(bytes, "gfx90a:sramecc+:xnack-"), "code of 90a");
  EXPECT_EQ(unbundle(bytes, "gfx803"), "old spelling");
  EXPECT_FALSE(unbundle(bytes, "gfx90a"));
  EXPECT_FALSE(unbundle(bytes, "06"));
  EXPECT_FALSE(unbundle(bytes, "linux"));
}

TEST(OffloadBundle, ARawObjectIsItself) {
  const std::string object =
      "\x7f"
      "ELF and more";
  EXPECT_EQ(unbundle(object, "gfx906"), object);
  EXPECT_FALSE(unbundle("", "gfx906"));
  EXPECT_FALSE(unbundle("text", "gfx906"));
  EXPECT_TRUE(is_compressed_bundle("CCOB...."));
  EXPECT_FALSE(is_compressed_bundle(object));
}

TEST(OffloadBundle, DamagedBundlesAreSafeToRead) {
  const std::string bytes = bundle({{kHost, ""}, {kPrefix + "gfx906", "code"}});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(unbundle(std::string(bytes.data(), size), "gfx906")) << size;
  }
  for (std::size_t at = 24; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = '\xff';
    const auto object = unbundle(damaged, "gfx906");
    EXPECT_LE(object ? object->size() : 0, damaged.size());
  }
}

}  // namespace
}  // namespace truefuse::jit
