#include <array>
#include <map>

#include <truefuse/operators/common/tiling.h>
#include <truefuse/sim/call.h>

#include "describing.h"

namespace truefuse::description {
namespace {

using testing::described;
using testing::kKernel;
using testing::kText;
using testing::refusal;
using testing::replaced;

/// x [2, 3, hidden] of float32 at a chosen distance from a multiple of 256 bytes, y [hidden].
struct Floats {
  Floats(std::int64_t hidden, std::size_t shift = 0, bool has_y = true)
      : sizes{2, 3, hidden}, strides{3 * hidden, hidden, 1} {
    const auto count = static_cast<std::size_t>(6 * hidden);
    x.resize(count + 64);
    out.resize(count + 64);
    y.resize(static_cast<std::size_t>(hidden));
    for (std::size_t i = 0; i < count; ++i) begin(x, shift)[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = 100.0F * static_cast<float>(i);
    const std::span<const std::int64_t> one = std::span<const std::int64_t>(sizes).last(1);
    const std::span<const std::int64_t> step = std::span<const std::int64_t>(strides).last(1);
    arguments = {TensorView{DType::f32, {}, sizes, strides, begin(x, shift)},
                 has_y ? Argument(TensorView{DType::f32, {}, one, step, y.data()})
                       : Argument(std::monostate{}),
                 0.5, std::string_view("#odd"), std::int64_t{7}};
    outputs = {TensorView{DType::f32, {}, sizes, strides, begin(out, 0)}};
  }
  static float* begin(std::vector<float>& memory, std::size_t shift) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return reinterpret_cast<float*>((address + 127) / 128 * 128) + shift;
  }
  Call call() const { return {arguments, outputs}; }

  std::array<std::int64_t, 3> sizes, strides;
  std::vector<float> x, y, out;
  std::vector<Argument> arguments;
  std::vector<TensorView> outputs;
};

Plan planned(const Operator& op, const Call& call) {
  Plan plan;
  op.plan(call, {}, plan);
  return plan;
}

template <class T>
T parameter(const Launch& launch, std::size_t i) {
  T value;
  std::memcpy(&value, launch.parameters.data(i), sizeof value);
  EXPECT_EQ(launch.parameters.slot(i).size, sizeof(T));
  return value;
}

TEST(Description, makes_an_ordinary_operator) {
  const auto made = described();
  const Operator& op = made->op;
  EXPECT_EQ(op.qualified_name(), "mine::scale");
  EXPECT_EQ(op.summary, "alpha x, row by row");
  EXPECT_EQ(op.constants, (std::vector<std::string>{"TF_STORAGE", "TF_VECTOR", "TF_ODD"}));
  EXPECT_EQ(op.source.name, "mine/kernel.hip");
  EXPECT_EQ(made->reference, "reference");
  EXPECT_EQ(made->cpu, "");

  const Floats data(128);
  const Plan plan = planned(op, data.call());
  ASSERT_EQ(plan.count, 1u);
  const Launch& launch = plan.launches[0];
  EXPECT_STREQ(launch.kernel, "scale");
  EXPECT_EQ((std::array{launch.grid.x, launch.grid.y, launch.grid.z}), (std::array{2u, 3u, 1u}));
  EXPECT_EQ(launch.block.x, 64u);
  ASSERT_EQ(launch.variant.count, 3u);
  EXPECT_EQ(launch.variant.values[0], 1);
  EXPECT_EQ(launch.variant.values[1], 4);
  EXPECT_EQ(launch.variant.values[2], 1);
  ASSERT_EQ(launch.parameters.size(), 7u);
  EXPECT_EQ(parameter<void*>(launch, 0), data.outputs[0].data);
  EXPECT_EQ(parameter<float>(launch, 3), 0.5F);
  EXPECT_EQ(parameter<std::int64_t>(launch, 4), 6);
  EXPECT_EQ(parameter<std::uint32_t>(launch, 5), 128u);
  EXPECT_EQ(parameter<std::int32_t>(launch, 6), 7);
}

TEST(Description, looks_at_each_call) {
  const auto made = described();
  EXPECT_EQ(planned(made->op, Floats(126).call()).launches[0].variant.values[1], 1);
  EXPECT_EQ(planned(made->op, Floats(128, 1).call()).launches[0].variant.values[1], 1);
  EXPECT_EQ(planned(made->op, Floats(0).call()).count, 0u);
  const Plan without_y = planned(made->op, Floats(128, 0, false).call());
  EXPECT_EQ(parameter<void*>(without_y.launches[0], 2), nullptr);
}

TEST(Description, numbers_of_dtypes_are_those_that_kernels_know) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    EXPECT_EQ(static_cast<std::int64_t>(dtype), common::storage_code(dtype));
  }
}

