#include <memory>

#include <ATen/autocast_mode.h>

#include <truefuse/binding/autocast.h>

namespace truefuse::binding {
namespace {

bool is_converted(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

class Autocast final : public c10::OperatorKernel {
 public:
  explicit Autocast(const Operator& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::autocast_dispatch_keyset);
    const auto& specs = op_.contract.arguments();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const TensorSpec* spec = specs[i].tensor();
      c10::IValue& argument = torch::jit::peek(*stack, i, specs.size());
      if (spec == nullptr || !spec->like || spec->mutated || !argument.isTensor()) continue;
      const c10::IValue& followed = torch::jit::peek(*stack, *spec->like, specs.size());
      const at::ScalarType type = followed.toTensor().scalar_type();
      const at::Tensor& tensor = argument.toTensor();
      if (!tensor.defined() || !is_converted(type) || !is_converted(tensor.scalar_type())) continue;
      argument = at::autocast::cached_cast(type, tensor, tensor.device().type());
    }
    handle.callBoxed(stack);
  }

 private:
  const Operator& op_;
};

}  // namespace

void register_autocast(torch::Library& library, const Operator& op) {
  for (const c10::DispatchKey key :
       {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
    library.impl(op.name.c_str(),
                 torch::dispatch(
                     key, torch::CppFunction::makeFromBoxedKernel(
                              c10::BoxedKernel::makeFromFunctor(std::make_unique<Autocast>(op)))));
  }
}

}  // namespace truefuse::binding
