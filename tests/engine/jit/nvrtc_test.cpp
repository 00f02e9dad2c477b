#include <gtest/gtest.h>
#include <thread>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/nvrtc.h>
#include <truefuse/jit/temporary_directory.h>

#include "cache_test_support.h"
#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::axpy_program;
using testing::error_of;
using testing::ScopedVariable;

std::unique_ptr<Nvrtc> nvrtc_here() {
  const std::string path = find_nvrtc(testing::python_paths());
  if (!path.empty()) return std::make_unique<Nvrtc>(path);
  testing::expect_missing("NVRTC", "sm_90", "pip install nvidia-cuda-nvrtc)");
  return nullptr;
}

const std::vector<std::string> kFactor = {"-DTF_TEST_FACTOR=2.0f"};

TEST(Nvrtc, CompilesACubinWithHeadersFromMemory) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  EXPECT_EQ(nvrtc->refusal("sm_90a"), "");
  const CodeObject object = nvrtc->compile(axpy_program(), "sm_90a", kFactor);
  EXPECT_EQ(object.target, "sm_90a");
  EXPECT_EQ(target_of(object.code), "sm_90a");
  const auto kernels = resources_of(object.code, object.log);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].kernel, "axpy");
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].max_threads, 256);
  EXPECT_EQ(kernels[0].scratch_bytes, 0);
  EXPECT_EQ(nvrtc->compile(axpy_program(), "sm_90a", kFactor).code, object.code);
  EXPECT_NE(nvrtc->compile(axpy_program(), "sm_90a", {"-DTF_TEST_FACTOR=3.0f"}).code, object.code);
}

TEST(Nvrtc, ErrorsCarryTheCompilersWords) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const std::string message = error_of([&] { nvrtc->compile(axpy_program(), "sm_80", {}); });
  EXPECT_NE(message.find("could not compile \"axpy\" for sm_80"), std::string::npos) << message;
  EXPECT_NE(message.find("folder/scale.h"), std::string::npos) << message;
  EXPECT_NE(message.find("TF_TEST_FACTOR"), std::string::npos) << message;

  Program empty;
  empty.name = "empty";
  EXPECT_EQ(error_of([&] { nvrtc->compile(empty, "sm_80", {}); }),
            "kernel program \"empty\" has no text");
}

TEST(Nvrtc, RefusesInWords) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  EXPECT_NE(nvrtc->refusal("sm_999").find("does not compile for sm_999; it knows sm_ "),
            std::string::npos);
  EXPECT_NE(nvrtc->refusal("sm_75a"), "");
  EXPECT_NE(nvrtc->refusal("gfx906").find("gfx906 is none of them"), std::string::npos);
  EXPECT_NE(nvrtc->refusal("sm_90 ").find("contains a space"), std::string::npos);
  EXPECT_NE(error_of([&] { nvrtc->compile(axpy_program(), "sm_999", kFactor); }), "");
}

TEST(Nvrtc, AReportedArchThatItDoesNotKnowFallsBackToOneThatRunsThere) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  // No compiler knows sm_85: it stands for a device that is newer than its compiler.
  const char* device = "sm_85";
  EXPECT_NE(error_of([&] { nvrtc->compile(axpy_program(), device, kFactor); }), "");
  nvrtc->trust_reported(device);
  EXPECT_EQ(nvrtc->refusal(device), "");
  EXPECT_EQ(nvrtc->target_for(device), "sm_80");
  EXPECT_EQ(target_of(nvrtc->compile(axpy_program(), device, kFactor).code), "sm_80");
  // A suffix that this number does not have.
  nvrtc->trust_reported("sm_80a");
  EXPECT_EQ(nvrtc->target_for("sm_80a"), "sm_80");
}

TEST(Nvrtc, OptionsThatItOwnsAreRefused) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  for (const char* option :
       {"-arch=sm_80", "--gpu-architecture=sm_80", "-I/tmp", "-std=c++20", "-o", "value"}) {
    EXPECT_NE(error_of([&] {
                nvrtc->compile(axpy_program(), "sm_90", {option});
              }).find(std::string("compile option \"") + option + "\""),
              std::string::npos)
        << option;
  }
}

TEST(Nvrtc, IdentityIsContentAndEnvironment) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const auto parts = nvrtc->identity();
  ASSERT_GE(parts.size(), 3u);
  EXPECT_EQ(parts[0].second, "NVRTC");
  for (const auto& [name, value] : parts) {
    EXPECT_EQ(value.find('/'), std::string::npos) << name << " holds a path: " << value;
    EXPECT_NE(value, "missing") << name;
  }
  // The same files under another path.
  const TemporaryDirectory directory;
  const std::string link = directory.path() + "/libnvrtc.so";
  std::filesystem::create_symlink(nvrtc->path(), link);
  EXPECT_EQ(Nvrtc(link).identity(), parts);
  const ScopedVariable variable("NVRTC_TF_TEST", "1");
  EXPECT_NE(nvrtc->identity(), parts);
}

TEST(Nvrtc, CompilesFromSeveralThreads) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const std::string expected = nvrtc->compile(axpy_program(), "sm_80", kFactor).code;
  std::array<std::string, 4> results;
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] { result = nvrtc->compile(axpy_program(), "sm_80", kFactor).code; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_TRUE(result == expected);
}

// Forked workers compile; the parent has done so before.
TEST(Nvrtc, CompilesInAForkedChild) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const std::string expected = nvrtc->compile(axpy_program(), "sm_80", kFactor).code;
  in_child([&] { EXPECT_TRUE(nvrtc->compile(axpy_program(), "sm_80", kFactor).code == expected); });
}

// In a folder that no loader searches, as where a wheel brings it.
TEST(Nvrtc, FindsItsBuiltinsBesideItself) {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const TemporaryDirectory directory;
  const std::filesystem::path real = std::filesystem::canonical(nvrtc->path());
  for (const auto& file : std::filesystem::directory_iterator(real.parent_path())) {
    const std::string name = file.path().filename();
    if (name == real.filename() || name.starts_with("libnvrtc-builtins.so")) {
      std::filesystem::copy(file.path(), directory.path() + "/" + name,
                            std::filesystem::copy_options::copy_symlinks);
    }
  }
  const std::string copy = directory.path() + "/" + real.filename().string();
  ProcessOptions options;
  options.environment = {{"TRUEFUSE_NVRTC", copy}, {"LD_LIBRARY_PATH", ""}};
  const ProcessResult result = run_process(
      {"/proc/self/exe", "--gtest_filter=Nvrtc.CompilesACubinWithHeadersFromMemory"}, options);
  EXPECT_TRUE(result.ok()) << result.output << result.errors;
  EXPECT_NE(result.output.find("[  PASSED  ] 1 test"), std::string::npos) << result.output;
}

TEST(Nvrtc, AFileThatIsNoLibraryIsAnError) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/libnvrtc.so.99";
  std::ofstream(path) << "no library";
  Nvrtc nvrtc(path);
  EXPECT_NE(nvrtc.refusal("sm_80").find("NVRTC at " + path + " cannot be loaded"),
            std::string::npos)
      << nvrtc.refusal("sm_80");
}

}  // namespace
}  // namespace truefuse::jit
