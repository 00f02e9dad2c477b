#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <linux/magic.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "cache_test_support.h"

// Calls of the engine come through here, so that a test can make them fail as a file system would.
namespace {
int flock_error = 0;
int fsync_error = 0;
int renameat_error = 0;
int unlinkat_error = 0;
int openat_error = 0;  // Of entries that are opened for reading.
int pread_error = 0;
bool is_renamed_all_the_same = false;  // As where only the answer of a server was lost.
bool are_owners_squashed = false;      // New files belong to nobody.
int writes = 0;                        // Files made, renamed, locked.
std::string network_directory;         // Pretended to be on NFS.

int result_of(int error, long result) {
  if (error == 0) return static_cast<int>(result);
  errno = error;
  return -1;
}
}  // namespace

extern "C" {
int openat(int directory, const char* name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  const bool is_made = (flags & O_CREAT) != 0;
  writes += is_made;
  if (openat_error != 0 && !is_made && std::string_view(name).ends_with(".tfk")) {
    return result_of(openat_error, 0);
  }
  const int fd = static_cast<int>(::syscall(SYS_openat, directory, name, flags, mode));
  if (is_made && are_owners_squashed && ::fchown(fd, truefuse::jit::kOtherUser, 0) != 0) return -1;
  return fd;
}
ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  if (pread_error != 0) return result_of(pread_error, 0);
  return ::syscall(SYS_pread64, fd, bytes, size, offset);
}
int flock(int fd, int operation) {
  ++writes;
  return result_of(flock_error, flock_error ? 0 : ::syscall(SYS_flock, fd, operation));
}
int fsync(int fd) { return result_of(fsync_error, fsync_error ? 0 : ::syscall(SYS_fsync, fd)); }
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  ++writes;
  const bool is_done = renameat_error == 0 || is_renamed_all_the_same;
  return result_of(
      renameat_error,
      is_done ? ::syscall(SYS_renameat2, from_directory, from, to_directory, to, 0) : 0);
}
int unlinkat(int directory, const char* name, int flags) noexcept {
  return result_of(unlinkat_error,
                   unlinkat_error ? 0 : ::syscall(SYS_unlinkat, directory, name, flags));
}
int fstatfs(int fd, struct statfs* status) noexcept {
  const long result = ::syscall(SYS_fstatfs, fd, status);
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  std::error_code error;
  if (!network_directory.empty() &&
      std::filesystem::read_symlink(link, error) == network_directory) {
    status->f_type = NFS_SUPER_MAGIC;
  }
  return static_cast<int>(result);
}
}

namespace truefuse::jit {
namespace {

CacheEntry compiled(std::size_t bytes = 100) { return make_entry({}, std::string(bytes, 'k')); }

/// The kernel is there all the same, one warning says `why`, and no file is left behind.
void expect_unpublished(const Cache& cache, const std::string& why, std::size_t bytes = 100) {
  const auto& warnings = collect_warnings();
  for (int i = 0; i < 3; ++i) {
    bool was_hit = true;
    const CacheEntry entry = cache.lookup_or_compile(
        make_key("a"), [&] { return compiled(bytes); }, &was_hit);
    EXPECT_EQ(entry.code.size(), bytes);
    EXPECT_FALSE(was_hit);
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find(why), std::string::npos) << warnings[0];
  EXPECT_TRUE(files_in(cache.directory()).empty());
}

TEST(CacheFaults, WithoutLocksItCompilesPrivatelyAndPublishes) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP, ESTALE}) {
    in_child([&] {
      flock_error = error;
      const auto& warnings = collect_warnings();
      EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return compiled(); }).code.size(),
                100u);
      EXPECT_TRUE(warnings.empty());
      EXPECT_EQ(files_in(directory.path()),
                std::vector<std::string>{make_key("a").digest() + ".tfk"});
      EXPECT_TRUE(cache.lookup(make_key("a")));
      EXPECT_EQ(cache.clear(), 1);
    });
  }
}

