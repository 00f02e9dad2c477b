#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include <truefuse/contract/contract.h>
#include <truefuse/core/error.h>

namespace truefuse {
namespace {

std::string failure(std::string_view text) {
  try {
    Contract::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// `marked` holds an '@' where the caret must stand; what follows is the sentence's beginning.
void expect_failure(std::string marked, const std::string& sentence) {
  const std::size_t caret = marked.find('@');
  ASSERT_NE(caret, std::string::npos) << marked;
  marked.erase(caret, 1);
  EXPECT_EQ(failure(marked),
            "contract: " + sentence + ".\n  " + marked + "\n  " + std::string(caret, ' ') + "^");
}

const std::string kDtypes = "f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, i16, i8, u8, bool, c64";
const std::string kSpecs = kDtypes + ", c128, like NAME, \"text\"|..., text, int, float or bool";
const std::string kLayoutWords =
    "a layout (contiguous, rows-strided, batch-strided, strided or dense)";
const std::string kAfterTensor = "optional, mutated, aligned(BYTES), ';', '->' or the end";

TEST(ContractParse, AnOutputMayDependOnABool) {
  const Contract contract = Contract::parse(
      "x: f32 [n] strided; a: bool; b: bool -> p: like x [n] contiguous if b; "
      "q: like x [n] contiguous");
  EXPECT_EQ(contract.outputs()[0].wanted, 2u);
  EXPECT_FALSE(contract.outputs()[1].wanted.has_value());
  const std::string head = "x: f32 [n] strided; k: int; b: bool optional -> ";
  for (const std::string name : {"x", "k", "b", "z"}) {
    expect_failure(head + "p: f32 [n] contiguous if @" + name,
                   name + " is no bool argument that is always given");
  }
}

TEST(ContractParse, ReadsTheFirstOperator) {
  const Contract contract = Contract::parse(
      "x: f32|f64|f16|bf16 [rows.., hidden] rows-strided; bias: like x [hidden] strided;\n"
      "approximate: \"tanh\"|\"none\" -> out: like x [rows.., hidden] contiguous");
  ASSERT_EQ(contract.symbols().size(), 2u);
  EXPECT_EQ(contract.symbols()[0].name, "rows");
  EXPECT_TRUE(contract.symbols()[0].is_pack);
  EXPECT_EQ(contract.symbols()[1].name, "hidden");
  EXPECT_FALSE(contract.symbols()[1].is_pack);

  ASSERT_EQ(contract.arguments().size(), 3u);
  const ArgumentSpec& x = contract.arguments()[0];
  EXPECT_EQ(x.name, "x");
  EXPECT_FALSE(x.optional);
  ASSERT_NE(x.tensor(), nullptr);
  EXPECT_EQ(x.tensor()->dtypes,
            (std::vector<DType>{DType::f32, DType::f64, DType::f16, DType::bf16}));
  EXPECT_FALSE(x.tensor()->like.has_value());
  EXPECT_EQ(x.tensor()->pack, 0u);
  ASSERT_EQ(x.tensor()->dims.size(), 1u);
  EXPECT_EQ(x.tensor()->dims[0].symbols, std::vector<std::size_t>{1});
  EXPECT_EQ(x.tensor()->layout, Layout::rows_strided);
  EXPECT_FALSE(x.tensor()->mutated);
  EXPECT_EQ(x.tensor()->alignment, 1);

  const TensorSpec& bias = *contract.arguments()[1].tensor();
  EXPECT_TRUE(bias.dtypes.empty());
  EXPECT_EQ(bias.like, 0u);
  EXPECT_FALSE(bias.pack.has_value());
  EXPECT_EQ(bias.layout, Layout::strided);

  EXPECT_EQ(contract.arguments()[2].tensor(), nullptr);
  const auto& approximate = std::get<ScalarSpec>(contract.arguments()[2].spec);
  EXPECT_EQ(std::get<EnumerationSpec>(approximate).values,
            (std::vector<std::string>{"tanh", "none"}));

  ASSERT_EQ(contract.outputs().size(), 1u);
  EXPECT_EQ(contract.outputs()[0].name, "out");
  EXPECT_EQ(contract.outputs()[0].tensor.like, 0u);
  EXPECT_EQ(contract.text_of_dims(contract.outputs()[0].tensor), "[rows.., hidden]");
  EXPECT_FALSE(contract.mutates());
}

TEST(ContractParse, ReadsFlagsInAnyOrderAndProducts) {
  const Contract contract = Contract::parse(
      "q:f8e4m3|i32[H,2*d]strided aligned(16) · k : bool [H, H*d*4, 3, 2*3] contiguous "
      "optional mutated · s: u8 [] strided");
  const TensorSpec& q = *contract.arguments()[0].tensor();
  EXPECT_FALSE(contract.arguments()[0].optional);
  EXPECT_TRUE(contract.arguments()[1].optional);
  EXPECT_EQ(q.alignment, 16);
  EXPECT_EQ(q.dims[1].factor, 2);
  EXPECT_FALSE(q.mutated);
  const TensorSpec& k = *contract.arguments()[1].tensor();
  EXPECT_TRUE(k.mutated);
  EXPECT_EQ(k.dtypes, std::vector<DType>{DType::boolean});
  EXPECT_EQ(contract.text_of_dims(k), "[H, 4*H*d, 3, 6]");
  EXPECT_EQ(contract.text_of_dims(*contract.arguments()[2].tensor()), "[]");
  EXPECT_TRUE(contract.mutates());
  EXPECT_TRUE(contract.outputs().empty());
}

TEST(ContractParse, ReadsScalars) {
  const Contract contract = Contract::parse(
      "a: int; b: int [0, 8]; c: int (-3, inf) optional; d: float; e: float [0, inf); "
      "f: float (-1e-3, .5]; g: bool; h: \"\"; i: int [-9223372036854775808, 9223372036854775807]");
  const auto scalar = [&](std::size_t i) {
    return std::get<ScalarSpec>(contract.arguments()[i].spec);
  };
  EXPECT_EQ(std::get<IntSpec>(scalar(0)).low, INT64_MIN);
  EXPECT_EQ(std::get<IntSpec>(scalar(0)).high, INT64_MAX);
  EXPECT_EQ(std::get<IntSpec>(scalar(1)).low, 0);
  EXPECT_EQ(std::get<IntSpec>(scalar(1)).high, 8);
  EXPECT_EQ(std::get<IntSpec>(scalar(2)).low, -2);
  EXPECT_EQ(std::get<IntSpec>(scalar(2)).high, INT64_MAX);
  EXPECT_TRUE(contract.arguments()[2].optional);
  EXPECT_FALSE(std::get<FloatSpec>(scalar(3)).range.has_value());
  const auto positive = *std::get<FloatSpec>(scalar(4)).range;
  EXPECT_TRUE(positive.contains(0) && positive.contains(1e308));
  EXPECT_FALSE(positive.contains(-1e-300) || positive.contains(HUGE_VAL));
  const auto mixed = *std::get<FloatSpec>(scalar(5)).range;
  EXPECT_TRUE(mixed.contains(.5) && mixed.contains(-0.9e-3));
  EXPECT_FALSE(mixed.contains(-1e-3) || mixed.contains(.6));
  EXPECT_TRUE(std::holds_alternative<BoolSpec>(scalar(6)));
  EXPECT_EQ(std::get<EnumerationSpec>(scalar(7)).values, std::vector<std::string>{""});
  EXPECT_EQ(std::get<IntSpec>(scalar(8)).low, INT64_MIN);
}

TEST(ContractParse, DefaultIsEmptyAndValuesCopy) {
  EXPECT_TRUE(Contract().arguments().empty());
  Contract copy = Contract::parse("x: f32 [n] strided");
  const Contract original = copy;
  copy = Contract();
  EXPECT_EQ(original.arguments().size(), 1u);
  EXPECT_EQ(original.text(), "x: f32 [n] strided");
}

TEST(ContractParseErrors, Names) {
  expect_failure("@", "expected an argument's name, found the end");
  expect_failure("@; x", "expected an argument's name, found ';'");
  expect_failure("x @f32", "expected ':', found 'f32'");
  expect_failure("x: bool; @x: bool", "the name x is taken");
  expect_failure("x: bool; @", "expected an argument's name, found the end");
  expect_failure("x: f32 [n] strided -> @x: f32 [n] contiguous", "the name x is taken");
  expect_failure("x: f32 [n] strided -> @", "expected an output's name, found the end");
}

TEST(ContractParseErrors, Dtypes) {
  expect_failure("x: @", "expected " + kSpecs + ", found the end");
  expect_failure("x: @[n]", "expected " + kSpecs + ", found '['");
  expect_failure("x: @float32 [n]", "expected " + kSpecs + ", found 'float32'");
  expect_failure("x: @other [n]", "expected " + kSpecs + ", found 'other'");
  expect_failure("x: f32| @[n]", "expected " + kDtypes + " or c128, found '['");
  expect_failure("x: f32|i8|@f32 [n]", "f32 is listed twice");
  expect_failure("x: f32 @n", "expected '|' and another dtype, or '[', found 'n'");
  expect_failure("x: like @[n]", "expected the name of an earlier tensor, found '['");
  const std::string unknown = " is no earlier tensor argument that is always given";
  expect_failure("x: like @x [n] strided", "x" + unknown);
  expect_failure("m: int; x: like @m [n] strided", "m" + unknown);
  expect_failure("m: f32 [n] strided optional; x: like @m [n] strided", "m" + unknown);
}

TEST(ContractParseErrors, Dimensions) {
  expect_failure("x: f32 [@", "expected a name or a number, found the end");
  expect_failure("x: f32 [n @m]", "expected '*', ',' or ']', found 'm'");
  expect_failure("x: f32 [n,@]", "expected a name or a number, found ']'");
  expect_failure("x: f32 [@-1]", "expected a name or a number, found '-'");
  expect_failure("x: f32 [2*@]", "expected a name or a number, found ']'");
  expect_failure("x: f32 [@0]", "a number among dimensions is at least 1");
  expect_failure("x: f32 [@9223372036854775808]", "the number does not fit in 64 bits");
  expect_failure("x: f32 [4611686018427387904*@2]", "the product does not fit in 64 bits");
  expect_failure("x: f32 [n, @rows..]", "a pack stands first");
  expect_failure("x: f32 [a.., @b..]", "a pack stands first");
  expect_failure("x: f32 [@2*rows..]", "a pack is one name with two dots");
  expect_failure("x: f32 [n] strided; y: f32 [@n..]", "n is one size elsewhere, not a pack");
  expect_failure("x: f32 [n..] strided; y: f32 [@n]", "n is a pack: write n..");
  const std::string unbound = " is not bound by an earlier argument that is always given";
  expect_failure("x: f32 [n, @n*m]", "m" + unbound);
  expect_failure("x: f32 [@n*n]", "n" + unbound);
  expect_failure("x: f32 [n] strided optional; y: f32 [m, @n*m]", "n" + unbound);
  expect_failure("x: f32 [n] strided -> y: f32 [@m] contiguous", "m" + unbound);
  expect_failure("x: f32 [n] strided -> y: f32 [@m..] contiguous", "m" + unbound);
  expect_failure("x: f32 [n] strided; y: f32 [m] strided optional -> z: f32 [@m] contiguous",
                 "m" + unbound);
}

TEST(ContractParseErrors, LayoutsAndFlags) {
  expect_failure("x: f32 [n]@", "expected " + kLayoutWords + ", found the end");
  expect_failure("x: f32 [n] @optional", "expected " + kLayoutWords + ", found 'optional'");
  expect_failure("x: f32 [n] @rows_strided", "expected " + kLayoutWords + ", found 'rows_strided'");
  expect_failure("x: f32 [n] strided @dense", "expected " + kAfterTensor + ", found 'dense'");
  expect_failure("x: f32 [n] strided mutated @mutated", "mutated is said twice");
  expect_failure("x: f32 [n] strided optional mutated @optional", "optional is said twice");
  expect_failure("x: f32 [n] strided aligned(4) @aligned(4)", "aligned is said twice");
  expect_failure("x: f32 [n] strided aligned@", "expected '(', found the end");
  expect_failure("x: f32 [n] strided aligned(@x)", "expected a number of bytes, found 'x'");
  expect_failure("x: f32 [n] strided aligned(@0)", "an alignment is a power of two");
  expect_failure("x: f32 [n] strided aligned(@24)", "an alignment is a power of two");
  expect_failure("x: f32 [n] strided aligned(16@", "expected ')', found the end");
}

TEST(ContractParseErrors, Scalars) {
  expect_failure("a: @tanh", "expected " + kSpecs + ", found 'tanh'");
  expect_failure("a: @\"tanh", "this string has no closing quote");
  expect_failure("a: \"tanh\"|@none", "expected a string in double quotes, found 'none'");
  expect_failure("a: \"tanh\"|@\"tanh\"", "\"tanh\" is listed twice");
  expect_failure("a: int [@", "expected a number, inf or -inf, found the end");
  expect_failure("a: int [0@]", "expected ',', found ']'");
  expect_failure("a: int [0, 8@;", "expected ']' or ')', found ';'");
  expect_failure("a: int @[8, 0]", "the range is empty");
  expect_failure("a: int @(0, 1)", "the range is empty");
  expect_failure("a: int @(9223372036854775807, inf)", "the range is empty");
  expect_failure("a: int @(inf, inf)", "the range is empty");
  expect_failure("a: int @[0, inf]", "no integer is infinite: put a round bracket beside inf");
  expect_failure("a: int [@- 1, 2]", "a sign stands right before its number");
  expect_failure("a: int [0@.5, 2]", "expected ',', found '.'");
  expect_failure("a: float [@nan, 2]", "expected a number, inf or -inf, found 'nan'");
  expect_failure("a: float [@1e999, 2]", "the number does not fit in a double");
  expect_failure("a: float @[1, 0]", "the range is empty");
  expect_failure("a: float @(1, 1]", "the range is empty");
  expect_failure("a: float [@-, 1]", "expected a number, inf or -inf, found '-'");
  expect_failure("a: bool @mutated", "expected optional, ';', '->' or the end, found 'mutated'");
}

TEST(ContractParseErrors, Outputs) {
  expect_failure("a: int -> @out: f32 [4] contiguous",
                 "an output needs a tensor argument that is always given, for its device");
  expect_failure("a: f32 [n] strided optional -> @out: f32 [4] contiguous",
                 "an output needs a tensor argument that is always given, for its device");
  expect_failure("x: f32 [n] strided -> out: @f32|f16 [n] contiguous", "an output has one dtype");
  expect_failure("x: f32 [n] strided -> out: @int",
                 "expected " + kDtypes + ", c128 or like NAME, found 'int'");
  expect_failure("x: f32 [n] strided -> out: f32 [n] @strided", "an output is contiguous or dense");
  expect_failure("x: f32 [n] @dense",
                 "an argument is contiguous, rows-strided, batch-strided or strided");
  const std::string model = "a dense output is like an argument and has that argument's dimensions";
  expect_failure("x: f32 [n, m] strided -> out: f32 [n, m] @dense", model);
  expect_failure("x: f32 [n, m] strided -> out: like x [m, n] @dense", model);
  expect_failure("x: f32 [n.., m] strided -> out: like x [m] @dense", model);
  expect_failure("x: f32 [n] strided; d: int = d optional -> out: f32 [@d] contiguous",
                 "d is not bound by an earlier argument that is always given");
  expect_failure("x: f32 [rows..] strided; d: int = @rows", "rows is a pack: write rows..");
  expect_failure("x: f32 [n] strided -> out: f32 [n] contiguous @optional",
                 "expected if, ';' or the end, found 'optional'");
  expect_failure("x: f32 [n] strided -> out: f32 [n] contiguous @-> b",
                 "expected if, ';' or the end, found '-'");
}

TEST(ContractParseErrors, TheCaretFollowsLinesTabsAndMultiByteCharacters) {
  EXPECT_EQ(failure("a: int;\n\tb: bool · c: what"), "contract: expected " + kSpecs +
                                                         ", found 'what'.\n"
                                                         "  \tb: bool · c: what\n"
                                                         "  \t             ^");
  EXPECT_EQ(failure("a: é"), "contract: expected " + kSpecs + ", found 'é'.\n  a: é\n     ^");
  EXPECT_EQ(failure("\na: \"x\ny"),
            "contract: this string has no closing quote.\n  a: \"x\n     ^");
}

TEST(ContractParseErrors, ControlCharactersAreShownAsQuestionMarks) {
  EXPECT_EQ(failure(std::string_view("a:\r\0\x1b[", 6)),
            "contract: expected " + kSpecs + ", found '?'.\n  a:???[\n     ^");
}

}  // namespace
}  // namespace truefuse
