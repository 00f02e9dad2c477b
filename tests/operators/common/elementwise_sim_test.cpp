// The shipped kernels of the elementwise operators, unchanged, planned as for a device and run in
// the simulator at wave 32 and 64 under AddressSanitizer and UndefinedBehaviorSanitizer, against
// the mathematics in double.

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <truefuse/operators/gated/operator.h>
#include <truefuse/operators/swish/operator.h>

#include "sim_testing.h"

namespace truefuse {
namespace {

using testing::epsilon;
using testing::executable;
using testing::value_of;
using testing::write;

using Shape = std::vector<std::int64_t>;

/// A tensor of random numbers, `shift` elements away from an aligned address.
class Tensor {
 public:
  Tensor(DType dtype, Shape sizes, Shape strides, std::size_t shift = 0, unsigned seed = 1)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
    std::int64_t extent = 1;
    for (std::size_t d = 0; d < sizes_.size(); ++d) extent += (sizes_[d] - 1) * strides_[d];
    elements_ = static_cast<std::size_t>(std::max<std::int64_t>(extent, 0));
    memory_.resize(elements_ * size_of(dtype) + 512);
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = memory_.data() + (256 - address % 256) + shift * size_of(dtype);
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 3);
    for (std::size_t i = 0; i < elements_; ++i) {
      write(begin_ + i * size_of(dtype), dtype, normal(random));
    }
  }

  /// Contiguous.
  static Tensor dense(DType dtype, const Shape& sizes, std::size_t shift = 0, unsigned seed = 1) {
    Shape strides(sizes.size());
    std::int64_t stride = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= sizes[d];
    }
    return {dtype, sizes, strides, shift, seed};
  }

  TensorView view() const { return {dtype_, {DeviceType::cuda, 0}, sizes_, strides_, begin_}; }
  sim::HostRange range(bool writable) const {
    return {begin_, elements_ * size_of(dtype_), writable};
  }
  DType dtype() const { return dtype_; }
  const Shape& sizes() const { return sizes_; }

  double at(const Shape& index) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides_[d];
    return value_of(begin_ + static_cast<std::size_t>(offset) * size_of(dtype_), dtype_);
  }

 private:
  DType dtype_;
  Shape sizes_, strides_;
  std::size_t elements_;
  std::vector<std::byte> memory_;
  std::byte* begin_;
};

struct Setting {
  int wave = 64;
  std::vector<std::string> sanitizers = testing::kMemorySafe;
  sim::SimOptions options;
  std::vector<TunedPolicy> tuned;
};

/// Runs the operator; `vectorised` is what the plan must have chosen.
void call(const Operator& op, const std::vector<const Tensor*>& inputs,
          const std::vector<Argument>& rest, const std::vector<const Tensor*>& outputs,
          bool vectorised, const Setting& run) {
  std::vector<Argument> arguments;
  std::vector<TensorView> results;
  std::vector<sim::HostRange> ranges;
  for (const Tensor* input : inputs) {
    arguments.emplace_back(input->view());
    ranges.push_back(input->range(false));
  }
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  for (const Tensor* output : outputs) {
    results.push_back(output->view());
    if (!output->sizes().empty() && output->sizes()[0] == 0) continue;
    ranges.push_back(output->range(true));
  }
  Plan plan;
  DeviceFacts device{"gfx906", 60, run.wave, 65536};
  device.tuned = run.tuned;
  op.plan({arguments, results}, device, plan);
  ASSERT_EQ(plan.count, 1U);
  EXPECT_EQ(plan.launches[0].variant.values[1] > 1, vectorised);
  const sim::SimOutcome outcome =
      sim::run(executable(op, plan.launches[0], run.wave, run.sanitizers), plan.launches[0], ranges,
               run.options);
  ASSERT_FALSE(outcome.fault.has_value()) << outcome.fault->text() << outcome.fault->details;
}

/// Calls use(index) for every element.
void for_each_index(const Shape& sizes, const std::function<void(const Shape&)>& use) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  Shape index(sizes.size());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      index[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    use(index);
  }
}

void expect_close(double got, double want, double scale, DType dtype) {
  const double step = dtype == DType::f16 ? 0x1p-24 : 1e-30;  // Between subnormal numbers.
  EXPECT_LE(std::abs(got - want), 4 * epsilon(dtype) * scale + step)
      << "got " << got << ", want " << want;
}

