#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <truefuse/jit/process.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::ScopedVariable;

TEST(Process, ArgumentsAreNotInterpreted) {
  const ProcessResult result = run_process({"printf", "%s|", "a b", "$HOME", "`id`", "\"q\"", "*"});
  EXPECT_TRUE(result.ok()) << result.how_it_ended();
  EXPECT_EQ(result.output, "a b|$HOME|`id`|\"q\"|*|");
  EXPECT_EQ(result.errors, "");
}

TEST(Process, ReportsExitCodesSignalsAndMissingPrograms) {
  const ProcessResult code = run_process({"sh", "-c", "echo words >&2; exit 3"});
  EXPECT_FALSE(code.ok());
  EXPECT_EQ(code.exit_code, 3);
  EXPECT_EQ(code.errors, "words\n");
  EXPECT_EQ(code.how_it_ended(), "ended with exit code 3");

  const ProcessResult aborted = run_process({"sh", "-c", "kill -ABRT $$"});
  EXPECT_FALSE(aborted.ok());
  EXPECT_EQ(aborted.signal, SIGABRT);
  EXPECT_EQ(aborted.how_it_ended(), "was killed by SIGABRT (Aborted)");

  const ProcessResult missing = run_process({"/nonexistent/compiler"});
  EXPECT_FALSE(missing.started);
  EXPECT_FALSE(missing.ok());
  EXPECT_EQ(missing.how_it_ended(), "could not be started: No such file or directory");
}

TEST(Process, TimeLimitKillsTheWholeGroup) {
  ProcessOptions options;
  options.time_limit = std::chrono::milliseconds(300);
  const ProcessResult result = run_process({"sh", "-c", "sleep 1000 & echo $!; wait"}, options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.how_it_ended(), "did not end within 1 s and was killed");
  const int grandchild = std::atoi(result.output.c_str());
  ASSERT_GT(grandchild, 1);
  EXPECT_TRUE(testing::ends(grandchild));
}

TEST(Process, DoesNotWaitForWhatTheChildLeavesBehind) {
  ProcessOptions options;
  options.time_limit = std::chrono::seconds(30);
  // The background process keeps the pipe open.
  const ProcessResult result = run_process({"sh", "-c", "sleep 1000 & echo done"}, options);
  EXPECT_TRUE(result.ok()) << result.how_it_ended();
  EXPECT_EQ(result.output, "done\n");
}

TEST(Process, LargeInputAndOutputDoNotBlock) {
  ProcessOptions options;
  options.input.assign(3 << 20, 'x');
  options.input[12345] = '\0';
  const ProcessResult echoed = run_process({"cat"}, options);
  EXPECT_TRUE(echoed.ok()) << echoed.how_it_ended();
  EXPECT_TRUE(echoed.output == options.input);

  const ProcessResult both =
      run_process({"sh", "-c", "head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero"});
  EXPECT_EQ(both.output.size(), 1000000u);
  EXPECT_EQ(both.errors.size(), 1000000u);

  // A child that does not read its input is no problem either.
  EXPECT_TRUE(run_process({"true"}, options).ok());
}

TEST(Process, DirectoryEnvironmentAndStandardInput) {
  const TemporaryDirectory directory;
  const ScopedVariable inherited("TF_TEST_INHERITED", "kept");
  const ScopedVariable replaced("TF_TEST_REPLACED", "old");
  ProcessOptions options;
  options.directory = directory.path();
  options.environment = {{"TF_TEST_REPLACED", "new"}, {"TF_TEST_ADDED", "a=b c"}};
  const ProcessResult result = run_process(
      {"sh", "-c",
       "pwd -P; echo \"$TF_TEST_INHERITED $TF_TEST_REPLACED $TF_TEST_ADDED\"; cat; echo end"},
      options);
  EXPECT_EQ(result.output,
            std::filesystem::canonical(directory.path()).string() + "\nkept new a=b c\nend\n");
}

TEST(Process, WorksWhereTheHostIgnoresSignals) {
  // Python ignores SIGPIPE; some servers ignore SIGCHLD, which loses a child's status.
  auto* pipe_handler = signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(run_process({"sh", "-c", "kill -PIPE $$"}).signal, SIGPIPE);
  signal(SIGPIPE, pipe_handler);

  auto* child_handler = signal(SIGCHLD, SIG_IGN);
  const ProcessResult lost = run_process({"echo", "hello"});
  signal(SIGCHLD, child_handler);
  EXPECT_EQ(lost.output, "hello\n");
  EXPECT_FALSE(lost.ok());
  EXPECT_NE(lost.how_it_ended().find("does not keep SIGCHLD"), std::string::npos);
}

TEST(Process, SaysWhyTheInputCannotBeWritten) {
  ProcessOptions options;
  options.input.assign(20'000, 'x');
  const testing::ScopedFileLimit limit(8192);
  EXPECT_EQ(run_process({"cat"}, options).how_it_ended(), "could not be started: File too large");
}

TEST(Process, FindsProgramsInAbsoluteDirectoriesOfPath) {
  const TemporaryDirectory directory;
  testing::write_script(directory.path() + "/tf-test-program", "exit 0");
  std::ofstream(directory.path() + "/tf-test-data") << "not executable";
  const ScopedVariable path("PATH", ("relative::" + directory.path() + ":/usr/bin").c_str());
  EXPECT_EQ(find_program("tf-test-program"), directory.path() + "/tf-test-program");
  EXPECT_EQ(find_program("tf-test-data"), "");
  EXPECT_EQ(find_program("tf-test-absent"), "");
}

}  // namespace
}  // namespace truefuse::jit
