#include <ctime>
#include <sstream>
#include <sys/time.h>

#include <truefuse/core/error.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

const std::string kCode(
    "\x7f"
    "ELF\0code",
    9);

void age(const std::string& path, int seconds) {
  const timeval then{std::time(nullptr) - seconds, 0};
  const timeval times[] = {then, then};
  ASSERT_EQ(::lutimes(path.c_str(), times), 0);
}

TEST(Cache, WhatWasPublishedIsFound) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  EXPECT_FALSE(cache.lookup(key));
  cache.publish(make_entry(key, kCode));
  const std::optional<CacheEntry> entry = Cache(directory.path()).lookup(key);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->code, kCode);
  EXPECT_EQ(entry->key, key);
  EXPECT_EQ(entry->label, "bias_gelu sm_90a");
  EXPECT_EQ(entry->compile_seconds, 0.125);
  EXPECT_FALSE(cache.lookup(make_key("b")));
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{key.digest() + ".tfk"});
  struct stat status {};
  ASSERT_EQ(::stat(path_of(cache, key).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST(Cache, LookupOrCompileCompilesOnce) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  int compiles = 0;
  bool was_hit = true;
  const auto compile = [&] {
    ++compiles;
    return make_entry({}, kCode);  // The key comes from the call.
  };
  EXPECT_EQ(cache.lookup_or_compile(make_key("a"), compile, &was_hit).code, kCode);
  EXPECT_FALSE(was_hit);
  const CacheEntry again = cache.lookup_or_compile(make_key("a"), compile, &was_hit);
  EXPECT_TRUE(was_hit);
  EXPECT_EQ(again.key, make_key("a"));
  EXPECT_EQ(compiles, 1);
  cache.lookup_or_compile(make_key("b"), compile);
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(files_in(directory.path()).size(), 2u);  // No lock and no temporary file is left.
}

TEST(Cache, WithoutDirectoryNothingIsKept) {
  const Cache cache("");
  const Key key = make_key("a");
  cache.publish(make_entry(key));
  EXPECT_FALSE(cache.lookup(key));
  bool was_hit = true;
  EXPECT_EQ(cache
                .lookup_or_compile(
                    key, [&] { return make_entry(key, kCode); }, &was_hit)
                .code,
            kCode);
  EXPECT_FALSE(was_hit);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_EQ(cache.clear(), 0);
}

TEST(Cache, CompilerWithoutCodeIsAnErrorAndPublishesNothing) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  EXPECT_THROW(cache.lookup_or_compile(make_key("a"), [] { return make_entry({}, ""); }), Error);
  cache.publish(make_entry(make_key("a"), ""));
  EXPECT_TRUE(files_in(directory.path()).empty());
}

TEST(Cache, ExceptionOfTheCompilerPassesAndLeavesNoLock) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  EXPECT_THROW(cache.lookup_or_compile(make_key("a"), []() -> CacheEntry { throw Error("no"); }),
               Error);
  EXPECT_TRUE(files_in(directory.path()).empty());
  EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return make_entry({}, kCode); }).code,
            kCode);
}

TEST(Cache, ModificationTimesDoNotMatter) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  cache.publish(make_entry(key));
  for (const int seconds : {800'000'000, -800'000'000}) {
    age(path_of(cache, key), seconds);
    age(directory.path(), -seconds);
    EXPECT_TRUE(cache.lookup(key));
  }
}

TEST(Cache, DamageIsAMissOneWarningAndIsReplaced) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  cache.publish(make_entry(key, kCode));
  const std::string path = path_of(cache, key);
  const std::string good = read_file(path);
  in_child([&] {
    const auto& warnings = collect_warnings();
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      write_file(path, bad);
      ASSERT_FALSE(cache.lookup(key)) << "byte " << i;
      write_file(path, good.substr(0, i));
      ASSERT_FALSE(cache.lookup(key)) << "length " << i;
      write_file(path, std::string(i, '\0'));
      ASSERT_FALSE(cache.lookup(key)) << "zeros " << i;
      if (i % 16 != 0) continue;
      int compiles = 0;
      const auto compile = [&] { return ++compiles, make_entry({}, kCode); };
      cache.lookup_or_compile(key, compile);
      cache.lookup_or_compile(key, compile);
      ASSERT_EQ(compiles, 1);
      ASSERT_EQ(read_file(path), good);
    }
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find(path + " is damaged; it is compiled again"), std::string::npos);
  });
}

