#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>

#include <truefuse/jit/cache_directory.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

using Reasons = std::vector<std::string>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A process with an environment of our making.
void in_clean_child(const std::function<void()>& body) {
  in_child([&] {
    for (const char* name : {"TRUEFUSE_CACHE", "TRUEFUSE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
      ::unsetenv(name);
    }
    body();
  });
}

/// From here on, mounts of this process are its own.
bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool mount_tmpfs(const std::string& path, unsigned long flags, const char* options) {
  return ::mount("tmpfs", path.c_str(), "tmpfs", flags, options) == 0;
}

bool may_mount() {
  const auto try_it = [] { ::_exit(own_mounts() && mount_tmpfs("/tmp", 0, "") ? 0 : 1); };
  return wait_for(start_child(try_it)) == 0;
}

std::string last_resort() { return "/tmp/truefuse-" + std::to_string(::geteuid()); }

TEST(CacheDirectory, OrderOfPreference) {
  const TestDirectory root;
  in_clean_child([&] {
    const std::string home = root.path() + "/home";
    std::filesystem::create_directories(home);
    ::setenv("HOME", home.c_str(), 1);
    Reasons reasons;
    EXPECT_EQ(Cache::default_directory(&reasons), home + "/.cache/truefuse");
    ::setenv("XDG_CACHE_HOME", (root.path() + "/xdg").c_str(), 1);
    EXPECT_EQ(Cache::default_directory(&reasons), root.path() + "/xdg/truefuse");
    ::setenv("TRUEFUSE_CACHE_DIR", (root.path() + "/own/deep").c_str(), 1);
    EXPECT_EQ(Cache::default_directory(&reasons), root.path() + "/own/deep");
    EXPECT_EQ(reasons, Reasons{});
    for (const char* made : {"/home/.cache/truefuse", "/xdg/truefuse", "/own/deep"}) {
      struct stat status {};
      EXPECT_EQ(::stat((root.path() + made).c_str(), &status), 0) << made;
      EXPECT_EQ(status.st_mode & 07777, 0700u) << made;
    }
    ::setenv("TRUEFUSE_CACHE", "off", 1);
    EXPECT_EQ(Cache::default_directory(&reasons), "");
    EXPECT_EQ(reasons, Reasons{"TRUEFUSE_CACHE=off: nothing is kept on disk"});
  });
}

TEST(CacheDirectory, UnknownSwitchIsSaidAndIgnored) {
  const TestDirectory root;
  in_clean_child([&] {
    ::setenv("TRUEFUSE_CACHE_DIR", root.path().c_str(), 1);
    ::setenv("TRUEFUSE_CACHE", "maybe", 1);
    const auto& warnings = collect_warnings();
    EXPECT_EQ(Cache::default_directory(), root.path());
    EXPECT_EQ(warnings, Reasons{"TRUEFUSE_CACHE=maybe is neither on nor off; it stays on"});
  });
}

TEST(CacheDirectory, MissingOrForeignHomeFallsBackToTmp) {
  if (!may_mount()) GTEST_SKIP() << "needs root, and mounts, for a /tmp of its own";
  const TestDirectory root;
  in_clean_child([&] {
    ASSERT_TRUE(own_mounts() && mount_tmpfs("/tmp", 0, "mode=1777"));
    become_other_user();
    const struct {
      const char* home;
      const char* reason;
    } cases[] = {{nullptr, "HOME is not set"},
                 {"/nonexistent", "HOME cannot be used (No such file or directory)"},
                 {"relative", "HOME is not an absolute path"},
                 {"/", "HOME belongs to user 0, but this process runs as user 65534"}};
    for (const auto& [home, reason] : cases) {
      if (home != nullptr) ::setenv("HOME", home, 1);
      Reasons reasons;
      EXPECT_EQ(Cache::default_directory(&reasons), last_resort());
      ASSERT_EQ(reasons.size(), 1u);
      EXPECT_TRUE(contains(reasons[0], reason)) << reasons[0];
    }
    EXPECT_FALSE(std::filesystem::exists("/nonexistent"));
    struct stat status {};
    ASSERT_EQ(::stat(last_resort().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
  });
}

TEST(CacheDirectory, NothingUsableMeansMemoryAndOneWarning) {
  if (!may_mount()) GTEST_SKIP() << "needs root, and mounts, for a /tmp of its own";
  in_clean_child([&] {
    ASSERT_TRUE(own_mounts() && mount_tmpfs("/tmp", 0, "mode=1777"));
    std::filesystem::create_directories("/tmp/truefuse-65534");  // Somebody was here before us.
    become_other_user();
    const auto& warnings = collect_warnings();
    Reasons reasons;
    EXPECT_EQ(Cache::default_directory(&reasons), "");
    EXPECT_EQ(Cache::default_directory(), "");
    ASSERT_EQ(reasons.size(), 2u);
    EXPECT_TRUE(contains(reasons[1],
                         last_resort() + " (the last resort) is passed over: it belongs to user 0"))
        << reasons[1];
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(contains(warnings[0], "TRUEFUSE_CACHE_DIR")) << warnings[0];
  });
}

// Each is passed over, in words, and never used by a Cache that is pointed at it either.
TEST(CacheDirectory, UntrustedDirectoriesAreRefused) {
  const TestDirectory root;
  const std::string path = root.path() + "/cache";
  const Key key = make_key("a");
  const auto expect_refused = [&](const std::string& given, const std::string& why) {
    in_clean_child([&] {
      ::setenv("HOME", root.path().c_str(), 1);
      ::setenv("TRUEFUSE_CACHE_DIR", given.c_str(), 1);
      auto& warnings = collect_warnings();
      Reasons reasons;
      EXPECT_EQ(Cache::default_directory(&reasons), root.path() + "/.cache/truefuse");
      ASSERT_EQ(reasons.size(), 1u);
      EXPECT_TRUE(contains(reasons[0], given + " (TRUEFUSE_CACHE_DIR) is passed over: " + why))
          << reasons[0];
      EXPECT_EQ(warnings, reasons);
    });
    in_clean_child([&] {
      const auto& warnings = collect_warnings();
      const Cache cache(given);
      EXPECT_FALSE(cache.lookup(key)) << given;
      EXPECT_TRUE(cache.list().empty());
      bool was_hit = true;
      EXPECT_EQ(cache
                    .lookup_or_compile(
                        key, [] { return make_entry({}, "new"); }, &was_hit)
                    .code,
                "new");
      EXPECT_FALSE(was_hit);
      EXPECT_EQ(cache.clear(), 0);
      EXPECT_EQ(warnings.size(), 1u);
    });
  };
  Cache(path).publish(make_entry(key));
  const std::vector<std::string> before = files_in(path);
  for (const mode_t mode : {0777u, 01777u, 0770u, 0720u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    expect_refused(path, "others than its owner can write it (mode ");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);  // Nobody's permissions are changed silently.
  }
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);

  std::filesystem::create_directory_symlink(path, root.path() + "/link");
  expect_refused(root.path() + "/link", "it is a symbolic link");
  expect_refused(root.path() + "/link//", "it is a symbolic link");
  std::filesystem::create_directory_symlink(root.path() + "/nowhere", root.path() + "/dangling");
  expect_refused(root.path() + "/dangling", "it is a symbolic link");
  EXPECT_FALSE(std::filesystem::exists(root.path() + "/nowhere"));

  write_file(root.path() + "/file", "");
  expect_refused(root.path() + "/file", "it cannot be opened (Not a directory)");
  expect_refused(root.path() + "/file/x", "it cannot be ");
  expect_refused("relative/cache", "its path is not absolute");
  if (is_root()) {
    ASSERT_EQ(::chown(path.c_str(), kOtherUser, kOtherUser), 0);
    expect_refused(path, "it belongs to user 65534, but this process runs as user 0");
  }
  EXPECT_EQ(files_in(path), before);
}

TEST(CacheDirectory, SecondUserGetsTheirOwn) {
  if (!is_root()) GTEST_SKIP() << "needs root to become another user";
  const TestDirectory root;
  ASSERT_EQ(::chmod(root.path().c_str(), 0755), 0);
  const std::string path = root.path() + "/cache";
  const Key key = make_key("a");
  Cache(path).publish(make_entry(key));
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  in_clean_child([&] {
    become_other_user();
    const auto& warnings = collect_warnings();
    // The file is readable by its owner alone.
    EXPECT_EQ(Cache(path).lookup_or_compile(key, [] { return make_entry({}, "mine"); }).code,
              "mine");
    EXPECT_EQ(warnings.size(), 2u);
  });
}

// A directory filled by root or on a read-only mount serves; nothing is written, one warning says
// so.
void expect_served_read_only(const std::string& path, const std::string& why) {
  ::setenv("TRUEFUSE_CACHE_DIR", path.c_str(), 1);
  const auto& warnings = collect_warnings();
  Reasons reasons;
  const Cache cache(Cache::default_directory(&reasons));
  EXPECT_EQ(cache.directory(), path);
  ASSERT_EQ(reasons.size(), 1u);
  EXPECT_TRUE(contains(reasons[0], "(TRUEFUSE_CACHE_DIR) is only read: " + why)) << reasons[0];
  EXPECT_EQ(cache.lookup(make_key("a"))->code, "filled");
  EXPECT_EQ(cache.list().size(), 1u);
  EXPECT_EQ(cache.lookup_or_compile(make_key("b"), [] { return make_entry({}, "new"); }).code,
            "new");
  EXPECT_FALSE(cache.lookup(make_key("b")));
  EXPECT_EQ(cache.clear(), 0);
  EXPECT_EQ(warnings, reasons);
}

TEST(CacheDirectory, OwnedByRootIsRead) {
  if (!is_root()) GTEST_SKIP() << "needs root to become another user";
  const TestDirectory root;
  Cache(root.path()).publish(make_entry(make_key("a"), "filled"));
  ASSERT_EQ(::chmod(root.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_of(Cache(root.path()), make_key("a")).c_str(), 0644), 0);
  in_clean_child([&] {
    become_other_user();
    expect_served_read_only(root.path(), "it belongs to user 0");
  });
}

TEST(CacheDirectory, WithoutWritePermissionIsRead) {
  if (!is_root()) GTEST_SKIP() << "needs root to become another user";
  const TestDirectory root;
  ASSERT_EQ(::chown(root.path().c_str(), kOtherUser, kOtherUser), 0);
  in_clean_child([&] {
    become_other_user();
    Cache(root.path()).publish(make_entry(make_key("a"), "filled"));
    ASSERT_EQ(::chmod(root.path().c_str(), 0500), 0);
    expect_served_read_only(root.path(), "it cannot be written (Permission denied)");
  });
}

TEST(CacheDirectory, ReadOnlyMountIsReadIfItHoldsEntries) {
  if (!may_mount()) GTEST_SKIP() << "needs the right to mount";
  const TestDirectory root;
  in_clean_child([&] {
    ASSERT_TRUE(own_mounts() && mount_tmpfs(root.path(), 0, "mode=0700"));
    Cache(root.path()).publish(make_entry(make_key("a"), "filled"));
    ASSERT_TRUE(mount_tmpfs(root.path(), MS_REMOUNT | MS_RDONLY, "mode=0700"));
    expect_served_read_only(root.path(), "it cannot be written (Read-only file system)");
  });
  const TestDirectory home;
  in_clean_child([&] {
    ASSERT_TRUE(own_mounts() && mount_tmpfs(root.path(), MS_RDONLY, "mode=0700"));
    ::setenv("HOME", home.path().c_str(), 1);
    for (const char* below : {"", "/missing"}) {
      ::setenv("TRUEFUSE_CACHE_DIR", (root.path() + below).c_str(), 1);
      Reasons reasons;
      EXPECT_EQ(Cache::default_directory(&reasons), home.path() + "/.cache/truefuse");
      ASSERT_EQ(reasons.size(), 1u);
      EXPECT_TRUE(contains(reasons[0], "(Read-only file system)")) << reasons[0];
    }
  });
}

TEST(CacheDirectory, VanishedDirectoryIsMadeAgain) {
  const TestDirectory root;
  const Cache cache(root.path() + "/cache");
  cache.publish(make_entry(make_key("a")));
  std::filesystem::remove_all(cache.directory());
  EXPECT_FALSE(cache.lookup(make_key("a")));
  EXPECT_FALSE(std::filesystem::exists(cache.directory()));  // Reading makes nothing.
  cache.lookup_or_compile(make_key("a"), [&] {
    std::filesystem::remove_all(cache.directory());  // Once more, while compiling.
    return make_entry({});
  });
  EXPECT_TRUE(cache.lookup(make_key("a")));
}

TEST(NetworkFileSystem, KnownByTheKernelsNumbers) {
  EXPECT_EQ(network_file_system(NFS_SUPER_MAGIC, ""), "NFS");
  EXPECT_EQ(network_file_system(SMB_SUPER_MAGIC, ""), "SMB");
  EXPECT_EQ(network_file_system(AFS_SUPER_MAGIC, ""), "AFS");
  EXPECT_EQ(network_file_system(CODA_SUPER_MAGIC, ""), "Coda");
  EXPECT_EQ(network_file_system(V9FS_MAGIC, ""), "9P");
  EXPECT_EQ(network_file_system(OCFS2_SUPER_MAGIC, ""), "OCFS2");
#ifdef CEPH_SUPER_MAGIC
  EXPECT_EQ(network_file_system(CEPH_SUPER_MAGIC, ""), "CephFS");
#endif
#ifdef CIFS_SUPER_MAGIC
  EXPECT_EQ(network_file_system(CIFS_SUPER_MAGIC, ""), "CIFS");
  EXPECT_EQ(network_file_system(SMB2_SUPER_MAGIC, ""), "SMB2");
#endif
  for (const std::uint64_t local :
       {EXT4_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC, XFS_SUPER_MAGIC}) {
    EXPECT_EQ(network_file_system(local, "fuse.sshfs"), "");
  }
}

TEST(NetworkFileSystem, FuseIsToldApartByTheMountTable) {
#ifdef FUSE_SUPER_MAGIC
  constexpr std::uint64_t kFuse = FUSE_SUPER_MAGIC;
#else
  constexpr std::uint64_t kFuse = 0x65735546;
#endif
  EXPECT_EQ(network_file_system(kFuse, "fuse.sshfs"), "FUSE");
  EXPECT_EQ(network_file_system(kFuse, ""), "FUSE");
  EXPECT_EQ(network_file_system(kFuse, "fuse.fuse-overlayfs"), "");

  const std::string table =
      "22 1 0:21 / / rw,relatime - ext4 /dev/vda rw\n"
      "36 35 0:210 /a\\040b /mnt rw shared:1 master:2 - fuse.sshfs me@host:/x rw,user_id=0\n"
      "malformed\n"
      "37 35 0:2 / /other rw - tmpfs tmpfs";
  EXPECT_EQ(mount_type(table, 0, 210), "fuse.sshfs");
  EXPECT_EQ(mount_type(table, 0, 21), "ext4");
  EXPECT_EQ(mount_type(table, 0, 2), "tmpfs");
  EXPECT_EQ(mount_type(table, 0, 1), "");
  EXPECT_EQ(mount_type("", 0, 1), "");
}

}  // namespace
}  // namespace truefuse::jit
