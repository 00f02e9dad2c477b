#include <algorithm>
#include <cstdint>
#include <limits>

#include <truefuse/contract/memory.h>
#include <truefuse/contract/small_vector.h>

namespace truefuse {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kUnlimited : sum;
}

std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kUnlimited : product;
}

/// The dimensions of a tensor that have more than one element, in bytes.
struct Steps {
  struct Step {
    std::uint64_t count = 0;  // Steps after the first element.
    std::uint64_t bytes = 0;

    std::uint64_t reach() const { return saturating_multiply(count, bytes); }
  };

  explicit Steps(const TensorView& tensor) : item(size_of(tensor.dtype)) {
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
      if (tensor.sizes[i] == 0) is_empty = true;
      if (tensor.sizes[i] <= 1) continue;
      dims.push_back({static_cast<std::uint64_t>(tensor.sizes[i]) - 1,
                      saturating_multiply(static_cast<std::uint64_t>(tensor.strides[i]), item)});
    }
    if (tensor.data == nullptr) is_empty = true;
  }

  /// Bytes from the first to past the last element, counting only steps that are not multiples of
  /// `modulus`; 0 counts all.
  std::uint64_t extent(std::uint64_t modulus) const {
    std::uint64_t bytes = item;
    for (const Step& step : dims) {
      if (modulus != 0 && step.bytes % modulus == 0) continue;
      bytes = saturating_add(bytes, step.reach());
    }
    return bytes;
  }

  std::uint64_t item;
  bool is_empty = false;
  SmallVector<Step, 8> dims;
};

/// Whether both repeat every `modulus` bytes and `b`, which begins `distance` bytes after `a`,
/// stays out of the slots of `a`.
bool apart_modulo(const Steps& a, const Steps& b, std::uint64_t distance, std::uint64_t modulus) {
  if (modulus == 0 || modulus == kUnlimited) return false;
  const std::uint64_t begin = distance % modulus;
  return begin >= a.extent(modulus) && saturating_add(begin, b.extent(modulus)) <= modulus;
}

}  // namespace

bool elements_are_distinct(const TensorView& tensor) {
  Steps steps(tensor);
  if (steps.is_empty) return true;
  Steps::Step* begin = steps.dims.data();
  Steps::Step* end = begin + steps.dims.size();
  std::sort(begin, end, [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  std::uint64_t inside = steps.item;
  for (const Steps::Step* step = begin; step != end; ++step) {
    if (step->bytes < inside || inside == kUnlimited) return false;
    inside = saturating_add(inside, step->reach());
  }
  return true;
}

bool are_apart(const TensorView& a, const TensorView& b) {
  auto address = [](const TensorView& t) { return reinterpret_cast<std::uintptr_t>(t.data); };
  const bool in_order = address(a) <= address(b);
  const Steps first(in_order ? a : b);
  const Steps second(in_order ? b : a);
  if (first.is_empty || second.is_empty) return true;
  const std::uint64_t distance = in_order ? address(b) - address(a) : address(a) - address(b);
  if (distance >= first.extent(0)) return true;
  const auto shown_by = [&](const Steps::Step& step) {
    return apart_modulo(first, second, distance, step.bytes);
  };
  return std::any_of(first.dims.begin(), first.dims.end(), shown_by) ||
         std::any_of(second.dims.begin(), second.dims.end(), shown_by);
}

bool are_same_memory(const TensorView& a, const TensorView& b) {
  return a.data == b.data && a.dtype == b.dtype && std::ranges::equal(a.sizes, b.sizes) &&
         std::ranges::equal(a.strides, b.strides);
}

}  // namespace truefuse
