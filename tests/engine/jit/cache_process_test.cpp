#include <atomic>
#include <thread>

#include <truefuse/core/error.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

/// Lets processes wait for each other; made before they start.
class Signal {
 public:
  Signal() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) std::abort();
  }
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  /// Releases `count` waits, in any process.
  void give(int count = 1) {
    const std::string bytes(static_cast<std::size_t>(count), 'x');
    if (::write(ends_[1], bytes.data(), bytes.size()) != count) std::abort();
  }
  void wait() {
    char byte;
    if (::read(ends_[0], &byte, 1) != 1) std::abort();
  }

 private:
  int ends_[2];
};

/// A number that processes count up together.
class Counter {
 public:
  void add() {
    const int fd = ::open(path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (::write(fd, "x", 1) != 1) std::abort();
    ::close(fd);
  }
  std::size_t value() const { return read_file(path()).size(); }

 private:
  std::string path() const { return directory_.path() + "/count"; }
  TestDirectory directory_;
};

void pause_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// A child that is in the middle of compiling `key` and stays there until `go_on`.
pid_t start_builder(const Cache& cache, const Key& key, Signal& go_on) {
  Signal compiling;
  const pid_t builder = start_child([&] {
    cache.lookup_or_compile(key, [&] {
      compiling.give();
      go_on.wait();
      return make_entry({}, "of the builder");
    });
  });
  compiling.wait();
  return builder;
}

TEST(CacheProcesses, SixteenAtOnceCompileOnce) {
  const TestDirectory directory;
  const Cache cache(directory.path() + "/made/by/one");
  const Key key = make_key("a");
  Signal start;
  Counter compiles;
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    children.push_back(start_child([&] {
      const auto& warnings = collect_warnings();
      start.wait();
      const CacheEntry entry = cache.lookup_or_compile(key, [&] {
        compiles.add();
        pause_ms(200);
        return make_entry({}, std::string(100000, 'k'));
      });
      EXPECT_EQ(entry.code, std::string(100000, 'k'));
      EXPECT_TRUE(warnings.empty());
    }));
  }
  start.give(16);
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(compiles.value(), 1u);
  EXPECT_EQ(files_in(cache.directory()), std::vector<std::string>{key.digest() + ".tfk"});
}

TEST(CacheProcesses, ThreadsCompileOnceForEachKey) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  std::atomic<int> compiles{0};
  std::atomic<int> hits{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const std::string code = i % 2 == 0 ? "even" : "odd";
      bool was_hit = false;
      const CacheEntry entry = cache.lookup_or_compile(
          make_key(code),
          [&] {
            ++compiles;
            pause_ms(50);
            return make_entry({}, code);
          },
          &was_hit);
      EXPECT_EQ(entry.code, code);
      hits += was_hit;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(hits, 6);
  EXPECT_EQ(files_in(directory.path()).size(), 2u);
}

TEST(CacheProcesses, OtherKeysDoNotWait) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  Signal go_on;
  const pid_t builder = start_builder(cache, make_key("a"), go_on);
  in_child([&] {
    const auto& warnings = collect_warnings();
    EXPECT_EQ(cache.lookup_or_compile(make_key("b"), [] { return make_entry({}, "b"); }).code, "b");
    EXPECT_TRUE(warnings.empty());  // It would have said that it waits.
  });
  go_on.give();
  EXPECT_EQ(wait_for(builder), 0);
}

TEST(CacheProcesses, KilledBuilderBlocksNobody) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  Signal go_on;
  const pid_t builder = start_builder(cache, key, go_on);
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{key.digest() + ".lock"});
  Counter compiles;
  std::vector<pid_t> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(start_child([&] {
      const CacheEntry entry = cache.lookup_or_compile(key, [&] {
        compiles.add();
        return make_entry({}, "of a waiter");
      });
      EXPECT_EQ(entry.code, "of a waiter");
    }));
  }
  pause_ms(50);
  EXPECT_EQ(compiles.value(), 0u);
  ::kill(builder, SIGKILL);
  EXPECT_EQ(wait_for(builder), 128 + SIGKILL);
  for (const pid_t waiter : waiters) EXPECT_EQ(wait_for(waiter), 0);
  EXPECT_EQ(compiles.value(), 1u);
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{key.digest() + ".tfk"});
}

TEST(CacheProcesses, LockOfTheDeadIsTakenOver) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  Signal go_on;
  const pid_t builder = start_builder(cache, key, go_on);
  ::kill(builder, SIGKILL);
  EXPECT_EQ(wait_for(builder), 128 + SIGKILL);
  in_child([&] {
    const auto& warnings = collect_warnings();
    EXPECT_EQ(cache.lookup_or_compile(key, [] { return make_entry({}, "new"); }).code, "new");
    EXPECT_TRUE(warnings.empty());
  });
  EXPECT_EQ(files_in(directory.path()), std::vector<std::string>{key.digest() + ".tfk"});
}

