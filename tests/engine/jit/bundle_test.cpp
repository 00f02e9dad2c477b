#include <random>

#include <truefuse/core/error.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/sha256.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

CacheEntry built_for(const std::string& target, const std::string& program,
                     const std::string& code = "code") {
  Key key;
  key.add("format", "1");
  key.add("compiler", "some compiler that is not here");
  key.add("target", target);
  key.add("program", program);
  return {"label", key, code, 0.5};
}

std::string request_for(const std::string& program) {
  return request_digest(built_for("gfx906", program).key);
}

Bundle bundle_of(const std::vector<CacheEntry>& entries) {
  return *Bundle::parse(Bundle::pack(entries));
}

std::string found_for(const Bundle& bundle, const std::string& device) {
  const CacheEntry* const entry = bundle.find({request_for("p")}, parse_arch(device));
  return entry == nullptr ? "none" : entry->code;
}

TEST(Bundle, FilesOfTheCompilerAndTheTargetAreNoPartOfTheRequest) {
  const auto digest_with = [](const std::string& name, const std::string& value) {
    CacheEntry entry = built_for("sm_90a", "p");
    entry.key.add(name, value);
    return request_digest(entry.key);
  };
  EXPECT_EQ(digest_with("NVRTC library", "build-id:91ab"), request_for("p"));
  for (const char* where : {"HIP_PATH", "CPATH", "HIP_ROCCLR_HOME", "NVCC_CCBIN"}) {
    EXPECT_EQ(digest_with("environment " + std::string(where), "/opt"), request_for("p")) << where;
  }
  EXPECT_NE(request_for("p"), request_for("q"));
  for (const char* part :
       {"option", "arguments", "environment NVCC_APPEND_FLAGS", "environment NVCC_PREPEND_FLAGS",
        "environment HIPCC_COMPILE_FLAGS_APPEND", "environment CCC_OVERRIDE_OPTIONS",
        "environment HIPRTC_COMPILE_OPTIONS_APPEND", "environment HIP_COMPILER"}) {
    EXPECT_NE(digest_with(part, "-ffast-math"), request_for("p")) << part;
  }
}

TEST(Bundle, VariablesThatInstructTheCompilerAreNamed) {
  Key key;
  key.add("arguments", "-O3");
  key.add("environment NVCC_APPEND_FLAGS", "--use_fast_math");
  key.add("environment NVCC_CCBIN", "/usr/bin/g++-12");
  EXPECT_EQ(instructing_variables(key), std::vector<std::string>{"NVCC_APPEND_FLAGS"});
}

TEST(Bundle, AnExactTargetComesFirstAndAnUnstatedFeatureMeansAny) {
  const Bundle bundle =
      bundle_of({built_for("gfx936", "p", "any"), built_for("gfx936:xnack-", "p", "xnack-"),
                 built_for("gfx936:sramecc+:xnack-", "p", "exact"),
                 built_for("gfx936:xnack+", "p", "xnack+"), built_for("gfx906", "q", "other")});
  EXPECT_EQ(found_for(bundle, "gfx936:sramecc+:xnack-"), "exact");
  EXPECT_EQ(found_for(bundle, "gfx936:sramecc-:xnack-"), "xnack-");
  EXPECT_EQ(found_for(bundle, "gfx936:sramecc-:xnack+"), "xnack+");
  EXPECT_EQ(found_for(bundle, "gfx936"), "any") << "the device does not say that xnack is off";
  EXPECT_EQ(found_for(bundle, "gfx906"), "none") << "of another source";
  EXPECT_EQ(found_for(bundle, "gfx938"), "none");
}

TEST(Bundle, NvidiaObjectsServeLaterMinorVersions) {
  const Bundle bundle = bundle_of({built_for("sm_80", "p", "80"), built_for("sm_90a", "p", "90a")});
  EXPECT_EQ(found_for(bundle, "sm_86"), "80");
  EXPECT_EQ(found_for(bundle, "sm_90a"), "90a");
  EXPECT_EQ(found_for(bundle, "sm_100"), "none");
}

