#include <array>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include <truefuse/contract/check.h>

#include "calls.h"

namespace truefuse {
namespace {

using testing::dense;
using testing::kBiasGelu;
using testing::refusal;
using testing::Tensor;

const Argument kTanh = std::string_view("tanh");
constexpr Device kCuda0{DeviceType::cuda, 0};

std::string bias_gelu(const Tensor& x, const Argument& bias, const Argument& approximate = kTanh) {
  static const Contract contract = Contract::parse(kBiasGelu);
  return refusal(contract, {x, bias, approximate});
}

Tensor on(Device device, Tensor tensor) {
  tensor.device = device;
  return tensor;
}

TEST(Check, AcceptsWhatTheContractAllows) {
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({8})), "");
  EXPECT_EQ(bias_gelu(dense({8}), dense({8}), std::string_view("none")), "");
  EXPECT_EQ(bias_gelu(dense({0, 8}), dense({8})), "");
  EXPECT_EQ(bias_gelu(dense({3, 0}), dense({0})), "");
  EXPECT_EQ(bias_gelu(dense({2, 1, 1, 1, 1, 1, 1, 1, 1, 8}), dense({8})), "");
  EXPECT_EQ(bias_gelu({DType::f32, {2, 8}, {100, 1}}, dense({8})), "") << "sliced rows";
  EXPECT_EQ(bias_gelu({DType::f32, {2, 8}, {0, 1}}, dense({8})), "") << "expanded rows";
  EXPECT_EQ(bias_gelu({DType::f32, {3, 2, 8}, {8, 24, 1}}, dense({8})), "") << "swapped rows";
  EXPECT_EQ(bias_gelu({DType::f32, {8, 1}, {1, 8}}, dense({1})), "") << "stride of one element";
  EXPECT_EQ(bias_gelu(dense({2, 8}), Tensor{DType::f32, {8}, {0}}), "") << "expanded bias";
  EXPECT_EQ(bias_gelu(on({DeviceType::meta}, dense({2, 8})), on({DeviceType::meta}, dense({8}))),
            "");
}

TEST(Check, RefusesMoreDimensionsThanAnyLoopHas) {
  const auto ones = [](std::size_t rank) { return dense(std::vector<std::int64_t>(rank, 1)); };
  EXPECT_EQ(bias_gelu(ones(64), dense({1})), "");
  EXPECT_EQ(bias_gelu(ones(65), dense({1})),
            "op: x has 65 dimensions; it must have at most 64. Join some of them, for instance "
            "x.flatten(0, 1).");
}

TEST(Check, BindsSizesAndGivesOutputs) {
  const Contract contract = Contract::parse(kBiasGelu);
  const Tensor x = on(kCuda0, dense({2, 3, 8}, DType::bf16));
  const Tensor bias = on(kCuda0, dense({8}, DType::bf16));
  const std::vector<Argument> arguments{x, bias, kTanh};
  const Sizes<std::int64_t> sizes = check<std::int64_t>(contract, "op", arguments);
  EXPECT_TRUE(sizes.bound(0));
  EXPECT_EQ(sizes[1], 8);
  SmallVector<std::int64_t, 8> out;
  out.push_back(77);
  output_sizes<std::int64_t>(contract, sizes, arguments, 0, out);
  EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()),
            (std::vector<std::int64_t>{2, 3, 8}));
  EXPECT_EQ(output_dtype<std::int64_t>(contract, arguments, 0), DType::bf16);
  EXPECT_EQ(output_device<std::int64_t>(arguments), kCuda0);
}

TEST(Check, OutputsMayBeProductsAndHaveTheirOwnDtype) {
  const Contract contract = Contract::parse(
      "s: int; g: f16 [4] strided optional; x: f32 [r.., 2*d] strided "
      "-> a: i32 [r.., d] contiguous; b: like x [d*d, 3*d, 5] contiguous");
  const Tensor x = on(kCuda0, dense({7, 6}));
  const std::vector<Argument> arguments{std::int64_t{1}, {}, x};
  const auto sizes = check<std::int64_t>(contract, "op", arguments);
  SmallVector<std::int64_t, 8> out;
  output_sizes<std::int64_t>(contract, sizes, arguments, 0, out);
  EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()), (std::vector<std::int64_t>{7, 3}));
  output_sizes<std::int64_t>(contract, sizes, arguments, 1, out);
  EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()),
            (std::vector<std::int64_t>{9, 9, 5}));
  EXPECT_EQ(output_dtype<std::int64_t>(contract, arguments, 0), DType::i32);
  EXPECT_EQ(output_dtype<std::int64_t>(contract, arguments, 1), DType::f32);
  EXPECT_EQ(output_device<std::int64_t>(arguments), kCuda0);
}

