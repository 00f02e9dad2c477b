#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedFallback.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>

#include <truefuse/binding/batching.h>
#include <truefuse/binding/call.h>
#include <truefuse/core/error.h>

namespace truefuse::binding {
namespace {

struct Batched {
  at::Tensor value;
  std::optional<std::int64_t> dim;  ///< Of the batch; none where the tensor is the same for all.
};

class Batching final : public c10::OperatorKernel {
 public:
  explicit Batching(const Operator& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    if (!layer.has_value()) throw Error(op_.name + ": a batched tensor has left its vmap");
    const std::int64_t level = layer->layerId();
    const auto& specs = op_.contract.arguments();
    std::vector<Batched> tensors(specs.size());
    std::optional<std::int64_t> batch;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const c10::IValue& argument = torch::jit::peek(*stack, i, specs.size());
      if (!argument.isTensor() || !argument.toTensor().defined()) continue;
      auto [value, dim] = at::functorch::unwrapTensorAtLevel(argument.toTensor(), level);
      if (dim.has_value()) batch = value.size(*dim);
      tensors[i] = {std::move(value), dim};
    }
    const std::vector<bool> computed = computed_outputs(*stack);
    if (!batch.has_value() || !adds_a_leading_dimension(tensors, computed)) {
      at::functorch::batchedTensorForLoopFallback(handle, stack);
      return;
    }
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!tensors[i].value.defined()) continue;
      torch::jit::peek(*stack, i, specs.size()) =
          specs[i].tensor()->pack ? leading(tensors[i], *batch, *specs[i].tensor())
                                  : tensors[i].value;
    }
    handle.callBoxed(stack);
    for (std::size_t i = 0; i < computed.size(); ++i) {
      c10::IValue& result = torch::jit::peek(*stack, i, computed.size());
      if (computed[i]) result = at::functorch::makeBatched(result.toTensor(), 0, level);
    }
  }

 private:
  std::vector<bool> computed_outputs(torch::jit::Stack& stack) const {
    std::vector<bool> computed;
    for (const OutputSpec& output : op_.contract.outputs()) {
      computed.push_back(
          !output.wanted ||
          torch::jit::peek(stack, *output.wanted, op_.contract.arguments().size()).toBool());
    }
    return computed;
  }

  bool adds_a_leading_dimension(const std::vector<Batched>& tensors,
                                const std::vector<bool>& computed) const {
    if (op_.contract.mutates()) return false;
    std::optional<std::size_t> pack;
    const auto has_it = [&](const TensorSpec& spec) {
      if (!pack) pack = spec.pack;
      return pack && spec.pack == pack;
    };
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].dim && !has_it(*op_.contract.arguments()[i].tensor())) return false;
    }
    for (std::size_t i = 0; i < computed.size(); ++i) {
      if (computed[i] && !has_it(op_.contract.outputs()[i].tensor)) return false;
    }
    return true;
  }

  static at::Tensor leading(const Batched& tensor, std::int64_t batch, const TensorSpec& spec) {
    if (tensor.dim) return fitting(tensor.value.movedim(*tensor.dim, 0), spec);
    std::vector<std::int64_t> sizes = tensor.value.sizes().vec();
    sizes.insert(sizes.begin(), batch);
    return fitting(tensor.value.expand(sizes), spec);
  }

  const Operator& op_;
};

}  // namespace

void register_batching(torch::Library& library, const Operator& op) {
  library.impl(op.name.c_str(),
               torch::dispatch(c10::DispatchKey::FuncTorchBatched,
                               torch::CppFunction::makeFromBoxedKernel(
                                   c10::BoxedKernel::makeFromFunctor(std::make_unique<Batching>(op)))));
}

}  // namespace truefuse::binding