// ---- swish
// ---------------------------------------------------------------------------------------

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void check_swish(const Tensor& x, const Tensor& grad, const Tensor& out, bool vectorised,
                 const Setting& run = {}) {
  call(swish_operator(), {&x}, {}, {&out}, vectorised, run);
  for_each_index(x.sizes(), [&](const Shape& i) {
    const double want = x.at(i) * sigmoid(x.at(i));
    expect_close(out.at(i), want, std::abs(want), x.dtype());
  });
  call(swish_backward_operator(), {&grad, &x}, {true}, {&out}, vectorised, run);
  for_each_index(x.sizes(), [&](const Shape& i) {
    const double s = sigmoid(x.at(i)), product = x.at(i) * s * sigmoid(-x.at(i)), g = grad.at(i);
    expect_close(out.at(i), g * (s + product), std::abs(g) * (s + std::abs(product)), x.dtype());
  });
}

void check_dense_swish(DType dtype, const Shape& sizes, const Setting& run = {}) {
  check_swish(Tensor::dense(dtype, sizes), Tensor::dense(dtype, sizes, 0, 2),
              Tensor::dense(dtype, sizes), true, run);
}

TEST(ElementwiseSimulated, SwishOfEveryDtypeAtBothWaves) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    check_dense_swish(dtype, {3, 33});
  }
  Setting wave32;
  wave32.wave = 32;
  check_dense_swish(DType::f32, {7, 41}, wave32);
}

TEST(ElementwiseSimulated, SwishAroundTheEdgesOfTilesAndVectors) {
  for (const std::int64_t n : {1, 2, 3, 4, 511, 512, 513, 1023, 1024, 1025, 1030}) {
    check_dense_swish(DType::f32, {n});
    check_dense_swish(DType::bf16, {n, 2});
  }
}

TEST(ElementwiseSimulated, WhateverTheLaunchPolicy) {
  for (const int threads : {128, 256, 512}) {
    for (const int rows : {1, 4}) {
      Setting tuned;
      for (const char* name : {"swish", "swish_backward"}) {
        tuned.tuned.push_back({name, DType::f32, {threads, rows, rows == 1 ? 8 : 16}});
      }
      for (const std::int64_t n : {3, 4 * threads - 1, 4 * threads + 5, 9 * threads}) {
        check_dense_swish(DType::f32, {n}, tuned);
      }
      check_swish({DType::f32, {6, 8}, {8, 1}}, {DType::f32, {6, 8}, {1, 6}, 0, 2},
                  {DType::f32, {6, 8}, {8, 1}}, true, tuned);
    }
  }
}

TEST(ElementwiseSimulated, SwishOfAnyStrides) {
  const DType f32 = DType::f32;
  const Shape transposed{1, 6}, image{2, 3, 4, 5}, channels_last{60, 1, 15, 3};
  check_swish({f32, {6, 7}, transposed}, {f32, {6, 7}, transposed, 0, 2}, {f32, {6, 7}, transposed},
              true);
  check_swish({f32, image, channels_last}, {f32, image, channels_last, 0, 2},
              {f32, image, channels_last}, true);
  // A gradient that lies in another order, or is expanded.
  check_swish({f32, {6, 8}, {8, 1}}, {f32, {6, 8}, {1, 6}, 0, 2}, {f32, {6, 8}, {8, 1}}, true);
  check_swish({f32, {6, 7}, {7, 1}}, {f32, {6, 7}, {0, 0}, 0, 2}, {f32, {6, 7}, {7, 1}}, true);
  check_swish({f32, {6, 8}, {8, 1}}, {f32, {6, 8}, {8, 1}, 1, 2}, {f32, {6, 8}, {8, 1}}, true);
}

TEST(ElementwiseSimulated, SwishOfSlicesReadsSingleElements) {
  const DType f32 = DType::f32;
  const Shape sizes{4, 3, 10}, dense{30, 10, 1};
  const Tensor grad(f32, sizes, dense, 0, 2), out(f32, sizes, dense);
  const Tensor slices(f32, sizes, {100, 20, 2});
  call(swish_operator(), {&slices}, {}, {&out}, false, {});
  for_each_index(sizes, [&](const Shape& i) {
    const double want = slices.at(i) * sigmoid(slices.at(i));
    expect_close(out.at(i), want, std::abs(want), f32);
  });
  check_swish({f32, {5, 9}, {9, 1}, 1}, Tensor::dense(f32, {5, 9}), {f32, {5, 9}, {9, 1}, 1},
              false);
  Shape many(8, 2), gaps(8);  // As many separate dimensions as a kernel walks over, and one more.
  for (std::size_t d = 0; d < 8; ++d) gaps[d] = std::int64_t{3} << (2 * (7 - d));
  const Shape seven(many.begin(), many.begin() + 7);
  const Tensor few(f32, seven, Shape(gaps.begin(), gaps.begin() + 7));
  const Tensor few_out = Tensor::dense(f32, seven);
  call(swish_operator(), {&few}, {}, {&few_out}, false, {});
  const Tensor most(f32, many, gaps), most_out = Tensor::dense(f32, many);
  const std::vector<Argument> arguments{most.view()};
  const std::vector<TensorView> results{most_out.view()};
  Plan plan;
  EXPECT_THROW(swish_operator().plan({arguments, results}, {}, plan), Error);
}

