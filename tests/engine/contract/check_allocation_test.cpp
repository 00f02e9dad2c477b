#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <string_view>

#include <truefuse/contract/check.h>

#include "calls.h"

namespace {

// Counted for the whole program: nothing else shows that a call allocates nothing.
std::atomic<std::size_t> allocations{0};

void* counted_allocation(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_allocation(bytes); }
void* operator new[](std::size_t bytes) { return counted_allocation(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace truefuse {
namespace {

std::size_t allocations_of_a_call(std::string_view text, std::span<const Argument> arguments) {
  const Contract contract = Contract::parse(text);
  const std::size_t before = allocations;
  const Sizes<std::int64_t> sizes = check<std::int64_t>(contract, "op", arguments);
  SmallVector<std::int64_t, 8> out;
  for (std::size_t i = 0; i < contract.outputs().size(); ++i) {
    output_sizes<std::int64_t>(contract, sizes, arguments, i, out);
    output_dtype<std::int64_t>(contract, arguments, i);
  }
  output_device<std::int64_t>(arguments);
  return allocations - before;
}

TEST(CheckAllocation, TheCounterCounts) {
  const std::size_t before = allocations;
  delete new int(1);
  EXPECT_EQ(allocations - before, 1u);
}

TEST(CheckAllocation, AGoodCallAllocatesNothing) {
  const testing::Tensor x = testing::dense({2, 3, 4, 5, 6, 7, 8, 9});
  const testing::Tensor bias = testing::dense({9});
  const std::array<Argument, 3> arguments{x, bias, std::string_view("tanh")};
  EXPECT_EQ(allocations_of_a_call(testing::kBiasGelu, arguments), 0u);
}

TEST(CheckAllocation, NorDoesOneWithEveryKindOfRule) {
  static std::array<float, 64> memory;
  testing::Tensor state = testing::dense({4, 8});
  state.data = memory.data();
  testing::Tensor row = testing::dense({2, 16});
  row.data = memory.data() + 32;
  const std::array<Argument, 7> arguments{
      state, row, {}, 0.5, std::int64_t{3}, true, std::string_view("none")};
  EXPECT_EQ(allocations_of_a_call(
                "s: f32 [a, b] contiguous mutated aligned(4); x: f32 [r.., 2*b] rows-strided "
                "mutated; m: u8 [a*b] strided optional; e: float [0, 1]; k: int [0, 8]; f: bool; "
                "w: \"tanh\"|\"none\" -> y: like x [r.., a*b, 7] contiguous; z: i32 [] contiguous",
                arguments),
            0u);
}

}  // namespace
}  // namespace truefuse
