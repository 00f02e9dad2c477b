#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <truefuse/binding/call.h>
#include <truefuse/binding/stream.h>
#include <truefuse/contract/check.h>
#include <truefuse/core/error.h>
#include <truefuse/gpu/kernel_table.h>

namespace truefuse::binding {
namespace {

DType dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return DType::f64;
    case c10::ScalarType::Float:
      return DType::f32;
    case c10::ScalarType::Half:
      return DType::f16;
    case c10::ScalarType::BFloat16:
      return DType::bf16;
    case c10::ScalarType::Float8_e4m3fn:
      return DType::f8e4m3;
    case c10::ScalarType::Float8_e5m2:
      return DType::f8e5m2;
    case c10::ScalarType::Long:
      return DType::i64;
    case c10::ScalarType::Int:
      return DType::i32;
    case c10::ScalarType::Short:
      return DType::i16;
    case c10::ScalarType::Char:
      return DType::i8;
    case c10::ScalarType::Byte:
      return DType::u8;
    case c10::ScalarType::Bool:
      return DType::boolean;
    case c10::ScalarType::ComplexFloat:
      return DType::c64;
    case c10::ScalarType::ComplexDouble:
      return DType::c128;
    default:
      return DType::other;
  }
}

c10::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return c10::ScalarType::Double;
    case DType::f32:
      return c10::ScalarType::Float;
    case DType::f16:
      return c10::ScalarType::Half;
    case DType::bf16:
      return c10::ScalarType::BFloat16;
    case DType::f8e4m3:
      return c10::ScalarType::Float8_e4m3fn;
    case DType::f8e5m2:
      return c10::ScalarType::Float8_e5m2;
    case DType::i64:
      return c10::ScalarType::Long;
    case DType::i32:
      return c10::ScalarType::Int;
    case DType::i16:
      return c10::ScalarType::Short;
    case DType::i8:
      return c10::ScalarType::Char;
    case DType::u8:
      return c10::ScalarType::Byte;
    case DType::boolean:
      return c10::ScalarType::Bool;
    case DType::c64:
      return c10::ScalarType::ComplexFloat;
    case DType::c128:
      return c10::ScalarType::ComplexDouble;
    case DType::other:
      break;
  }
  throw Error("a contract promises an output of a dtype that PyTorch does not have");
}

Device view_device(const at::Tensor& tensor) {
  const at::Device device = tensor.device();
  switch (device.type()) {
    case at::kCPU:
      return {DeviceType::cpu, -1};
    case at::kCUDA:
      return {DeviceType::cuda, device.index()};
    case at::kMeta:
      return {DeviceType::meta, -1};
    default:
      return {DeviceType::other, device.index()};
  }
}

at::Tensor allocate(c10::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty(sizes, options);
}
at::Tensor allocate(c10::SymIntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty_symint(sizes, options);
}

at::Tensor allocate(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                    const at::TensorOptions& options) {
  return at::empty_strided(sizes, strides, options);
}
at::Tensor allocate(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                    const at::TensorOptions& options) {
  return at::empty_strided_symint(sizes, strides, options);
}