TEST(ElementwiseSimulated, NoTwoLanesTouchTheSameOutput) {
  Setting race;
  race.sanitizers = {"race"};
  race.options.lane_order = sim::SimOrder::random;
  race.options.block_order = sim::SimOrder::reverse;
  check_dense_swish(DType::f32, {9, 133}, race);
}

// ---- gated
// ---------------------------------------------------------------------------------------

struct GateFunction {
  std::string_view approximate;  ///< Empty for swish.

  double value(double x) const {
    if (approximate.empty()) return x * sigmoid(x);
    if (approximate == "none") return x / 2 * std::erfc(-x / std::sqrt(2.0));
    return x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  }
  /// Also what its error is in proportion to.
  std::pair<double, double> slope(double x) const {
    double distribution = sigmoid(x), rest = x * sigmoid(x) * sigmoid(-x);
    if (approximate == "none") {
      distribution = std::erfc(-x / std::sqrt(2.0)) / 2;
      rest = x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    } else if (approximate == "tanh") {
      const double root = 2 * std::sqrt(2 / M_PI), u = root * (x + 0.044715 * x * x * x);
      distribution = sigmoid(u);
      rest = x * sigmoid(u) * sigmoid(-u) * root * (1 + 3 * 0.044715 * x * x);
    }
    return {distribution + rest, (distribution + std::abs(rest)) * (1 + std::abs(x) * x * x)};
  }
  std::vector<Argument> options(bool packed, std::string_view packing,
                                std::string_view rounding) const {
    std::vector<Argument> all;
    if (packed) all.emplace_back(packing);
    if (!approximate.empty()) all.emplace_back(approximate);
    all.emplace_back(rounding);
    return all;
  }
};

/// In float the formulas for gelu lose a few ulp more in the tail.
double gate_scale(const GateFunction& function, double gate) {
  const double value = std::abs(function.value(gate));
  return function.approximate.empty() ? value : value * (2 + gate * gate);
}

void check_gated(const GateFunction& function, const Tensor& gate, const Tensor& up,
                 const Tensor& grad, bool vectorised, const Setting& run = {}) {
  const bool swish = function.approximate.empty();
  const DType dtype = gate.dtype();
  const Tensor out = Tensor::dense(dtype, gate.sizes());
  const auto options = function.options(false, "", "none");
  call(swish ? swiglu_operator() : geglu_operator(), {&gate, &up}, options, {&out}, vectorised,
       run);
  for_each_index(gate.sizes(), [&](const Shape& i) {
    expect_close(out.at(i), function.value(gate.at(i)) * up.at(i),
                 gate_scale(function, gate.at(i)) * std::abs(up.at(i)), dtype);
  });

  const Tensor grad_gate = Tensor::dense(dtype, gate.sizes());
  const Tensor grad_up = Tensor::dense(dtype, gate.sizes());
  auto flags = options;
  flags.emplace_back(true);
  flags.emplace_back(true);
  call(swish ? swiglu_backward_operator() : geglu_backward_operator(), {&grad, &gate, &up}, flags,
       {&grad_gate, &grad_up}, vectorised, run);
  for_each_index(gate.sizes(), [&](const Shape& i) {
    const double g = grad.at(i);
    const auto [slope, scale] = function.slope(gate.at(i));
    expect_close(grad_gate.at(i), g * up.at(i) * slope, std::abs(g * up.at(i)) * scale, dtype);
    expect_close(grad_up.at(i), g * function.value(gate.at(i)),
                 std::abs(g) * gate_scale(function, gate.at(i)), dtype);
  });
}

TEST(ElementwiseSimulated, GatedOfEveryDtypeAndActivation) {
  const Shape sizes{3, 35};
  const auto check = [&](DType dtype, const char* approximate) {
    check_gated({approximate}, Tensor::dense(dtype, sizes), Tensor::dense(dtype, sizes, 0, 2),
                Tensor::dense(dtype, sizes, 0, 3), true);
  };
  for (const char* approximate : {"", "tanh", "none"}) check(DType::bf16, approximate);
  check(DType::f64, "");
  check(DType::f32, "tanh");
  check(DType::f16, "none");
}