TEST(Description, lists_the_variants_that_its_plan_can_ask_for) {
  const auto made = described();
  std::map<std::string, bool> labels;
  for (const auto& variant : made->op.variants) labels[variant.label] = variant.shown;
  // Twice as many as are shown: for sizes or memory that allow no vectors.
  EXPECT_EQ(labels.size(), 8u);
  EXPECT_TRUE(labels.at("f32 plain hidden=1024 rows=1024 aligned"));
  EXPECT_TRUE(labels.at("bf16 #odd hidden=1024 rows=1024 aligned"));
  EXPECT_FALSE(labels.at("f32 plain hidden=7 rows=7 aligned"));

  const auto named =
      described(kText + "examples: rows = 2, hidden = 64, times = 3; rows = 1, hidden = 128\n");
  EXPECT_EQ(named->op.variants.size(), 8u);
  EXPECT_EQ(named->op.variants[0].label, "f32 plain aligned");
}

TEST(Description, runs_in_the_simulator) {
  const auto made = described();
  for (const std::string arch : {"sim:wave32", "sim:wave64"}) {
    Floats data(70);
    sim::run(made->op, data.call(), {arch});
    const auto* out = static_cast<const float*>(data.outputs[0].data);
    for (int i = 0; i < 6 * 70; ++i) {
      ASSERT_EQ(out[i], 0.5F * static_cast<float>(i) + 100.0F * static_cast<float>(i % 70) + 7.0F)
          << i;
    }
  }
}

TEST(Description, scratch_memory_lies_apart) {
  const std::string text =
      replaced(kText, "launch: scale", "scratch: first = 4 * hidden  second = 8\nlaunch: scale");
  const std::string kernel =
      replaced(kKernel, "int times)", "int times, float* second, const tf::u8* first)");
  const auto made = described(text, kernel);
  Plan plan = planned(made->op, Floats(128).call());
  EXPECT_EQ(plan.scratch_bytes, 512u + 256u);
  plan.bind_scratch(reinterpret_cast<void*>(4096));
  EXPECT_EQ(parameter<std::uintptr_t>(plan.launches[0], 7), 4096u + 512u);
  EXPECT_EQ(parameter<std::uintptr_t>(plan.launches[0], 8), 4096u);
}

TEST(Description, scratch_memory_of_no_bytes_is_null) {
  const std::string text = replaced(
      kText, "launch: scale", "scratch: first = hidden == 128 ? 0 : 4  last = 0\nlaunch: scale");
  const std::string kernel =
      replaced(kKernel, "int times)", "int times, float* first, float* last)");
  const auto made = described(text, kernel);
  for (const std::int64_t hidden : {128, 64}) {
    Plan plan = planned(made->op, Floats(hidden).call());
    EXPECT_EQ(plan.scratch_bytes, hidden == 128 ? 0u : 256u);
    plan.bind_scratch(reinterpret_cast<void*>(4096));
    EXPECT_EQ(parameter<std::uintptr_t>(plan.launches[0], 7), hidden == 128 ? 0u : 4096u);
    EXPECT_EQ(parameter<std::uintptr_t>(plan.launches[0], 8), 0u);
  }
}

TEST(Description, a_device_that_names_no_multiprocessors_still_gets_its_launch) {
  const std::string text = replaced(kText, "min(rows, 3)", "min(rows, 8 * device.multiprocessors)");
  const auto made = described(text);
  const Floats data(128);
  ASSERT_EQ(DeviceFacts{}.multiprocessors, 0);
  const Plan plan = planned(made->op, data.call());
  ASSERT_EQ(plan.count, 1u);
  EXPECT_EQ(plan.launches[0].grid.y, 6u);
}

