#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include <truefuse/core/json.h>

namespace truefuse {
namespace {

std::string string_of(std::string_view text) { return JsonWriter().string(text).text(); }

TEST(JsonWriter, NestsAndPlacesCommas) {
  JsonWriter json;
  json.begin_object().key("a").begin_array().integer(1).integer(-2).end_array();
  json.key("b").begin_object().end_object().key("c").null().key("d").boolean(true);
  json.key("e")
      .raw("[3]")
      .key("f")
      .begin_array()
      .begin_object()
      .end_object()
      .string("x")
      .end_array();
  json.end_object();
  EXPECT_EQ(json.text(), R"({"a":[1,-2],"b":{},"c":null,"d":true,"e":[3],"f":[{},"x"]})");
}

TEST(JsonWriter, EscapesWhatJsonDemands) {
  EXPECT_EQ(string_of("a\"b\\c\n\t\x01"), R"("a\"b\\c\u000a\u0009\u0001")");
  EXPECT_EQ(string_of("\xe6\xb5\xb7\xe5\x85\x89 \xf0\x9f\x98\x80"),
            "\"\xe6\xb5\xb7\xe5\x85\x89 \xf0\x9f\x98\x80\"");
}

TEST(JsonWriter, ReplacesBytesThatAreNotUtf8) {
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(string_of("a\xff"
                      "b"),
            "\"a" + replacement + "b\"");
  EXPECT_EQ(string_of("\xc0\xaf"), "\"" + replacement + replacement + "\"");  // Overlong.
  EXPECT_EQ(string_of("\xed\xa0\x80"), "\"" + replacement + replacement + replacement + "\"");
  EXPECT_EQ(string_of("\xe6\xb5"), "\"" + replacement + replacement + "\"");  // Cut.
}

TEST(JsonWriter, NumbersKeepTheirValueAndNonFiniteOnesAreNull) {
  EXPECT_EQ(JsonWriter().number(0.1).text(), "0.1");
  EXPECT_EQ(std::stod(JsonWriter().number(1.0 / 3).text()), 1.0 / 3);
  EXPECT_EQ(JsonWriter().number(std::nan("")).text(), "null");
  EXPECT_EQ(JsonWriter().number(-std::numeric_limits<double>::infinity()).text(), "null");
  EXPECT_EQ(JsonWriter().integer(std::numeric_limits<std::int64_t>::min()).text(),
            "-9223372036854775808");
}

}  // namespace
}  // namespace truefuse
