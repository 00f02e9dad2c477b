#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include <truefuse/jit/elf.h>
#include <truefuse/jit/file_identity.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/sha256.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

/// A hand-made file of a header, a note and three sections; small enough to damage in every place.
std::string small_elf() {
  std::string bytes(64, '\0');
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    if (bytes.size() < at + size) bytes.resize(at + size);
    for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
  };
  bytes.replace(0, 6,
                "\x7f"
                "ELF\x02\x01");
  bytes[8] = 7;
  put(18, 190, 2);
  put(48, 0xabcd, 4);
  const std::string note("\4\0\0\0\x0a\0\0\0\3\0\0\0GNU\0\1\2\3\4\5\6\7\x08\xfe\xff\0\0", 28);
  const std::string names("\0.note\0.names\0", 14);
  bytes += note + names;  // At 64 and 92.
  const std::size_t table = bytes.size();
  put(40, table, 8);
  put(58, 64, 2);
  put(60, 3, 2);
  put(62, 2, 2);
  put(table + 3 * 64 - 1, 0, 1);
  put(table + 64, 1, 4);  // ".note"
  put(table + 64 + 4, 7, 4);
  put(table + 64 + 24, 64, 8);
  put(table + 64 + 32, note.size(), 8);
  put(table + 128, 7, 4);  // ".names"
  put(table + 128 + 4, 3, 4);
  put(table + 128 + 24, 92, 8);
  put(table + 128 + 32, names.size(), 8);
  return bytes;
}

void read_everything(std::string_view bytes) {
  const auto elf = Elf::parse(bytes);
  if (!elf) return;
  std::size_t total = elf->build_id().size();
  for (const auto& note : elf->notes()) total += note.description.size() + note.owner.size();
  for (const auto& symbol : elf->symbols(Elf::kSymbolTable)) total += symbol.name.size();
  for (const auto& symbol : elf->symbols(Elf::kDynamicSymbols)) total += symbol.name.size();
  for (const auto& name : elf->dynamic(Elf::kNeeded)) total += name.size();
  for (const auto& section : elf->sections()) {
    total +=
        static_cast<std::size_t>(std::count(section.contents.begin(), section.contents.end(), 'x'));
    EXPECT_LE(section.contents.size(), bytes.size());
  }
  EXPECT_GE(total, 0u);
}

TEST(Elf, ReadsHeaderSectionsAndBuildId) {
  const std::string bytes = small_elf();
  const auto elf = Elf::parse(bytes);
  ASSERT_TRUE(elf);
  EXPECT_EQ(elf->machine(), Elf::kMachineCuda);
  EXPECT_EQ(elf->flags(), 0xabcdu);
  EXPECT_EQ(elf->abi_version(), 7);
  ASSERT_NE(elf->section(".note"), nullptr);
  EXPECT_EQ(elf->section(".missing"), nullptr);
  EXPECT_EQ(elf->build_id(), "0102030405060708feff");
}

TEST(Elf, RefusesOtherFiles) {
  EXPECT_FALSE(Elf::parse(""));
  EXPECT_FALSE(
      Elf::parse("\x7f"
                 "ELF"));
  EXPECT_FALSE(Elf::parse(std::string(100, '\0')));
  std::string bits32 = small_elf();
  bits32[4] = 1;
  EXPECT_FALSE(Elf::parse(bits32));
  std::string big_endian = small_elf();
  big_endian[5] = 2;
  EXPECT_FALSE(Elf::parse(big_endian));
}

TEST(Elf, DamagedFilesAreSafeToRead) {
  const std::string bytes = small_elf();
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    // A copy of its own, so that AddressSanitizer sees a read beyond the end.
    read_everything(std::string(bytes.data(), size));
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(value);
      read_everything(damaged);
    }
  }
}

TEST(Elf, DamagedProgramsAreSafeToRead) {
  const MappedFile self("/proc/self/exe");
  ASSERT_FALSE(self.bytes().empty());
  std::mt19937 random(1);
  // Headers and section tables are where offsets live.
  const std::string head(self.bytes().substr(0, 4096));
  const auto table = read_integer<std::uint64_t>(self.bytes(), 40);
  for (int round = 0; round < 40; ++round) {
    std::string damaged(self.bytes());
    for (int flips = 0; flips < 8; ++flips) {
      const std::size_t at =
          flips % 2 == 0 ? random() % 64 : table + random() % (damaged.size() - table);
      damaged[at] = static_cast<char>(random());
    }
    read_everything(damaged);
  }
}

TEST(Elf, AgreesWithReadelfAboutThisProgram) {
  const MappedFile self("/proc/self/exe");
  const auto elf = Elf::parse(self.bytes());
  ASSERT_TRUE(elf);
  if (find_program("readelf").empty()) {
    testing::say_missing("readelf");
    EXPECT_GT(elf->sections().size(), 10u);
    return;
  }
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  const ProcessResult notes = run_process({"readelf", "-n", path});
  ASSERT_TRUE(notes.ok()) << notes.how_it_ended();
  const std::size_t at = notes.output.find("Build ID: ");
  const std::string expected =
      at == std::string::npos ? ""
                              : notes.output.substr(at + 10, notes.output.find('\n', at) - at - 10);
  EXPECT_EQ(elf->build_id(), expected);

  const ProcessResult dynamic = run_process({"readelf", "-d", path});
  const std::vector<std::string> needed = elf->dynamic(Elf::kNeeded);
  EXPECT_FALSE(needed.empty());
  for (const std::string& name : needed) {
    EXPECT_NE(dynamic.output.find("Shared library: [" + name + "]"), std::string::npos) << name;
  }
}

TEST(FileIdentity, IsTheContentNotThePlaceOrTime) {
  const TemporaryDirectory directory;
  const std::string one = directory.path() + "/one", two = directory.path() + "/two";
  std::ofstream(one) << "abc";
  std::ofstream(two) << "abc";
  std::filesystem::last_write_time(two, std::filesystem::file_time_type{});
  // FIPS 180-4's own example.
  const std::string expected =
      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(file_identity(one), expected);
  EXPECT_EQ(file_identity(two), expected);
  EXPECT_EQ(file_identity(directory.path() + "/three"), "missing");

  std::ofstream(one) << "abd";
  EXPECT_NE(file_identity(one), expected);
  EXPECT_EQ(file_identity(one), "sha256:" + sha256_hex("abd"));

  const std::string elf = directory.path() + "/elf";
  std::ofstream(elf, std::ios::binary) << small_elf();
  EXPECT_EQ(file_identity(elf), "build-id:0102030405060708feff");
}

TEST(FileIdentity, ABuildIdOfZerosIdentifiesNothing) {
  const TemporaryDirectory directory;
  std::string bytes = small_elf();
  std::fill_n(bytes.begin() + 80, 10, '\0');
  const std::string path = directory.path() + "/zeros";
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(file_identity(path), "sha256:" + sha256_hex(bytes));
}

TEST(FileIdentity, DirectoriesAreTheirMatchingFiles) {
  const TemporaryDirectory directory;
  const std::string& path = directory.path();
  EXPECT_EQ(directory_digest(path, ".bc"), "");
  std::ofstream(path + "/a.bc") << "1";
  const std::string one = directory_digest(path, ".bc");
  EXPECT_EQ(one.size(), 64u);
  std::ofstream(path + "/a.txt") << "ignored";
  EXPECT_EQ(directory_digest(path, ".bc"), one);
  std::ofstream(path + "/b.bc") << "2";
  EXPECT_NE(directory_digest(path, ".bc"), one);
}

}  // namespace
}  // namespace truefuse::jit
