#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>

#include <truefuse/jit/msgpack.h>

namespace truefuse::jit {
namespace {

using Type = MsgPack::Type;

std::optional<MsgPack> parse(const std::string& bytes) { return parse_msgpack(bytes); }

std::int64_t integer(const std::string& bytes) {
  const auto value = parse(bytes);
  return value && value->type == Type::integer ? value->integer : -99;
}

// Bytes from the MessagePack specification.
TEST(MsgPack, ReadsEveryInteger) {
  EXPECT_EQ(integer("\x7f"), 127);
  EXPECT_EQ(integer("\xe0"), -32);
  EXPECT_EQ(integer("\xff"), -1);
  EXPECT_EQ(integer("\xcc\xff"), 255);
  EXPECT_EQ(integer(std::string("\xcd\x01\x00", 3)), 256);
  EXPECT_EQ(integer(std::string("\xce\x00\x01\x00\x00", 5)), 65536);
  EXPECT_EQ(integer(std::string("\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9)), 4294967296);
  EXPECT_EQ(integer("\xcf" + std::string(8, '\xff')), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(integer("\xd0\x80"), -128);
  EXPECT_EQ(integer("\xd1\xff\x7f"), -129);
  EXPECT_EQ(integer("\xd2\xff\xff\xff\xfe"), -2);
  EXPECT_EQ(integer("\xd3" + std::string(8, '\xff')), -1);
}

TEST(MsgPack, ReadsTextsListsAndMaps) {
  // {"compact": true, "schema": [0, "ab", nil, 1.5, 1.5f]}
  const std::string bytes(
      "\x82\xa7"
      "compact\xc3\xa6"
      "schema\x95\x00\xd9\x02"
      "ab\xc0\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\xca\x3f\xc0\x00\x00",
      38);
  const auto value = parse(bytes);
  ASSERT_TRUE(value);
  ASSERT_NE(value->find("compact"), nullptr);
  EXPECT_EQ(value->find("compact")->type, Type::boolean);
  EXPECT_EQ(value->find("compact")->integer, 1);
  EXPECT_EQ(value->find("absent"), nullptr);
  const MsgPack* list = value->find("schema");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->array.size(), 5u);
  EXPECT_EQ(list->array[0].integer, 0);
  EXPECT_EQ(list->array[1].text, "ab");
  EXPECT_EQ(list->array[2].type, Type::nil);
  EXPECT_EQ(list->array[3].real, 1.5);
  EXPECT_EQ(list->array[4].real, 1.5);
}

TEST(MsgPack, RefusesDamage) {
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(parse("\xc1"));          // Never used.
  EXPECT_FALSE(parse("\xd4\x01\x01"));  // An extension.
  EXPECT_FALSE(parse("\x01\x01"));      // Two values.
  EXPECT_FALSE(
      parse("\xa5"
            "abcd"));                               // A text that ends early.
  EXPECT_FALSE(parse("\xdd\xff\xff\xff\xff\x01"));  // Four thousand million elements, one there.
  EXPECT_FALSE(
      parse("\xdf\xff\xff\xff\xff\xa1"
            "a\x01"));
  EXPECT_FALSE(parse(std::string(100000, '\x91')));  // Lists in lists in lists.
}

TEST(MsgPack, RandomBytesAreSafeToRead) {
  std::mt19937 random(7);
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(1 + random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    parsed += parse(bytes).has_value() ? 1 : 0;
  }
  EXPECT_GT(parsed, 0);
  EXPECT_LT(parsed, 20000);
}

}  // namespace
}  // namespace truefuse::jit