// Nothing but an entry of exactly this key is believed, whatever lies under its name.
TEST(Cache, PlantedFilesAreMisses) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  const Key other = make_key("b");
  const std::string path = path_of(cache, key);
  const auto expect_replaced = [&](const std::string& what) {
    EXPECT_FALSE(cache.lookup(key)) << what;
    const CacheEntry entry = cache.lookup_or_compile(key, [] { return make_entry({}, "new"); });
    EXPECT_EQ(entry.code, "new") << what;
    EXPECT_EQ(cache.lookup(key)->code, "new") << what;
    ASSERT_EQ(::unlink(path.c_str()), 0);
  };
  in_child([&] {
    collect_warnings();
    cache.publish(make_entry(other, kCode));
    std::filesystem::copy_file(path_of(cache, other), path);
    expect_replaced("entry of another key");

    std::filesystem::create_symlink(path_of(cache, other), path);
    expect_replaced("symbolic link to another entry");
    EXPECT_EQ(cache.lookup(other)->code, kCode);

    write_file(directory.path() + "/aside", serialize_entry(make_entry(key, kCode)));
    std::filesystem::create_symlink(directory.path() + "/aside", path);
    expect_replaced("symbolic link to a right entry");

    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_replaced("FIFO");

    for (const mode_t mode : {0666u, 0620u}) {
      cache.publish(make_entry(key, kCode));
      ASSERT_EQ(::chmod(path.c_str(), mode), 0);
      expect_replaced("writable by others");
    }
    if (is_root()) {
      cache.publish(make_entry(key, kCode));
      ASSERT_EQ(::chown(path.c_str(), kOtherUser, kOtherUser), 0);
      expect_replaced("owned by another user");
    }
  });
}

TEST(Cache, DirectoryUnderTheNameOfAnEntryCostsACompile) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  std::filesystem::create_directories(path_of(cache, key) + "/x");
  in_child([&] {
    const auto& warnings = collect_warnings();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(cache.lookup_or_compile(key, [] { return make_entry({}, kCode); }).code, kCode);
    }
    EXPECT_EQ(warnings.size(), 2u);  // One for reading, one for writing.
    EXPECT_EQ(files_in(directory.path()).size(), 1u);
  });
}

TEST(Cache, HugeSparseFileIsAMiss) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const std::string path = path_of(cache, make_key("a"));
  write_file(path, "");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::truncate(path.c_str(), std::int64_t{1} << 40), 0);
  in_child([&] {
    const auto& warnings = collect_warnings();
    EXPECT_FALSE(cache.lookup(make_key("a")));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("too large"), std::string::npos);
  });
}

TEST(Cache, ListIsNewestFirstAndToleratesDamage) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  EXPECT_TRUE(cache.list().empty());
  const Key keys[] = {make_key("a"), make_key("b"), make_key("c")};
  for (int i = 0; i < 3; ++i) {
    cache.publish(make_entry(keys[i]));
    age(path_of(cache, keys[i]), 100 * (i == 1 ? 5 : i));
  }
  write_file(directory.path() + "/README", "");
  write_file(path_of(cache, keys[2]), "damaged");
  age(path_of(cache, keys[2]), 200);
  const std::vector<Cache::Listing> list = cache.list();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].digest, keys[0].digest());
  EXPECT_TRUE(list[0].valid);
  EXPECT_EQ(list[0].label, "bias_gelu sm_90a");
  EXPECT_EQ(list[0].key, keys[0]);
  EXPECT_EQ(list[0].path, path_of(cache, keys[0]));
  EXPECT_EQ(list[0].bytes, static_cast<std::int64_t>(std::filesystem::file_size(list[0].path)));
  EXPECT_NEAR(static_cast<double>(list[0].modified_unix_seconds),
              static_cast<double>(std::time(nullptr)), 100);
  EXPECT_EQ(list[1].digest, keys[2].digest());
  EXPECT_FALSE(list[1].valid);
  EXPECT_EQ(list[1].bytes, 7);
  EXPECT_TRUE(list[1].label.empty());
  EXPECT_EQ(list[2].digest, keys[1].digest());
  EXPECT_TRUE(Cache(directory.path() + "/missing").list().empty());
}

