#include <algorithm>
#include <gtest/gtest.h>

#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/shared_library.h>
#include <truefuse/jit/temporary_directory.h>
#include <truefuse/jit/toolchains.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::error_of;
using testing::python_paths;
using testing::ScopedVariable;

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Toolchains, NamedFilesAreTheOnlyPlace) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/compiler";
  const struct {
    const char* variable;
    std::string (*find)();
  } cases[] = {{"TRUEFUSE_NVRTC", [] { return find_nvrtc(python_paths()); }},
               {"TRUEFUSE_HIPRTC", [] { return find_hiprtc(python_paths()); }},
               {"TRUEFUSE_NVCC", [] { return find_nvcc(); }},
               {"TRUEFUSE_HIPCC", [] { return find_hipcc(); }}};
  for (const auto& test : cases) {
    const ScopedVariable variable(test.variable, file.c_str());
    std::filesystem::remove(file);
    EXPECT_EQ(test.find(), "") << test.variable;
    testing::write_script(file, "exit 1");
    EXPECT_EQ(test.find(), file) << test.variable;
  }
}

TEST(Toolchains, NvrtcIsFoundInPythonPackages) {
  const ScopedVariable variable("TRUEFUSE_NVRTC", nullptr);
  for (const std::string& mapped : mapped_libraries()) {
    ASSERT_EQ(mapped.find("libnvrtc.so"), std::string::npos) << "found first, rightly: " << mapped;
  }
  // A site directory as pip lays it out.
  const TemporaryDirectory site;
  const std::string before_13 = site.path() + "/nvidia/cuda_nvrtc/lib";
  const std::string from_13_on = site.path() + "/nvidia/cu13/lib";
  std::filesystem::create_directories(before_13);
  std::filesystem::create_directories(from_13_on);
  std::ofstream(before_13 + "/libnvrtc.so.12") << "12";
  std::ofstream(before_13 + "/libnvrtc-builtins.so.12.4") << "12";
  const SearchPaths paths{"", {site.path()}};
  EXPECT_EQ(find_nvrtc(paths), before_13 + "/libnvrtc.so.12");
  std::ofstream(from_13_on + "/libnvrtc.so.13") << "13";
  EXPECT_EQ(find_nvrtc(paths), from_13_on + "/libnvrtc.so.13");
}

TEST(Toolchains, TheNvrtcThatPyTorchWouldLoadComesFirst) {
  const ScopedVariable variable("TRUEFUSE_NVRTC", nullptr);
  const TemporaryDirectory site;
  const std::string torch = site.path() + "/torch/lib",
                    packages = site.path() + "/nvidia/cuda_nvrtc/lib";
  const std::string newer = site.path() + "/nvidia/cu13/lib";
  for (const std::string& directory : {torch, packages, newer}) {
    std::filesystem::create_directories(directory);
  }
  std::ofstream(newer + "/libnvrtc.so.13") << "13";
  const ProcessResult nvrtc =
      run_process({"c++", "-shared", "-x", "c++", "/dev/null", "-Wl,-soname,libnvrtc.so.12", "-o",
                   packages + "/libnvrtc.so.12"});
  if (!nvrtc.started) {
    testing::say_missing("c++");
    EXPECT_EQ(find_nvrtc({torch, {site.path()}}), newer + "/libnvrtc.so.13");
    return;
  }
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.errors;
  const ProcessResult caffe2 = run_process(
      {"c++", "-shared", "-Wl,--no-as-needed", packages + "/libnvrtc.so.12",
       "-Wl,-rpath,$ORIGIN/../../nvidia/cuda_nvrtc/lib", "-o", torch + "/libcaffe2_nvrtc.so"});
  ASSERT_TRUE(caffe2.ok()) << caffe2.errors;
  EXPECT_EQ(std::filesystem::canonical(find_nvrtc({torch, {site.path()}})),
            std::filesystem::canonical(packages + "/libnvrtc.so.12"));
}

TEST(Toolchains, VersionsAreOrderedAndFilesListedOnce) {
  const TemporaryDirectory directory;
  const std::string& path = directory.path();
  for (const char* name :
       {"libx.so.9", "libx.so.10.1", "libx.so.bak", "libx-builtins.so.1", "libxy.so"}) {
    std::ofstream(path + "/" + name) << name;
  }
  EXPECT_EQ(versions_in(path, "libx.so"),
            (std::vector<std::string>{path + "/libx.so.10.1", path + "/libx.so.9"}));
  std::filesystem::create_symlink("libx.so.9", path + "/libx.so");
  EXPECT_EQ(versions_in(path, "libx.so"),
            (std::vector<std::string>{path + "/libx.so", path + "/libx.so.10.1"}));
  EXPECT_TRUE(versions_in("/nonexistent", "libx.so").empty());
}

TEST(Toolchains, SharedLibrariesAreInspectedWithoutLoading) {
  const std::string self = library_of(reinterpret_cast<const void*>(&library_of));
  EXPECT_TRUE(self.find("libtruefuse") != std::string::npos ||
              self == std::filesystem::canonical("/proc/self/exe").string())
      << self;  // The engine is linked as a library, or into the test itself.
  const auto libraries = dependencies("/proc/self/exe", {"libc.so", "libstdc++.so"});
  ASSERT_EQ(libraries.size(), 2u);
  const auto mapped = mapped_libraries();
  for (const std::string& library : libraries) {
    EXPECT_NE(std::find(mapped.begin(), mapped.end(), library), mapped.end()) << library;
    const bool is_c = library.find("libc.so") != std::string::npos;
    EXPECT_EQ(exports(library, "fopen"), is_c) << library;
  }
  EXPECT_FALSE(exports("/nonexistent", "fopen"));
  std::string why;
  EXPECT_FALSE(SharedLibrary::open("/nonexistent/libx.so", &why));
  expect_part(why, "/nonexistent/libx.so");
}

