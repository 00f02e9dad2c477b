#include <gtest/gtest.h>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/nvcc.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::axpy_program;
using testing::error_of;
using testing::ScopedVariable;

std::unique_ptr<Nvcc> nvcc_here() {
  const std::string path = find_nvcc();
  if (!path.empty()) return std::make_unique<Nvcc>(path);
  testing::expect_missing("nvcc", "sm_90", "install the CUDA toolkit");
  return nullptr;
}

const std::vector<std::string> kFactor = {"-DTF_TEST_FACTOR=2.0f"};

TEST(Nvcc, CompilesACubinWithItsHeaders) {
  const auto nvcc = nvcc_here();
  if (!nvcc) return;
  const CodeObject object = nvcc->compile(axpy_program(), "sm_90a", kFactor);
  EXPECT_EQ(object.target, "sm_90a");
  EXPECT_EQ(target_of(object.code), "sm_90a");
  const auto kernels = resources_of(object.code, object.log);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].kernel, "axpy");
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].spills, 0);
  // In another private directory.
  EXPECT_EQ(nvcc->compile(axpy_program(), "sm_90a", kFactor).code, object.code);
  EXPECT_NE(nvcc->version().find('.'), std::string::npos) << nvcc->version();
}

TEST(Nvcc, ErrorsAndRefusals) {
  const auto nvcc = nvcc_here();
  if (!nvcc) return;
  const std::string message = error_of([&] { nvcc->compile(axpy_program(), "sm_80", {}); });
  EXPECT_NE(message.find("could not compile \"axpy\" for sm_80: it ended with exit code"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("TF_TEST_FACTOR"), std::string::npos) << message;
  EXPECT_EQ(nvcc->refusal("sm_80"), "");
  EXPECT_NE(nvcc->refusal("sm_999").find("sm_999"), std::string::npos);
  EXPECT_NE(nvcc->refusal("gfx906").find("gfx906 is none of them"), std::string::npos);
}

TEST(Nvcc, IdentityIsContentAndEnvironment) {
  const auto nvcc = nvcc_here();
  if (!nvcc) return;
  const auto parts = nvcc->identity();
  std::string names;
  for (const auto& [name, value] : parts) {
    names += name + "\n";
    EXPECT_EQ(value.find('/'), std::string::npos) << name << " holds a path: " << value;
    EXPECT_NE(value, "missing") << name;
  }
  for (const char* name : {"nvcc uses cicc", "nvcc uses ptxas", "device libraries", "nvcc headers",
                           "nvcc --version"}) {
    EXPECT_NE(names.find(name), std::string::npos) << names;
  }
  EXPECT_EQ(nvcc->identity(), parts);
  EXPECT_EQ(Nvcc(nvcc->path()).identity(), parts);
  const ScopedVariable variable("NVCC_APPEND_FLAGS", "-DX");
  EXPECT_NE(nvcc->identity(), parts);
}

TEST(Nvcc, ACompilerThatLiesIsAnError) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/nvcc";
  const auto message_of = [&](const std::string& body) {
    testing::write_script(script, body);
    return error_of([&] { Nvcc(script).compile(axpy_program(), "sm_90", kFactor); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(message_of("exit 0"), "reported success but gave no code");
  expect(message_of(": > truefuse_output.bin"), "reported success but gave no code");
  expect(message_of("echo text > truefuse_output.bin"), "5 bytes that are no code object");
  expect(message_of("echo no licence >&2; exit 1"), "ended with exit code 1:\nno licence");
  expect(message_of("kill -KILL $$"), "was killed by SIGKILL");
  expect(error_of([&] { Nvcc(script).identity(); }), "does not work");
  expect(Nvcc("/nonexistent/nvcc").refusal("sm_90"), "could not be started");
}

TEST(Nvcc, LeavesNothingBehind) {
  const TemporaryDirectory parent;
  testing::write_script(parent.path() + "/nvcc", "touch left_over; echo x > $TMPDIR/more; exit 1");
  std::filesystem::create_directory(parent.path() + "/tmp");
  const ScopedVariable variable("TMPDIR", (parent.path() + "/tmp").c_str());
  EXPECT_NE(
      error_of([&] { Nvcc(parent.path() + "/nvcc").compile(axpy_program(), "sm_90", kFactor); }),
      "");
  EXPECT_TRUE(std::filesystem::is_empty(parent.path() + "/tmp"));
}

TEST(ProgramFiles, StayInsideTheirDirectory) {
  for (const char* name : {"../outside.h", "/tmp/outside.h", "a/../../outside.h", ""}) {
    const TemporaryDirectory directory;
    Program program = axpy_program();
    program.headers[name] = "";
    EXPECT_NE(error_of([&] {
                write_program(program, directory.path(), ".cu");
              }).find("has no name inside the program's own directory"),
              std::string::npos)
        << name;
  }
  const TemporaryDirectory directory;
  Program program = axpy_program();
  program.name = "../we ird";
  program.headers[".._we_ird.cu"] = "taken";
  const std::string name = write_program(program, directory.path(), ".cu");
  EXPECT_EQ(name, "program_.._we_ird.cu");
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/folder/scale.h"));
}

TEST(DryRun, ReadsNvccsCommands) {
  const DryRun run = parse_dry_run(
      "#$ TOP=/cuda\n"
      "#$ CICC_PATH=$TOP/nvvm/bin\n"
      "#$ NVVMIR_LIBRARY_DIR=$TOP/nvvm/libdevice\n"
      "#$ PATH=/nonexistent\n"
      "#$ INCLUDES=\"-I/cuda/include\"  \n"
      "#$ \"$CICC_PATH/cicc\" --c++17 \"/cuda/lib/libdevice.10.bc\" -o \"a b.ptx\"\n"
      "#$ /cuda/bin/ptxas -arch=sm_90 \"x.ptx\"\n"
      "#$ rm x.ptx\n"
      "a warning\n");
  EXPECT_EQ(run.programs, (std::vector<std::string>{"/cuda/nvvm/bin/cicc", "/cuda/bin/ptxas"}));
  EXPECT_EQ(run.library_directories,
            (std::vector<std::string>{"/cuda/nvvm/libdevice", "/cuda/lib"}));
}

TEST(DryRun, ReadsClangsCommands) {
  const DryRun run = parse_dry_run(
      "clang version 15.0.6\nTarget: x86_64\n"
      " \"/llvm/bin/clang\" \"-cc1\" \"-mlink-builtin-bitcode\" \"/lib/ocml.bc\" \"/lib/my "
      "dir/o.bc\"\n"
      " \"/llvm/bin/lld\" \"-o\" \"x\"\n"
      " \"/llvm/bin/clang\" \"-cc1\"\n");
  EXPECT_EQ(run.programs, (std::vector<std::string>{"/llvm/bin/clang", "/llvm/bin/lld"}));
  EXPECT_EQ(run.library_directories, (std::vector<std::string>{"/lib", "/lib/my dir"}));
}

TEST(MakeRule, ReadsPrerequisites) {
  EXPECT_EQ(parse_make_rule("t.o : t.cu \\\n    /usr/a.h \\\n  /my\\ dir/b.h\n"),
            (std::vector<std::string>{"t.cu", "/usr/a.h", "/my dir/b.h"}));
  EXPECT_TRUE(parse_make_rule("nothing").empty());
}

}  // namespace
}  // namespace truefuse::jit
