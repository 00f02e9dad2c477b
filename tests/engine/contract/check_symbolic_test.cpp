#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/contract/check.h>

#include "calls.h"

namespace truefuse {
namespace {

/// A symbolic integer as a tracer has them: an expression with the value of the example input.
/// Asking how two different expressions compare would specialise the traced program, so it is
/// recorded; constants, and an expression with itself, tell nothing new.
class Symbolic {
 public:
  Symbolic() : Symbolic(0) {}
  Symbolic(std::int64_t value) : value_(value), text_(std::to_string(value)), is_constant_(true) {}
  Symbolic(std::string name, std::int64_t value) : value_(value), text_(std::move(name)) {}

  friend bool operator==(const Symbolic& a, const Symbolic& b) {
    record(a, "==", b);
    return a.value_ == b.value_;
  }
  friend bool operator<(const Symbolic& a, const Symbolic& b) {
    record(a, "<", b);
    return a.value_ < b.value_;
  }
  friend Symbolic operator*(const Symbolic& a, const Symbolic& b) {
    if (a.is_constant_ && b.is_constant_) return Symbolic(a.value_ * b.value_);
    if (a.text_ == "1") return b;
    if (b.text_ == "1") return a;
    return {a.text_ + "*" + b.text_, a.value_ * b.value_};
  }
  friend Symbolic operator/(const Symbolic& a, const Symbolic& b) {
    return {a.text_ + "/" + b.text_, a.value_ / b.value_};
  }
  friend std::ostream& operator<<(std::ostream& stream, const Symbolic& s) {
    return stream << s.text_;
  }

  const std::string& text() const { return text_; }

  static std::vector<std::string> asked;

 private:
  static void record(const Symbolic& a, const char* relation, const Symbolic& b) {
    if ((a.is_constant_ && b.is_constant_) || a.text_ == b.text_) return;
    asked.push_back(a.text_ + " " + relation + " " + b.text_);
  }

  std::int64_t value_;
  std::string text_;
  bool is_constant_ = false;
};

std::vector<std::string> Symbolic::asked;

struct Tensor {
  std::vector<Symbolic> sizes, strides;
  DType dtype = DType::f32;
  Device device{DeviceType::meta};
  void* data = nullptr;

