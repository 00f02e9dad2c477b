#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/temporary_directory.h>
#include <truefuse/sim/host_compiler.h>

#include "sim_test_support.h"

namespace truefuse::sim {
namespace {

const std::string kFill = R"(
TF_KERNEL(64) void fill(float* y) { y[tf::thread_linear()] = tf::block_sum(1.0f); }
)";

/// Sets an environment variable for the life of the object.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string error_of(const std::string& source, std::string_view arch,
                     const std::vector<std::string>& options) {
  try {
    compiler().compile(program_of(source), arch, options);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void expect_filled(const std::string& executable) {
  SimLaunch launch{"fill", {1, 1, 1}, {64, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0);
  const SimOutcome outcome = run(executable, launch, {buffer_of(std::vector<float>(64))});
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  EXPECT_EQ(values_of<float>(outcome.buffers[0]), std::vector<float>(64, 64.0f));
}

TEST(HostCompiler, KnowsItsTwoArchitectures) {
  EXPECT_EQ(compiler().name(), "g++ (sim)");
  EXPECT_EQ(compiler().refusal("sim:wave32"), "");
  EXPECT_EQ(compiler().refusal("sim:wave64"), "");
  EXPECT_NE(compiler().refusal("sim:wave16"), "");
  EXPECT_NE(error_of(kFill, "sm_90a", {}).find("not sm_90a"), std::string::npos);
}

TEST(HostCompiler, RefusesOptionsThatItDoesNotKnow) {
  EXPECT_NE(error_of(kFill, "sim:wave32", {"-O3"}).find("\"-O3\""), std::string::npos);
  EXPECT_NE(error_of(kFill, "sim:wave32", {"--sanitize=memory"}).find("--sanitize=address"),
            std::string::npos);
  EXPECT_NE(error_of(kFill, "sim:wave32", {"--sanitize=address", "--sanitize=race"})
                .find("cannot be one executable"),
            std::string::npos);
}

TEST(HostCompiler, EqualInputsGiveEqualBytes) {
  const jit::Program program = program_of(kFill);
  const std::vector<std::string> options = {"--sanitize=address"};
  EXPECT_EQ(compiler().compile(program, "sim:wave32", options).code,
            compiler().compile(program, "sim:wave32", options).code);
}

TEST(HostCompiler, AnErrorIsTheCompilersWithTheKernelsLine) {
  const std::string error = error_of("\nTF_KERNEL(1) void k() { nonsense; }", "sim:wave32", {});
  EXPECT_NE(error.find("kernel.hip:3:"), std::string::npos) << error;
  EXPECT_NE(error.find("nonsense"), std::string::npos);
}

TEST(HostCompiler, HeadersOfTheEnvironmentAreNotSeen) {
  const jit::TemporaryDirectory planted;
  std::ofstream(planted.path() + "/stdint.h") << "#error planted\n";
  const Environment cpath("CPATH", planted.path());
  const Environment more("CPLUS_INCLUDE_PATH", planted.path());
  expect_filled(compiler().compile(program_of(kFill), "sim:wave64", {}).code);
}

TEST(HostCompiler, WorksWithoutOwnSwitchOfStacks) {
  for (const char* const sanitizer : {"none", "address"}) {
    expect_filled(compiler()
                      .compile(program_of(kFill), "sim:wave64",
                               {std::string("--sanitize=") + sanitizer, "-DTF_SIM_UCONTEXT=1"})
                      .code);
  }
}

TEST(HostCompiler, OldestSupportedCompilerWorks) {
  const std::string program = jit::find_program("g++-11");
  if (program.empty()) GTEST_SKIP() << "g++-11 is not installed";
  HostCompiler oldest(program);
  for (const char* const option :
       {"--sanitize=none", "--sanitize=address", "--sanitize=undefined", "--sanitize=race"}) {
    expect_filled(oldest.compile(program_of(kFill), "sim:wave32", {option}).code);
  }
  EXPECT_NE(oldest.identity(), compiler().identity());
}

TEST(HostCompiler, IdentityHoldsCompilerAndRuntimeButNoPath) {
  const auto identity = compiler().identity();
  EXPECT_EQ(identity, compiler().identity());
  bool has_runtime = false;
  bool has_arguments = false;
  for (const auto& [name, value] : identity) {
    has_runtime = has_runtime || name == "simulator runtime";
    has_arguments = has_arguments || (name == "arguments" && value.find("-O1") != value.npos);
    EXPECT_FALSE(value.empty()) << name;
    EXPECT_EQ(value.find("/usr/"), std::string::npos) << name << " = " << value;
  }
  EXPECT_TRUE(has_runtime);
  EXPECT_TRUE(has_arguments) << "other arguments make another executable";
}

TEST(HostCompiler, IsFoundThroughTheEnvironment) {
  {
    const Environment wanted("TRUEFUSE_CXX", "no-such-compiler");
    EXPECT_THROW(HostCompiler::find(), Error);
  }
  const jit::TemporaryDirectory directory;
  const std::string link = directory.path() + "/my-compiler";
  ASSERT_EQ(symlink(compiler().path().c_str(), link.c_str()), 0);
  const Environment wanted("TRUEFUSE_CXX", link);
  const std::unique_ptr<HostCompiler> found = HostCompiler::find();
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->path(), link);
  EXPECT_EQ(found->identity(), compiler().identity());
}

}  // namespace
}  // namespace truefuse::sim