TEST(Description, a_grid_of_more_threads_than_the_device_takes_is_an_error_of_the_call) {
  const auto made = described(replaced(kText, "ceil_div(hidden, 64), min", "65536 * hidden, min"));
  DeviceFacts device;
  const auto error = [&](std::int64_t hidden) {
    const Floats data(hidden);
    Plan plan;
    return truefuse::testing::error_of([&] { made->op.plan(data.call(), device, plan); });
  };
  EXPECT_EQ(error(1024), "no error") << "CUDA counts blocks alone";
  device.max_grid_threads_x = (std::int64_t{1} << 32) - 1;
  EXPECT_EQ(error(1023), "no error");
  EXPECT_EQ(error(1024),
            "scale: the grid of scale has 67108864 blocks of 64 threads in x, 4294967296 threads "
            "together; this device takes at most 4294967295. Let a block walk over more than its "
            "share");
}

TEST(Description, shared_memory_of_64_kilobytes_is_there_in_the_simulator) {
  const auto made = described(replaced(kText, "block = 64", "block = 64\n  shared = 65536"));
  const Floats data(8);
  sim::run(made->op, data.call(), {.arch = "sim:wave64"});
  EXPECT_EQ(static_cast<const float*>(data.outputs[0].data)[1], 0.5F + 100.0F + 7.0F);
}

TEST(Description, errors_of_the_text_have_a_place) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"block = 64", "block = 64 + colums",
       "mine/description.txt:23: there is no colums; there are rows, "
       "hidden, x, y, alpha, form, times, out, wide, vector.\n    block = 64 + colums\n            "
       "     ^"},
      {"x.bytes", "x.byte", "mine/description.txt:15: a tensor has no byte;"},
      {"block = 64", "block = 64 * alpha",
       "mine/description.txt:23: alpha is no whole number, so no expression can hold it.\n"},
      {"block = 64", "block = 0.5 * hidden",
       "mine/description.txt:23: an expression has whole numbers only.\n"},
      {"form == \"#odd\"", "form == \"odd\"",
       "mine/description.txt:20: the contract gives form no value \"odd\""},
      {"  TF_ODD = ", "  ODD = ", "mine/description.txt:20: a constant's name begins with TF_"},
      {"  wide = ", "  hidden = ", "mine/description.txt:15: the contract has a hidden already"},
      {"TF_ODD", "TF_VECTOR", "mine/description.txt:20: TF_VECTOR is given twice"},
      {"  x: f32|bf16 [rows..", "  x: f32|b16 [rows..",
       "mine/description.txt:6: contract: expected"},
      {"reference: reference\n", "", "mine/description.txt: the entry 'reference:' is missing"},
      {"reference: ", "referents: ",
       "mine/description.txt:24: there is no entry 'referents'; there are"},
      {"kernel:   kernel.hip", "kernel: main.hip",
       "there is no file 'main.hip' beside the description; there are kernel.hip"},
      {"launch: scale", "launch: scales",
       "mine/kernel.hip defines no kernel scales; it defines scale"},
      {"  grid = ceil_div(hidden, 64), min(rows, 3)\n", "", "a launch needs 'grid = ...'"},
      {"min(rows, 3)", "1, 1, 1", "a grid has at most three sizes"},
      {"block = 64", "blocks = 64", "a launch has grid, block and shared, not blocks"},
      {"scale(Tensor x", "scaled(Tensor x", "the schema must begin with the operator's name"},
      {"mine::scale", "mine.scale", "expected '::'"},
      {"reference: reference", "reference: reference\nexamples: rows = 2",
       "this example gives no hidden"},
      {"reference: reference", "reference: reference\nexamples: rows = 2, x = 2", "is named x"},
      {"reference: reference", "reference: reference\nreference: other",
       "reference is given twice"},
      {"reference: reference", "reference: reference\nbackward: gradient -> z",
       "no tensor argument is named z"},
      {"wide = 16 / x.bytes", "wide = 16 / (x.bytes - 4)",
       "wide has a division by 0; x.bytes is 4 (tried with hidden=1024 rows=1024"},
      {"block = 64", "block = 65",
       "a block of scale has 65 threads, but the kernel is made for at most 64"},
      {"block = 64", "block = hidden * 64",
       "the block of scale is 65536 in x; it must be from 1 to 1024"},
      {"block = 64", "block = 1, 1, 65", "the block of scale is 65 in z; it must be from 1 to 64"},
  };
  for (const auto& [from, to, sentence] : cases) {
    const std::string found = refusal(replaced(kText, from, to));
    EXPECT_NE(found.find(sentence), std::string::npos) << to << "\n" << found;
  }
  EXPECT_NE(refusal("  x\n" + kText).find("description.txt:1: an indented line"),
            std::string::npos);
}

