#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <truefuse/contract/sizes.h>
#include <truefuse/contract/text.h>
#include <truefuse/core/error.h>
#include <truefuse/core/tensor.h>

namespace truefuse::detail {

/// A call while it is checked: `sizes` holds what is bound so far.
template <class Dim>
struct CallState {
  const Contract& contract;
  std::string_view op_name;
  std::span<const BasicArgument<Dim>> arguments;
  const Sizes<Dim>& sizes;
};

/// The sentences of refused calls, all about one argument. They read: operator, argument, what it
/// is, what is wanted, what to do.
template <class Dim>
class Refusal {
 public:
  using View = BasicTensorView<Dim>;

  Refusal(const CallState<Dim>& call, std::size_t argument)
      : call_(call), argument_(argument), name_(call.contract.arguments()[argument].name) {}

  /// Missing, of another kind, or a scalar outside its values.
  [[noreturn]] void value() const {
    const auto& spec = call_.contract.arguments()[argument_].spec;
    if (const auto* scalar = std::get_if<ScalarSpec>(&spec)) {
      fail(name_ + " is " + value_text() + "; it must be " +
           std::visit([](const auto& kind) { return kind.wanted(); }, *scalar) + ".");
    }
    const std::string dims = call_.contract.text_of_dims(this->spec());
    const std::string shape = wanted_shape();
    fail(name_ + " is " + value_text() + "; it must be a tensor " + dims + "." +
         (shape == dims ? "" : " " + pass_shape()));
  }

  [[noreturn]] void malformed(std::string_view what) const {
    fail("sizes " + list(view().sizes) + " and strides " + list(view().strides) + " of " + name_ +
         " " + std::string(what) + ", so they describe no tensor.");
  }

  [[noreturn]] void too_many_dims() const {
    fail(name_ + " has " + std::to_string(view().sizes.size()) +
         " dimensions; it must have at most " + std::to_string(kMaxDims) +
         ". Join some of them, for instance " + name_ + ".flatten(0, 1).");
  }

  [[noreturn]] void unsupported_device() const {
    fail(name_ + " is on " + to_string(view().device) +
         "; it must be on cpu, on cuda (also for ROCm and DCU) or on meta. Move it, for instance " +
         name_ + ".to(\"cpu\").");
  }

  [[noreturn]] void other_device(std::size_t first) const {
    const Device& wanted = view(first).device;
    const std::string to = to_string(wanted);
    std::string advice = "Move one of them: " + name_ + ".to(\"" + to + "\").";
    if (view().device.type == DeviceType::meta) {
      advice = "A meta tensor has no data to move: make " + name_ + " on " + to + ".";
    }
    fail(name_ + " is on " + to_string(view().device) + "; " + name(first) + " is on " + to + ". " +
         in_place_or(advice));
  }

  [[noreturn]] void dtype() const {
    const bool nameless = view().dtype == DType::other;
    std::string text = name_ + (nameless ? " has " : " is ") + torch(view().dtype) + "; ";
    DType target{};
    std::string how = "Convert it";
    if (spec().like) {
      target = view(*spec().like).dtype;
      text += "it must have the dtype of " + name(*spec().like) + ", " + torch(target);
    } else {
      target = spec().dtypes[0];
      std::vector<std::string> names;
      for (const DType dtype : spec().dtypes) names.push_back(torch(dtype));
      text += "it must be " + either(names);
      if (names.size() > 1) how += ", for instance";
    }
    how += (spec().like || spec().dtypes.size() == 1 ? ": " : " ") + name_ + ".to(torch." +
           torch(target) + ").";
    fail(text + ". " + in_place_or(how));
  }

  [[noreturn]] void rank() const {
    const std::size_t rank = view().sizes.size();
    const std::string dims = call_.contract.text_of_dims(spec());
    std::string text = name_ + " has " + counted(std::to_string(rank), "dimension");
    if (rank != 0) text += " (it is " + list(view().sizes) + ")";
    text += std::string("; it must have ") + (spec().pack ? "at least " : "") +
            std::to_string(spec().dims.size()) + ": " + dims + ".";
    const std::string shape = wanted_shape();
    fail(text + (shape == dims ? "" : " " + pass_shape()));
  }

  /// The leading dimensions differ from those that the pack is bound to.
  [[noreturn]] void pack() const {
    const std::size_t binder = call_.sizes.argument(*spec().pack);
    fail(name_ + " is " + list(view().sizes) + "; its leading dimensions (" +
         call_.contract.symbols()[*spec().pack].name + ") must be " +
         list(pack_sizes(call_.contract, call_.sizes, call_.arguments, *spec().pack)) + ", as in " +
         name(binder) + " (" + list(view(binder).sizes) + "). " + pass_shape());
  }