TEST(Cache, KeysAreReadWithoutTheCode) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  EXPECT_TRUE(cache.keys().empty());
  Key large;
  large.add("program", std::string(200'000, 'p'));
  cache.publish(make_entry(make_key("a"), std::string(100'000, 'c')));
  cache.publish(make_entry(large, "code"));
  write_file(path_of(cache, make_key("b")), "rubbish");
  std::vector<Key> keys = cache.keys();
  ASSERT_EQ(keys.size(), 2u);
  if (keys[0] == large) std::swap(keys[0], keys[1]);
  EXPECT_EQ(keys[0], make_key("a"));
  EXPECT_EQ(keys[1], large);
  EXPECT_TRUE(Cache("").keys().empty());
}

TEST(Cache, ClearRemovesOnlyItsOwn) {
  const TestDirectory directory;
  const TestDirectory elsewhere;
  const Cache cache(directory.path());
  const std::string digest(64, 'a');
  cache.publish(make_entry(make_key("a")));
  cache.publish(make_entry(make_key("b")));
  write_file(elsewhere.path() + "/precious", "x");
  const std::vector<std::string> ours{digest + ".lock", "." + digest + ".1-2-3.tmp"};
  for (const std::string& name : ours) write_file(directory.path() + "/" + name, "x");
  std::filesystem::create_directories(directory.path() + "/" + std::string(64, 'b') + ".tfk");
  std::filesystem::create_symlink(elsewhere.path() + "/precious",
                                  directory.path() + "/" + std::string(64, 'c') + ".tfk");
  std::filesystem::create_symlink(elsewhere.path(), directory.path() + "/linked");
  const std::vector<std::string> others{"README",         "x.tfk",
                                        ".tfk",           digest + ".tfk.bak",
                                        digest,           std::string(64, 'g') + ".tfk",
                                        digest + "a.tfk", ".hidden.tmp"};
  for (const std::string& name : others) write_file(directory.path() + "/" + name, "x");

  EXPECT_EQ(cache.clear(), 2);
  std::vector<std::string> left = others;
  left.insert(left.end(), {std::string(64, 'b') + ".tfk", std::string(64, 'c') + ".tfk", "linked"});
  std::sort(left.begin(), left.end());
  EXPECT_EQ(files_in(directory.path()), left);
  EXPECT_EQ(read_file(elsewhere.path() + "/precious"), "x");
  EXPECT_EQ(cache.clear(), 0);
}

TEST(Cache, StaleTemporaryFilesGoWithTheNextPublication) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const std::string digest(64, 'a');
  const std::string stale = directory.path() + "/." + digest + ".1-0-7.tmp";
  const std::string fresh = directory.path() + "/." + digest + ".2-0-7.tmp";
  const std::string foreign = directory.path() + "/editor.tmp";
  for (const std::string& path : {stale, fresh, foreign}) write_file(path, "x");
  age(stale, 3700);
  age(fresh, 3000);
  age(foreign, 3700);
  cache.publish(make_entry(make_key("a")));
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_TRUE(std::filesystem::exists(fresh));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST(Cache, DecisionsAreLogged) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const std::string digest = make_key("a").digest().substr(0, 12);
  in_child([&] {
    ::setenv("TRUEFUSE_LOG", "1", 1);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) {
      cache.lookup_or_compile(make_key("a"), [] { return make_entry({}, kCode); });
    }
    std::istringstream log(testing::internal::GetCapturedStderr());
    for (const char* const begin : {"cache miss ", "cache publish ", "cache hit "}) {
      std::string line;
      std::getline(log, line);
      EXPECT_TRUE(line.starts_with("truefuse: " + (begin + digest))) << line;
    }
    EXPECT_EQ(log.peek(), EOF);
    ::setenv("TRUEFUSE_LOG", "0", 1);
    testing::internal::CaptureStderr();
    cache.lookup(make_key("a"));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  });
}

}  // namespace
}  // namespace truefuse::jit
