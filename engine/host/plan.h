#pragma once

// What the C++ file of a description includes. `plan: plan.cpp -> splits` in a description takes
// the value `splits` from a function, where expressions do not suffice: loops, tables, a search.
//
//   #include "truefuse/host/plan.h"
//
//   void plan(const truefuse::host::Call& call, truefuse::host::Values& values) {
//     std::int64_t splits = 1;
//     while (call.number("rows") * splits < call.device().multiprocessors) splits *= 2;
//     values["splits"] = splits;
//   }
//   TRUEFUSE_PLAN(plan)
//
// The function runs before each call, in any thread, and for made-up calls when the description is
// read. So it gives the same values for the same call, keeps nothing, and never reads what a tensor
// points at, which is memory of a device or none at all. A std::exception that it throws is the
// error of the call.
//
// This header needs nothing of the library. The file is compiled when the description is read, by
// g++ as C++20, and loaded; between it and the library there is only `abi`, plain data. A change of
// `abi` is a new version.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace truefuse::host {

namespace abi {

inline constexpr std::uint32_t kVersion = 1;

struct Text {
  const char* data;
  std::size_t size;
};
struct Tensor {
  Text name, dtype;
  const void* data;
  const std::int64_t* sizes;
  const std::int64_t* strides;
  std::int64_t rank;  ///< -1: optional, and not given.
  std::int64_t element_bytes;
};
struct Number {
  Text name;
  std::int64_t value;
};
struct Real {
  Text name;
  double value;
};
struct Word {
  Text name, text;
};
struct Device {
  Text arch;
  std::int32_t multiprocessors, wave, max_shared_bytes, max_shared_bytes_opt_in;
};
struct Call {
  const Tensor* tensors;
  std::size_t tensor_count;
  const Number* numbers;
  std::size_t number_count;
  const Real* reals;
  std::size_t real_count;
  const Word* words;
  std::size_t word_count;
  Device device;
};
struct Value {
  Text name;
  std::int64_t value;
  std::int32_t is_given;
};

/// Fills the values. Not 0: `error` holds a sentence, cut to its room and ended by a NUL.
using Function = std::int32_t(const Call* call, Value* values, std::size_t value_count, char* error,
                              std::size_t error_bytes);

struct Plan {
  std::uint32_t version;
  Function* function;
};

/// The one function that a compiled file exports.
using Export = const Plan*();
inline constexpr const char* kExport = "truefuse_exported_plan";

inline std::string_view view(const Text& text) { return {text.data, text.size}; }

/// The one of `list` that has the name. Throws, with the names that there are.
template <class T>
T& named(T* list, std::size_t count, std::string_view name, const char* what) {
  std::string names;
  for (std::size_t i = 0; i < count; ++i) {
    if (view(list[i].name) == name) return list[i];
    names += (names.empty() ? "" : ", ") + std::string(view(list[i].name));
  }
  throw std::invalid_argument("there is no " + std::string(what) + " " + std::string(name) +
                              "; there are " + (names.empty() ? "none" : names));
}

}  // namespace abi

/// A tensor argument or output. Sizes and strides are in elements; dimensions count from 0, from
/// the end if negative.
class Tensor {
 public:
  explicit Tensor(const abi::Tensor& facts) : facts_(facts) {}

  bool given() const { return facts_.rank >= 0; }  ///< False: optional, and left out.
  std::string_view dtype() const { return abi::view(facts_.dtype); }  ///< "bf16"
  std::int64_t bytes() const { return facts_.element_bytes; }         ///< Of one element.
  std::int64_t rank() const { return facts_.rank; }
  std::int64_t size(std::int64_t i) const { return facts_.sizes[dimension(i)]; }
  std::int64_t stride(std::int64_t i) const { return facts_.strides[dimension(i)]; }
  const void* data() const { return facts_.data; }  ///< For its alignment; never to be read.

  std::int64_t elements() const {
    std::int64_t count = given() ? 1 : 0;
    for (std::int64_t i = 0; i < facts_.rank; ++i) count *= facts_.sizes[i];
    return count;
  }

 private:
  std::size_t dimension(std::int64_t i) const {
    const std::int64_t place = i < 0 ? i + facts_.rank : i;
    if (place < 0 || place >= facts_.rank) {
      throw std::out_of_range("dimension " + std::to_string(i) + " of " +
                              std::string(abi::view(facts_.name)) + ", which " +
                              (given() ? "has " + std::to_string(facts_.rank) : "is not given"));
    }
    return static_cast<std::size_t>(place);
  }

  const abi::Tensor& facts_;
};

/// What is known of a call, by the names of the contract.
class Call {
 public:
  explicit Call(const abi::Call& facts) : facts_(facts) {}

  Tensor tensor(std::string_view name) const {
    return Tensor(abi::named(facts_.tensors, facts_.tensor_count, name, "tensor"));
  }
  /// A size, `rows` of `rows..` being the product of its dimensions; an int argument; 1 or 0 of a
  /// bool.
  std::int64_t number(std::string_view name) const {
    return abi::named(facts_.numbers, facts_.number_count, name, "number").value;
  }
  /// A float argument.
  double real(std::string_view name) const {
    return abi::named(facts_.reals, facts_.real_count, name, "float argument").value;
  }
  /// An argument that is one of several words.
  std::string_view word(std::string_view name) const {
    return abi::view(abi::named(facts_.words, facts_.word_count, name, "word").text);
  }
  const abi::Device& device() const { return facts_.device; }

 private:
  const abi::Call& facts_;
};

/// The values that the description names; each must be given.
class Values {
 public:
  Values(abi::Value* values, std::size_t count) : values_(values), count_(count) {}

  std::int64_t& operator[](std::string_view name) {
    abi::Value& value = abi::named(values_, count_, name, "value of the description's plan named");
    value.is_given = 1;
    return value.value;
  }

 private:
  abi::Value* values_;
  std::size_t count_;
};

namespace abi {

template <void (*function)(const host::Call&, host::Values&)>
std::int32_t run(const Call* facts, Value* values, std::size_t value_count, char* error,
                 std::size_t error_bytes) {
  const auto fail = [&](const char* words) {
    std::strncpy(error, words, error_bytes - 1);
    error[error_bytes - 1] = '\0';
    return 1;
  };
  try {
    const host::Call call(*facts);
    host::Values wanted(values, value_count);
    function(call, wanted);
    return 0;
  } catch (const std::exception& thrown) {
    return fail(thrown.what());
  } catch (...) {
    return fail("it threw something that is no std::exception");
  }
}

}  // namespace abi
}  // namespace truefuse::host

/// Once in the file, outside of any namespace: the function that gives the values.
#define TRUEFUSE_PLAN(function)                                                      \
  extern "C" __attribute__((visibility("default"))) const truefuse::host::abi::Plan* \
  truefuse_exported_plan() {                                                         \
    static constexpr truefuse::host::abi::Plan truefuse_plan{                        \
        truefuse::host::abi::kVersion, &truefuse::host::abi::run<(function)>};       \
    return &truefuse_plan;                                                           \
  }
