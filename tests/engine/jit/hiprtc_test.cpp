#include <gtest/gtest.h>
#include <thread>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/hiprtc.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::axpy_program;
using testing::error_of;
using testing::ScopedVariable;

std::unique_ptr<HipRtc> hiprtc_here(bool with_comgr = true) {
  const std::string path = find_hiprtc(testing::python_paths());
  if (!path.empty()) {
    const std::string comgr = find_comgr(path, {"/usr/lib/x86_64-linux-gnu"});
    return std::make_unique<HipRtc>(path, with_comgr ? comgr : "");
  }
  testing::expect_missing("hipRTC", "gfx906", "Debian, Ubuntu: apt-get install hipcc");
  return nullptr;
}

const std::vector<std::string> kFactor = {"-DTF_TEST_FACTOR=2.0f"};

TEST(HipRtc, CompilesWithHeadersFromMemory) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  EXPECT_EQ(hiprtc->refusal("gfx90a:xnack-:sramecc+"), "");
  EXPECT_EQ(hiprtc->target_for("gfx90a:xnack-:sramecc+"), "gfx90a:sramecc+:xnack-");
  const CodeObject object = hiprtc->compile(axpy_program(), "gfx90a:sramecc+:xnack-", kFactor);
  EXPECT_EQ(object.target, "gfx90a:sramecc+:xnack-");
  EXPECT_EQ(target_of(object.code), "gfx90a:sramecc+:xnack-");
  const auto kernels = resources_of(object.code);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].kernel, "axpy");
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].max_threads, 256);
  EXPECT_EQ(kernels[0].wave, 64);
  EXPECT_EQ(kernels[0].spills, 0);
}

TEST(HipRtc, ErrorsCarryTheCompilersWords) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  const std::string message = error_of([&] { hiprtc->compile(axpy_program(), "gfx906", {}); });
  EXPECT_NE(message.find("could not compile \"axpy\" for gfx906"), std::string::npos) << message;
  EXPECT_NE(message.find("TF_TEST_FACTOR"), std::string::npos) << message;
}

// Each of these ends the process if hipRTC 5.2 is given it.
TEST(HipRtc, RefusesWhatWouldAbort) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  for (const char* arch : {"gfx999", "gfx906:foo+", "gfx1030:xnack-", "gfx9ff"}) {
    EXPECT_NE(hiprtc->refusal(arch).find(std::string("does not compile for ") + arch),
              std::string::npos)
        << hiprtc->refusal(arch);
    EXPECT_NE(error_of([&] { hiprtc->compile(axpy_program(), arch, kFactor); }), "") << arch;
  }
  EXPECT_NE(hiprtc->refusal("gfx906:foo+").find("it knows gfx906, but not with these features"),
            std::string::npos);
  for (const char* arch :
       {"", "native", "GFX906", "gfx906 ", "amdgcn-amd-amdhsa--gfx906", "sm_90"}) {
    EXPECT_NE(hiprtc->refusal(arch), "") << arch;
    EXPECT_NE(error_of([&] { hiprtc->compile(axpy_program(), arch, kFactor); }), "") << arch;
  }
  for (const char* option : {"--offload-arch=gfx90a", "-O3 --offload-arch=gfx90a", "-std=c++11"}) {
    EXPECT_NE(error_of([&] {
                hiprtc->compile(axpy_program(), "gfx906", {option});
              }).find("cannot be given"),
              std::string::npos)
        << option;
  }
}

TEST(HipRtc, AReportedArchIsDecidedByACompileInAProcessOfItsOwn) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  const auto comgr = Comgr::open(find_comgr(hiprtc->path(), {"/usr/lib/x86_64-linux-gnu"}));
  ASSERT_TRUE(comgr.has_value());
  if (comgr->knows("gfx936")) {
    // The compiler of a DTK: then it simply works.
    EXPECT_EQ(hiprtc->refusal("gfx936"), "");
    return;
  }
  EXPECT_NE(hiprtc->refusal("gfx936:sramecc+:xnack-").find("DTK"), std::string::npos);

  hiprtc->trust_reported("gfx936:sramecc+:xnack-");
  const std::string refusal = hiprtc->refusal("gfx936:sramecc+:xnack-");
  EXPECT_NE(refusal.find("asked in a process of its own to compile for gfx936:sramecc+:xnack-"),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("gfx936 was tried too"), std::string::npos) << refusal;
  EXPECT_EQ(error_of([&] { hiprtc->compile(axpy_program(), "gfx936:sramecc+:xnack-", kFactor); }),
            refusal);
}