TEST(Description, a_size_that_only_optional_arguments_bind_is_unbound) {
  const std::string text = replaced(replaced(kText, "y: like x [hidden]", "y: like x [width]"),
                                    "block = 64", "block = width");
  EXPECT_NE(refusal(text).find("the size width is bound by optional arguments alone"),
            std::string::npos)
      << refusal(text);
}

TEST(Description, the_kernels_parameters_must_fit) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"tf::i64 rows,", "tf::i64 lines,",
       "mine/kernel.hip:8: there is no lines; there are rows, hidden, x, y, alpha, form, times, "
       "out, wide, "
       "vector.\n             float alpha, tf::i64 lines"},
      {"float alpha", "int alpha",
       "alpha is a float argument; the parameter must be float or double"},
      {"int times", "float times", "times is a whole number"},
      {"tf::i64 rows", "const tf::i64* rows",
       "rows is a number; the parameter must not be a pointer"},
      {"const T* y", "T* y", "the kernel may write y, which the contract does not call mutated"},
      {"T* out", "const T* out", "out is an output, but the kernel may only read it"},
      {"T* out, ", "", "no kernel has a parameter for the output out"},
      {"const T* y", "T y", "y is a tensor; the parameter must be a pointer"},
      {"const T* y", "const float* y",
       "the kernel takes elements of y as float, but in the contract they are f32|bf16; choose"},
      {"tf::u32 hidden", "Grid hidden", "a parameter cannot be of the type Grid"},
      {"tf::u32 hidden", "tf::u32 hidden[4]",
       "a described kernel takes scalars and pointers to scalars"},
      {"const T* y", "const T** y", "a described kernel takes scalars and pointers to scalars"},
      {"TF_KERNEL(64)\nvoid", "template <class U>\nTF_KERNEL(64) void",
       "mine/kernel.hip:7: a kernel is looked up by its name, which a template does not have"},
      {"TF_KERNEL(64)", "__global__",
       "mine/kernel.hip:7: a kernel is looked up by its name: write extern \"C\""},
  };
  for (const auto& [from, to, sentence] : cases) {
    const std::string found = refusal(kText, replaced(kKernel, from, to));
    EXPECT_NE(found.find(sentence), std::string::npos) << to << "\n" << found;
  }
}

TEST(Description, other_spellings_of_a_kernel) {
  for (const std::string begin :
       {"extern \"C\" __global__ __launch_bounds__(64) void",
        "extern \"C\" __global__ void __launch_bounds__(64)", "TF_KERNEL_RESIDENT(64, 4)\nvoid",
        "template <class U> void other() {}\nextern \"C\" { void f(); }\n"
        "__global__ void __launch_bounds__(64)"}) {
    const std::string kernel = replaced(kKernel, "TF_KERNEL(64)\nvoid", begin);
    EXPECT_EQ(refusal(kText, kernel), "no error") << begin;
    EXPECT_NE(refusal(replaced(kText, "block = 64", "block = 65"), kernel).find("at most 64"),
              std::string::npos);
  }
}

TEST(Description, a_number_that_its_parameter_cannot_hold_is_an_error_of_the_call) {
  const auto made = described(kText, replaced(kKernel, "int times", "tf::u32 times"));
  Floats data(4);
  data.arguments[4] = std::int64_t{-1};
  EXPECT_EQ(truefuse::testing::error_of([&] { planned(made->op, data.call()); }),
            "the kernel's parameter times is -1, which does not fit in its type; make it tf::i64");
}

}  // namespace
}  // namespace truefuse::description
