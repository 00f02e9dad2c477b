#include <algorithm>
#include <cstdint>
#include <string>

#include <truefuse/core/rows.h>
#include <truefuse/operators/bias_gelu/backward.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse::bias_gelu::backward {
namespace {

constexpr const char* kName = "bias_gelu_backward";
constexpr const char* kGradients = "bias_gelu_backward";
constexpr const char* kSum = "bias_gelu_backward_sum";
constexpr int kThreads = 256;
constexpr std::uint32_t kWidestLog2 = 5;  // Narrow tiles: more rows are summed inside a block.
constexpr std::int64_t kFewestRows = 4;   // Per thread, so that partial sums are little traffic.
constexpr std::int64_t kMostRows = 1 << 20;
constexpr std::int64_t kThreadsPerMultiprocessor = 1280;  // TF_RESIDENT in backward.hip.

/// Rows per thread whose loads are in flight at once. A vector of grad_out and one of x are two
/// wide loads already, and further rows would cost registers and so waves.
LaunchPolicy policy_of(DType dtype, bool vectorised, const DeviceFacts& device) {
  LaunchPolicy policy = device.policy(kName, dtype, {kThreads, 1});
  if (!vectorised) policy.rows = 4;
  return policy;
}

Variant gradients_variant(DType dtype, bool exact, std::int64_t vector, bool short_rows,
                          const LaunchPolicy& policy) {
  Variant variant;
  variant.add(1);
  variant.add(common::storage_code(dtype));
  variant.add(exact ? 1 : 0);
  variant.add(vector);
  variant.add(policy.rows);
  variant.add(short_rows ? 1 : 0);
  variant.add(policy.threads);
  return variant;
}

Variant sum_variant(DType dtype) {
  Variant variant;
  variant.add(2);
  variant.add(common::storage_code(dtype));
  for (int i = 0; i < 4; ++i) variant.add(1);  // It looks at none of these.
  variant.add(kThreads);
  return variant;
}

/// Rows that each thread walks over: as many as make one round of blocks, all there at a time. Each
/// row of tiles costs a row of partial sums, and a second round would leave multiprocessors idle.
std::int64_t rows_each(std::int64_t rows, std::int64_t column_tiles, std::int64_t threads_y,
                       const LaunchPolicy& policy, const DeviceFacts& device) {
  const std::int64_t blocks =
      kThreadsPerMultiprocessor / policy.threads * device.multiprocessors_or_one();
  const std::int64_t row_tiles = std::max<std::int64_t>(blocks / column_tiles, 1);
  const std::int64_t each = (rows + threads_y * row_tiles - 1) / (threads_y * row_tiles);
  return std::clamp((each + policy.rows - 1) / policy.rows * policy.rows,
                    std::max<std::int64_t>(kFewestRows, policy.rows), kMostRows);
}

/// The second kernel, which adds up `row_tiles` rows of partial sums.
void plan_sum(const Call& call, std::int64_t row_tiles, Plan& plan) {
  const TensorView& out = call.outputs[kGradBias];
  const std::int64_t hidden = out.sizes[0];
  const std::uint32_t log2 = common::threads_x_log2(hidden, kWidestLog2);
  const common::TileMap tiles =
      common::cut_into_tiles(kName, 1, hidden, 1, std::int64_t{1} << log2);
  Launch& launch = plan.add();
  launch.kernel = kSum;
  launch.variant = sum_variant(out.dtype);
  launch.grid = {common::blocks_for(tiles, kThreads), 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.parameters.add(out.data);
  if (row_tiles > 0) {
    launch.parameters.add_scratch(0);
  } else {
    launch.parameters.add(static_cast<void*>(nullptr));
  }
  launch.parameters.add(row_tiles);
  launch.parameters.add(hidden);
  launch.parameters.add(log2);
  launch.parameters.add(tiles.count);
}

}  // namespace

std::vector<std::string> constant_names() {
  return {"TF_STAGE", "TF_STORAGE",    "TF_EXACT",  "TF_VECTOR",
          "TF_ROWS",  "TF_SHORT_ROWS", "TF_THREADS"};
}

void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  const TensorView& grad = call.tensor(kGradOut);
  const TensorView& x = call.tensor(kX);
  const TensorView& bias = call.tensor(kBias);
  const bool bias_wanted = call.flag(kBiasWanted);
  void* const grad_x = call.flag(kXWanted) ? call.outputs[kGradX].data : nullptr;
  const std::int64_t hidden = x.sizes.back();
  const Rows rows(x);
  const Rows grad_rows(grad);
  if (hidden == 0 || (!bias_wanted && (grad_x == nullptr || rows.count() == 0))) return;
  // Without rows the sums are zeros, which the second kernel writes.
  if (rows.count() == 0) return plan_sum(call, 0, plan);