TEST(CheckSentences, Sizes) {
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({7})),
            "op: bias has 7 elements; hidden is 8 (x is [2, 8]). Pass a bias of shape [8].");
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({1})),
            "op: bias has 1 element; hidden is 8 (x is [2, 8]). Pass a bias of shape [8].");
  EXPECT_EQ(refusal("w: f32 [4] strided", {dense({5})}),
            "op: w has 5 elements; it must have 4. Pass a w of shape [4].");
  EXPECT_EQ(refusal("w: f32 [n, 4, k] strided", {dense({3, 5, 6})}),
            "op: dimension 1 of w is 5; it must be 4. Pass a w of shape [3, 4, 6].");
  EXPECT_EQ(refusal("a: f32 [n, n] strided", {dense({2, 3})}),
            "op: the last dimension of a is 3; n is 2 (a is [2, 3]). Pass an a of shape [2, 2].");
}

TEST(CheckSentences, Products) {
  const std::string_view contract =
      "x: f32 [H, d] strided; w: f32 [G] strided; y: f32 [r.., H*G, "
      "2*d] strided";
  EXPECT_EQ(refusal(contract, {dense({3, 5}), dense({4}), dense({12, 10})}), "");
  EXPECT_EQ(refusal(contract, {dense({3, 5}), dense({4}), dense({7, 13, 10})}),
            "op: dimension 1 of y is 13; H*G is 12 (H is 3: x is [3, 5]; G is 4: w is [4]). "
            "Pass a y of shape [7, 12, 10].");
  EXPECT_EQ(refusal(contract, {dense({3, 5}), dense({4}), dense({12, 5})}),
            "op: the last dimension of y is 5; 2*d is 10 (d is 5: x is [3, 5]). "
            "Pass a y of shape [12, 10].");
  EXPECT_EQ(refusal("x: f32 [rows.., 2*d] strided", {dense({3, 7})}),
            "op: the last dimension of x is 7; it must be a multiple of 2 (2*d).");
  EXPECT_EQ(refusal("x: f32 [2*d] strided", {dense({7})}),
            "op: x has 7 elements; it must have a multiple of 2 (2*d).");
}

TEST(CheckSentences, ProductsNeverWrap) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const Tensor huge{DType::f32, {kHuge}, {0}};
  EXPECT_EQ(refusal("x: f32 [n] strided; y: f32 [4*n] strided", {huge, dense({0})}),
            "op: the last dimension of y must be 4*n, which does not fit in 64 bits (n is "
            "4611686018427387904: x is [4611686018427387904]). Pass smaller tensors.");
  EXPECT_EQ(refusal("x: f32 [n] strided -> out: f32 [n*n] contiguous", {huge}),
            "op: a size of out would be n*n, which does not fit in 64 bits (n is "
            "4611686018427387904: x is [4611686018427387904]). Pass smaller tensors.");
  EXPECT_EQ(refusal("x: f32 [a, b, c] contiguous", {Tensor{DType::f32, {0, kHuge, 4}, {1, 4, 1}}}),
            "")
      << "an empty tensor may have any sizes";
}

TEST(CheckSentences, Ranks) {
  EXPECT_EQ(bias_gelu(dense({}), dense({8})),
            "op: x has 0 dimensions; it must have at least 1: [rows.., hidden].");
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({1, 8})),
            "op: bias has 2 dimensions (it is [1, 8]); it must have 1: [hidden]. "
            "Pass a bias of shape [8].");
  EXPECT_EQ(refusal("x: f32 [a, b] strided", {dense({4})}),
            "op: x has 1 dimension (it is [4]); it must have 2: [a, b].");
}

