// From a request to code, with a compiler that writes down what it was asked for.

#include <truefuse/core/error.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/statistics.h>

#include "cache_test_support.h"
#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

class Scribe : public Compiler {
 public:
  std::string build_id = "91ab";
  std::string at = "/opt/scribe";
  std::vector<std::pair<std::string, std::string>> instructed = {{"compiler", "Scribe"}};
  int compiles = 0;

  std::string name() const override { return "Scribe"; }
  std::string version() const override { return "1"; }
  std::string path() const override { return at; }
  std::vector<std::pair<std::string, std::string>> identity() const override {
    auto parts = instructed;
    parts.emplace_back("Scribe library", build_id);
    return parts;
  }
  std::string refusal(std::string_view) override { return {}; }
  CodeObject compile(const Program& program, std::string_view arch,
                     const std::vector<std::string>& options) override {
    ++compiles;
    if (program.text == "bad") throw Error("scribe: bad source");
    CodeObject object;
    object.code = program.text + " " + std::string(arch);
    for (const auto& [name, text] : program.headers) object.code += " " + text;
    for (const std::string& option : options) object.code += " " + option;
    return object;
  }
};

BuildRequest request_of(const std::string& text, const std::string& arch = "gfx906") {
  BuildRequest request;
  request.program = {std::string(kProgramName), text, {{"op/part.h", "part"}}};
  request.label = "kernel";
  request.arch = arch;
  return request;
}

/// Each test in a process of its own, with an empty cache.
class Build : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TRUEFUSE_CACHE_DIR", directory_.path().c_str(), 1);
    ::unsetenv("TRUEFUSE_CACHE");
  }
  void TearDown() override { ::unsetenv("TRUEFUSE_CACHE_DIR"); }

  /// Whether it came from the cache; the code is right either way.
  bool is_hit(const BuildRequest& request) {
    const int before = scribe_.compiles;
    const Built built = build_with(scribe_, request);
    EXPECT_EQ(built.code, Scribe().compile(request.program, request.arch, request.options).code);
    EXPECT_EQ(built.from_cache, scribe_.compiles == before);
    return built.from_cache;
  }

  const TestDirectory directory_;
  Scribe scribe_;
};

TEST_F(Build, DevicesThatShareADirectoryHaveTheirOwnEntries) {
  for (const char* arch : {"gfx906", "gfx908", "gfx90a:xnack-", "gfx90a:xnack+", "gfx90a"}) {
    EXPECT_FALSE(is_hit(request_of("k", arch))) << arch;
  }
  EXPECT_TRUE(is_hit(request_of("k", "gfx906")));
  EXPECT_EQ(files_in(directory_.path()).size(), 5u);
}

TEST_F(Build, AnythingThatCanChangeTheCodeIsAnotherEntry) {
  EXPECT_FALSE(is_hit(request_of("k")));
  BuildRequest other = request_of("k");
  other.program.headers["op/part.h"] = "edited";
  EXPECT_FALSE(is_hit(other));
  other = request_of("k");
  other.options = {"-DTF_N=1"};
  EXPECT_FALSE(is_hit(other));
  EXPECT_FALSE(is_hit(request_of("k2"))) << "another source under the same label";
  EXPECT_TRUE(is_hit(request_of("k")));
}

TEST_F(Build, ACompilerIsItsContentNotItsPlace) {
  EXPECT_FALSE(is_hit(request_of("k")));
  scribe_.at = "/usr/lib/elsewhere";
  EXPECT_TRUE(is_hit(request_of("k")));
  scribe_.build_id = "4d07";
  EXPECT_FALSE(is_hit(request_of("k"))) << "patched in place";
}

TEST_F(Build, OneEntryDoesNotServeAnotherProcesssSource) {
  EXPECT_FALSE(is_hit(request_of("k")));
  in_child([&] {
    EXPECT_FALSE(is_hit(request_of("another k")));
    EXPECT_TRUE(is_hit(request_of("k")));
  });
  EXPECT_TRUE(is_hit(request_of("another k")));
}