TEST(CacheProcesses, StuckBuilderIsNamedThenLeftAlone) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  Signal go_on;
  const pid_t builder = start_builder(cache, key, go_on);
  ::kill(builder, SIGSTOP);
  in_child([&] {
    ::setenv("TRUEFUSE_CACHE_WAIT", "1.2", 1);
    const auto& warnings = collect_warnings();
    for (int i = 0; i < 2; ++i) {
      const CacheEntry entry = cache.lookup_or_compile(key, [] { return make_entry({}, "mine"); });
      EXPECT_EQ(entry.code, "mine");
    }
    ASSERT_EQ(warnings.size(), 2u);
    const std::string owner = "waiting for process " + std::to_string(builder) + " (";
    EXPECT_EQ(warnings[0].substr(0, owner.size()), owner);
    EXPECT_NE(warnings[0].find("TRUEFUSE_CACHE_WAIT"), std::string::npos);
    EXPECT_NE(warnings[1].find("compiling it here too"), std::string::npos);
  });
  // What was compiled privately serves the others, and the stuck one is none the worse.
  EXPECT_EQ(cache.lookup(key)->code, "mine");
  ::kill(builder, SIGCONT);
  go_on.give();
  EXPECT_EQ(wait_for(builder), 0);
  EXPECT_EQ(cache.lookup(key)->code, "of the builder");
  EXPECT_EQ(files_in(directory.path()).size(), 1u);
}

TEST(CacheProcesses, WaitOfZeroAndNonsense) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  Signal go_on;
  const pid_t builder = start_builder(cache, make_key("a"), go_on);
  in_child([&] {
    const auto& warnings = collect_warnings();
    ::setenv("TRUEFUSE_CACHE_WAIT", "0", 1);
    EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return make_entry({}, "mine"); }).code,
              "mine");
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("compiling it here too"), std::string::npos);
    for (const char* nonsense : {"soon", "-1", "nan", "1e9", "5s"}) {
      ::setenv("TRUEFUSE_CACHE_WAIT", nonsense, 1);
      cache.lookup_or_compile(make_key(nonsense), [] { return make_entry({}, "x"); });
    }
    ASSERT_EQ(warnings.size(), 2u);
    EXPECT_EQ(warnings[1].substr(0, 25), "TRUEFUSE_CACHE_WAIT=soon ");
  });
  go_on.give();
  EXPECT_EQ(wait_for(builder), 0);
}

TEST(CacheProcesses, FailedCompileLetsTheNextTry) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  Signal start;
  Counter attempts;
  Counter failures;
  std::vector<pid_t> children;
  for (int i = 0; i < 5; ++i) {
    children.push_back(start_child([&] {
      start.wait();
      try {
        const CacheEntry entry = cache.lookup_or_compile(make_key("a"), [&] {
          attempts.add();
          if (attempts.value() <= 2) throw Error("the compiler failed");
          return make_entry({}, "good");
        });
        EXPECT_EQ(entry.code, "good");
      } catch (const Error&) {
        failures.add();
      }
    }));
  }
  start.give(5);
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(attempts.value(), 3u);
  EXPECT_EQ(failures.value(), 2u);
}

TEST(CacheProcesses, KilledPublisherLeavesTheOldOrTheNewEntry) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  in_child([&] {
    const auto& warnings = collect_warnings();
    cache.publish(make_entry(key, std::string(300000, 'a')));
    for (int round = 0; round < 40; ++round) {
      const pid_t publisher = start_child([&] {
        for (int i = 0;; ++i) {
          cache.publish(make_entry(key, std::string(300000, i % 2 == 0 ? 'a' : 'b')));
        }
      });
      std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
      ::kill(publisher, SIGKILL);
      EXPECT_EQ(wait_for(publisher), 128 + SIGKILL);
      const std::optional<CacheEntry> entry = cache.lookup(key);
      ASSERT_TRUE(entry);
      EXPECT_EQ(entry->code, std::string(300000, entry->code[0]));
    }
    EXPECT_TRUE(warnings.empty());
    EXPECT_EQ(cache.clear(), 1);
    EXPECT_TRUE(files_in(directory.path()).empty());
  });
}

TEST(CacheProcesses, ReadersOfChangingEntriesSeeWholeOnes) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  const Key key = make_key("a");
  std::vector<pid_t> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(start_child([&] {
      const auto& warnings = collect_warnings();
      int hits = 0;
      for (int round = 0; hits < 200 && round < 200000; ++round) {
        const std::optional<CacheEntry> entry = cache.lookup(key);
        if (!entry) continue;
        ++hits;
        EXPECT_EQ(entry->code, std::string(50000, entry->code[0]));
      }
      EXPECT_EQ(hits, 200);
      EXPECT_TRUE(warnings.empty());
    }));
  }
  const pid_t writer = start_child([&] {
    for (int i = 0;; ++i) {
      cache.publish(make_entry(key, std::string(50000, i % 2 == 0 ? 'a' : 'b')));
      if (i % 4 == 0) cache.clear();
    }
  });
  for (const pid_t reader : readers) EXPECT_EQ(wait_for(reader), 0);
  ::kill(writer, SIGKILL);
  wait_for(writer);
}

TEST(CacheProcesses, ProgramsThatACompileStartsInheritNothing) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  std::string open_files;
  cache.lookup_or_compile(make_key("a"), [&] {
    open_files = shell("readlink /proc/self/fd/*");
    return make_entry({}, "x");
  });
  EXPECT_NE(open_files, "");
  EXPECT_EQ(open_files.find(directory.path()), std::string::npos) << open_files;
}

}  // namespace
}  // namespace truefuse::jit
