// Descriptions in which Python functions stand in a kernel's place.

#include "describing.h"

namespace truefuse::description {
namespace {

using testing::described;
using testing::kKernel;
using testing::kText;
using testing::refusal;
using testing::replaced;

const std::string kFunctions = R"text(operator: mine::add
summary:  x + y
schema:   add(Tensor x, Tensor(a!)? y, *, str form="a, b)", float eps=1e-5) -> Tensor
contract:
  x: f32 [n] contiguous; y: like x [n] contiguous optional mutated;
  form: text; eps: float
  -> out: like x [n] contiguous
gpu:       launch
reference: reference
)text";

TEST(Functions, stand_in_a_kernels_place) {
  const auto made = described(kFunctions);
  EXPECT_FALSE(made->has_kernel);
  EXPECT_EQ(made->gpu, "launch");
  EXPECT_EQ(made->cpu, "");
  EXPECT_TRUE(made->op.variants.empty());
  Plan plan;
  const std::string said = truefuse::testing::error_of([&] { made->op.plan({}, {}, plan); });
  EXPECT_EQ(said.find("add has no kernel"), 0u) << said;
  EXPECT_TRUE(described()->has_kernel);
}

TEST(Functions, and_a_kernel_exclude_each_other) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {replaced(kFunctions, "gpu:       launch\n", ""),
       "mine/description.txt: the entry 'kernel:' is missing"},
      {replaced(kFunctions, "gpu:       launch", "cpu: simulator"),
       "mine/description.txt: the entry 'kernel:' is missing"},
      {replaced(kFunctions, "gpu: ", "let: n4 = 4 * n\ngpu: "),
       "mine/description.txt:8: let is about a kernel"},
      {replaced(kText, "reference:", "gpu: launch\nreference:"),
       "mine/description.txt:24: the kernel runs on a GPU"},
      {replaced(kText, "launch: scale", "examples:\n launch = "),
       "mine/description.txt:13: the entry 'launch:' is missing"},
  };
  for (const auto& [text, sentence] : cases) {
    EXPECT_EQ(refusal(text).find(sentence), 0u) << refusal(text);
  }
}

TEST(Functions, an_argument_of_the_schema_alone_is_named_before_the_kernels) {
  const std::string fewer = refusal(replaced(kFunctions, "form: text; ", ""));
  EXPECT_EQ(fewer.find("mine/description.txt:3: the contract says nothing of form"), 0u) << fewer;
  const std::string more = refusal(replaced(kText, "int times)", "int times, int shift)"),
                                   replaced(kKernel, "int times)", "int times, int shift)"));
  EXPECT_EQ(more.find("mine/description.txt:5: the contract says nothing of shift"), 0u) << more;
}

}  // namespace
}  // namespace truefuse::description