TEST(CheckSentences, Packs) {
  const std::string_view contract = "x: f32 [rows.., n] strided; y: f32 [rows.., m] strided";
  EXPECT_EQ(refusal(contract, {dense({2, 3, 8}), dense({2, 3, 5})}), "");
  EXPECT_EQ(refusal(contract, {dense({8}), dense({5})}), "");
  EXPECT_EQ(refusal(contract, {dense({2, 3, 8}), dense({2, 4, 5})}),
            "op: y is [2, 4, 5]; its leading dimensions (rows) must be [2, 3], as in x "
            "([2, 3, 8]). Pass a y of shape [2, 3, 5].");
  EXPECT_EQ(refusal(contract, {dense({2, 3, 8}), dense({6, 5})}),
            "op: y is [6, 5]; its leading dimensions (rows) must be [2, 3], as in x ([2, 3, 8]). "
            "Pass a y of shape [2, 3, 5].");
  EXPECT_EQ(refusal(contract, {dense({8}), dense({6, 5})}),
            "op: y is [6, 5]; its leading dimensions (rows) must be [], as in x ([8]). "
            "Pass a y of shape [5].");
}

TEST(CheckSentences, Devices) {
  EXPECT_EQ(bias_gelu(on(kCuda0, dense({2, 8})), dense({8})),
            "op: bias is on cpu; x is on cuda:0. Move one of them: bias.to(\"cuda:0\").");
  EXPECT_EQ(bias_gelu(on(kCuda0, dense({2, 8})), on({DeviceType::cuda, 1}, dense({8}))),
            "op: bias is on cuda:1; x is on cuda:0. Move one of them: bias.to(\"cuda:0\").");
  EXPECT_EQ(bias_gelu(dense({2, 8}), on({DeviceType::meta}, dense({8}))),
            "op: bias is on meta; x is on cpu. A meta tensor has no data to move: make bias on "
            "cpu.");
  EXPECT_EQ(bias_gelu(on({DeviceType::other}, dense({2, 8})), dense({8})),
            "op: x is on an unsupported device; it must be on cpu, on cuda (also for ROCm and DCU) "
            "or on meta. Move it, for instance x.to(\"cpu\").");
  EXPECT_EQ(refusal("x: f32 [n] strided; y: f32 [n] strided mutated",
                    {on(kCuda0, dense({8})), dense({8})}),
            "op: y is on cpu; x is on cuda:0. It is written in place, so allocate it that way: a "
            "copy would get the result instead.");
}

TEST(CheckSentences, Dtypes) {
  EXPECT_EQ(bias_gelu(dense({2, 8}, DType::i64), dense({8})),
            "op: x is int64; it must be float32, float64, float16 or bfloat16. Convert it, for "
            "instance x.to(torch.float32).");
  EXPECT_EQ(bias_gelu(dense({2, 8}, DType::bf16), dense({8})),
            "op: bias is float32; it must have the dtype of x, bfloat16. Convert it: "
            "bias.to(torch.bfloat16).");
  EXPECT_EQ(refusal("i: i32 [n] strided", {dense({2}, DType::other)}),
            "op: i has an unsupported dtype; it must be int32. Convert it: i.to(torch.int32).");
  EXPECT_EQ(refusal("s: f32|bf16 [n] strided mutated", {dense({2}, DType::f16)}),
            "op: s is float16; it must be float32 or bfloat16. It is written in place, so allocate "
            "it that way: a copy would get the result instead.");
}

TEST(CheckSentences, Layouts) {
  EXPECT_EQ(bias_gelu({DType::f32, {2, 8}, {1, 2}}, dense({8})),
            "op: the last dimension of x (size 8) has stride 2; it must be 1 (x is [2, 8] with "
            "strides [1, 2]): x is not contiguous in its last dimension. Pass x.contiguous(), "
            "which copies it.");
  EXPECT_EQ(refusal("x: f32 [a, b] contiguous", {Tensor{DType::f32, {2, 8}, {16, 1}}}),
            "op: dimension 0 of x (size 2) has stride 16; it must be 8 (x is [2, 8] with strides "
            "[16, 1]): x is not contiguous. Pass x.contiguous(), which copies it.");
  EXPECT_EQ(
      refusal("x: f32 [a, b] contiguous mutated", {Tensor{DType::f32, {2, 8}, {16, 1}}}),
      "op: dimension 0 of x (size 2) has stride 16; it must be 8 (x is [2, 8] with strides "
      "[16, 1]): x is not contiguous. It is written in place, so allocate it that way: a copy "
      "would get the result instead.");
}