TEST(HipRtc, TheHelperVouchesWhereComgrIsMissing) {
  const auto hiprtc = hiprtc_here(/*with_comgr=*/false);
  if (!hiprtc) return;
  EXPECT_EQ(hiprtc->target_for("gfx906:sramecc+:xnack-"), "gfx906:sramecc+:xnack-");
  EXPECT_EQ(target_of(hiprtc->compile(axpy_program(), "gfx906:sramecc+:xnack-", kFactor).code),
            "gfx906:sramecc+:xnack-");
  EXPECT_NE(hiprtc->refusal("gfx999"), "");
}

TEST(HipRtc, AMissingHelperIsNoAnswerAboutATarget) {
  HipRtc hiprtc(TRUEFUSE_FAKE_RTC, "");
  {
    const ScopedVariable none("TRUEFUSE_COMPILE_HELPER", "/nonexistent/helper");
    EXPECT_NE(hiprtc.refusal("gfx906").find("/nonexistent/helper"), std::string::npos);
  }
  EXPECT_EQ(hiprtc.refusal("gfx906"), "");
}

TEST(HipRtc, AReportedArchFallsBackToItsBaseName) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  EXPECT_NE(hiprtc->refusal("gfx1030:xnack-"), "");
  hiprtc->trust_reported("gfx1030:xnack-");
  EXPECT_EQ(hiprtc->target_for("gfx1030:xnack-"), "gfx1030");
  const CodeObject object = hiprtc->compile(axpy_program(), "gfx1030:xnack-", kFactor);
  EXPECT_EQ(object.target, "gfx1030");
  EXPECT_EQ(target_of(object.code), "gfx1030");
}

TEST(HipRtc, CompilesFromSeveralThreads) {
  const auto one = hiprtc_here(), two = hiprtc_here();
  if (!one || !two) return;
  std::array<std::string, 4> results;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = (i % 2 == 0 ? one : two)->compile(axpy_program(), "gfx906", kFactor).code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_TRUE(!result.empty() && result == results[0]);
}

TEST(HipRtc, SaysThatItsTemporaryDirectoryIsUnusable) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  const ScopedVariable variable("TMPDIR", "/nonexistent/tmp");
  const std::string message = error_of([&] { hiprtc->compile(axpy_program(), "gfx906", kFactor); });
  EXPECT_NE(message.find("/nonexistent/tmp (No such file or directory)"), std::string::npos)
      << message;
}

TEST(HipRtc, IdentityIsContentAndEnvironment) {
  const auto hiprtc = hiprtc_here();
  if (!hiprtc) return;
  const auto parts = hiprtc->identity();
  for (const auto& [name, value] : parts) {
    EXPECT_EQ(value.find('/'), std::string::npos) << name << " holds a path: " << value;
    EXPECT_NE(value, "missing") << name;
    EXPECT_NE(value, "9.0") << name;
  }
  for (const char* name :
       {"HIPRTC_COMPILE_OPTIONS_APPEND", "HIPRTC_LINK_OPTIONS_APPEND", "AMD_COMGR_TF_TEST"}) {
    const ScopedVariable variable(name, "-DX=1");
    EXPECT_NE(hiprtc->identity(), parts) << name;
  }
  // Loading and using the libraries does not change what they are.
  hiprtc->compile(axpy_program(), "gfx906", kFactor);
  EXPECT_EQ(hiprtc->identity(), parts);
}

}  // namespace
}  // namespace truefuse::jit