  operator BasicArgument<Symbolic>() const {
    return BasicTensorView<Symbolic>{dtype, device, sizes, strides, data};
  }
};

using Arguments = std::vector<BasicArgument<Symbolic>>;
using Questions = std::vector<std::string>;

const Symbolic rows("rows", 5), batch("batch", 3), hidden("hidden", 8), width("width", 8);
const Symbolic one(1);

std::string refusal(const Contract& contract, const Arguments& arguments) {
  Symbolic::asked.clear();
  try {
    check<Symbolic>(contract, "op", arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(std::string_view contract, const Arguments& arguments) {
  return refusal(Contract::parse(contract), arguments);
}

TEST(CheckSymbolic, BiasGeluAsksOnlyWhetherTheBiasFits) {
  const auto call = [](const Tensor& x, const Tensor& bias) {
    return refusal(testing::kBiasGelu, {x, bias, std::string_view("tanh")});
  };
  const Tensor bias{{width}, {Symbolic("any", 7)}};
  EXPECT_EQ(call({{rows, hidden}, {hidden, one}}, bias), "");
  EXPECT_EQ(Symbolic::asked, Questions{"width == hidden"});
  EXPECT_EQ(call({{batch, rows, hidden}, {Symbolic("s", 900), Symbolic("t", 90), one}}, bias), "");
  EXPECT_EQ(Symbolic::asked, Questions{"width == hidden"});
  EXPECT_EQ(call({{rows, Symbolic(8)}, {Symbolic(8), one}}, {{Symbolic(8)}, {one}}), "");
  EXPECT_EQ(Symbolic::asked, Questions{});
}

TEST(CheckSymbolic, OutputsStaySymbolic) {
  const Contract contract = Contract::parse(
      "x: f32 [rows.., 2*d] rows-strided; h: f32 [heads] strided "
      "-> out: like x [rows.., heads*d, d] contiguous");
  const Tensor x{{batch, rows, hidden}, {rows * hidden, hidden, one}};
  const Tensor h{{width}, {one}};
  const Arguments arguments{x, h};
  Symbolic::asked.clear();
  const auto sizes = check<Symbolic>(contract, "op", arguments);
  SmallVector<Symbolic, 8> out;
  output_sizes<Symbolic>(contract, sizes, arguments, 0, out);
  std::vector<std::string> texts;
  for (const Symbolic& size : out) texts.push_back(size.text());
  EXPECT_EQ(texts, (std::vector<std::string>{"batch", "rows", "width*hidden/2", "hidden/2"}));
  EXPECT_EQ(Symbolic::asked, Questions{"hidden/2*2 == hidden"});
  EXPECT_EQ(output_device<Symbolic>(arguments).type, DeviceType::meta);
}

TEST(CheckSymbolic, ContiguousComparesStridesNotSizes) {
  const std::string_view contract = "x: f32 [rows.., hidden] contiguous";
  EXPECT_EQ(refusal(contract, {Tensor{{batch, rows, hidden}, {hidden * rows, hidden, one}}}), "");
  EXPECT_EQ(Symbolic::asked, Questions{});
  EXPECT_EQ(refusal(contract, {Tensor{{batch, rows, hidden}, {Symbolic("s", 40), hidden, one}}}),
            "");
  EXPECT_EQ(Symbolic::asked, Questions{"s == hidden*rows"});
}

TEST(CheckSymbolic, PacksAreComparedElementByElement) {
  const std::string_view contract = "x: f32 [rows.., n] strided; y: f32 [rows.., m] strided";
  const Symbolic other("other", 5);
  EXPECT_EQ(refusal(contract, {Tensor{{batch, rows, hidden}, {one, one, one}},
                               Tensor{{batch, other, width}, {one, one, one}}}),
            "");
  EXPECT_EQ(Symbolic::asked, Questions{"other == rows"});
}

TEST(CheckSymbolic, AnInPlaceTensorIsAskedForExpandedStridesOnly) {
  const std::string_view contract = "x: f32 [rows.., n] rows-strided mutated; y: f32 [n] strided";
  EXPECT_EQ(refusal(contract, {Tensor{{rows, hidden}, {hidden, one}}, Tensor{{hidden}, {one}}}),
            "");
  EXPECT_EQ(Symbolic::asked, Questions{"hidden == 0"});
  EXPECT_EQ(
      refusal(contract, {Tensor{{rows, hidden}, {Symbolic(0), one}}, Tensor{{hidden}, {one}}}),
      "op: dimension 0 of x (size rows) has stride 0, so several elements are one (x is [rows, "
      "hidden] with strides [0, 1]); x is written in place and must hold each element once. "
      "Allocate it in full instead of expanding it.");
}

TEST(CheckSymbolic, PointersAreNotLookedAt) {
  std::array<char, 64> memory;
  const Tensor x{{hidden}, {one}, DType::f32, {DeviceType::cpu}, memory.data() + 1};
  EXPECT_EQ(refusal("x: f32 [n] strided aligned(64) mutated; y: f32 [n] strided", {x, x}), "");
}

TEST(CheckSymbolic, SentencesShowExpressions) {
  const std::string_view contract =
      "x: f32 [rows.., n] rows-strided; y: f32 [2*n] contiguous; z: f32 [3] strided";
  const Tensor x{{rows, hidden}, {hidden, one}};
  const Symbolic odd("odd", 7), step("step", 2);
  EXPECT_EQ(refusal(contract, {x, Tensor{{odd}, {one}}, Tensor{{odd}, {one}}}),
            "op: y has odd elements; 2*n is 2*hidden (n is hidden: x is [rows, hidden]). Pass a y "
            "of shape [2*hidden].");
  EXPECT_EQ(refusal(contract, {x, Tensor{{Symbolic(2) * hidden}, {one}}, Tensor{{odd}, {one}}}),
            "op: z has odd elements; it must have 3. Pass a z of shape [3].");
  EXPECT_EQ(refusal("x: f32 [rows.., n] rows-strided", {Tensor{{rows, hidden}, {one, step}}}),
            "op: the last dimension of x (size hidden) has stride step; it must be 1 (x is [rows, "
            "hidden] with strides [1, step]): x is not contiguous in its last dimension. Pass "
            "x.contiguous(), which copies it.");
}

}  // namespace
}  // namespace truefuse