TEST(CheckSentences, Alignment) {
  const auto at = [](std::uintptr_t address) {
    Tensor tensor = dense({8});
    tensor.data = reinterpret_cast<void*>(address);
    return tensor;
  };
  const std::string_view contract = "x: f32 [n] strided aligned(16)";
  EXPECT_EQ(refusal(contract, {at(0x1000)}), "");
  EXPECT_EQ(refusal(contract, {at(0x1010)}), "");
  EXPECT_EQ(refusal(contract, {at(0x1004)}),
            "op: the data of x begins 4 bytes past a multiple of 16 bytes; it must be aligned to "
            "16 bytes. Pass x.clone(), which has memory of its own.");
  EXPECT_EQ(refusal("x: f32 [n] strided", {at(0x1001)}), "");
  EXPECT_EQ(refusal(contract, {dense({8})}), "") << "no data, as on meta";
}

TEST(CheckSentences, MissingAndOfAnotherKind) {
  EXPECT_EQ(bias_gelu(dense({2, 8}), {}),
            "op: bias is missing (None); it must be a tensor [hidden]. Pass a bias of shape [8].");
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({8}), {}),
            "op: approximate is missing (None); it must be \"tanh\" or \"none\".");
  EXPECT_EQ(refusal("x: f32 [r.., n] strided", {std::int64_t{3}}),
            "op: x is 3; it must be a tensor [r.., n].");
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({8}), dense({8})),
            "op: approximate is a tensor; it must be \"tanh\" or \"none\".");
  EXPECT_EQ(refusal(kBiasGelu, {dense({2, 8})}),
            "op: 1 argument given; it takes 3: " + std::string(kBiasGelu) + ".");
}

TEST(CheckSentences, Scalars) {
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({8}), std::string_view("fast")),
            "op: approximate is \"fast\"; it must be \"tanh\" or \"none\".");
  EXPECT_EQ(bias_gelu(dense({2, 8}), dense({8}), std::string_view("")),
            "op: approximate is \"\"; it must be \"tanh\" or \"none\".");
  const std::string_view k = "k: int [0, 8]";
  EXPECT_EQ(refusal(k, {std::int64_t{0}}) + refusal(k, {std::int64_t{8}}), "");
  EXPECT_EQ(refusal(k, {std::int64_t{9}}), "op: k is 9; it must be an integer in [0, 8].");
  EXPECT_EQ(refusal(k, {std::int64_t{-1}}), "op: k is -1; it must be an integer in [0, 8].");
  EXPECT_EQ(refusal(k, {1.0}), "op: k is 1; it must be an integer in [0, 8].");
  EXPECT_EQ(refusal(k, {true}), "op: k is True; it must be an integer in [0, 8].");
  EXPECT_EQ(refusal("k: int (-inf, 3)", {std::int64_t{3}}),
            "op: k is 3; it must be an integer in (-inf, 2].");
  EXPECT_EQ(refusal("k: int", {std::numeric_limits<std::int64_t>::min()}), "");
  EXPECT_EQ(refusal("k: int", {0.5}), "op: k is 0.5; it must be an integer.");
  const std::string_view eps = "eps: float [0, inf)";
  EXPECT_EQ(refusal(eps, {0.0}) + refusal(eps, {1e300}) + refusal(eps, {std::int64_t{2}}), "");
  EXPECT_EQ(refusal(eps, {-0.5}), "op: eps is -0.5; it must be a number in [0, inf).");
  EXPECT_EQ(refusal(eps, {HUGE_VAL}), "op: eps is inf; it must be a number in [0, inf).");
  EXPECT_EQ(refusal(eps, {std::nan("")}), "op: eps is nan; it must be a number in [0, inf).");
  EXPECT_EQ(refusal(eps, {false}), "op: eps is False; it must be a number in [0, inf).");
  EXPECT_EQ(refusal("p: float (0, 1]", {0.0}), "op: p is 0; it must be a number in (0, 1].");
  EXPECT_EQ(refusal("p: float [-inf, inf]", {-std::nan("")}),
            "op: p is nan; it must be a number in [-inf, inf].");
  EXPECT_EQ(refusal("p: float", {std::nan("")}), "");
  EXPECT_EQ(refusal("b: bool", {true}), "");
  EXPECT_EQ(refusal("b: bool", {std::int64_t{1}}), "op: b is 1; it must be True or False.");
}