TEST(ElementwiseSimulated, GatedOfRowsWithGaps) {
  const DType bf16 = DType::bf16;
  const Shape sizes{3, 2, 16};
  check_gated({""}, {bf16, sizes, {128, 48, 1}}, {bf16, sizes, {16, 64, 1}, 0, 2},
              {bf16, sizes, {0, 0, 0}, 0, 3}, true);
  check_gated({""}, {bf16, sizes, {128, 48, 1}}, {bf16, sizes, {16, 64, 1}, 1, 2},
              {bf16, sizes, {1, 3, 6}, 0, 3}, false);
}

TEST(ElementwiseSimulated, AnUnwantedGradientIsNotWritten) {
  const Shape sizes{3, 35};
  const Tensor gate = Tensor::dense(DType::f32, sizes), up = Tensor::dense(DType::f32, sizes, 0, 2);
  const Tensor grad = Tensor::dense(DType::f32, sizes, 0, 3), result = gate;
  const Tensor none(DType::f32, {0}, {1});
  for (const bool wants_gate : {true, false}) {
    const Tensor wanted = Tensor::dense(DType::f32, sizes);
    const std::vector<const Tensor*> outputs =
        wants_gate ? std::vector{&wanted, &none} : std::vector{&none, &wanted};
    call(swiglu_backward_operator(), {&grad, &gate, &up},
         {std::string_view("none"), wants_gate, !wants_gate}, outputs, true, {});
    for_each_index(sizes, [&](const Shape& i) {
      const double s = sigmoid(gate.at(i)), x = gate.at(i);
      const double want =
          wants_gate ? grad.at(i) * up.at(i) * (s + x * s * (1 - s)) : grad.at(i) * x * s;
      expect_close(wanted.at(i), want, 10 * std::abs(grad.at(i)) * (1 + std::abs(up.at(i))),
                   DType::f32);
    });
  }
}

/// Every packing gives what the two parts give as tensors of their own.
void check_packed(DType dtype, std::int64_t rows, std::int64_t hidden, std::size_t shift,
                  bool vectorised) {
  for (const std::string_view packing :
       {"gate|up", "up|gate", "gate,up interleaved", "up,gate interleaved"}) {
    SCOPED_TRACE(packing);
    const bool interleaved = packing.size() > 7, gate_first = packing.starts_with("gate");
    const Tensor packed = Tensor::dense(dtype, {rows, 2 * hidden}, shift);
    const Tensor grad = Tensor::dense(dtype, {rows, hidden}, 0, 3);
    const Tensor out = Tensor::dense(dtype, {rows, hidden});
    const Tensor grad_packed = Tensor::dense(dtype, {rows, 2 * hidden});
    const std::vector<Argument> options{packing, std::string_view("storage")};
    call(swiglu_packed_operator(), {&packed}, options, {&out}, vectorised, {});
    auto flags = options;
    flags.emplace_back(true);
    call(swiglu_packed_backward_operator(), {&grad, &packed}, flags, {&grad_packed}, vectorised,
         {});
    const auto place = [&](std::int64_t column, bool gate) {
      const std::int64_t second = gate == gate_first ? 0 : 1;
      return interleaved ? 2 * column + second : column + second * hidden;
    };
    for_each_index({rows, hidden}, [&](const Shape& i) {
      const Shape gate_at{i[0], place(i[1], true)}, up_at{i[0], place(i[1], false)};
      const double x = packed.at(gate_at), up = packed.at(up_at), g = grad.at(i), s = sigmoid(x);
      expect_close(out.at(i), x * s * up, std::abs(x * s * up), dtype);
      expect_close(grad_packed.at(up_at), g * x * s, std::abs(g * x * s), dtype);
      expect_close(grad_packed.at(gate_at), g * up * s * (1 + x * sigmoid(-x)),
                   std::abs(g * up) * s * (1 + std::abs(x) * sigmoid(-x)), dtype);
    });
  }
}

TEST(ElementwiseSimulated, PackedHalvesAndPairs) {
  check_packed(DType::f32, 3, 32, 0, true);
  check_packed(DType::bf16, 3, 32, 0, true);
  check_packed(DType::bf16, 5, 7, 1, false);  // Halves that begin anywhere.
}

}  // namespace
}  // namespace truefuse