/// A request as a call on a device makes it, to be answered by a compiler that is found.
BuildRequest request_of_device(const std::string& arch) {
  BuildRequest request = request_of("k", arch);
  request.arch_is_reported_by_device = true;
  return request;
}

// sm_80's code runs on sm_86 too; it is not what a compiler would give it.
TEST_F(Build, CodeForAnEarlierChipServesOnlyWhereNoneMayBeCompiled) {
  const testing::ScopedVariable nvrtc("TRUEFUSE_NVRTC", TRUEFUSE_FAKE_RTC);
  EXPECT_FALSE(build(request_of_device("sm_80")).from_cache);
  BuildRequest later = request_of_device("sm_86");
  later.may_compile = false;
  const Built served = build(later);
  EXPECT_TRUE(served.from_cache);
  EXPECT_EQ(served.target, "sm_80");
  const Built own = build(request_of_device("sm_86"));
  EXPECT_FALSE(own.from_cache);
  EXPECT_EQ(own.target, "sm_86");
  EXPECT_EQ(files_in(directory_.path()).size(), 2u);
  for (const char* arch : {"sm_80", "sm_86"}) {
    const Built again = build(request_of_device(arch));
    EXPECT_TRUE(again.from_cache);
    EXPECT_EQ(again.target, arch);
  }
}

/// On a machine without hipcc, whose hipRTC TRUEFUSE_RTC=0 excludes.
class BuildWithoutCompiler : public Build {
 protected:
  void SetUp() override {
    Build::SetUp();
    if (!find_hipcc().empty()) GTEST_SKIP() << "hipcc is in " << find_hipcc();
  }

  using Parts = std::vector<std::pair<std::string, std::string>>;
  static Parts told(const std::string& compiler) {
    for (Parts& parts : instructions_for("gfx906")) {
      if (parts.at(0).second == compiler) return parts;
    }
    throw Error("no compiler of gfx906 is called " + compiler);
  }

  /// Puts an entry into the cache as that compiler would elsewhere, told so.
  Built make_entry(const Parts& instructions, const std::string& build_id = "91ab") {
    Scribe elsewhere;
    elsewhere.instructed = instructions;
    elsewhere.build_id = build_id;
    return build_with(elsewhere, request_of("k"));
  }

  static std::string error_for(const BuildRequest& request) {
    return testing::error_of([&] { build(request); });
  }

  const testing::ScopedVariable path_{"PATH", "/nonexistent"};
  const testing::ScopedVariable rtc_{"TRUEFUSE_RTC", "0"};
  const testing::ScopedVariable hipcc_{"TRUEFUSE_HIPCC", nullptr};
  const testing::ScopedVariable hiprtc_{"TRUEFUSE_HIPRTC", nullptr};
};

TEST_F(BuildWithoutCompiler, AnEntryOfTheSameRequestServes) {
  const Built made = make_entry(told("hipcc"));
  for (const char* arch : {"gfx906", "gfx906:sramecc+:xnack-"}) {
    const Built built = build(request_of_device(arch));
    EXPECT_TRUE(built.from_cache);
    EXPECT_EQ(built.target, "gfx906");
    EXPECT_EQ(built.compiler, "hipcc");
    EXPECT_EQ(built.code, made.code);
  }
  EXPECT_NE(error_for(request_of("another")), "");
  EXPECT_NE(error_for(request_of("k", "gfx908")), "");
  BuildRequest by_hiprtc = request_of("k");
  by_hiprtc.compiler = "hipRTC";
  EXPECT_NE(error_for(by_hiprtc), "") << "somebody asked for that one";
}

TEST_F(BuildWithoutCompiler, AnEntryMadeWithOtherFlagsDoesNotServe) {
  const auto make_with_flags = [&] {
    const testing::ScopedVariable flags("HIPCC_COMPILE_FLAGS_APPEND", "-ffast-math");
    make_entry(told("hipcc"));
    EXPECT_TRUE(build(request_of("k")).from_cache);
  };
  make_with_flags();
  EXPECT_NE(error_for(request_of("k")), "") << "the flags are not set now";
  const testing::ScopedVariable other("HIPCC_COMPILE_FLAGS_APPEND", "-O1");
  EXPECT_NE(error_for(request_of("k")), "") << "others are set now";
}

