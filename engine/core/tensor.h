#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <truefuse/core/dtype.h>

namespace truefuse {

/// As PyTorch names them: ROCm and DCU devices are `cuda` too. `other` is any device that no
/// operator here runs on.
enum class DeviceType : std::uint8_t { cpu, cuda, meta, other };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = -1;  ///< -1 where the device type has only one.

  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0", "meta".
std::string to_string(const Device& device);

/// Dimensions of a tensor at most: loops over one have tables of this size.
inline constexpr std::size_t kMaxDims = 64;

/// A tensor somebody else owns: sizes and strides in elements, outermost first. `Dim` is
/// std::int64_t, or a symbolic integer while PyTorch traces shapes.
template <class Dim>
struct BasicTensorView {
  DType dtype = DType::other;
  Device device;
  std::span<const Dim> sizes;
  std::span<const Dim> strides;
  void* data = nullptr;  ///< Null for meta tensors and for tensors without elements.
};
using TensorView = BasicTensorView<std::int64_t>;

/// One argument of a call, in the order of the schema. std::monostate is an optional argument that
/// was not given.
template <class Dim>
using BasicArgument = std::variant<std::monostate, BasicTensorView<Dim>, std::int64_t, double, bool,
                                   std::string_view>;
using Argument = BasicArgument<std::int64_t>;

}  // namespace truefuse
