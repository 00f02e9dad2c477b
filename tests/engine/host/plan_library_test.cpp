#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <truefuse/core/error.h>
#include <truefuse/host/embedded.h>
#include <truefuse/host/plan_compiler.h>
#include <truefuse/host/plan_library.h>
#include <truefuse/jit/build.h>

#include "../jit/cache_test_support.h"

namespace truefuse::host {
namespace {

const std::string kPlan = R"(#include <algorithm>
#include <vector>

#include "truefuse/host/plan.h"

inline int& calls() {
  static int count = 0;
  return count;
}

void plan(const truefuse::host::Call& call, truefuse::host::Values& values) {
  const std::vector<std::int64_t> list{3, 1, 2};
  values["least"] = *std::min_element(list.begin(), list.end()) + call.number("rows");
  values["calls"] = ++calls();
}
TRUEFUSE_PLAN(plan)
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

jit::Source source_of(const std::string& text) {
  return {"mine/plan.cpp", {{"mine/plan.cpp", text}}};
}

abi::Function& loaded(const std::string& text) { return load_plan(source_of(text), "a test"); }

std::string refusal(const std::string& text) {
  try {
    loaded(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// least and calls, for a call of five rows; or the error.
std::string outcome(abi::Function& function) {
  const abi::Number rows{{"rows", 4}, 5};
  abi::Call call{};
  call.numbers = &rows;
  call.number_count = 1;
  std::array<abi::Value, 2> values{abi::Value{{"least", 5}, 0, 0}, abi::Value{{"calls", 5}, 0, 0}};
  std::array<char, 48> error{};
  if (function(&call, values.data(), values.size(), error.data(), error.size()) != 0)
    return error.data();
  return std::to_string(values[0].value) + " " + std::to_string(values[1].value);
}

/// A variable of the environment, as it was before at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(PlanLibrary, versions_live_side_by_side) {
  abi::Function& first = loaded(kPlan);
  EXPECT_EQ(outcome(first), "6 1");
  EXPECT_EQ(&loaded(kPlan), &first);
  abi::Function& second = loaded(replaced(kPlan, "{3, 1, 2}", "{3, 7}"));
  EXPECT_EQ(outcome(second), "8 1");  // A count of its own.
  EXPECT_EQ(outcome(first), "6 2");
}

TEST(PlanLibrary, what_the_function_throws_is_a_sentence) {
  EXPECT_EQ(outcome(loaded(replaced(kPlan, "call.number(\"rows\")", "call.number(\"lines\")"))),
            "there is no number lines; there are rows");
  // Cut to the room that there is.
  const std::string asked = outcome(loaded(replaced(kPlan, "\"calls\"", "\"runs\"")));
  EXPECT_EQ(asked,
            std::string("there is no value of the description's plan named runs").substr(0, 47));
  EXPECT_EQ(outcome(loaded(replaced(kPlan, "values[\"calls\"]", "throw 7; values[\"calls\"]"))),
            "it threw something that is no std::exception");
}

TEST(PlanLibrary, what_is_wrong_with_a_file_has_its_place) {
  const std::string error = refusal(replaced(kPlan, "list{3", "lst{3"));
  EXPECT_NE(error.find("mine/plan.cpp:13: error: 'list' was not declared in this scope"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("  >  13 |   values[\"least\"]"), std::string::npos) << error;

  const std::string missing = refusal(replaced(kPlan, "<vector>", "<vektor>"));
  EXPECT_NE(missing.find("mine/plan.cpp:2: error: vektor: No such file"), std::string::npos)
      << missing;
  EXPECT_NE(refusal(replaced(kPlan, "<vector>", "\"table.h\""))
                .find("mine/plan.cpp:2: #include \"table.h\" names a file that is not there"),
            std::string::npos);
  const std::string undefined =
      refusal(replaced(kPlan, "++calls()", "tables()") + "int tables();\n");
  EXPECT_NE(undefined.find("mine/plan.cpp:14: error: 'tables' was not declared"), std::string::npos)
      << undefined;
  const std::string unlinked =
      refusal("int tables();\n" + replaced(kPlan, "++calls()", "tables()"));
  EXPECT_NE(unlinked.find("undefined reference to `tables()'"), std::string::npos) << unlinked;
}

TEST(PlanLibrary, a_file_without_a_plan_for_this_library_is_refused) {
  EXPECT_NE(refusal(replaced(kPlan, "TRUEFUSE_PLAN(plan)", ""))
                .find("mine/plan.cpp exports no plan; write TRUEFUSE_PLAN("),
            std::string::npos);
  const std::string older = refusal(replaced(
      kPlan, "TRUEFUSE_PLAN(plan)",
      "extern \"C\" __attribute__((visibility(\"default\"))) const truefuse::host::abi::Plan*\n"
      "truefuse_exported_plan() {\n  static const truefuse::host::abi::Plan old{0, nullptr};\n"
      "  return &old;\n}"));
  EXPECT_NE(older.find("mine/plan.cpp is made for version 0 of truefuse/host/plan.h; this truefuse "
                       "has version 1"),
            std::string::npos)
      << older;
}

TEST(PlanLibrary, without_a_compiler_the_error_says_what_to_install) {
  const jit::TestDirectory empty;
  const Variable path("PATH", empty.path()), cxx("CXX", ""), named("TRUEFUSE_CXX", "");
  EXPECT_NE(refusal(kPlan + "// alone\n").find("there is none here: install g++"),
            std::string::npos);
}

TEST(PlanLibrary, compiling_can_be_forbidden) {
  const jit::TestDirectory directory;
  const Variable cache("TRUEFUSE_CACHE_DIR", directory.path());
  const Variable forbidden("TRUEFUSE_NO_COMPILE", "1");
  EXPECT_NE(refusal(kPlan + "// late\n").find("TRUEFUSE_NO_COMPILE forbids"), std::string::npos);
}

class PlanCache : public ::testing::Test {
 protected:
  static jit::Program program_of(const std::string& text) {
    jit::Source source = source_of(text);
    for (const auto& [name, header] : host_files()) source.files.emplace(name, header);
    return jit::resolve(source, {}, jit::Outside::left_to_compiler);
  }
  static jit::Built built(PlanCompiler& compiler, const std::string& text) {
    jit::BuildRequest request;
    request.program = compiler.preprocessed(program_of(text));
    request.arch = kHostArch;
    return jit::build_with(compiler, request);
  }

  jit::TestDirectory directory_;
  const Variable cache_{"TRUEFUSE_CACHE_DIR", directory_.path()};
};

TEST_F(PlanCache, an_entry_is_found_again_and_mended) {
  PlanCompiler compiler(*jit::Cxx::find());
  const jit::Built first = built(compiler, kPlan);
  EXPECT_FALSE(first.from_cache);
  const jit::Built second = built(compiler, kPlan);
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.code, first.code);
  for (const auto& file : std::filesystem::directory_iterator(directory_.path())) {
    if (file.path().extension() == ".tfk") jit::write_file(file.path(), "no entry");
  }
  const jit::Built third = built(compiler, kPlan);
  EXPECT_FALSE(third.from_cache);
  EXPECT_EQ(third.key, first.key);
  EXPECT_TRUE(built(compiler, kPlan).from_cache);
}

TEST_F(PlanCache, whatever_the_file_includes_is_in_the_key) {
  // A compiler that knows a directory of headers.
  const jit::TestDirectory place;
  const std::string program = place.path() + "/g++";
  jit::write_file(
      program, "#!/bin/sh\nexec " + *jit::Cxx::find() + " -isystem " + place.path() + " \"$@\"\n");
  ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
  const std::string text = replaced(kPlan, "<vector>", "<vector>\n#include <outside.h>");
  jit::write_file(place.path() + "/outside.h", "constexpr int kOutside = 1;\n");
  PlanCompiler compiler(program);
  const jit::Built first = built(compiler, text);
  EXPECT_EQ(built(compiler, text).key, first.key);
  jit::write_file(place.path() + "/outside.h", "constexpr int kOutside = 2;\n");
  const jit::Built second = built(compiler, text);
  EXPECT_FALSE(second.from_cache);
  EXPECT_NE(second.key, first.key);
}

}  // namespace
}  // namespace truefuse::host
