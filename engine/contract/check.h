#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <truefuse/contract/contract.h>
#include <truefuse/contract/memory.h>
#include <truefuse/contract/sentences.h>
#include <truefuse/contract/sizes.h>
#include <truefuse/core/error.h>
#include <truefuse/core/tensor.h>

namespace truefuse {
namespace detail {

template <class Dim>
class Checker {
 public:
  using View = BasicTensorView<Dim>;
  static constexpr bool kConcrete = DimTraits<Dim>::kConcrete;

  Checker(const CallState<Dim>& call, Sizes<Dim>& sizes) : call_(call), sizes_(sizes) {}

  void check_argument(std::size_t i) {
    const ArgumentSpec& argument = call_.contract.arguments()[i];
    const BasicArgument<Dim>& given = call_.arguments[i];
    if (argument.optional && std::holds_alternative<std::monostate>(given)) return;
    if (const TensorSpec* spec = argument.tensor()) {
      const View* view = std::get_if<View>(&given);
      if (view == nullptr) refuse(i).value();
      check_tensor(i, *spec, *view);
      return;
    }
    const auto accepts = [&](const auto& kind) { return kind.accepts(given); };
    if (!std::visit(accepts, *std::get_if<ScalarSpec>(&argument.spec))) refuse(i).value();
    if (argument.symbol) check_integer_size(i, *argument.symbol, std::get<std::int64_t>(given));
  }

  /// Every argument has been checked; writing in place must not change another one.
  void check_shared_memory() const requires(kConcrete) {
    const auto& specs = call_.contract.arguments();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].is_mutated()) continue;
      const View* written = std::get_if<View>(&call_.arguments[i]);
      for (std::size_t k = 0; written != nullptr && k < specs.size(); ++k) {
        const View* other = std::get_if<View>(&call_.arguments[k]);
        if (k == i || other == nullptr || are_apart(*written, *other)) continue;
        refuse(i).shared_memory(k, are_same_memory(*written, *other));
      }
    }
  }

  void check_outputs() const {
    for (const OutputSpec& output : call_.contract.outputs()) {
      for (const DimSpec& dim : output.tensor.dims) {
        Dim size{};
        if (!evaluate(dim, sizes_, size)) refuse(first_).output(output, dim);
      }
    }
  }

 private:
  Refusal<Dim> refuse(std::size_t argument) const { return {call_, argument}; }

  void check_tensor(std::size_t i, const TensorSpec& spec, const View& view) {
    check_view(i, view);
    check_device(i, view);
    check_dtype(i, spec, view);
    check_sizes(i, spec, view);
    if (const auto fault = find_stride_fault(spec.layout, view.sizes, view.strides)) {
      refuse(i).strides(*fault);
    }
    if constexpr (kConcrete) {
      const auto past = reinterpret_cast<std::uintptr_t>(view.data) &
                        static_cast<std::uintptr_t>(spec.alignment - 1);
      if (past != 0) refuse(i).alignment(static_cast<std::int64_t>(past));
    }
    if (spec.mutated) check_distinct(i, view);
  }

  void check_view(std::size_t i, const View& view) const {
    if (view.sizes.size() != view.strides.size()) refuse(i).malformed("differ in number");
    if (view.sizes.size() > kMaxDims) refuse(i).too_many_dims();
    if constexpr (kConcrete) {
      for (std::size_t k = 0; k < view.sizes.size(); ++k) {
        if (view.sizes[k] < 0 || view.strides[k] < 0) refuse(i).malformed("are partly negative");
      }
    }
  }

  void check_device(std::size_t i, const View& view) {
    if (view.device.type == DeviceType::other) refuse(i).unsupported_device();
    if (first_ == kNone) first_ = i;
    if (!(view.device == std::get_if<View>(&call_.arguments[first_])->device)) {
      refuse(i).other_device(first_);
    }
  }

  void check_dtype(std::size_t i, const TensorSpec& spec, const View& view) const {
    if (spec.like) {
      if (view.dtype != std::get_if<View>(&call_.arguments[*spec.like])->dtype) refuse(i).dtype();
      return;
    }
    for (const DType dtype : spec.dtypes) {
      if (view.dtype == dtype) return;
    }
    refuse(i).dtype();
  }

  void check_sizes(std::size_t i, const TensorSpec& spec, const View& view) {
    const std::size_t rank = view.sizes.size();
    const std::size_t dims = spec.dims.size();
    if (spec.pack ? rank < dims : rank != dims) refuse(i).rank();
    if (spec.pack) check_pack(i, *spec.pack, view.sizes.first(rank - dims));
    for (std::size_t k = 0; k < dims; ++k) {
      check_size(i, k, spec.dims[k], view.sizes[rank - dims + k]);
    }
  }

  void check_pack(std::size_t i, std::size_t symbol, std::span<const Dim> leading) {
    if (!sizes_.bound(symbol)) {
      sizes_.bind_pack(symbol, i);
      return;
    }
    const std::span<const Dim> wanted = pack_sizes(call_.contract, sizes_, call_.arguments, symbol);
    if (leading.size() != wanted.size()) refuse(i).pack();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (!(leading[k] == wanted[k])) refuse(i).pack();
    }
  }

  void check_size(std::size_t i, std::size_t k, const DimSpec& dim, const Dim& size) {
    if (!all_bound(dim, sizes_)) {
      // The grammar leaves one unknown: a name, or a number times a name.
      Dim value = size;
      if (dim.factor != 1 && !DimTraits<Dim>::divide(size, dim.factor, value)) refuse(i).size(k);
      sizes_.bind(dim.symbols[0], std::move(value), i);
      return;
    }
    Dim wanted{};
    if (!evaluate(dim, sizes_, wanted)) refuse(i).product(k);
    if (!(size == wanted)) refuse(i).size(k);
  }

  void check_integer_size(std::size_t i, std::size_t symbol, std::int64_t value) {
    if (!sizes_.bound(symbol)) return sizes_.bind(symbol, Dim(value), i);
    if (!(sizes_[symbol] == Dim(value))) refuse(i).integer_size(symbol);
  }

  void check_distinct(std::size_t i, const View& view) const {
    for (std::size_t k = 0; k < view.sizes.size(); ++k) {
      if (view.strides[k] == Dim(0) && Dim(1) < view.sizes[k]) refuse(i).expanded(k);
    }
    if constexpr (kConcrete) {
      if (!elements_are_distinct(view)) refuse(i).self_overlap();
    }
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  const CallState<Dim>& call_;
  Sizes<Dim>& sizes_;
  std::size_t first_ = kNone;  // The first tensor given.
};

}  // namespace detail

