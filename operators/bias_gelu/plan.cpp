#include <cstdint>
#include <string>

#include <truefuse/core/rows.h>
#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse::bias_gelu {
namespace {

constexpr const char* kKernel = "bias_gelu_forward";
constexpr std::int64_t kThreadsAtATime = 2048;  // Of a multiprocessor.

/// What a variant is made of.
struct Form {
  DType dtype = DType::f32;
  bool exact = false, vectorised = false;
  int row_dims = 0;   ///< Of kernel.hip.
  bool many = false;  ///< Memory without gaps, and enough for several rounds of blocks.

  /// Measured on an H200: a second row costs registers and so waves, which is worth it for the
  /// exact form, whose arithmetic takes its time, where there is enough to do. Single elements make
  /// up for their size with more rows.
  LaunchPolicy policy(const DeviceFacts& device) const {
    LaunchPolicy policy = device.policy("bias_gelu", dtype, {128, exact && many ? 2 : 1});
    if (!vectorised) policy.rows = 8;
    return policy;
  }
  std::int64_t vector(const LaunchPolicy& policy) const {
    return vectorised ? common::elements_per_access(dtype, policy) : 1;
  }
  Variant variant(const LaunchPolicy& policy) const {
    Variant variant;
    variant.add(common::storage_code(dtype));
    variant.add(exact ? 1 : 0);
    variant.add(vector(policy));
    variant.add(policy.rows);
    variant.add(row_dims);
    variant.add(policy.threads);
    return variant;
  }
};

/// Whether one number finds an element in x and in out, and whole vectors of the bias lie behind
/// each other. `vectors` are those of x.
bool is_dense(const Rows& rows, std::int64_t hidden, std::int64_t vectors, bool bias_is_vector) {
  const bool no_gaps =
      rows.dims() == 0 || rows.count() == 1 || (rows.dims() == 1 && rows.stride(0) == hidden);
  return no_gaps && bias_is_vector && common::is_short(vectors);
}

void plan_dense(const TensorView& x, const TensorView& bias, void* out, std::int64_t vector,
                const LaunchPolicy& policy, Launch& launch) {
  const common::TileMap vectors =
      common::cut_into_tiles("bias_gelu", Rows(x).count(), x.sizes.back(), 1, vector);
  const auto in_block = static_cast<std::uint32_t>(policy.rows * policy.threads);
  launch.grid = {(vectors.count + in_block - 1) / in_block, 1, 1};
  launch.parameters.add(out);
  launch.parameters.add(x.data);
  launch.parameters.add(bias.data);
  launch.parameters.add(vectors);
}

}  // namespace

std::vector<std::string> constant_names() {
  return {"TF_STORAGE", "TF_EXACT", "TF_VECTOR", "TF_ROWS", "TF_ROW_DIMS", "TF_THREADS"};
}

void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  const TensorView& x = call.tensor(kX);
  const TensorView& bias = call.tensor(kBias);
  const TensorView& out = call.outputs[0];
  const std::int64_t hidden = x.sizes.back();
  const Rows rows(x);
  if (hidden == 0 || rows.count() == 0) return;

  Form form;
  form.dtype = x.dtype;
  form.exact = call.text(kApproximate) == "none";
  const std::int64_t widest = common::elements_per_access(x.dtype);
  form.vectorised = common::rows_are_vectors(x, rows, widest) && common::is_aligned(out.data);
  const std::int64_t bias_stride = bias.sizes[0] > 1 ? bias.strides[0] : 0;
  const std::int64_t vectors = rows.count() * (hidden / form.vector(form.policy(device)));
  const bool bias_is_whole = bias_stride == 1 && common::is_aligned(bias.data);
  if (form.vectorised && is_dense(rows, hidden, vectors, bias_is_whole)) {
    form.many = vectors >= 4 * kThreadsAtATime * device.multiprocessors_or_one();
  } else {
    form.row_dims = common::are_short(rows) ? 1 : common::kMaxRowDims;
  }
  const LaunchPolicy policy = form.policy(device);
  const std::int64_t vector = form.vector(policy);

  Launch& launch = plan.add();
  launch.kernel = kKernel;
  launch.starts_early = true;
  launch.variant = form.variant(policy);
  launch.block = {static_cast<std::uint32_t>(policy.threads), 1, 1};
  if (form.row_dims == 0) return plan_dense(x, bias, out.data, vector, policy, launch);

  const auto threads = static_cast<std::uint32_t>(policy.threads);
  const std::uint32_t log2 = common::threads_x_log2((hidden + vector - 1) / vector);
  const common::TileMap tiles =
      common::cut_into_tiles("bias_gelu", rows.count(), hidden, (threads >> log2) * policy.rows,
                             (std::int64_t{1} << log2) * vector);
  launch.grid = {common::blocks_for(tiles, threads), 1, 1};
  launch.parameters.add(out.data);
  launch.parameters.add(x.data);
  launch.parameters.add(bias.data);
  launch.parameters.add(rows.count());
  launch.parameters.add(hidden);
  launch.parameters.add(bias_stride);
  launch.parameters.add(static_cast<std::uint32_t>(vector == 1 ? bias_stride == 1 : bias_is_whole));
  launch.parameters.add(log2);
  launch.parameters.add(tiles);
  launch.parameters.add(common::row_map("bias_gelu", "x", rows));
}

std::vector<Operator::NamedVariant> variants(const DeviceFacts& device) {
  std::vector<Operator::NamedVariant> all;
  const auto add = [&](const Form& form, const std::string& memory) {
    Operator::NamedVariant named;
    named.label = std::string(short_name(form.dtype)) + (form.exact ? " none" : " tanh") +
                  (form.vectorised ? " vector" : " element") + memory;
    named.kernel = kKernel;
    const LaunchPolicy policy = form.policy(device);
    named.variant = form.variant(policy);
    named.shown = form.row_dims == 0;
    named.block_threads = policy.threads;
    all.push_back(std::move(named));
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool exact : {false, true}) {
      add({dtype, exact, true, 0, false}, " dense");
      if (exact) add({dtype, exact, true, 0, true}, " dense many");
      for (const bool vectorised : {true, false}) {
        add({dtype, exact, vectorised, 1}, "");
        add({dtype, exact, vectorised, common::kMaxRowDims}, " rows-nd");
      }
    }
  }
  return all;
}

}  // namespace truefuse::bias_gelu