  /// `i` counts the dimensions after the pack.
  [[noreturn]] void size(std::size_t i) const {
    const DimSpec& dim = spec().dims[i];
    const bool is_list = view().sizes.size() == 1;
    const std::string found = DimTraits<Dim>::text(view().sizes[leading() + i]);
    std::string text = is_list ? name_ + " has " + counted(found, "element")
                               : dimension(leading() + i) + " is " + found;
    if (dim.symbols.empty()) {
      text += std::string("; it must ") + (is_list ? "have " : "be ") + std::to_string(dim.factor);
    } else if (!all_bound(dim, call_.sizes)) {
      text += "; it must " + std::string(is_list ? "have " : "be ") + "a multiple of " +
              std::to_string(dim.factor) + " (" + call_.contract.text_of(dim) + ")";
      fail(text + ".");
    } else {
      text += "; " + known(dim);
    }
    fail(text + ". " + pass_shape());
  }

  /// An integer that is a size, and not the one that the symbol is bound to.
  [[noreturn]] void integer_size(std::size_t symbol) const {
    fail(name_ + " is " + value_text() + "; " + known({1, {symbol}}) + ". Pass what is true.");
  }

  /// A product that 64 bits cannot hold.
  [[noreturn]] void product(std::size_t i) const {
    fail(dimension(leading() + i) + " must be " + call_.contract.text_of(spec().dims[i]) +
         ", which does not fit in 64 bits (" + binders(spec().dims[i]) +
         "). Pass smaller tensors.");
  }

  [[noreturn]] void strides(const StrideFault<Dim>& fault) const {
    fail(stride_at(fault.dimension) + "; it must be " + DimTraits<Dim>::text(fault.wanted) + " (" +
         described() + "): " + name_ + " is " + std::string(layout_word(spec().layout).complaint) +
         ". " + in_place_or("Pass " + name_ + ".contiguous(), which copies it."));
  }

  [[noreturn]] void alignment(std::int64_t past) const {
    const std::string bytes = counted(std::to_string(spec().alignment), "byte");
    fail("the data of " + name_ + " begins " + counted(std::to_string(past), "byte") +
         " past a multiple of " + bytes + "; it must be aligned to " + bytes + ". " +
         in_place_or("Pass " + name_ + ".clone(), which has memory of its own."));
  }

  [[noreturn]] void expanded(std::size_t i) const {
    fail(stride_at(i) + ", so several elements are one (" + described() + "); " + name_ +
         " is written in place and must hold each element once. Allocate it in full instead of "
         "expanding it.");
  }

  [[noreturn]] void self_overlap() const {
    fail("elements of " + name_ + " overlap in memory (" + described() + "); " + name_ +
         " is written in place and must hold each element once. Allocate it in full.");
  }

  /// This argument is written in place.
  [[noreturn]] void shared_memory(std::size_t other, bool is_same) const {
    const TensorSpec& other_spec = *call_.contract.arguments()[other].tensor();
    fail(name_ + " is written in place, and " + name(other) +
         (is_same ? " is the same memory" : " overlaps it in memory") + "; they must be apart. " +
         (other_spec.mutated ? "Give each memory of its own."
                             : "Pass " + name(other) + ".clone() as " + name(other) + "."));
  }

  /// The product of an output's dimension, which 64 bits cannot hold.
  [[noreturn]] void output(const OutputSpec& output, const DimSpec& dim) const {
    fail("a size of " + output.name + " would be " + call_.contract.text_of(dim) +
         ", which does not fit in 64 bits (" + binders(dim) + "). Pass smaller tensors.");
  }

 private:
  [[noreturn]] void fail(const std::string& sentence) const {
    throw Error(std::string(call_.op_name) + ": " + sentence);
  }

  const TensorSpec& spec() const { return *call_.contract.arguments()[argument_].tensor(); }
  const View& view(std::size_t i) const { return std::get<View>(call_.arguments[i]); }
  const View& view() const { return view(argument_); }
  const std::string& name(std::size_t i) const { return call_.contract.arguments()[i].name; }
  static std::string torch(DType dtype) { return std::string(torch_name(dtype)); }

  /// Number of dimensions in front of those that the contract names.
  std::size_t leading() const { return view().sizes.size() - spec().dims.size(); }

