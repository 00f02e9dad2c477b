#include <cstdint>
#include <string>

#include <truefuse/core/rows.h>
#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse::bias_gelu {
namespace {

/// Rows of a thread, measured on an H200: a second one costs registers and so waves. It is worth
/// them for f16, and for the exact form of bf16, where the bias is converted once for both.
LaunchPolicy policy_of(DType dtype, bool exact, bool vectorised, const DeviceFacts& device) {
  const bool two_rows = dtype == DType::f16 || (dtype == DType::bf16 && exact);
  LaunchPolicy policy = device.policy("bias_gelu", dtype, {128, two_rows ? 2 : 1});
  if (!vectorised) policy.rows = 8;
  return policy;
}

Variant variant_of(DType dtype, bool exact, std::int64_t vector, bool short_rows,
                   const LaunchPolicy& policy) {
  Variant variant;
  variant.add(common::storage_code(dtype));
  variant.add(exact ? 1 : 0);
  variant.add(vector);
  variant.add(policy.rows);
  variant.add(short_rows ? 1 : 0);
  variant.add(policy.threads);
  return variant;
}

constexpr const char* kKernel = "bias_gelu_forward";

}  // namespace

std::vector<std::string> constant_names() {
  return {"TF_STORAGE", "TF_EXACT", "TF_VECTOR", "TF_ROWS", "TF_SHORT_ROWS", "TF_THREADS"};
}

void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  const TensorView& x = call.tensor(kX);
  const TensorView& bias = call.tensor(kBias);
  const TensorView& out = call.outputs[0];
  const std::int64_t hidden = x.sizes.back();
  const Rows rows(x);
  if (hidden == 0 || rows.count() == 0) return;

  const bool exact = call.text(kApproximate) == "none";
  const std::int64_t widest = common::elements_per_access(x.dtype);
  const bool vectorised = common::rows_are_vectors(x, rows, widest) && common::is_aligned(out.data);
  const LaunchPolicy policy = policy_of(x.dtype, exact, vectorised, device);
  const std::int64_t vector = vectorised ? common::elements_per_access(x.dtype, policy) : 1;
  const std::int64_t bias_stride = bias.sizes[0] > 1 ? bias.strides[0] : 0;
  const bool bias_is_vector =
      vector == 1 ? bias_stride == 1 : bias_stride == 1 && common::is_aligned(bias.data);

  const auto threads = static_cast<std::uint32_t>(policy.threads);
  const std::uint32_t log2 = common::threads_x_log2((hidden + vector - 1) / vector);
  const common::TileMap tiles =
      common::cut_into_tiles("bias_gelu", rows.count(), hidden, (threads >> log2) * policy.rows,
                             (std::int64_t{1} << log2) * vector);

  Launch& launch = plan.add();
  launch.kernel = kKernel;
  launch.variant = variant_of(x.dtype, exact, vector, common::are_short(rows), policy);
  launch.grid = {common::blocks_for(tiles, threads), 1, 1};
  launch.block = {threads, 1, 1};
  launch.shared_bytes = 0;
  launch.parameters.add(out.data);
  launch.parameters.add(x.data);
  launch.parameters.add(bias.data);
  launch.parameters.add(rows.count());
  launch.parameters.add(hidden);
  launch.parameters.add(bias_stride);
  launch.parameters.add(static_cast<std::uint32_t>(bias_is_vector));
  launch.parameters.add(log2);
  launch.parameters.add(tiles);
  launch.parameters.add(common::row_map("bias_gelu", "x", rows));
}

std::vector<Operator::NamedVariant> variants(const DeviceFacts& device) {
  std::vector<Operator::NamedVariant> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool exact : {false, true}) {
      for (const bool vectorised : {true, false}) {
        for (const bool short_rows : {true, false}) {
          Operator::NamedVariant named;
          named.label = std::string(short_name(dtype)) + (exact ? " none" : " tanh") +
                        (vectorised ? " vector" : " element") + (short_rows ? "" : " rows-nd");
          named.kernel = kKernel;
          const LaunchPolicy policy = policy_of(dtype, exact, vectorised, device);
          const std::int64_t vector = vectorised ? common::elements_per_access(dtype, policy) : 1;
          named.variant = variant_of(dtype, exact, vector, short_rows, policy);
          named.shown = vectorised && short_rows;
          named.block_threads = policy.threads;
          all.push_back(std::move(named));
        }
      }
    }
  }
  return all;
}

}  // namespace truefuse::bias_gelu
