#include <array>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::ScopedVariable;

/// A process that has made a directory, with a file in it, and is waiting to be killed.
class Owner {
 public:
  Owner() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw Error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      const TemporaryDirectory directory;
      std::filesystem::create_directories(directory.path() + "/a");
      std::ofstream(directory.path() + "/a/file") << "text";
      if (write(ends[1], directory.path().data(), directory.path().size()) < 0) _exit(1);
      close(ends[1]);
      while (true) pause();
    }
    close(ends[1]);
    char letter = 0;
    while (read(ends[0], &letter, 1) == 1) path_ += letter;
    close(ends[0]);
  }
  ~Owner() { kill_it(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void kill_it() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  const std::string& path() const { return path_; }

 private:
  pid_t pid_ = 0;
  std::string path_;
};

TEST(TemporaryDirectory, IsPrivateAndRemoved) {
  std::string path;
  {
    const TemporaryDirectory directory;
    path = directory.path();
    const auto mode = std::filesystem::status(path).permissions();
    EXPECT_EQ(mode, std::filesystem::perms::owner_all);
    std::filesystem::create_directories(path + "/a/b");
    std::ofstream(path + "/a/b/file") << "text";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryDirectory, IsAbsolute) {
  const TemporaryDirectory parent;
  const testing::ScopedDirectory here(parent.path());
  const ScopedVariable variable("TMPDIR", ".");
  const TemporaryDirectory directory;
  EXPECT_TRUE(directory.path().starts_with('/')) << directory.path();
  EXPECT_TRUE(std::filesystem::equivalent(directory.path() + "/..", parent.path()));
}

TEST(TemporaryDirectory, NamesTheDirectoryThatCannotBeUsed) {
  const ScopedVariable variable("TMPDIR", "/nonexistent/tmp");
  const std::string message = testing::error_of([] { const TemporaryDirectory directory; });
  EXPECT_NE(message.find("/nonexistent/tmp (No such file or directory)"), std::string::npos)
      << message;
  EXPECT_NE(message.find("set TMPDIR"), std::string::npos) << message;
}

TEST(TemporaryDirectory, OfAProcessThatWasKilledGoesWithTheNextOne) {
  const TemporaryDirectory parent;
  const ScopedVariable variable("TMPDIR", parent.path().c_str());
  const Owner living;
  Owner killed;
  // Nor what releases without the lock have made, and what is no directory.
  const std::string older = parent.path() + "/truefuse-a1b2c3";
  const std::string file = parent.path() + "/truefuse-tmp-a1b2c3";
  std::filesystem::create_directory(older);
  std::ofstream{file};
  ASSERT_TRUE(std::filesystem::exists(living.path() + "/a/file"));
  ASSERT_TRUE(std::filesystem::exists(killed.path() + "/a/file"));
  killed.kill_it();
  EXPECT_TRUE(std::filesystem::exists(killed.path() + "/a/file"));
  const TemporaryDirectory next;
  EXPECT_FALSE(std::filesystem::exists(killed.path()));
  EXPECT_TRUE(std::filesystem::exists(living.path() + "/a/file"));
  EXPECT_TRUE(std::filesystem::exists(older));
  EXPECT_TRUE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace truefuse::jit
