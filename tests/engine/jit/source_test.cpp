#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sstream>

#include <truefuse/core/error.h>
#include <truefuse/jit/include_scanner.h>
#include <truefuse/jit/source.h>

#include "cache_test_support.h"

namespace truefuse::jit {
namespace {

using Names = std::vector<std::string>;

Names names_of(const Files& files) {
  Names names;
  for (const auto& file : files) names.push_back(file.first);
  return names;
}

/// A kernel whose main file "op/k.hip" holds `text`; "a.h", "op/b.h" and "op/a.h" exist, too.
Program with_main(const std::string& text) {
  return resolve({"op/k.hip", {{"op/k.hip", text}, {"a.h", ""}, {"op/a.h", ""}, {"op/b.h", ""}}},
                 {});
}

Names reached_from(const std::string& text) {
  Names names = names_of(with_main(text).headers);
  names.erase(std::find(names.begin(), names.end(), "op/k.hip"));
  return names;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_refused(const std::string& text, const std::string& said) {
  const std::string error = error_of([&] { with_main(text); });
  EXPECT_NE(error.find(said), std::string::npos) << "text: " << text << "\nerror: " << error;
}

TEST(Resolve, TextIsConstantsThenMainFile) {
  const Program program =
      resolve({"op/k.hip", {{"op/k.hip", "int x;"}, {"op/unused.h", ""}}},
              {{"TF_VECTOR", "4"}, {"TRUEFUSE_TYPE", "unsigned long"}, {"TF_EMPTY", ""}});
  EXPECT_EQ(program.name, "truefuse_program.hip");
  EXPECT_EQ(program.text,
            "#define TF_VECTOR 4\n#define TRUEFUSE_TYPE unsigned long\n#define TF_EMPTY \n"
            "#include <op/k.hip>\n");
  EXPECT_EQ(program.headers, (Files{{"op/k.hip", "int x;"}}));
}

TEST(Resolve, FollowsAndNamesEachFileInFull) {
  const Program program =
      resolve({"op/k.hip",
               {{"op/k.hip", "#include \"math.h\"  // ours\n#include <math.h>\n"},
                {"op/math.h", "#include \"../common/x.h\"\n"},
                {"math.h", "#include \"common/x.h\"\n"},
                {"common/x.h", "#include \"op/math.h\"\n"}}},
              {});
  EXPECT_EQ(program.headers,
            (Files{{"op/k.hip", "#include <op/math.h>  // ours\n#include <math.h>\n"},
                   {"op/math.h", "#include <common/x.h>\n"},
                   {"math.h", "#include <common/x.h>\n"},
                   {"common/x.h", "#include <op/math.h>\n"}}));
}

TEST(Resolve, BesideComesFirst) {
  EXPECT_EQ(reached_from("#include \"a.h\""), Names{"op/a.h"});
  EXPECT_EQ(reached_from("#include <a.h>"), Names{"a.h"});
  EXPECT_EQ(reached_from("#include \"../a.h\""), Names{"a.h"});
  EXPECT_EQ(reached_from("#include \"./b.h\""), Names{"op/b.h"});
  EXPECT_EQ(reached_from("#include \"op/b.h\""), Names{"op/b.h"});
  expect_refused("#include <b.h>", "op/k.hip:1: #include <b.h> names a file");
  expect_refused("#include \"../../a.h\"", "\"../../a.h\" names a file");
  expect_refused("#include \"/op/b.h\"", "\"/op/b.h\" names a file");
}

TEST(Resolve, CyclesEnd) {
  const Program program =
      resolve({"op/k.hip",
               {{"op/k.hip", "#pragma once\n#include \"a.h\"\n"},
                {"op/a.h", "#pragma once\n#include \"k.hip\"\n#include \"a.h\"\n"}}},
              {});
  EXPECT_EQ(names_of(program.headers), (Names{"op/a.h", "op/k.hip"}));
}

TEST(Resolve, FollowsInactiveBranchesAndQuestions) {
  EXPECT_EQ(reached_from("#if 0\n#include \"a.h\"\n#endif"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("#ifdef __has_include\n#if __has_include(\"b.h\")\n#endif\n#endif"),
            Names{"op/b.h"});
  EXPECT_EQ(with_main("#if defined(__has_include) && __has_include ( /**/ \"b.h\" )\n#endif\n")
                .headers.at("op/k.hip"),
            "#if defined(__has_include) && __has_include ( /**/ <op/b.h> )\n#endif\n");
  EXPECT_EQ(reached_from("#if defined __has_include\n#endif"), Names{});
  expect_refused("#if __has_include(\"c.h\")\n#endif", "__has_include(\"c.h\") names a file");
  expect_refused("\n#if __has_include(<hip/hip_runtime.h>)\n#endif",
                 "op/k.hip:2: __has_include(<hip");
  expect_refused("#if __has_include(NAME)\n#endif", "__has_include of the macro NAME");
  expect_refused("#define ASK __has_include\n", "__has_include must be followed by");
  expect_refused("#define D defined\n__has_include(\"c.h\")\n", "(\"c.h\") names a file");
}

TEST(Resolve, LeavesCompilerHeadersAlone) {
  const std::string text = "#if defined(__HIPCC__)\n#include <hip/hip_runtime.h>\n#endif\n";
  EXPECT_EQ(with_main(text).headers.at("op/k.hip"), text);
  expect_refused("#include \"hip/hip_runtime.h\"", "\"hip/hip_runtime.h\" names a file");
  expect_refused("#include <stdint.h>", "<stdint.h> names a file");
}

TEST(Resolve, LeavesTheRestToACompilerThatSearches) {
  const std::string text =
      "#include <vector>\n#if __has_include(<span>)\n#endif\n#include \"b.h\"\n";
  const Source source{"op/plan.cpp", {{"op/plan.cpp", text}, {"op/b.h", "#include <cmath>\n"}}};
  const Program program = resolve(source, {}, Outside::left_to_compiler);
  EXPECT_EQ(program.headers.at("op/plan.cpp"),
            "#include <vector>\n#if __has_include(<span>)\n#endif\n#include <op/b.h>\n");
  EXPECT_EQ(program.headers.at("op/b.h"), "#include <cmath>\n");
  // Names in quotes are those of the source.
  const Source other{"op/plan.cpp", {{"op/plan.cpp", "#include \"c.h\"\n"}}};
  EXPECT_THROW(resolve(other, {}, Outside::left_to_compiler), Error);
}

TEST(Resolve, ReadsTextAsCompilersDo) {
  EXPECT_EQ(reached_from("  /* x */ # /* y */ include /* z */ \"a.h\" // w"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("#inc\\\nlude \\\r\n \"a.h\""), Names{"op/a.h"});
  EXPECT_EQ(reached_from("%:include \"a.h\"\r\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("\v\f\t#\tinclude<a.h>"), Names{"a.h"});
  EXPECT_EQ(reached_from("/* */ /* \n */ #include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("#error don't \n#include \"a.h\"\n// don't\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("int x = 1'000; /* ' */\n#include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("int x = 0x1p-3'0 + 1'0/* \n#include \"c.h\"\n*/;\n"), Names{});
  EXPECT_EQ(reached_from("const char c = '\"';\n#include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("const char* s = \"\\\"/*\";\n#include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("const char* s = R\"(\n)\";\n#include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("const char* s = u8R\"x(\n#include \"c.h\"\n)\" )x\";"), Names{});
  EXPECT_EQ(reached_from("const char* s = R\"(\\\n)\";"), Names{});
  EXPECT_EQ(reached_from("// \\\n#include \"c.h\"\n"), Names{});
  EXPECT_EQ(reached_from("/* \n#include \"c.h\"\n*/"), Names{});
  EXPECT_EQ(reached_from("const char* s = \"\\\n#include \\\"c.h\\\"\\\n\";"), Names{});
  EXPECT_EQ(reached_from("int i; #include \"c.h\"\n"), Names{});
  EXPECT_EQ(reached_from("#define F(x) #x\n#define includes \"c.h\"\n"), Names{});
  EXPECT_EQ(reached_from("'\\\\\n\n#include \"a.h\"\n"), Names{"op/a.h"});
  EXPECT_EQ(reached_from("#define S R\"(#include \"c.h\")\"\n#include \"a.h\""), Names{"op/a.h"});
  EXPECT_EQ(reached_from(""), Names{});
}

TEST(Resolve, RefusesWhatItCannotName) {
  expect_refused("\n\n#include MACRO\n", "op/k.hip:3: #include of the macro MACRO");
  expect_refused("#include\n\"a.h\"", "#include without a name");
  expect_refused("#include \"\"", "empty name");
  expect_refused("#include \"a.h", "must end on this line");
  expect_refused("#include \"a\\\n.h\"", "must end on this line");
  expect_refused("#include_next <a.h>", "#include_next is not supported");
  expect_refused("#if 0\n#import \"a.h\"\n#endif", "op/k.hip:2: #import is not supported");
  expect_refused("#embed \"a.h\"", "#embed is not supported");
  expect_refused("#if __has_include_next(<a.h>)\n#endif", "__has_include_next is not supported");
  expect_refused("#if __has_embed(<a.h>)\n#endif", "__has_embed is not supported");
  expect_refused("const char* when = __TIME__;",
                 "__TIME__ makes the compiled kernel depend on when");
  expect_refused("asm(\".incbin \\\"x\\\"\");", ".incbin in a string");
  expect_refused("asm(R\"(.include \"x\")\");", ".include in a string");
}

TEST(Resolve, RefusesWhatCompilersReadDifferently) {
  expect_refused("\xef\xbb\xbfint x;", "op/k.hip:1: the file begins with a UTF-8 byte order mark");
  expect_refused(std::string("int x;\n\0#include", 16), "op/k.hip:2: a NUL byte");
  expect_refused("// x\r#include \"c.h\"\n", "a carriage return without a newline");
  expect_refused("// x\r", "a carriage return without a newline");
  expect_refused("// \?\?/\n#include \"a.h\"", "trigraphs");
  expect_refused("\?\?=include \"a.h\"", "trigraphs");
  expect_refused("// x \\ \n#include \"a.h\"", "blanks follow the backslash");
  expect_refused("// x \\\t\r\n#include \"a.h\"", "blanks follow the backslash");
  expect_refused("auto s = \"x\"R\"(\n#include <c.h>\n)\";", "put a blank between");
  expect_refused("auto s = R\"(x)\"LR\"(\n#include <c.h>\n)\";", "put a blank between");
  expect_refused("#define S R\"(\n#include \"a.h\"\n)\"", "a raw string literal in a directive");
  expect_refused("\n/* x", "op/k.hip:2: the comment that begins here never ends");
  expect_refused("auto s = R\"(x", "never ends");
  expect_refused("auto s = R\"a b(x)a b\";", "no valid delimiter");
}

TEST(Resolve, ErrorsNameTheIncludingFile) {
  const Source source{"op/k.hip",
                      {{"op/k.hip", "#include \"a.h\"\n"}, {"op/a.h", "\n#include \"c.h\""}}};
  EXPECT_EQ(error_of([&] { resolve(source, {}); }).substr(0, 28), "op/a.h:2: #include \"c.h\" nam");
}

TEST(Resolve, MainFileMustExist) {
  EXPECT_NE(error_of([] {
              resolve({"k.hip", {}}, {});
            }).find("\"k.hip\" is not among its files"),
            std::string::npos);
}

TEST(Resolve, FileNamesStayBelowOneDirectory) {
  for (const char* name :
       {"/k.hip", "../k.hip", "a/../k.hip", "a//k.hip", "./k.hip", "a/", "k\n.hip", "k\".hip",
        "k>.hip", "a\\k.hip", "truefuse_program.hip", ""}) {
    EXPECT_NE(error_of([&] {
                resolve({name, {{name, ""}}}, {});
              }).find("cannot be used"),
              std::string::npos)
        << name;
  }
}

TEST(Resolve, ChecksConstants) {
  const auto error = [](const std::vector<Constant>& constants) {
    return error_of([&] { resolve({"k.hip", {{"k.hip", ""}}}, constants); });
  };
  for (const char* name :
       {"", "V", "tf_x", "TF", "TFX", "TF_X Y", "TF_X(a)", "TF_X\n", "TF_\xc3\xa4"}) {
    EXPECT_NE(error({{name, "1"}}).find("must be an identifier"), std::string::npos) << name;
  }
  for (const char* value : {"1\n#include \"x\"", "1\r", "1\\"}) {
    EXPECT_NE(error({{"TF_X", value}}).find("TF_X must be a part of one line"), std::string::npos);
  }
  EXPECT_NE(error({{"TF_X", "/* 1"}}).find("never ends"), std::string::npos);
  EXPECT_NE(error({{"TF_X", "R\"(1"}}).find("never ends"), std::string::npos);
  EXPECT_NE(error({{"TF_X", "__has_include(\"k.hip\")"}}).find("must not name a file"),
            std::string::npos);
  EXPECT_NE(error({{"TF_X", "1"}, {"TF_X", "2"}}).find("TF_X is given twice"), std::string::npos);
  EXPECT_EQ(error({{"TF_X", "(float)1 /* one */"}, {"TF_Y", "\"text\""}}), "no error");
}

bool has_gxx() { return !shell("command -v g++").empty(); }

// A compiler that reads files sees the Program, not what lies around.
TEST(Resolve, PlantedFilesChangeNothing) {
  if (!has_gxx()) GTEST_SKIP() << "no g++";
  const Program program = resolve({"op/k.hip",
                                   {{"op/k.hip", "#include \"m.h\"\n#include \"op/n.h\"\n"},
                                    {"op/m.h", "int right_m;\n"},
                                    {"op/n.h", "int right_n;\n"}}},
                                  {});
  const TestDirectory directory;
  const std::string root = directory.path() + "/program";
  for (const auto& [name, text] : program.headers) {
    std::filesystem::create_directories(std::filesystem::path(root + "/" + name).parent_path());
    write_file(root + "/" + name, text);
  }
  write_file(root + "/" + program.name, program.text);
  const std::string planted = directory.path() + "/planted";
  std::filesystem::create_directories(planted + "/op");
  for (const char* name : {"/m.h", "/n.h", "/op/m.h", "/op/n.h", "/op/k.hip"}) {
    write_file(planted + name, "int wrong;\n");
  }
  EXPECT_EQ(
      shell("cd " + planted + " && g++ -E -P -x c++ -I" + root + " " + root + "/" + program.name),
      "int right_m;\nint right_n;\n");
}

// Random texts made of whatever matters to a lexer: no file that g++ would open may be missed.
TEST(Resolve, SeesAllThatGxxSees) {
  if (!has_gxx()) GTEST_SKIP() << "no g++";
  const Names pieces{"//",
                     "/*",
                     "*/",
                     "/",
                     "*",
                     "\"",
                     "'",
                     "\\",
                     "\\\n",
                     "\n",
                     "\n",
                     "\n",
                     "R\"(",
                     ")\"",
                     "R\"x(",
                     ")x\"",
                     "(",
                     ")",
                     "1'0",
                     "0x1e+",
                     ".5",
                     "x",
                     "u8",
                     " ",
                     "\r\n",
                     "#",
                     "%:",
                     "#error ",
                     "\n#include \"a.h\"\n",
                     "\n#include <b.h>\n",
                     "\n # /**/ include \"c.h\" ",
                     "#include \"d.h\"",
                     "include",
                     "\"e.h\"",
                     "<f.h>",
                     "#inc\\\nlude <g.h>\n",
                     "\n%:include \"h.h\"\n",
                     "// '",
                     "/* \" */",
                     "'\"'",
                     "\"\\\"\"",
                     "defined"};
  constexpr int kTexts = 150;
  const TestDirectory directory;
  std::mt19937 random(20260716);
  std::vector<std::string> texts;
  std::string command = "cd " + directory.path() + " && g++ -w -std=c++20 -MM -MG -x c++";
  for (int i = 0; i < kTexts; ++i) {
    std::string text;
    for (unsigned n = 2 + random() % 14; n > 0; --n) text += pieces[random() % pieces.size()];
    texts.push_back(text);
    write_file(directory.path() + "/t" + std::to_string(i) + ".cc", text);
    command += " t" + std::to_string(i) + ".cc";
  }
  // One rule for each text that g++ accepts: "t7.o: t7.cc a.h b.h".
  std::istringstream rules(shell("(" + command + ") 2>/dev/null"));
  int compared = 0;
  int includes = 0;
  for (std::string rule; std::getline(rules, rule);) {
    std::istringstream words(rule);
    std::string target, own;
    words >> target >> own;
    const std::string& text = texts.at(std::stoul(own.substr(1)));
    std::set<std::string> seen;
    try {
      for (const IncludeReference& reference : scan_includes(own, text))
        seen.insert(reference.name);
    } catch (const Error&) {
      continue;
    }
    ++compared;
    for (std::string name; words >> name; ++includes) {
      EXPECT_TRUE(seen.contains(name)) << name << " is missed in:\n" << text;
    }
  }
  EXPECT_GT(compared, kTexts / 4);
  EXPECT_GT(includes, kTexts / 8);
}

}  // namespace
}  // namespace truefuse::jit
