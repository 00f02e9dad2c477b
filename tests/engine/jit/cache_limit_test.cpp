#include <atomic>
#include <sys/stat.h>
#include <thread>

#include <truefuse/jit/cache_limit.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

/// Sets when an entry was used last, in seconds before now.
void used_ago(const Cache& cache, const Key& key, int seconds) {
  const timespec when{std::time(nullptr) - seconds, 0};
  const timespec times[2] = {when, when};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_of(cache, key).c_str(), times, 0), 0);
}

std::string numbered(int i) { return "source " + std::to_string(i); }

TEST(CacheLimit, TheEntriesUsedLongestAgoMakeRoom) {
  in_child([] {
    const TestDirectory directory;
    const Cache cache(directory.path());
    ::setenv("TRUEFUSE_CACHE_LIMIT", "0", 1);
    for (int i = 0; i < 10; ++i) {
      cache.publish(make_entry(make_key(numbered(i)), std::string(100 << 10, 'c')));
      used_ago(cache, make_key(numbered(i)), 10000 + i);
    }
    EXPECT_TRUE(cache.lookup(make_key(numbered(9)))) << "the oldest, used once more";
    ::setenv("TRUEFUSE_CACHE_LIMIT", "0.5", 1);
    cache.publish(make_entry(make_key("new"), std::string(100 << 10, 'c')));
    EXPECT_TRUE(cache.lookup(make_key("new")));
    EXPECT_TRUE(cache.lookup(make_key(numbered(9))));
    EXPECT_TRUE(cache.lookup(make_key(numbered(0))));
    EXPECT_FALSE(cache.lookup(make_key(numbered(8))));
    std::int64_t total = 0;
    for (const Cache::Listing& entry : cache.list()) total += entry.bytes;
    EXPECT_LE(total, (512 << 10) / 10 * 9);
  });
}

TEST(CacheLimit, OneEntryThatIsTooLargeIsKept) {
  in_child([] {
    const TestDirectory directory;
    const Cache cache(directory.path());
    ::setenv("TRUEFUSE_CACHE_LIMIT", "0.01", 1);
    cache.publish(make_entry(make_key("a"), std::string(100 << 10, 'c')));
    EXPECT_TRUE(cache.lookup(make_key("a")));
  });
}

TEST(CacheLimit, WhatIsNoNumberIsAWarningAndTheDefault) {
  in_child([] {
    const auto& warnings = collect_warnings();
    ::setenv("TRUEFUSE_CACHE_LIMIT", "much", 1);
    EXPECT_EQ(cache_limit_bytes(), std::int64_t{2} << 30);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("TRUEFUSE_CACHE_LIMIT=much"), std::string::npos);
  });
}

TEST(CacheLimit, ReadersNeverSeeHalfAnEntry) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    children.push_back(start_child([&, child] {
      const auto& warnings = collect_warnings();
      ::setenv("TRUEFUSE_CACHE_LIMIT", "0.2", 1);
      for (int round = 0; round < 100; ++round) {
        const int i = (round * 7 + child) % 12;
        const std::string code(40 << 10, static_cast<char>('a' + i));
        const CacheEntry entry = cache.lookup_or_compile(
            make_key(numbered(i)), [&] { return make_entry(make_key(numbered(i)), code); });
        EXPECT_EQ(entry.code, code);
      }
      EXPECT_TRUE(warnings.empty()) << warnings[0];
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
}

TEST(CacheDamage, IsListedAndRemoved) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  cache.publish(make_entry(make_key("good")));
  cache.publish(make_entry(make_key("bad")));
  const std::string path = path_of(cache, make_key("bad"));
  write_file(path, read_file(path).substr(1));
  EXPECT_EQ(cache.remove_damaged(), 1);
  EXPECT_EQ(cache.remove_damaged(), 0);
  EXPECT_EQ(files_in(cache.directory()),
            std::vector<std::string>{make_key("good").digest() + ".tfk"});
}

TEST(CacheDamage, NoByteOfAnEntryCanBeChangedUnnoticed) {
  in_child([] {
    collect_warnings();
    const TestDirectory directory;
    const Cache cache(directory.path());
    const Key key = make_key("a");
    cache.publish(make_entry(key));
    const std::string bytes = read_file(path_of(cache, key));
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(~changed[at]);
      write_file(path_of(cache, key), changed);
      int compiles = 0;
      const CacheEntry entry = cache.lookup_or_compile(key, [&] {
        ++compiles;
        return make_entry(key);
      });
      EXPECT_EQ(compiles, 1) << at;
      EXPECT_EQ(entry.code, make_entry(key).code);
      EXPECT_TRUE(cache.lookup(key)) << "mended";
    }
  });
}

}  // namespace
}  // namespace truefuse::jit