  const std::int64_t widest = common::elements_per_access(x.dtype);
  const bool vectorised = common::rows_are_vectors(x, rows, widest) && common::is_aligned(grad_x);
  const LaunchPolicy policy = policy_of(x.dtype, vectorised, device);
  const std::int64_t vector = vectorised ? common::elements_per_access(x.dtype, policy) : 1;
  const std::int64_t bias_stride = hidden > 1 ? bias.strides[0] : 0;
  const std::int64_t grad_stride = hidden > 1 ? grad.strides.back() : 0;
  const auto loads_whole = [&](bool is_aligned, std::int64_t stride) {
    return static_cast<std::uint32_t>(stride == 1 && (vector == 1 || is_aligned));
  };

  const auto threads = static_cast<std::uint32_t>(policy.threads);
  const std::uint32_t log2 = common::threads_x_log2((hidden + vector - 1) / vector, kWidestLog2);
  const std::int64_t threads_y = threads >> log2;
  const std::int64_t tile_columns = (std::int64_t{1} << log2) * vector;
  const std::int64_t each = rows_each(rows.count(), (hidden + tile_columns - 1) / tile_columns,
                                      threads_y, policy, device);
  const common::TileMap tiles =
      common::cut_into_tiles(kName, rows.count(), hidden, threads_y * each, tile_columns);
  const std::int64_t row_tiles = tiles.count / tiles.column_tiles;
  const bool in_parts = bias_wanted && row_tiles > 1;

  Launch& launch = plan.add();
  launch.kernel = kGradients;
  launch.variant =
      gradients_variant(x.dtype, call.text(kApproximate) == "none", vector,
                        common::are_short(rows) && common::are_short(grad_rows), policy);
  launch.grid = {common::blocks_for(tiles, threads), 1, 1};
  launch.block = {threads, 1, 1};
  KernelParameters& parameters = launch.parameters;
  parameters.add(grad_x);
  parameters.add(bias_wanted && !in_parts ? call.outputs[kGradBias].data : nullptr);
  if (in_parts) {
    parameters.add_scratch(0);
  } else {
    parameters.add(static_cast<void*>(nullptr));
  }
  parameters.add(grad.data);
  parameters.add(x.data);
  parameters.add(bias.data);
  parameters.add(rows.count());
  parameters.add(hidden);
  parameters.add(grad_stride);
  parameters.add(bias_stride);
  parameters.add(loads_whole(common::rows_are_vectors(grad, grad_rows, vector), grad_stride));
  parameters.add(loads_whole(common::is_aligned(bias.data), bias_stride));
  parameters.add(log2);
  parameters.add(static_cast<std::uint32_t>(each));
  parameters.add(tiles);
  parameters.add(common::row_map(kName, "x", rows));
  parameters.add(common::row_map(kName, "grad_out", grad_rows));
  if (!in_parts) return;
  plan.scratch_bytes = static_cast<std::size_t>(row_tiles * hidden) *
                       std::max<std::size_t>(size_of(x.dtype), sizeof(float));
  plan_sum(call, row_tiles, plan);
}

std::vector<Operator::NamedVariant> variants(const DeviceFacts& device) {
  std::vector<Operator::NamedVariant> all;
  const auto add = [&](const std::string& label, const char* kernel, const Variant& variant,
                       bool shown, int threads) {
    Operator::NamedVariant named;
    named.label = label;
    named.kernel = kernel;
    named.variant = variant;
    named.shown = shown;
    named.block_threads = threads;
    all.push_back(std::move(named));
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const std::string name(short_name(dtype));
    for (const bool exact : {false, true}) {
      for (const bool vectorised : {true, false}) {
        for (const bool short_rows : {true, false}) {
          const LaunchPolicy policy = policy_of(dtype, vectorised, device);
          const std::int64_t vector = vectorised ? common::elements_per_access(dtype, policy) : 1;
          add(name + (exact ? " none" : " tanh") + (vectorised ? " vector" : " element") +
                  (short_rows ? "" : " rows-nd"),
              kGradients, gradients_variant(dtype, exact, vector, short_rows, policy),
              vectorised && short_rows, policy.threads);
        }
      }
    }
    add(name + " sum", kSum, sum_variant(dtype), true, kThreads);
  }
  return all;
}

}  // namespace truefuse::bias_gelu::backward
