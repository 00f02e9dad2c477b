#include <gtest/gtest.h>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/hipcc.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::axpy_program;
using testing::error_of;
using testing::ScopedVariable;

std::unique_ptr<Hipcc> hipcc_here() {
  const std::string path = find_hipcc();
  if (!path.empty()) return std::make_unique<Hipcc>(path);
  testing::expect_missing("hipcc", "gfx906", "Debian, Ubuntu: apt-get install hipcc");
  return nullptr;
}

const std::vector<std::string> kFactor = {"-DTF_TEST_FACTOR=2.0f"};

TEST(Hipcc, CompilesARawCodeObjectWithItsHeaders) {
  const auto hipcc = hipcc_here();
  if (!hipcc) return;
  const CodeObject object = hipcc->compile(axpy_program(), "gfx90a:sramecc+:xnack-", kFactor);
  EXPECT_EQ(object.target, "gfx90a:sramecc+:xnack-");
  EXPECT_TRUE(
      object.code.starts_with("\x7f"
                              "ELF"));
  EXPECT_EQ(target_of(object.code), "gfx90a:sramecc+:xnack-");
  const auto kernels = resources_of(object.code);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].kernel, "axpy");
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].wave, 64);
  // In another private directory.
  EXPECT_EQ(hipcc->compile(axpy_program(), "gfx90a:sramecc+:xnack-", kFactor).code, object.code);
  EXPECT_NE(hipcc->version().find('.'), std::string::npos) << hipcc->version();
}

TEST(Hipcc, ErrorsAndRefusals) {
  const auto hipcc = hipcc_here();
  if (!hipcc) return;
  const std::string message = error_of([&] { hipcc->compile(axpy_program(), "gfx906", {}); });
  EXPECT_NE(message.find("could not compile \"axpy\" for gfx906: it ended with exit code"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("TF_TEST_FACTOR"), std::string::npos) << message;
  EXPECT_EQ(hipcc->refusal("gfx906"), "");
  EXPECT_NE(hipcc->refusal("gfx9ff").find("gfx9ff"), std::string::npos);
  EXPECT_NE(hipcc->refusal("sm_90").find("sm_90 is none of them"), std::string::npos);
}

TEST(Hipcc, AReportedArchFallsBackToItsBaseName) {
  const auto hipcc = hipcc_here();
  if (!hipcc) return;
  EXPECT_EQ(hipcc->target_for("gfx1030:xnack-"), "gfx1030:xnack-");
  EXPECT_NE(error_of([&] { hipcc->compile(axpy_program(), "gfx1030:xnack-", kFactor); }), "");
  hipcc->trust_reported("gfx1030:xnack-");
  EXPECT_EQ(hipcc->target_for("gfx1030:xnack-"), "gfx1030");
  EXPECT_EQ(target_of(hipcc->compile(axpy_program(), "gfx1030:xnack-", kFactor).code), "gfx1030");
}

TEST(Hipcc, IdentityIsContentAndEnvironment) {
  const auto hipcc = hipcc_here();
  if (!hipcc) return;
  const auto parts = hipcc->identity();
  std::string names;
  for (const auto& [name, value] : parts) {
    names += name + "\n";
    EXPECT_EQ(value.find('/'), std::string::npos) << name << " holds a path: " << value;
    EXPECT_NE(value, "missing") << name;
  }
  for (const char* name :
       {"hipcc uses clang", "device libraries", "hipcc headers", "hipcc --version"}) {
    EXPECT_NE(names.find(name), std::string::npos) << names;
  }
  EXPECT_EQ(Hipcc(hipcc->path()).identity(), parts);
  const ScopedVariable variable("HIPCC_COMPILE_FLAGS_APPEND", "-DX");
  EXPECT_NE(hipcc->identity(), parts);
}

TEST(Hipcc, ACompilerThatLiesIsAnError) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/hipcc";
  const auto message_of = [&](const std::string& body) {
    testing::write_script(script, body);
    return error_of([&] { Hipcc(script).compile(axpy_program(), "gfx906", kFactor); });
  };
  EXPECT_NE(message_of("exit 0").find("holds no code object for gfx906"), std::string::npos);
  EXPECT_NE(message_of("printf CCOB > truefuse_output.bin").find("compressed bundle"),
            std::string::npos);
}

}  // namespace
}  // namespace truefuse::jit
