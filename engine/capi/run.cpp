#include <algorithm>
#include <string>

#include <truefuse/capi/run.h>
#include <truefuse/contract/check.h>
#include <truefuse/gpu/kernel_table.h>

namespace truefuse::capi {
namespace {

DType dtype_of(const std::string& where, std::int32_t dtype) {
  switch (dtype) {
    case truefuse_f64:
      return DType::f64;
    case truefuse_f32:
      return DType::f32;
    case truefuse_f16:
      return DType::f16;
    case truefuse_bf16:
      return DType::bf16;
    default:
      throw Error(where + " has dtype " + std::to_string(dtype) +
                  "; it must be one of enum truefuse_dtype");
  }
}

TensorView view_of(const std::string& where, const truefuse_tensor* tensor, int device) {
  if (tensor == nullptr) throw Error(where + " is NULL; pass a truefuse_tensor");
  const DType dtype = dtype_of(where, tensor->dtype);
  if (tensor->dims < 0 || tensor->dims > static_cast<std::int32_t>(kMaxDims) ||
      (tensor->dims > 0 && (tensor->sizes == nullptr || tensor->strides == nullptr))) {
    throw Error(where + " has " + std::to_string(tensor->dims) +
                " dimensions; it must have 0 to 64, with sizes and strides");
  }
  const auto dims = static_cast<std::size_t>(tensor->dims);
  const TensorView view{dtype,
                        {DeviceType::cuda, device},
                        {tensor->sizes, dims},
                        {tensor->strides, dims},
                        tensor->data};
  if (view.data == nullptr &&
      std::none_of(view.sizes.begin(), view.sizes.end(), [](auto size) { return size == 0; })) {
    throw Error(where + ".data is NULL; pass a pointer to device memory");
  }
  return view;
}

std::string list(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values)
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  return '[' + text + ']';
}

/// Whether the strides are those of the promised layout; as always, where a size is 1 or an element
/// is missing they do not matter.
bool has_strides(const TensorView& output, std::span<const std::int64_t> wanted) {
  for (const std::int64_t size : output.sizes) {
    if (size == 0) return true;
  }
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    if (output.sizes[d] > 1 && output.strides[d] != wanted[d]) return false;
  }
  return true;
}

void check_output(const RawCall& call, const Sizes<std::int64_t>& sizes, std::size_t i) {
  const Contract& contract = call.op.contract;
  const TensorView& output = call.outputs[i];
  const std::string name = call.op.name + ": " + contract.outputs()[i].name;
  const std::span<const Argument> arguments(call.arguments);
  SmallVector<std::int64_t, 8> wanted, strides;
  output_sizes<std::int64_t>(contract, sizes, arguments, i, wanted);
  const std::span<const std::int64_t> wanted_sizes = wanted;
  if (!std::equal(wanted_sizes.begin(), wanted_sizes.end(), output.sizes.begin(),
                  output.sizes.end())) {
    throw Error(name + " is " + list(output.sizes) + "; it must be " + list(wanted_sizes));
  }
  const DType dtype = output_dtype<std::int64_t>(contract, arguments, i);
  if (output.dtype != dtype) {
    throw Error(name + " is " + std::string(torch_name(output.dtype)) + "; it must be " +
                std::string(torch_name(dtype)));
  }
  if (contract.outputs()[i].tensor.layout == Layout::dense) {
    output_strides<std::int64_t>(contract, arguments, i, strides);
  } else {
    for (std::size_t d = 0; d < output.sizes.size(); ++d) strides.push_back(1);
    for (std::size_t d = output.sizes.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * output.sizes[d];
    }
  }
  if (!has_strides(output, strides)) {
    throw Error(name + " has strides " + list(output.strides) + "; they must be " + list(strides));
  }
}

}  // namespace

void RawCall::add_argument(const truefuse_tensor* tensor) {
  const std::string& name = op.contract.arguments()[arguments.size()].name;
  arguments.emplace_back(view_of(op.name + ": " + name, tensor, device));
}

void RawCall::add_argument(const char* text) {
  const std::string& name = op.contract.arguments()[arguments.size()].name;
  if (text == nullptr) throw Error(op.name + ": " + name + " is NULL; pass a text");
  arguments.emplace_back(std::string_view(text));
}

void RawCall::add_output(const truefuse_tensor* tensor) {
  const std::string& name = op.contract.outputs()[outputs.size()].name;
  outputs.push_back(view_of(op.name + ": " + name, tensor, device));
}

void RawCall::run() const {
  const Sizes<std::int64_t> sizes = check<std::int64_t>(op.contract, op.name, arguments);
  for (std::size_t i = 0; i < outputs.size(); ++i) check_output(*this, sizes, i);
  gpu::run(op, {arguments, outputs}, device, stream, [&](std::size_t bytes) -> void* {
    throw Error(op.name + " needs " + std::to_string(bytes) +
                " bytes of scratch memory, which only a framework can give");
  });
}

}  // namespace truefuse::capi
