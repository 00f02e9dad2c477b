#include <algorithm>
#include <bit>
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
constexpr std::int64_t kFewestRows = 4;  // Per thread, so that partial sums are little traffic.
constexpr std::int64_t kWideSums = 4;    // Partial sums of one access; of doubles two accesses.

/// Rows per thread whose loads are in flight at once, measured on an H200: a second one costs
/// registers and so waves. Half types gain by it, but not the exact form of bf16.
LaunchPolicy policy_of(DType dtype, bool exact, bool vectorised, const DeviceFacts& device) {
  const bool second = size_of(dtype) == 2 && !(exact && dtype == DType::bf16);
  LaunchPolicy policy = device.policy(kName, dtype, {kThreads, second ? 2 : 1});
  if (!vectorised) policy.rows = 4;
  return policy;
}

Variant gradients_variant(DType dtype, bool exact, std::int64_t vector, bool whole, bool short_rows,
                          const LaunchPolicy& policy) {
  Variant variant;
  variant.add(1);
  variant.add(common::storage_code(dtype));
  variant.add(exact ? 1 : 0);
  variant.add(vector);
  variant.add(policy.rows);
  variant.add(whole ? 1 : 0);
  variant.add(short_rows ? 1 : 0);
  variant.add(policy.threads);
  return variant;
}

Variant sum_variant(DType dtype) {
  Variant variant;
  variant.add(2);
  variant.add(common::storage_code(dtype));
  for (int i = 0; i < 5; ++i) variant.add(1);  // It looks at none of these.
  variant.add(kThreads);
  return variant;
}

/// What the registers of TF_RESIDENT in backward.hip leave room for.
std::int64_t threads_per_multiprocessor(const LaunchPolicy& policy) {
  return policy.rows == 1 ? 1280 : 1024;
}

/// Log2 of the threads along the columns. Narrow tiles: more rows are summed inside a block, and
/// there are fewer rows of partial sums.
std::uint32_t narrow_log2(std::int64_t accesses_per_row, std::uint32_t most) {
  return std::min<std::uint32_t>(
      most,
      static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(accesses_per_row) - 1)));
}

/// How the blocks share the work: 2^log2 threads along the columns, `row_tiles` blocks along the
/// rows.
struct Shares {
  std::uint32_t log2;
  std::int64_t columns;  // Of a block.
  std::int64_t row_tiles;
};

/// One round of blocks, all there at a time, since each row of tiles costs a row of partial sums.
/// Narrow blocks, whose sums are fewer, unless they leave more than a tenth of the device idle;
/// twice as wide, unless those leave more than a fifth; or else what leaves the least.
Shares shares_of(std::int64_t rows, std::int64_t hidden, std::int64_t vector,
                 const LaunchPolicy& policy, const DeviceFacts& device) {
  const std::int64_t blocks =
      threads_per_multiprocessor(policy) / policy.threads * device.multiprocessors_or_one();
  const std::uint32_t narrow = narrow_log2((hidden + vector - 1) / vector, vector > 1 ? 4 : 5);
  const std::uint32_t wide = narrow_log2((hidden + vector - 1) / vector, 6);
  Shares best = {};
  std::int64_t most_busy = 0, enough = 9;  // In tenths of all.
  for (std::uint32_t log2 = narrow; log2 <= wide; ++log2, --enough) {
    const std::int64_t columns = vector << log2;
    const std::int64_t column_tiles = (hidden + columns - 1) / columns;
    const std::int64_t groups = (rows + (policy.threads >> log2) * policy.rows - 1) /
                                ((policy.threads >> log2) * policy.rows);
    const std::int64_t most = std::clamp<std::int64_t>(blocks / column_tiles, 1, groups);
    const std::int64_t each =
        std::max((groups + most - 1) / most, (kFewestRows + policy.rows - 1) / policy.rows);
    const std::int64_t row_tiles = (groups + each - 1) / each;
    const std::int64_t busy = std::min(column_tiles * most, blocks);
    if (busy <= most_busy) continue;
    best = {log2, columns, row_tiles};
    most_busy = busy;
    if (busy * 10 >= blocks * enough) break;
  }
  return best;
}

/// Bytes of a partial sum.
std::int64_t sum_bytes(DType dtype) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(size_of(dtype)), sizeof(float));
}