/// Checks a call, given in the order of the contract's arguments. Returns what its symbols are, or
/// throws Error with one sentence. Allocates nothing for a good call of up to 16 symbols.
///
/// With a symbolic Dim no pointer is looked at, and sizes are compared only where the contract
/// demands that they are equal, or where a stride is not what the layout asks for; so the row count
/// of a tensor stays symbolic.
template <class Dim>
Sizes<Dim> check(const Contract& contract, std::string_view op_name,
                 std::span<const BasicArgument<Dim>> arguments) {
  const std::size_t count = contract.arguments().size();
  if (arguments.size() != count) {
    throw Error(std::string(op_name) + ": " +
                counted(std::to_string(arguments.size()), "argument") + " given; it takes " +
                std::to_string(count) + ": " + contract.text() + ".");
  }
  Sizes<Dim> sizes(contract.symbols().size());
  const detail::CallState<Dim> call{contract, op_name, arguments, sizes};
  detail::Checker<Dim> checker(call, sizes);
  for (std::size_t i = 0; i < count; ++i) checker.check_argument(i);
  if constexpr (DimTraits<Dim>::kConcrete) {
    if (contract.mutates()) checker.check_shared_memory();
  }
  checker.check_outputs();
  return sizes;
}

extern template Sizes<std::int64_t> check(const Contract& contract, std::string_view op_name,
                                          std::span<const BasicArgument<std::int64_t>> arguments);

/// The sizes of an output of a checked call; `sizes` and `arguments` are those of the check. [0]
/// for an output that the call does not want.
template <class Dim>
void output_sizes(const Contract& contract, const Sizes<Dim>& sizes,
                  std::span<const BasicArgument<Dim>> arguments, std::size_t output_index,
                  SmallVector<Dim, 8>& out) {
  const OutputSpec& output = contract.outputs()[output_index];
  const TensorSpec& spec = output.tensor;
  out.clear();
  if (output.wanted && !std::get<bool>(arguments[*output.wanted])) {
    out.push_back(Dim(0));
    return;
  }
  if (spec.pack) {
    for (const Dim& size : pack_sizes(contract, sizes, arguments, *spec.pack)) out.push_back(size);
  }
  for (const DimSpec& dim : spec.dims) {
    Dim size{};
    evaluate(dim, sizes, size);  // The check has seen that it fits.
    out.push_back(std::move(size));
  }
}

/// The strides of a dense output; those of a contiguous one follow from its sizes.
template <class Dim>
void output_strides(const Contract& contract, std::span<const BasicArgument<Dim>> arguments,
                    std::size_t output_index, SmallVector<Dim, 8>& out) {
  const OutputSpec& output = contract.outputs()[output_index];
  out.clear();
  if (output.wanted && !std::get<bool>(arguments[*output.wanted])) {
    out.push_back(Dim(1));
    return;
  }
  const auto& model = std::get<BasicTensorView<Dim>>(arguments[*output.tensor.like]);
  dense_strides<Dim>(model.sizes, model.strides, out);
}

template <class Dim>
DType output_dtype(const Contract& contract, std::span<const BasicArgument<Dim>> arguments,
                   std::size_t output_index) {
  const TensorSpec& spec = contract.outputs()[output_index].tensor;
  if (!spec.like) return spec.dtypes[0];
  return std::get<BasicTensorView<Dim>>(arguments[*spec.like]).dtype;
}

/// Of every output: that of the first tensor given.
template <class Dim>
Device output_device(std::span<const BasicArgument<Dim>> arguments) {
  for (const BasicArgument<Dim>& argument : arguments) {
    if (const auto* view = std::get_if<BasicTensorView<Dim>>(&argument)) return view->device;
  }
  return {};
}

}  // namespace truefuse
