#include <gtest/gtest.h>
#include <string>

#include <truefuse/operator/operator.h>

#include "../error_of.h"

namespace truefuse {
namespace {

using testing::error_of;

const Operator& example() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "testing";
    description.name = "example";
    description.source = {"testing/kernel.hip",
                          {{"testing/kernel.hip", "#include \"truefuse/device.h\"\n"}}};
    description.constants = {"TF_A", "TF_B"};
    return description;
  }();
  return op;
}

TEST(OperatorTable, FindsByEitherNameAndRefusesATakenOne) {
  register_operator(example());
  EXPECT_EQ(find_operator("example"), &example());
  EXPECT_EQ(find_operator("testing::example"), &example());
  EXPECT_EQ(find_operator("absent"), nullptr);
  static Operator twin;  // The table keeps what it is given.
  twin.name_space = "testing";
  twin.name = "example";
  EXPECT_NE(error_of([&] { register_operator(twin); }).find("testing::example"), std::string::npos);
  twin.name_space = "other";
  register_operator(twin);
  EXPECT_EQ(registered_operators().back(), &twin);
}

TEST(ProgramOf, PutsTheVariantsConstantsInFrontAndTheDeviceHeadersBeside) {
  Variant variant;
  variant.add(7);
  variant.add(-1);
  const jit::Program program = program_of(example(), variant);
  EXPECT_NE(program.text.find("#define TF_A 7\n#define TF_B -1\n"), std::string::npos);
  EXPECT_TRUE(program.headers.contains("truefuse/device.h"));
  EXPECT_TRUE(program.headers.contains("testing/kernel.hip"));
}

TEST(ProgramOf, AVariantMustHaveOneValuePerConstant) {
  Variant variant;
  variant.add(7);
  const std::string message = error_of([&] { program_of(example(), variant); });
  EXPECT_NE(message.find("1 constants"), std::string::npos) << message;
  EXPECT_NE(message.find("names 2"), std::string::npos) << message;
}

TEST(KernelParameters, KeepValuesAtTheirAlignment) {
  KernelParameters parameters;
  parameters.add('x');
  parameters.add(3.5);
  int target = 0;
  parameters.add(&target);
  ASSERT_EQ(parameters.size(), 3U);
  EXPECT_EQ(*reinterpret_cast<const double*>(parameters.data(1)), 3.5);
  EXPECT_EQ(parameters.slot(1).offset % alignof(double), 0U);
  EXPECT_FALSE(parameters.slot(1).is_pointer);
  EXPECT_TRUE(parameters.slot(2).is_pointer);
}

TEST(KernelParameters, PointIntoScratchMemoryOnceItIsKnown) {
  Plan plan;
  plan.scratch_bytes = 64;
  KernelParameters& parameters = plan.add().parameters;
  parameters.add(7);
  parameters.add_scratch(0);
  parameters.add_scratch(48);
  EXPECT_FALSE(parameters.slot(0).is_scratch);
  EXPECT_TRUE(parameters.slot(1).is_scratch && parameters.slot(1).is_pointer);
  std::array<std::byte, 64> scratch;
  plan.bind_scratch(scratch.data());
  const auto pointer = [&](std::size_t i) {
    return *reinterpret_cast<std::byte* const*>(parameters.data(i));
  };
  EXPECT_EQ(*reinterpret_cast<const int*>(parameters.data(0)), 7);
  EXPECT_EQ(pointer(1), scratch.data());
  EXPECT_EQ(pointer(2), scratch.data() + 48);
  plan.bind_scratch(nullptr);  // Bound already.
  EXPECT_EQ(pointer(2), scratch.data() + 48);
}

TEST(KernelParameters, DoNotPointPastTheScratchMemory) {
  Plan plan;
  plan.scratch_bytes = 64;
  plan.add().parameters.add_scratch(64);
  std::array<std::byte, 64> scratch;
  const std::string message = error_of([&] { plan.bind_scratch(scratch.data()); });
  EXPECT_NE(message.find("64 bytes into scratch memory of 64"), std::string::npos) << message;
}

TEST(KernelParameters, HaveALimit) {
  KernelParameters parameters;
  for (std::size_t i = 0; i < KernelParameters::kMaxParameters; ++i) parameters.add(1);
  EXPECT_NE(error_of([&] { parameters.add(1); }), "no error");
}

TEST(VariantTest, HasALimit) {
  Variant variant;
  for (std::size_t i = 0; i < Variant::kMaxConstants; ++i) variant.add(1);
  EXPECT_NE(error_of([&] { variant.add(1); }), "no error");
}

}  // namespace
}  // namespace truefuse