TEST(Bundle, IsTrustedByItsDigestAlone) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/kernels#1.tfb";
  const std::string bytes = Bundle::pack({built_for("gfx906", "p")});
  write_file(path, bytes);
  const std::string digest = sha256_hex(bytes);
  EXPECT_EQ(Bundle::open(path + "#" + digest).entries().size(), 1u);
  // Of somebody else, and for all to write: it is the bytes that count.
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  if (is_root()) {
    ASSERT_EQ(::chown(path.c_str(), kOtherUser, kOtherUser), 0);
  }
  EXPECT_EQ(Bundle::open(path + "#" + digest).entries().size(), 1u);
  EXPECT_THROW(Bundle::open(path), Error);
  EXPECT_THROW(Bundle::open(path + "#" + sha256_hex("another")), Error);
  EXPECT_THROW(Bundle::open(directory.path() + "/none#" + digest), Error);
  EXPECT_THROW(Bundle::open(directory.path() + "#" + digest), Error);
}

TEST(Bundle, NoOtherBytesAreABundle) {
  const std::string bytes =
      Bundle::pack({built_for("gfx906", "p"), built_for("sm_80", "p", std::string(300, 'c'))});
  std::mt19937 random(3);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    EXPECT_FALSE(Bundle::parse(bytes.substr(0, at))) << at;
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 + random() % 255));
    EXPECT_FALSE(Bundle::parse(changed)) << at;
  }
  EXPECT_FALSE(Bundle::parse(bytes + "x"));
  // Counts and sizes that are lies.
  for (const std::size_t at : {16u, 20u}) {
    std::string lie = bytes;
    for (std::size_t i = 0; i < 4; ++i) lie[at + i] = '\xff';
    EXPECT_FALSE(Bundle::parse(lie));
  }
}

BuildRequest request_of(const std::string& program, const std::string& arch) {
  BuildRequest request;
  request.program.name = std::string(kProgramName);
  request.program.text = program;
  request.label = "kernel";
  request.arch = arch;
  request.may_compile = false;
  return request;
}

TEST(Bundle, IsAskedBeforeAnyCompiler) {
  in_child([] {
    const TestDirectory directory;
    const std::string path = directory.path() + "/kernels.tfb";
    CacheEntry entry = {"label", {}, "from the bundle", 0.5};
    entry.key.add("format", "1");
    const auto instructions = instructions_for("gfx936");
    for (const auto& [name, value] : instructions.at(0)) entry.key.add(name, value);
    entry.key.add("hipRTC library", "one that is not here");
    entry.key.add("target", "gfx936");
    entry.key.add("program", "p");
    const std::string bytes = Bundle::pack({entry});
    write_file(path, bytes);
    ::setenv("TRUEFUSE_BUNDLE", (path + "#" + sha256_hex(bytes)).c_str(), 1);
    ::setenv("TRUEFUSE_CACHE_DIR", (directory.path() + "/cache").c_str(), 1);
    const Built built = build(request_of("p", "gfx936:sramecc+:xnack-"));
    EXPECT_EQ(built.code, "from the bundle");
    EXPECT_EQ(built.target, "gfx936");
    EXPECT_TRUE(built.from_cache);
    EXPECT_THROW(build(request_of("another source", "gfx936")), Error);
    ::setenv("HIPRTC_COMPILE_OPTIONS_APPEND", "-ffast-math", 1);
    EXPECT_THROW(build(request_of("p", "gfx936")), Error) << "other flags would be used now";
    ::unsetenv("HIPRTC_COMPILE_OPTIONS_APPEND");

    const auto& warnings = collect_warnings();
    ::setenv("TRUEFUSE_BUNDLE", (path + "#" + sha256_hex("x")).c_str(), 1);
    EXPECT_THROW(build(request_of("p", "gfx936")), Error) << "its digest is another";
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("TRUEFUSE_BUNDLE is not used"), std::string::npos);
  });
}

}  // namespace
}  // namespace truefuse::jit
