// Descriptions with a C++ file that gives values.

#include <array>

#include "describing.h"

namespace truefuse::description {
namespace {

using testing::described;
using testing::kKernel;
using testing::kText;
using testing::replaced;
using truefuse::testing::error_of;

/// The text's grid and a constant come from a function.
const std::string kPlanned = replaced(
    replaced(
        replaced(kText, "let:\n", "plan: plan.cpp -> blocks, facts\nlet:\n  twice = 2 * blocks\n"),
        "min(rows, 3)", "twice"),
    "TF_VECTOR = vector", "TF_VECTOR = facts");

const std::string kPlan = R"(#include "truefuse/host/plan.h"

using truefuse::host::Call;
using truefuse::host::Tensor;
using truefuse::host::Values;

namespace mine {

void plan(const Call& call, Values& values) {
  const Tensor x = call.tensor("x"), y = call.tensor("y"), out = call.tensor("out");
  std::int64_t blocks = 1;
  while (blocks * blocks < call.number("rows")) ++blocks;
  values["blocks"] = blocks;
  const bool is_as_expected =
      x.size(-1) == call.number("hidden") && x.stride(-1) == 1 && x.rank() >= 1 &&
      (x.dtype() == "f32" ? x.bytes() == 4 : x.dtype() == "bf16" && x.bytes() == 2) &&
      out.elements() == x.elements() && out.data() != x.data() && x.given() &&
      (!y.given() || y.size(0) == x.size(-1)) && call.real("alpha") <= 8 &&
      (call.word("form") == "plain" || call.word("form") == "#odd") && call.number("times") <= 9 &&
      call.device().wave == 32;
  values["facts"] = is_as_expected ? 1 : 99;
}

}  // namespace mine

TRUEFUSE_PLAN(mine::plan)
)";

std::unique_ptr<Described> planned(const std::string& plan = kPlan,
                                   const std::string& text = kPlanned) {
  return described(text, kKernel, {{"plan.cpp", plan}});
}

std::string refusal(const std::string& from, const std::string& to) {
  return error_of([&] { planned(replaced(kPlan, from, to)); });
}

/// x [rows, 4] without memory.
Launch launch_of(const Operator& op, std::int64_t rows) {
  const std::array<std::int64_t, 2> sizes{rows, 4}, strides{4, 1};
  const TensorView x{DType::f32, {}, sizes, strides, reinterpret_cast<void*>(4096)};
  TensorView out = x;
  out.data = reinterpret_cast<void*>(1 << 20);
  const std::array<Argument, 5> arguments{x, std::monostate{}, 0.5, std::string_view("plain"),
                                          std::int64_t{7}};
  Plan plan;
  op.plan({arguments, std::span(&out, 1)}, {}, plan);
  EXPECT_EQ(plan.count, 1u);
  return plan.launches[0];
}

TEST(PlanValues, are_known_to_expressions) {
  const auto made = planned();
  for (const auto& [rows, blocks] : {std::pair(9, 6u), std::pair(10, 8u), std::pair(1, 2u)}) {
    const Launch launch = launch_of(made->op, rows);
    EXPECT_EQ(launch.grid.y, blocks) << rows;
    EXPECT_EQ(launch.variant.values[1], 1);
  }
  // And to the list of variants: the constant is 1 in each.
  for (const auto& variant : made->op.variants) EXPECT_EQ(variant.variant.values[1], 1);
  EXPECT_EQ(made->op.variants.size(), 4u);
}

TEST(PlanValues, errors_say_which_file_and_which_name) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"call.number(\"rows\")", "call.number(\"lines\")",
       "scale: mine/plan.cpp: there is no number lines; there are rows, hidden, times (tried with"},
      {"values[\"blocks\"] =", "values[\"splits\"] =",
       "scale: mine/plan.cpp: there is no value of the description's plan named splits; there are "
       "blocks, facts"},
      {"values[\"facts\"] =", "blocks =",
       "scale: mine/plan.cpp gives no facts, which the description takes from it"},
      {"call.tensor(\"y\")", "call.tensor(\"z\")", "there is no tensor z; there are x, y, out"},
      {"call.real(\"alpha\")", "call.real(\"beta\")",
       "there is no float argument beta; there are alpha"},
      {"call.word(\"form\")", "call.word(\"alpha\")", "there is no word alpha; there are form"},
      {"x.size(-1)", "x.size(2)", "scale: mine/plan.cpp: dimension 2 of x, which has 2"},
      {"!y.given() || y", "y", "scale: mine/plan.cpp: dimension 0 of y, which is not given"},
      {"values[\"blocks\"] = blocks", "values[\"blocks\"] = blocks * 65536",
       "the grid of scale is 4194304 in y; it must be from 0 to 65535"},
      {"TRUEFUSE_PLAN(mine::plan)", "", "mine/plan.cpp exports no plan"},
      {"++blocks", "++block", "mine/plan.cpp:12: error: 'block' was not declared in this scope"},
  };
  for (const auto& [from, to, sentence] : cases) {
    const std::string found = refusal(from, to);
    EXPECT_NE(found.find(sentence), std::string::npos) << to << "\n" << found;
  }
}

TEST(PlanValues, a_block_that_no_device_has_is_refused) {
  const std::string text = replaced(kPlanned, "block = 64", "block = 64 * blocks");
  EXPECT_NE(error_of([&] {
              planned(kPlan, text);
            }).find("the block of scale is 2048 in x; it must be from 1 to 1024"),
            std::string::npos)
      << error_of([&] { planned(kPlan, text); });
}

TEST(PlanValues, errors_of_the_text_have_a_place) {
  const std::vector<std::array<std::string, 3>> cases{
      {"plan.cpp -> blocks", "plan.cpp blocks",
       "mine/description.txt:14: a plan is a C++ file and the values that it gives"},
      {"plan.cpp -> blocks", "plans.cpp -> blocks",
       "mine/description.txt:14: there is no file 'plans.cpp' beside the description; there are "
       "kernel.hip, plan.cpp"},
      {"-> blocks", "-> rows", "mine/description.txt:14: the contract has a rows already"},
      {"-> blocks, facts", "-> blocks, blocks, facts",
       "mine/description.txt:14: the plan gives a blocks already"},
      {"twice = ", "facts = ", "mine/description.txt:16: the plan gives a facts already"},
      {"-> blocks, facts", "-> blocks facts", "expected ',' or the end of the entry"},
      {"2 * blocks", "2 * splits",
       "mine/description.txt:16: there is no splits; there are rows, hidden, x, y, alpha, form, "
       "times, out, blocks, facts"},
  };
  for (const auto& [from, to, sentence] : cases) {
    const std::string found = error_of([&] { planned(kPlan, replaced(kPlanned, from, to)); });
    EXPECT_NE(found.find(sentence), std::string::npos) << to << "\n" << found;
  }
}

}  // namespace
}  // namespace truefuse::description
