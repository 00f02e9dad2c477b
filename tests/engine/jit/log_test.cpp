#include <truefuse/jit/log.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

TEST(Warnings, OncePerKind) {
  in_child([] {
    const auto& warnings = collect_warnings();
    warn_once("a", "first");
    warn_once("a", "second");
    warn_once("b", "third");
    EXPECT_EQ(warnings, (std::vector<std::string>{"first", "third"}));
  });
}

TEST(Warnings, GoToStandardErrorByDefault) {
  in_child([] {
    testing::internal::CaptureStderr();
    warn_once("a", "first");
    collect_warnings();
    warn_once("b", "second");
    set_warning_sink(nullptr);
    warn_once("c", "third");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "truefuse: first\ntruefuse: third\n");
  });
}

}  // namespace
}  // namespace truefuse::jit