/// From row to row of partial sums.
std::int64_t pitch_of(std::int64_t hidden) {
  return (hidden + kWideSums - 1) / kWideSums * kWideSums;
}

/// The second kernel, which adds up `row_tiles` rows of partial sums.
void plan_sum(const Call& call, std::int64_t row_tiles, Plan& plan) {
  const TensorView& out = call.outputs[kGradBias];
  const std::int64_t hidden = out.sizes[0];
  const auto wide = static_cast<std::int64_t>(common::kAccessBytes / sum_bytes(out.dtype));
  const std::uint32_t log2 = narrow_log2((hidden + wide - 1) / wide, 3);
  const common::TileMap tiles = common::cut_into_tiles(kName, 1, hidden, 1, wide << log2);
  Launch& launch = plan.add();
  launch.kernel = kSum;
  launch.starts_early = true;
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
  launch.parameters.add(pitch_of(hidden));
  launch.parameters.add(log2);
  launch.parameters.add(tiles.count);
}

}  // namespace

std::vector<std::string> constant_names() {
  return {"TF_STAGE", "TF_STORAGE", "TF_EXACT",      "TF_VECTOR",
          "TF_ROWS",  "TF_WHOLE",   "TF_SHORT_ROWS", "TF_THREADS"};
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
  const bool exact = call.text(kApproximate) == "none";
  const LaunchPolicy policy = policy_of(x.dtype, exact, vectorised, device);
  const std::int64_t vector = vectorised ? common::elements_per_access(x.dtype, policy) : 1;
  const std::int64_t bias_stride = hidden > 1 ? bias.strides[0] : 0;
  const std::int64_t grad_stride = hidden > 1 ? grad.strides.back() : 0;
  const bool bias_is_whole = bias_stride == 1 && (vector == 1 || common::is_aligned(bias.data));
  const bool grad_is_whole =
      grad_stride == 1 && (vector == 1 || common::rows_are_vectors(grad, grad_rows, vector));

  const auto threads = static_cast<std::uint32_t>(policy.threads);
  const Shares shares = shares_of(rows.count(), hidden, vector, policy, device);
  const common::TileMap tiles =
      common::cut_into_tiles(kName, shares.row_tiles, hidden, 1, shares.columns);
  const bool in_parts = bias_wanted && shares.row_tiles > 1;

  Launch& launch = plan.add();
  launch.kernel = kGradients;
  launch.starts_early = true;
  // What is rare is read by the kernel that reads everything.
  const bool whole = grad_is_whole && bias_is_whole;
  const bool all_short = whole && common::are_short(rows) && common::are_short(grad_rows);
  launch.variant = gradients_variant(x.dtype, exact, vector, whole, all_short, policy);
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
  parameters.add(pitch_of(hidden));
  parameters.add(grad_stride);
  parameters.add(bias_stride);
  parameters.add(static_cast<std::uint32_t>(grad_is_whole));
  parameters.add(static_cast<std::uint32_t>(bias_is_whole));
  parameters.add(shares.log2);
  parameters.add(static_cast<std::uint32_t>(shares.row_tiles));
  parameters.add(tiles);
  parameters.add(common::row_map(kName, "x", rows));
  parameters.add(common::row_map(kName, "grad_out", grad_rows));
  if (!in_parts) return;
  plan.scratch_bytes =
      static_cast<std::size_t>(shares.row_tiles * pitch_of(hidden) * sum_bytes(x.dtype));
  plan_sum(call, shares.row_tiles, plan);
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
        const LaunchPolicy policy = policy_of(dtype, exact, vectorised, device);
        const std::int64_t vector = vectorised ? common::elements_per_access(dtype, policy) : 1;
        const auto add_form = [&](const char* label, bool whole, bool short_rows) {
          add(name + (exact ? " none" : " tanh") + (vectorised ? " vector" : " element") + label,
              kGradients, gradients_variant(dtype, exact, vector, whole, short_rows, policy),
              vectorised && short_rows, policy.threads);
        };
        add_form("", true, true);
        add_form(" rows-nd", true, false);
        add_form(" any strides", false, false);
      }
    }
    add(name + " sum", kSum, sum_variant(dtype), true, kThreads);
  }
  return all;
}

}  // namespace truefuse::bias_gelu::backward