TEST(CheckSentences, OptionalArguments) {
  const std::string_view contract =
      "a: f32 [n] strided optional; b: f32 [n] strided; k: int [0, 8] optional";
  EXPECT_EQ(refusal(contract, {{}, dense({3}), {}}), "");
  EXPECT_EQ(refusal(contract, {dense({3}), dense({3}), std::int64_t{8}}), "");
  EXPECT_EQ(refusal(contract, {dense({3}), dense({4}), {}}),
            "op: b has 4 elements; n is 3 (a is [3]). Pass a b of shape [3].");
  EXPECT_EQ(refusal(contract, {{}, dense({4}), std::int64_t{9}}),
            "op: k is 9; it must be an integer in [0, 8].");
}

TEST(CheckSentences, WrittenInPlace) {
  const std::string_view contract = "s: f32 [n, k] strided mutated";
  EXPECT_EQ(refusal(contract, {Tensor{DType::f32, {4, 1}, {1, 0}}}), "") << "one element each";
  EXPECT_EQ(refusal(contract, {Tensor{DType::f32, {4, 8}, {0, 1}}}),
            "op: dimension 0 of s (size 4) has stride 0, so several elements are one (s is [4, 8] "
            "with strides [0, 1]); s is written in place and must hold each element once. Allocate "
            "it in full instead of expanding it.");
  std::array<float, 64> memory{};
  EXPECT_EQ(
      refusal(contract, {Tensor{DType::f32, {4, 8}, {1, 1}, {}, memory.data()}}),
      "op: elements of s overlap in memory (s is [4, 8] with strides [1, 1]); s is written in "
      "place and must hold each element once. Allocate it in full.");
}

TEST(CheckSentences, SharedMemory) {
  std::array<float, 64> memory{};
  const auto at = [&](std::size_t offset, std::vector<std::int64_t> sizes,
                      std::vector<std::int64_t> strides) {
    return Tensor{DType::f32, std::move(sizes), std::move(strides), {}, memory.data() + offset};
  };
  const std::string_view contract = "x: f32 [a.., n] strided; s: f32 [b.., m] strided mutated";
  EXPECT_EQ(refusal(contract, {at(0, {8}, {1}), at(8, {8}, {1})}), "");
  EXPECT_EQ(refusal(contract, {at(0, {8}, {1}), at(0, {8}, {1})}),
            "op: s is written in place, and x is the same memory; they must be apart. "
            "Pass x.clone() as x.");
  EXPECT_EQ(refusal(contract, {at(0, {8}, {1}), at(7, {8}, {1})}),
            "op: s is written in place, and x overlaps it in memory; they must be apart. "
            "Pass x.clone() as x.");
  EXPECT_EQ(refusal(contract, {at(0, {4, 8}, {16, 1}), at(8, {4, 8}, {16, 1})}), "")
      << "two halves of the columns";
  EXPECT_EQ(refusal("x: f32 [n] strided mutated; s: f32 [m] strided mutated optional",
                    {at(0, {8}, {1}), at(4, {8}, {1})}),
            "op: x is written in place, and s overlaps it in memory; they must be apart. "
            "Give each memory of its own.");
  EXPECT_EQ(refusal("x: f32 [n] strided; s: f32 [m] strided", {at(0, {8}, {1}), at(0, {8}, {1})}),
            "")
      << "reading the same memory twice is fine";
}