at::Device torch_device(const Device& device) {
  switch (device.type) {
    case DeviceType::cpu:
      return at::kCPU;
    case DeviceType::meta:
      return at::kMeta;
    default:
      return {at::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
  }
}

/// Checks the arguments and allocates the outputs that the contract promises.
template <class Dim>
void check_and_allocate(const Operator& op, std::span<const BasicArgument<Dim>> arguments,
                        Outputs& outputs) {
  const Sizes<Dim> sizes = check<Dim>(op.contract, op.name, arguments);
  const Device device = output_device<Dim>(arguments);
  for (std::size_t i = 0; i < op.contract.outputs().size(); ++i) {
    SmallVector<Dim, 8> output;
    output_sizes<Dim>(op.contract, sizes, arguments, i, output);
    const DType dtype = output_dtype<Dim>(op.contract, arguments, i);
    const auto options =
        at::TensorOptions().dtype(scalar_type_of(dtype)).device(torch_device(device));
    const c10::ArrayRef<Dim> wanted(output.data(), output.size());
    if (op.contract.outputs()[i].tensor.layout == Layout::dense) {
      SmallVector<Dim, 8> strides;
      output_strides<Dim>(op.contract, arguments, i, strides);
      outputs.push_back(
          allocate(wanted, c10::ArrayRef<Dim>(strides.data(), strides.size()), options));
    } else {
      outputs.push_back(allocate(wanted, options));
    }
  }
}

void* data_of(const at::Tensor& tensor, bool is_written) {
  if (tensor.is_meta()) return nullptr;
  return is_written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
}

using OutputViews = c10::SmallVector<TensorView, 2>;

OutputViews views_of(const Outputs& outputs) {
  static const ArgumentSpec kFresh;
  OutputViews views;
  for (const at::Tensor& output : outputs) {
    views.push_back(std::get<TensorView>(View<std::int64_t>::of(output, kFresh)));
  }
  return views;
}

bool is_written(const Operator& op, std::span<const at::Tensor* const> tensors, std::size_t i) {
  return tensors[i] != nullptr && tensors[i]->defined() && op.contract.arguments()[i].is_mutated();
}

bool values_are_checked() {
  const char* text = std::getenv("TRUEFUSE_CHECK");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

/// Operator::check_values on host copies of the integer tensors. Waits for the device.
void check_on_host(const Operator& op, std::span<const Argument> arguments) {
  std::vector<Argument> seen(arguments.begin(), arguments.end());
  std::vector<at::Tensor> copies;
  for (Argument& argument : seen) {
    auto* view = std::get_if<TensorView>(&argument);
    if (view == nullptr || (view->dtype != DType::i32 && view->dtype != DType::i64)) continue;
    const auto options =
        at::TensorOptions().dtype(scalar_type_of(view->dtype)).device(torch_device(view->device));
    const auto list = [](std::span<const std::int64_t> s) {
      return at::IntArrayRef(s.data(), s.size());
    };
    const at::Tensor& copy = copies.emplace_back(
        at::from_blob(view->data, list(view->sizes), list(view->strides), options).cpu());
    view->data = copy.data_ptr();
    view->strides = {copy.strides().data(), copy.strides().size()};
  }
  op.check_values({seen, {}});
}

/// The arguments of a meta call as one with plain numbers has them.
class KnownArguments {
 public:
  /// Nothing while a size or stride is symbolic: to ask which number it is would make a guard.
  static std::optional<KnownArguments> of(std::span<const BasicArgument<c10::SymInt>> arguments) {
    KnownArguments known;
    for (const BasicArgument<c10::SymInt>& argument : arguments) {
      if (!std::visit([&](const auto& value) { return known.add(value); }, argument)) return {};
    }
    return known;
  }
  std::span<const Argument> view() const { return arguments_; }

 private:
  template <class T>
  bool add(const T& value) {
    arguments_.emplace_back(value);
    return true;
  }
  bool add(const BasicTensorView<c10::SymInt>& view) {
    TensorView& known = std::get<TensorView>(
        arguments_.emplace_back(TensorView{view.dtype, view.device, {}, {}, nullptr}));
    return read(view.sizes, known.sizes) && read(view.strides, known.strides);
  }
  bool read(std::span<const c10::SymInt> symbolic, std::span<const std::int64_t>& known) {
    std::vector<std::int64_t>& numbers = numbers_.emplace_back();
    for (const c10::SymInt& value : symbolic) {
      const auto number = value.maybe_as_int();
      if (!number) return false;
      numbers.push_back(*number);
    }
    known = numbers;
    return true;
  }

  std::vector<Argument> arguments_;
  std::deque<std::vector<std::int64_t>> numbers_;  // What the views refer to, which stays in place.
};

}  // namespace

template <>
BasicArgument<std::int64_t> View<std::int64_t>::of(const at::Tensor& tensor, const Spec& spec) {
  if (!tensor.defined()) return std::monostate{};
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  return TensorView{dtype_of(tensor.scalar_type()),
                    view_device(tensor),
                    {sizes.data(), sizes.size()},
                    {strides.data(), strides.size()},
                    data_of(tensor, spec.is_mutated())};
}

template <>
BasicArgument<c10::SymInt> View<c10::SymInt>::of(const at::Tensor& tensor, const Spec& /*spec*/) {
  if (!tensor.defined()) return std::monostate{};
  const c10::SymIntArrayRef sizes = tensor.sym_sizes();
  const c10::SymIntArrayRef strides = tensor.sym_strides();
  return BasicTensorView<c10::SymInt>{dtype_of(tensor.scalar_type()),
                                      view_device(tensor),
                                      {sizes.data(), sizes.size()},
                                      {strides.data(), strides.size()},
                                      nullptr};
}

void run_cpu(const Operator& op, const CpuFunction& kernel, std::span<const Argument> arguments,
             Outputs& outputs) {
  check_and_allocate<std::int64_t>(op, arguments, outputs);
  if (kernel == nullptr) {
    throw Error(op.name + ": there is no CPU path for this operator; move its tensors to a GPU");
  }
  const OutputViews views = views_of(outputs);
  const Call call{arguments, {views.data(), views.size()}};
  if (op.check_values != nullptr) op.check_values(call);
  kernel(call);
}

void run_gpu(const Operator& op, std::span<const Argument> arguments, Outputs& outputs) {
  check_and_allocate<std::int64_t>(op, arguments, outputs);
  const OutputViews views = views_of(outputs);
  if (op.check_values != nullptr && values_are_checked()) check_on_host(op, arguments);
  const int device = output_device<std::int64_t>(arguments).index;
  // Freed when this function returns: the caching allocator hands it to later work of this stream
  // only, and while a graph is captured it comes from the graph's pool.
  at::Tensor scratch;
  const auto allocate = [&](std::size_t bytes) {
    scratch = at::empty({static_cast<std::int64_t>(bytes)},
                        at::TensorOptions().dtype(at::kByte).device(outputs[0].device()));
    return scratch.mutable_data_ptr();
  };
  gpu::run(op.now(), {arguments, {views.data(), views.size()}}, device, current_stream(device),
           allocate);
}

void run_meta(const Operator& op, std::span<const BasicArgument<c10::SymInt>> arguments,
              Outputs& outputs) {
  check_and_allocate<c10::SymInt>(op, arguments, outputs);
  if (op.check_arguments == nullptr) return;
  if (const auto known = KnownArguments::of(arguments)) op.check_arguments({known->view(), {}});
}

void refuse_inference_tensors(const Operator& op, std::span<const at::Tensor* const> tensors) {
  if (c10::InferenceMode::is_enabled()) return;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_written(op, tensors, i) || !tensors[i]->is_inference()) continue;
    throw Error(op.name + ": " + op.contract.arguments()[i].name +
                " is an inference tensor and is written in place, which PyTorch allows in "
                "inference mode only. Make the call under torch.inference_mode(), or allocate the "
                "tensor outside of it");
  }
}

void bump_versions(const Operator& op, std::span<const at::Tensor* const> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // An inference tensor has no version.
    if (!is_written(op, tensors, i) || tensors[i]->is_inference()) continue;
    tensors[i]->unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace truefuse::binding