TEST_F(BuildWithoutCompiler, AnEntryOfAReleaseWithOtherArgumentsDoesNotServe) {
  Parts before = told("hipcc");
  for (auto& [name, value] : before) {
    if (name == "arguments") value += " -ffast-math";
  }
  make_entry(before);
  EXPECT_NE(error_for(request_of("k")), "");
  make_entry(told("hipcc"));
  EXPECT_EQ(error_for(request_of("k")), "");
}

TEST_F(BuildWithoutCompiler, WhatIsExcludedOrNamedInVainIsToldAndNotHidden) {
  make_entry(told("hipRTC"));
  EXPECT_NE(error_for(request_of("k")).find("hipRTC was not asked, because TRUEFUSE_RTC=0 is set"),
            std::string::npos);
  make_entry(told("hipcc"));
  EXPECT_EQ(error_for(request_of("k")), "");
  const testing::ScopedVariable mistyped("TRUEFUSE_HIPCC", "/nonexistent/hipcc");
  EXPECT_NE(error_for(request_of("k")).find("TRUEFUSE_HIPCC=/nonexistent/hipcc is no file"),
            std::string::npos);
}

TEST_F(BuildWithoutCompiler, ADamagedEntryDoesNotHideASoundOne) {
  const auto newest_first = [&] { return Cache(directory_.path()).list(); };
  make_entry(told("hipcc"));
  const std::string sound = newest_first().at(0).path;
  make_entry(told("hipcc"), "4d07");
  for (const Cache::Listing& entry : newest_first()) {
    if (entry.path == sound) continue;
    std::string bytes = read_file(entry.path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_file(entry.path, bytes);
  }
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, sound.c_str(), long_ago, 0), 0);
  in_child([] {  // It warns, which a process does once.
    const Built built = build(request_of("k"));
    EXPECT_TRUE(built.from_cache);
    EXPECT_NE(std::find(built.key.parts().begin(), built.key.parts().end(),
                        std::pair<std::string, std::string>("Scribe library", "91ab")),
              built.key.parts().end());
  });
}

TEST_F(Build, CountsWhatHappened) {
  in_child([&] {
    const auto before = statistics();
    const auto counts = [&] {
      std::string text;
      const auto now = statistics();
      for (std::size_t i = 0; i < now.size(); ++i) {
        text += std::to_string(now[i].count - before[i].count) + " ";
      }
      return text;
    };
    EXPECT_EQ(counts(), "0 0 0 0 0 ");
    is_hit(request_of("k"));
    is_hit(request_of("k"));
    is_hit(request_of("k"));
    EXPECT_EQ(counts(), "1 2 0 0 0 ");
    for (int i = 0; i < 2; ++i) EXPECT_THROW(build_with(scribe_, request_of("bad")), Error);
    EXPECT_EQ(counts(), "1 2 0 2 0 ");
    BuildRequest request = request_of("k");
    request.use_cache = false;
    build_with(scribe_, request);
    EXPECT_EQ(counts(), "2 2 0 2 0 ");
    request = request_of("new");
    request.may_compile = false;
    EXPECT_THROW(build_with(scribe_, request), Error) << "no compiler was asked";
    EXPECT_EQ(counts(), "2 2 0 2 0 ");
    const auto tallies = statistics();
    for (const Event event : {Event::compiled, Event::disk, Event::failed}) {
      const Tally& tally = tallies[static_cast<std::size_t>(event)];
      EXPECT_GT(tally.most_seconds, 0);
      EXPECT_GE(tally.seconds, tally.most_seconds);
      EXPECT_LE(tally.seconds, static_cast<double>(tally.count) * tally.most_seconds);
    }
  });
}

}  // namespace
}  // namespace truefuse::jit