TEST(CheckSentences, ViewsThatAreNoTensors) {
  EXPECT_EQ(refusal("x: f32 [n] strided", {Tensor{DType::f32, {4}, {-1}}}),
            "op: sizes [4] and strides [-1] of x are partly negative, so they describe no tensor.");
  EXPECT_EQ(refusal("x: f32 [n] strided", {Tensor{DType::f32, {-4}, {1}}}),
            "op: sizes [-4] and strides [1] of x are partly negative, so they describe no tensor.");
  EXPECT_EQ(refusal("x: f32 [n] strided", {Tensor{DType::f32, {4}, {}}}),
            "op: sizes [4] and strides [] of x differ in number, so they describe no tensor.");
}

TEST(Check, AnOutputThatIsNotWantedHasNoElements) {
  const Contract contract = Contract::parse(
      "x: f32 [rows.., d] contiguous; wanted: bool -> y: f32 [rows.., d] contiguous if wanted");
  for (const bool wanted : {true, false}) {
    const std::vector<std::int64_t> size{2, 3};
    const Tensor x = dense(size);
    const std::vector<Argument> arguments{x, wanted};
    const auto bound = check<std::int64_t>(contract, "op", arguments);
    SmallVector<std::int64_t, 8> out;
    output_sizes<std::int64_t>(contract, bound, arguments, 0, out);
    EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()),
              wanted ? size : std::vector<std::int64_t>{0});
  }
}

TEST(CheckSentences, IntegersThatAreSizes) {
  const std::string contract =
      "x: f32 [n, heads] strided; heads: int [1, 8] = heads; size: int = size; w: f32 [size] "
      "strided; "
      "b: f32 [heads*n] strided optional";
  const Tensor x = dense({2, 4});
  EXPECT_EQ(refusal(contract, {x, std::int64_t{4}, std::int64_t{3}, dense({3}), dense({8})}), "");
  EXPECT_EQ(refusal(contract, {x, std::int64_t{3}, std::int64_t{3}, dense({3}), {}}),
            "op: heads is 3; heads is 4 (x is [2, 4]). Pass what is true.");
  EXPECT_EQ(refusal(contract, {x, std::int64_t{4}, std::int64_t{3}, dense({5}), {}}),
            "op: w has 5 elements; size is 3 (size is 3). Pass a w of shape [3].");
  EXPECT_EQ(refusal(contract, {x, std::int64_t{9}, std::int64_t{3}, dense({3}), {}}),
            "op: heads is 9; it must be an integer in [1, 8].");
}

TEST(CheckSentences, AnyText) {
  EXPECT_EQ(refusal("x: text; y: text optional", {std::string_view("anything"), {}}), "");
  EXPECT_EQ(refusal("x: text; y: text optional", {std::int64_t{3}, std::string_view()}),
            "op: x is 3; it must be a string.");
}

TEST(Check, IntegersGiveOutputsTheirSizes) {
  const Contract contract =
      Contract::parse("x: f32 [n] strided; d: int = d -> y: f32 [n, d] contiguous");
  const Tensor x = dense({5});
  const std::vector<Argument> arguments{x, std::int64_t{7}};
  const auto bound = check<std::int64_t>(contract, "op", arguments);
  SmallVector<std::int64_t, 8> out;
  output_sizes<std::int64_t>(contract, bound, arguments, 0, out);
  EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()), (std::vector<std::int64_t>{5, 7}));
}

TEST(Check, TakesMoreSymbolsAndDimensionsThanFitInline) {
  std::string dims;
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 20; ++i) {
    dims += (i == 0 ? "d" : ", d") + std::to_string(i);
    sizes.push_back(i == 19 ? 2 : 1);
  }
  const Contract contract =
      Contract::parse("x: f32 [" + dims + "] contiguous -> y: f32 [" + dims + "] contiguous");
  const Tensor x = dense(sizes);
  const std::vector<Argument> arguments{x};
  const auto bound = check<std::int64_t>(contract, "op", arguments);
  SmallVector<std::int64_t, 8> out;
  output_sizes<std::int64_t>(contract, bound, arguments, 0, out);
  EXPECT_EQ(std::vector<std::int64_t>(out.begin(), out.end()), sizes);
}

}  // namespace
}  // namespace truefuse