TEST(CacheFaults, FailuresToPublishCostOnlyTime) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  for (const int error : {EIO, ENOSPC, EDQUOT, ESTALE, EROFS, EACCES}) {
    const std::string words = std::string("(") + std::strerror(error) + ")";
    in_child([&] {
      fsync_error = error;
      expect_unpublished(cache, words);
    });
    in_child([&] {
      renameat_error = error;
      expect_unpublished(cache, words);
    });
  }
}

TEST(CacheFaults, CleaningUpMayFail) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  in_child([&] {
    unlinkat_error = EBUSY;
    const auto& warnings = collect_warnings();
    for (int i = 0; i < 2; ++i) {
      bool was_hit = i == 0;
      cache.lookup_or_compile(
          make_key("a"), [] { return compiled(); }, &was_hit);
      EXPECT_EQ(was_hit, i == 1);
    }
    // The lock file of before is still there, and is no obstacle.
    EXPECT_TRUE(std::filesystem::exists(directory.path() + "/" + make_key("a").digest() + ".lock"));
    std::filesystem::remove(path_of(cache, make_key("a")));
    EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return compiled(); }).code.size(), 100u);
    EXPECT_TRUE(warnings.empty());
  });
}

TEST(CacheFaults, NetworkFileSystemIsOnlyRead) {
  const TestDirectory directory;
  const TestDirectory home;
  const Cache cache(directory.path());
  cache.publish(make_entry(make_key("a"), "filled"));
  in_child([&] {
    ::setenv("HOME", home.path().c_str(), 1);
    ::unsetenv("XDG_CACHE_HOME");
    ::unsetenv("TRUEFUSE_CACHE");
    ::setenv("TRUEFUSE_CACHE_DIR", directory.path().c_str(), 1);
    network_directory = directory.path();
    collect_warnings();
    writes = 0;
    std::vector<std::string> reasons;
    EXPECT_EQ(Cache::default_directory(&reasons), directory.path());
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_NE(reasons[0].find("is only read: it is on a network file system (NFS)"),
              std::string::npos)
        << reasons[0];
    EXPECT_EQ(cache.lookup(make_key("a"))->code, "filled");
    EXPECT_EQ(cache.lookup_or_compile(make_key("b"), [] { return compiled(); }).code.size(), 100u);
    EXPECT_FALSE(cache.lookup(make_key("b")));
    EXPECT_EQ(cache.clear(), 0);
    EXPECT_EQ(cache.remove_damaged(), 0);
    EXPECT_EQ(writes, 0) << "nothing is made, renamed or locked there";
    // Without entries it is passed over.
    std::filesystem::remove(path_of(cache, make_key("a")));
    EXPECT_EQ(Cache::default_directory(), home.path() + "/.cache/truefuse");
  });
}

// A server that has forgotten the file, or a disk that cannot read it: compiled again, kept again.
TEST(CacheFaults, AnEntryThatCannotBeReadIsCompiledAgain) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  for (int* const fault : {&openat_error, &pread_error}) {
    for (const int error : {ESTALE, EIO, EACCES, ETIMEDOUT}) {
      cache.publish(make_entry(make_key("a"), "old"));
      in_child([&] {
        *fault = error;
        const auto& warnings = collect_warnings();
        for (int i = 0; i < 2; ++i) {
          const CacheEntry entry =
              cache.lookup_or_compile(make_key("a"), [] { return make_entry({}, "new"); });
          EXPECT_EQ(entry.code, "new");
        }
        ASSERT_EQ(warnings.size(), 1u);
        EXPECT_NE(warnings[0].find(std::strerror(error)), std::string::npos) << warnings[0];
      });
      EXPECT_EQ(cache.lookup(make_key("a"))->code, "new");
    }
  }
}

// What was published is not seen for a while, by others and by its publisher.
TEST(CacheFaults, LateVisibilityCostsACompile) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  cache.publish(make_entry(make_key("a"), "of another"));
  in_child([&] {
    const auto& warnings = collect_warnings();
    int compiles = 0;
    const auto code = [&] {
      return cache
          .lookup_or_compile(make_key("a"),
                             [&] {
                               ++compiles;
                               return make_entry({}, "mine");
                             })
          .code;
    };
    openat_error = ENOENT;
    EXPECT_EQ(code(), "mine");
    EXPECT_EQ(code(), "mine");
    openat_error = 0;
    EXPECT_EQ(code(), "mine");
    EXPECT_EQ(compiles, 2);
    EXPECT_TRUE(warnings.empty());
  });
}