  static std::string list(std::span<const Dim> values) {
    std::string text;
    for (const Dim& value : values)
      text += (text.empty() ? "" : ", ") + DimTraits<Dim>::text(value);
    return '[' + text + ']';
  }

  std::string described() const {
    return name_ + " is " + list(view().sizes) + " with strides " + list(view().strides);
  }

  std::string dimension(std::size_t i) const {
    if (i + 1 == view().sizes.size()) return "the last dimension of " + name_;
    return "dimension " + std::to_string(i) + " of " + name_;
  }

  std::string stride_at(std::size_t i) const {
    return dimension(i) + " (size " + DimTraits<Dim>::text(view().sizes[i]) + ") has stride " +
           DimTraits<Dim>::text(view().strides[i]);
  }

  /// A copy of an argument that is written in place would take the result along.
  std::string in_place_or(const std::string& advice) const {
    if (!spec().mutated) return advice;
    return "It is written in place, so allocate it that way: a copy would get the result instead.";
  }

  std::string value_text() const { return value_text(argument_); }
  std::string value_text(std::size_t i) const {
    struct Visitor {
      std::string operator()(std::monostate) const { return "missing (None)"; }
      std::string operator()(const View&) const { return "a tensor"; }
      std::string operator()(std::int64_t value) const { return std::to_string(value); }
      std::string operator()(double value) const { return number_text(value); }
      std::string operator()(bool value) const { return value ? "True" : "False"; }
      std::string operator()(std::string_view value) const {
        return '"' + std::string(value) + '"';
      }
    };
    return std::visit(Visitor{}, call_.arguments[i]);
  }

  /// "H is 3: x is [2, 3]; G is 4: w is [4]"
  std::string binders(const DimSpec& dim) const {
    std::string text;
    for (const std::size_t symbol : std::set<std::size_t>(dim.symbols.begin(), dim.symbols.end())) {
      const std::size_t binder = call_.sizes.argument(symbol);
      text += (text.empty() ? "" : "; ") + call_.contract.symbols()[symbol].name + " is " +
              DimTraits<Dim>::text(call_.sizes[symbol]) + ": " + as_given(binder);
    }
    return text;
  }

  /// "hidden is 8 (x is [2, 8])"
  std::string known(const DimSpec& dim) const {
    Dim value{};
    evaluate(dim, call_.sizes, value);
    const std::string text =
        call_.contract.text_of(dim) + " is " + DimTraits<Dim>::text(value) + " (";
    if (!dim.is_plain()) return text + binders(dim) + ")";
    return text + as_given(call_.sizes.argument(dim.symbols[0])) + ")";
  }

  /// "x is [2, 8]", "num_heads is 4"
  std::string as_given(std::size_t i) const {
    const View* tensor = std::get_if<View>(&call_.arguments[i]);
    return name(i) + " is " + (tensor != nullptr ? list(tensor->sizes) : value_text(i));
  }

  std::string pass_shape() const {
    return "Pass " + with_article(name_) + " of shape " + wanted_shape() + ".";
  }

  /// The shape that would be right: what is bound, else what the argument has, else the symbol.
  std::string wanted_shape() const {
    const View* own = std::get_if<View>(&call_.arguments[argument_]);
    const std::size_t dims = spec().dims.size();
    if (own != nullptr &&
        (own->sizes.size() < dims || (!spec().pack && own->sizes.size() != dims))) {
      own = nullptr;
    }
    std::string text;
    const auto add = [&](const std::string& item) { text += (text.empty() ? "" : ", ") + item; };
    if (spec().pack) {
      if (call_.sizes.bound(*spec().pack)) {
        for (const Dim& size :
             pack_sizes(call_.contract, call_.sizes, call_.arguments, *spec().pack)) {
          add(DimTraits<Dim>::text(size));
        }
      } else {
        add(call_.contract.symbols()[*spec().pack].name + "..");
      }
    }
    for (std::size_t i = 0; i < dims; ++i) {
      const DimSpec& dim = spec().dims[i];
      Dim value{};
      if (all_bound(dim, call_.sizes) && evaluate(dim, call_.sizes, value)) {
        add(DimTraits<Dim>::text(value));
      } else if (own != nullptr && dim.is_plain()) {
        add(DimTraits<Dim>::text(own->sizes[own->sizes.size() - dims + i]));
      } else {
        add(call_.contract.text_of(dim));
      }
    }
    return '[' + text + ']';
  }

  const CallState<Dim>& call_;
  std::size_t argument_;
  const std::string& name_;
};

}  // namespace truefuse::detail
