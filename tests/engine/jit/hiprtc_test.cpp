#include <gtest/gtest.h>
#include <thread>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/compile_helper.h>
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

HelperRequest request_here() {
  HelperRequest request;
  request.preload = {"a", ""};
  request.hiprtc = "/some/libhiprtc.so";
  request.target = "gfx936";
  request.options = {"--offload-arch=gfx936", "-DX=a b"};
  request.program = axpy_program();
  request.program.text += std::string("\0tail", 5);
  return request;
}

TEST(CompileHelper, MessagesSurviveTheJourney) {
  const HelperRequest request = request_here();
  const std::string bytes = serialize(request);
  const auto read = parse_helper_request(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->preload, request.preload);
  EXPECT_EQ(read->hiprtc, request.hiprtc);
  EXPECT_EQ(read->target, request.target);
  EXPECT_EQ(read->options, request.options);
  EXPECT_EQ(read->program.name, request.program.name);
  EXPECT_EQ(read->program.text, request.program.text);
  EXPECT_EQ(read->program.headers, request.program.headers);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_helper_request(std::string(bytes.data(), size))) << size;
  }
  EXPECT_FALSE(parse_helper_request(bytes + "x"));

  const std::string reply = serialize(HelperReply{true, {"code", "log", "gfx936"}, ""});
  ASSERT_TRUE(parse_helper_reply(reply));
  EXPECT_EQ(parse_helper_reply(reply)->object.code, "code");
  for (std::size_t size = 0; size < reply.size(); ++size) {
    EXPECT_FALSE(parse_helper_reply(std::string(reply.data(), size))) << size;
  }
}

TEST(CompileHelper, EveryEndIsAnOrdinaryError) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/helper";
  const ScopedVariable variable("TRUEFUSE_COMPILE_HELPER", script.c_str());
  const auto message_of = [&](const std::string& body) {
    testing::write_script(script, body);
    return error_of([] { compile_in_helper(request_here(), std::chrono::milliseconds(400)); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error_of([] { compile_in_helper(request_here()); }),
         "is missing (looked at " + script + ")");
  expect(message_of("echo LLVM is unhappy >&2; kill -ABRT $$"),
         "was killed by SIGABRT (Aborted), after printing: LLVM is unhappy");
  expect(message_of("kill -SEGV $$"), "was killed by SIGSEGV");
  expect(message_of("exit 7"), "ended with exit code 7");
  expect(message_of("echo rubbish"), "gave no answer");
  expect(message_of("sleep 1000"), "did not end within 1 s and was killed");
}

TEST(CompileHelper, RefusesWhatIsNoRequest) {
  const std::string helper = find_compile_helper();
  ASSERT_NE(helper, "") << "truefuse-compile-helper must be built beside the tests";
  const ProcessResult result = run_process({helper});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("not a compile request"), std::string::npos);
}

TEST(CompileHelper, ReportsALibraryThatCannotBeLoaded) {
  const std::string message = error_of([] { compile_in_helper(request_here()); });
  EXPECT_NE(message.find("hipRTC at /some/libhiprtc.so cannot be loaded"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace truefuse::jit
