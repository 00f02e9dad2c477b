#include <array>

#include <truefuse/contract/small_vector.h>
#include <truefuse/core/error.h>
#include <truefuse/description/plan_values.h>

namespace truefuse::description {
namespace {

namespace abi = host::abi;

abi::Text text_of(std::string_view text) { return {text.data(), text.size()}; }

/// The facts of a call in the form that the function takes, without a copy of what they point at.
struct Facts {
  SmallVector<abi::Tensor, 12> tensors;
  SmallVector<abi::Number, 12> numbers;
  SmallVector<abi::Real, 4> reals;
  SmallVector<abi::Word, 4> words;

  void add(const std::string& name, const TensorView* view) {
    abi::Tensor tensor{text_of(name), text_of(""), nullptr, nullptr, nullptr, -1, 0};
    if (view != nullptr) {
      tensor = {text_of(name),
                text_of(short_name(view->dtype)),
                view->data,
                view->sizes.data(),
                view->strides.data(),
                static_cast<std::int64_t>(view->sizes.size()),
                static_cast<std::int64_t>(size_of(view->dtype))};
    }
    tensors.push_back(tensor);
  }

  /// Whole numbers come from elsewhere: sizes are numbers too.
  void add(const ArgumentSpec& argument, const Argument& value) {
    if (argument.tensor() != nullptr) {
      add(argument.name, std::get_if<TensorView>(&value));
    } else if (const auto* real = std::get_if<double>(&value)) {
      reals.push_back({text_of(argument.name), *real});
    } else if (const auto* word = std::get_if<std::string_view>(&value)) {
      words.push_back({text_of(argument.name), text_of(*word)});
    }
  }
};

abi::Device device_of(const DeviceFacts& device) {
  return {text_of(device.arch), device.multiprocessors_or_one(), device.wave,
          device.max_shared_bytes, device.max_shared_bytes_opt_in};
}

}  // namespace

void PlanValues::evaluate(const Contract& contract, const Call& call, const DeviceFacts& device,
                          const std::int64_t* slots, std::int64_t* values) const {
  Facts facts;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    facts.add(contract.arguments()[i], call.arguments[i]);
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    facts.add(contract.outputs()[i].name, &call.outputs[i]);
  }
  for (const auto& [name, slot] : numbers_) facts.numbers.push_back({text_of(name), slots[slot]});
  const abi::Call given{facts.tensors.data(), facts.tensors.size(), facts.numbers.data(),
                        facts.numbers.size(), facts.reals.data(),   facts.reals.size(),
                        facts.words.data(),   facts.words.size(),   device_of(device)};
  std::array<abi::Value, kMost> wanted;
  for (std::size_t i = 0; i < names_.size(); ++i) wanted[i] = {text_of(names_[i]), 0, 0};
  std::array<char, 1024> error;
  if (function_(&given, wanted.data(), names_.size(), error.data(), error.size()) != 0) {
    throw Error(op_ + ": " + file_ + ": " + error.data());
  }
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (wanted[i].is_given == 0) {
      throw Error(op_ + ": " + file_ + " gives no " + names_[i] +
                  ", which the description takes from it");
    }
    values[i] = wanted[i].value;
  }
}

}  // namespace truefuse::description