TEST(Toolchains, RtcComesFirstAndCanBeTurnedOff) {
  const ScopedVariable allowed("TRUEFUSE_RTC", nullptr);
  for (const auto& [arch, rtc, program] :
       {std::tuple("sm_90", "NVRTC", "nvcc"), std::tuple("gfx906", "hipRTC", "hipcc")}) {
    const auto names = [&](std::string_view preference) {
      std::vector<std::string> result;
      for (const auto& compiler : compilers_for(arch, python_paths(), preference)) {
        result.push_back(compiler->name());
      }
      return result;
    };
    std::vector<std::string> expected;
    if (!names(rtc).empty()) expected.emplace_back(rtc);
    if (!names(program).empty()) expected.emplace_back(program);
    EXPECT_EQ(names(""), expected);
    const ScopedVariable variable("TRUEFUSE_RTC", "0");
    EXPECT_TRUE(names(rtc).empty());
    expect_part(error_of([&, a = arch, r = rtc] { compiler_for(a, python_paths(), r); }),
                std::string(rtc) + " was not asked, because TRUEFUSE_RTC=0 is set");
    if (!names(program).empty()) {
      EXPECT_EQ(compiler_for(arch, python_paths())->name(), program);
    }
  }
}

TEST(Toolchains, CompilersAreKeptForTheProcess) {
  const auto first = compilers_for("sm_90", python_paths());
  EXPECT_EQ(compilers_for("sm_80", python_paths()), first);
  if (first.empty()) testing::say_missing("NVRTC and nvcc");
}

TEST(Toolchains, WithoutAnyCompilerTheErrorSaysWhatToInstall) {
  const ScopedVariable allowed("TRUEFUSE_RTC", nullptr);
  const ScopedVariable nvrtc("TRUEFUSE_NVRTC", "/nonexistent/libnvrtc.so");
  const ScopedVariable nvcc("TRUEFUSE_NVCC", "/nonexistent/nvcc");
  const std::string message = error_of([] { compiler_for("sm_90", python_paths()); });
  expect_part(message, "no compiler here compiles for sm_90:");
  expect_part(message, "TRUEFUSE_NVRTC=/nonexistent/libnvrtc.so is no file");
  expect_part(message, "pip install nvidia-cuda-nvrtc");
  expect_part(message, "TRUEFUSE_NVCC=/nonexistent/nvcc is no file");
  expect_part(error_of([] { compiler_for("sm_90", python_paths(), "gcc"); }),
              "choose NVRTC, hipRTC, nvcc or hipcc");
  expect_part(error_of([] { compiler_for("native", python_paths()); }), "names no architecture");
}

TEST(Toolchains, AnArchThatNothingKnowsIsAnError) {
  for (const char* arch : {"gfx9ff", "sm_999"}) {
    expect_part(error_of([&] { compiler_for(arch, python_paths()); }),
                std::string("no compiler here compiles for ") + arch);
  }
}

TEST(Toolchains, FindingsNameAllFourAndTheirRemedies) {
  const ScopedVariable allowed("TRUEFUSE_RTC", nullptr);
  const auto findings = find_toolchains(python_paths());
  ASSERT_EQ(findings.size(), 4u);
  const char* names[] = {"NVRTC", "hipRTC", "nvcc", "hipcc"};
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    EXPECT_EQ(finding.name, names[i]);
    if (finding.works) {
      EXPECT_NE(finding.path, "") << finding.name;
      EXPECT_NE(finding.version, "") << finding.name;
      EXPECT_EQ(finding.problem, "") << finding.name;
      EXPECT_EQ(finding.remedy, "") << finding.name;
      EXPECT_EQ(compiler_for(finding.arch, python_paths(), finding.name)->path(), finding.path);
    } else {
      testing::say_missing(finding.name);
      EXPECT_NE(finding.problem, "") << finding.name;
      EXPECT_NE(finding.remedy, "") << finding.name;
    }
  }
  const std::string json = to_json(findings);
  expect_part(json, "\"name\":\"NVRTC\"");
  expect_part(json, "\"works\":");
}

TEST(Toolchains, ABrokenCompilerIsAFindingNotAnException) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/compiler";
  testing::write_script(file, "echo out of order >&2; exit 1");
  const ScopedVariable nvrtc("TRUEFUSE_NVRTC", file.c_str());
  const ScopedVariable hiprtc("TRUEFUSE_HIPRTC", file.c_str());
  const ScopedVariable nvcc("TRUEFUSE_NVCC", file.c_str());
  const ScopedVariable hipcc("TRUEFUSE_HIPCC", file.c_str());
  for (const Finding& finding : find_toolchains({})) {
    EXPECT_FALSE(finding.works) << finding.name;
    EXPECT_EQ(finding.path, file) << finding.name;
    EXPECT_NE(finding.problem, "") << finding.name;
  }
}

}  // namespace
}  // namespace truefuse::jit
