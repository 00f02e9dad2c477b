#include <gtest/gtest.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/arch.h>

namespace truefuse::jit {
namespace {

TEST(Arch, ReadsNvidia) {
  const Arch arch = parse_arch("sm_90a");
  EXPECT_EQ(arch.vendor, Vendor::nvidia);
  EXPECT_EQ(arch.text, "sm_90a");
  EXPECT_EQ(arch.base, "sm_90a");
  EXPECT_EQ(arch.number, 90);
  EXPECT_EQ(arch.suffix, 'a');
  EXPECT_EQ(arch.wave, 32);
  EXPECT_EQ(parse_arch("sm_120f").suffix, 'f');
  EXPECT_EQ(parse_arch("sm_75").suffix, 0);
}

TEST(Arch, ReadsFeaturesInAnyOrder) {
  const Arch arch = parse_arch("gfx90a:xnack-:sramecc+");
  EXPECT_EQ(arch.vendor, Vendor::amd);
  EXPECT_EQ(arch.text, "gfx90a:sramecc+:xnack-");
  EXPECT_EQ(arch.base, "gfx90a");
  ASSERT_EQ(arch.features.size(), 2u);
  EXPECT_EQ(arch.features[0], (std::pair<std::string, bool>("sramecc", true)));
  EXPECT_EQ(arch.features[1], (std::pair<std::string, bool>("xnack", false)));
  EXPECT_EQ(arch, parse_arch("gfx90a:sramecc+:xnack-"));
}

TEST(Arch, WaveFollowsTheMajorVersion) {
  for (const char* name : {"gfx803", "gfx906", "gfx90a", "gfx942", "gfx9-generic", "gfx9-4-generic",
                           "gfx926", "gfx936:sramecc+:xnack-", "gfx92a", "gfx946"}) {
    EXPECT_EQ(parse_arch(name).wave, 64) << name;
  }
  for (const char* name : {"gfx1010", "gfx1030", "gfx1100", "gfx1201", "gfx10-3-generic"}) {
    EXPECT_EQ(parse_arch(name).wave, 32) << name;
  }
}

TEST(Arch, KnowsHygonByName) {
  for (const char* name : {"gfx926", "gfx928", "gfx936", "gfx938", "gfx92a", "gfx946"}) {
    EXPECT_TRUE(parse_arch(name).is_hygon) << name;
    EXPECT_TRUE(parse_arch(std::string(name) + ":sramecc+:xnack-").is_hygon) << name;
  }
  for (const char* name : {"gfx906", "gfx90a", "gfx942", "sm_90"}) {
    EXPECT_FALSE(parse_arch(name).is_hygon) << name;
  }
}

TEST(Arch, AcceptsNamesThatNoListKnows) {
  EXPECT_EQ(parse_arch("gfx9ff:newfeature+").base, "gfx9ff");
  EXPECT_EQ(parse_arch("sm_199").number, 199);
}

TEST(Arch, SaysWhatIsWrong) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is empty"},
      {"sm_90 ", "contains a space"},
      {" gfx906", "contains a space"},
      {"sm_90\n", "contains a space"},
      {"GFX906", "upper-case"},
      {"sm_90A", "upper-case"},
      {"native", "names no architecture"},
      {"amdgcn-amd-amdhsa--gfx906", "is a target triple"},
      {"compute_90", "virtual architecture"},
      {"sm_", "number of two or three digits"},
      {"sm_9", "number of two or three digits"},
      {"sm_0900", "number of two or three digits"},
      {"sm_90q", "where only a or f may stand"},
      {"sm_90ab", "where only a or f may stand"},
      {"gfx", "hexadecimal digits"},
      {"gfx9", "hexadecimal digits"},
      {"gfx90g", "hexadecimal digits"},
      {"gfxa06", "hexadecimal digits"},
      {"gfx90a6b", "hexadecimal digits"},
      {"gfx-generic", "hexadecimal digits"},
      {"gfx9-x-generic", "hexadecimal digits"},
      {"gfx90a:", "must end in + or -"},
      {"gfx90a:xnack", "must end in + or -"},
      {"gfx90a:xnack+:", "must end in + or -"},
      {"gfx90a:+", "not a lower-case word"},
      {"gfx90a:x-y+", "not a lower-case word"},
      {"gfx90a:xnack+:xnack-", "twice"},
      {"gfx90a --offload-arch=gfx906", "contains a space"},
      {"cuda", "begins neither with sm_"},
      {std::string(200, '1'), "longer than any"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      parse_arch(text);
      ADD_FAILURE() << '"' << text << "\" was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("for instance sm_90a"), std::string::npos);
    }
  }
}

TEST(Arch, RunsOnFollowsTheVendorsRules) {
  const auto runs = [](const char* target, const char* device) {
    return runs_on(parse_arch(target), parse_arch(device));
  };
  EXPECT_TRUE(runs("gfx90a", "gfx90a:sramecc+:xnack-"));  // Unstated: any.
  EXPECT_TRUE(runs("gfx90a:xnack-", "gfx90a:sramecc+:xnack-"));
  EXPECT_FALSE(runs("gfx90a:xnack+", "gfx90a:sramecc+:xnack-"));
  EXPECT_FALSE(runs("gfx90a:xnack+", "gfx90a"));
  EXPECT_FALSE(runs("gfx906", "gfx908"));
  EXPECT_TRUE(runs("sm_80", "sm_86"));
  EXPECT_FALSE(runs("sm_86", "sm_80"));
  EXPECT_FALSE(runs("sm_80", "sm_90"));
  EXPECT_TRUE(runs("sm_90a", "sm_90"));
  EXPECT_FALSE(runs("sm_100a", "sm_103"));
  EXPECT_TRUE(runs("sm_100f", "sm_103"));
  EXPECT_FALSE(runs("sm_90", "gfx906"));
}

TEST(Arch, TargetsForADeviceAreItsOwnNameThenWhatElseRunsOnIt) {
  const auto targets = [](const char* device) {
    std::string text;
    for (const Arch& target : targets_for(parse_arch(device))) {
      EXPECT_TRUE(runs_on(target, parse_arch(device))) << target.text << " on " << device;
      text += (text.empty() ? "" : " ") + target.text;
    }
    return text;
  };
  EXPECT_EQ(targets("sm_80"), "sm_80");
  EXPECT_EQ(targets("sm_86"), "sm_86 sm_85 sm_84 sm_83 sm_82 sm_81 sm_80");
  EXPECT_EQ(targets("sm_90a"), "sm_90a sm_90");
  EXPECT_EQ(targets("sm_103"), "sm_103 sm_102 sm_100");  // 101 is a Tegra.
  EXPECT_EQ(targets("sm_87"), "sm_87");                  // So is this device.
  EXPECT_EQ(targets("sm_121"), "sm_121 sm_120");
  EXPECT_EQ(targets("gfx936:sramecc+:xnack-"), "gfx936:sramecc+:xnack- gfx936");
  EXPECT_EQ(targets("gfx906"), "gfx906");
}

}  // namespace
}  // namespace truefuse::jit