TEST(CacheFaults, ARenameWhoseAnswerIsLostHasHappened) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  in_child([&] {
    renameat_error = ESTALE;
    is_renamed_all_the_same = true;
    const auto& warnings = collect_warnings();
    EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return compiled(); }).code.size(), 100u);
    EXPECT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(cache.lookup(make_key("a")));
  });
}

// Files that we make turn out to be nobody's, who may then change them.
TEST(CacheFaults, SquashedOwnersAreNotTrusted) {
  if (!is_root()) GTEST_SKIP() << "needs root to give files away";
  const TestDirectory directory;
  const Cache cache(directory.path());
  in_child([&] {
    are_owners_squashed = true;
    const auto& warnings = collect_warnings();
    for (int i = 0; i < 3; ++i) {
      bool was_hit = true;
      EXPECT_EQ(cache
                    .lookup_or_compile(
                        make_key("a"), [] { return compiled(); }, &was_hit)
                    .code.size(),
                100u);
      EXPECT_FALSE(was_hit);
    }
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("is not a regular file that only you or root can write"),
              std::string::npos);
  });
}

class SmallFileSystem : public testing::Test {
 protected:
  const TestDirectory directory_;

  bool mount_small() const {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, "mode=0700,size=64k") == 0;
  }
  void SetUp() override {
    if (wait_for(start_child([&] { ::_exit(mount_small() ? 0 : 1); })) != 0) {
      GTEST_SKIP() << "needs the right to mount";
    }
  }
};

TEST_F(SmallFileSystem, HasNoRoomForALargeEntry) {
  in_child([&] {
    ASSERT_TRUE(mount_small());
    expect_unpublished(Cache(directory_.path()), "(No space left on device)", 200000);
  });
}

TEST_F(SmallFileSystem, KeepsWhatFitsAndGoesOnOnceThereIsRoom) {
  in_child([&] {
    ASSERT_TRUE(mount_small());
    const Cache cache(directory_.path());
    const auto& warnings = collect_warnings();
    const auto is_hit = [&](int i) {
      bool was_hit = false;
      const CacheEntry entry = cache.lookup_or_compile(
          make_key(std::to_string(i)), [] { return compiled(9000); }, &was_hit);
      EXPECT_EQ(entry.code.size(), 9000u);
      return was_hit;
    };
    int kept = 0;
    for (int i = 0; i < 12; ++i) EXPECT_FALSE(is_hit(i));
    for (int i = 0; i < 12; ++i) kept += is_hit(i);
    EXPECT_GE(kept, 4);
    EXPECT_LT(kept, 12);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("(No space left on device)"), std::string::npos) << warnings[0];
    EXPECT_EQ(files_in(directory_.path()).size(), static_cast<std::size_t>(kept));
    EXPECT_EQ(cache.clear(), kept);
    EXPECT_FALSE(is_hit(11));
    EXPECT_TRUE(is_hit(11));
  });
}

TEST(CacheFaults, FileSizeLimitIsNoSignal) {
  const TestDirectory directory;
  in_child([&] {
    const rlimit limit{1000, 1000};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_unpublished(Cache(directory.path()), "(File too large)", 2000);
  });
}

TEST(CacheFaults, NoDescriptorsLeft) {
  const TestDirectory directory;
  const Cache cache(directory.path());
  cache.publish(make_entry(make_key("a")));
  in_child([&] {
    const auto& warnings = collect_warnings();
    const rlimit limit{3, 3};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(cache.lookup_or_compile(make_key("a"), [] { return compiled(); }).code.size(), 100u);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("Too many open files"), std::string::npos);
  });
  EXPECT_TRUE(cache.lookup(make_key("a")));
}

}  // namespace
}  // namespace truefuse::jit
