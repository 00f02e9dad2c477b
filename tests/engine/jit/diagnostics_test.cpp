#include <gtest/gtest.h>

#include <truefuse/jit/diagnostics.h>

namespace truefuse::jit {
namespace {

Program program() {
  Program program;
  program.name = kProgramName;
  program.headers["mine/kernel.hip"] = "one\ntwo\nthree\nfour\nfive\nsix";
  program.headers["mine/other.h"] = "alpha";
  return program;
}

const std::string kScreen =
    "X could not compile it:\n"
    "mine/kernel.hip:3: error: no such thing\n"
    "      2 | two\n"
    "  >   3 | three\n"
    "      4 | four\n"
    "TRUEFUSE_LOG=1 shows all that the compiler said.";

TEST(Diagnostics, every_compiler_s_spelling) {
  for (const std::string line :
       {"mine/kernel.hip(3): error: no such thing", "mine/kernel.hip:3:7: error: no such thing",
        "/tmp/dir/mine/kernel.hip:3:7: fatal error: no such thing",
        "/tmp/my (own) dir/mine/kernel.hip:3:7: error: no such thing",
        "/tmp/my (own) dir/mine/kernel.hip(3): error: no such thing",
        "mine/kernel.hip:3: error: no such thing", "mine/kernel.hip(3): error #20-D: no such thing",
        "mine/kernel.hip(3): catastrophic error: no such thing"}) {
    EXPECT_EQ(
        on_one_screen(program(), "X could not compile it:\n" + line + "\n  three\n  ^\n1 error"),
        kScreen)
        << line;
  }
}

TEST(Diagnostics, at_most_three_and_no_repetition) {
  std::string words = "X could not compile it:\n";
  for (int line = 1; line <= 6; ++line) {
    for (int i = 0; i < 2; ++i)
      words +=
          "mine/kernel.hip(" + std::to_string(line) + "): error: e" + std::to_string(line) + "\n";
  }
  const std::string screen = on_one_screen(program(), words);
  EXPECT_NE(screen.find("mine/kernel.hip:3: error: e3"), std::string::npos);
  EXPECT_EQ(screen.find("e4"), std::string::npos);
  EXPECT_NE(screen.find("\nand 3 more\n"), std::string::npos);
}

TEST(Diagnostics, what_has_no_place_in_the_program_stays_as_it_is) {
  for (const std::string words : {"nothing", "X:\nmine/unknown.h:3: error: a",
                                  "X:\nmine/kernel.hip:3: warning: a", "X:\nlinker error: b"}) {
    EXPECT_EQ(on_one_screen(program(), words), words);
  }
}

TEST(Diagnostics, a_line_that_is_not_there_and_one_without_end) {
  EXPECT_NE(on_one_screen(program(), "X:\nmine/other.h:99: error: a")
                .find("mine/other.h:99: error: a\nTRUEFUSE"),
            std::string::npos);
  Program wide = program();
  wide.headers["mine/other.h"] = std::string(100'000, 'x');
  EXPECT_LT(on_one_screen(wide, "X:\nmine/other.h:1: error: " + std::string(1000, 'y')).size(),
            600u);
}

}  // namespace
}  // namespace truefuse::jit
