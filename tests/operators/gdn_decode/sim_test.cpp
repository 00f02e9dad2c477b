// The shipped kernel, unchanged, planned as for a device and run in the simulator at wave 32 and 64
// under AddressSanitizer and UndefinedBehaviorSanitizer.

#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include <truefuse/sim/host_compiler.h>
#include <truefuse/sim/launch.h>

#include "gdn_testing.h"

namespace truefuse::gdn_testing {
namespace {

std::string executable(const Launch& launch, int wave, const std::vector<std::string>& sanitizers) {
  static std::map<std::pair<int, std::string>, std::string> made;
  static const auto compiler = sim::HostCompiler::find();
  if (compiler == nullptr) throw Error("the simulator needs g++");
  const jit::Program program = program_of(gdn_decode_operator(), launch.variant);
  std::string& code = made[{wave, program.text + sanitizers.front()}];
  if (code.empty()) {
    std::vector<std::string> options;
    for (const std::string& name : sanitizers) options.push_back("--sanitize=" + name);
    code = compiler->compile(program, "sim:wave" + std::to_string(wave), options).code;
  }
  return code;
}

const std::vector<std::string> kMemorySafe{"address", "undefined"};

void run(Call& call, int wave, const std::vector<std::string>& sanitizers = kMemorySafe,
         const sim::SimOptions& options = {}) {
  const std::vector<Argument> arguments = call.arguments();
  const std::vector<TensorView> outputs{call.out.view()};
  Plan plan;
  gdn_decode::plan({arguments, outputs}, DeviceFacts{"gfx906", 60, wave, 65536}, plan);
  ASSERT_EQ(plan.count, 1U);
  std::vector<sim::HostRange> ranges;
  for (Memory* memory : call.all()) {
    const bool is_written = memory == &call.conv || memory == &call.state || memory == &call.out;
    if (!memory->bytes.empty())
      ranges.push_back({memory->bytes.data(), memory->bytes.size(), is_written});
  }
  const sim::SimOutcome outcome =
      sim::run(executable(plan.launches[0], wave, sanitizers), plan.launches[0], ranges, options);
  ASSERT_FALSE(outcome.fault.has_value()) << outcome.fault->text() << outcome.fault->details;
}

double unit_roundoff(DType dtype) {
  return dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}

void expect_output(const Call& call, std::int64_t b, const Expected& expected) {
  const std::int64_t count = call.s.tokens * call.HV * call.s.V;
  for (std::int64_t i = 0; i < count; ++i) {
    const double want = expected.out[static_cast<std::size_t>(i)];
    ASSERT_NEAR(call.out.get(b * count + i), want,
                (1e-4 + 2 * unit_roundoff(call.s.row)) * (1 + std::abs(want)))
        << "sequence " << b << " element " << i;
  }
}

void expect_state(const Call& call, std::int64_t slot, const std::vector<double>& expected) {
  const auto& s = call.s;
  for (std::int64_t n = 0; n < call.HV; ++n)
    for (std::int64_t k = 0; k < s.K; ++k)
      for (std::int64_t v = 0; v < s.V; ++v) {
        const double want = expected[static_cast<std::size_t>((n * s.K + k) * s.V + v)];
        ASSERT_NEAR(
            call.state.get(call.state_at(slot, n, k, v)), want,
            (1e-5 + static_cast<double>(s.tokens) * unit_roundoff(s.state)) * (1 + std::abs(want)))
            << "slot " << slot << " head " << n << " key " << k << " value " << v;
      }
}

/// Slots outside `written` keep every bit.
void expect_untouched(const Call& call, const std::vector<std::int64_t>& written) {
  for (const Memory* memory : {&call.conv, &call.state}) {
    const std::size_t slot = memory->bytes.size() / static_cast<std::size_t>(call.s.slots);
    for (std::int64_t i = 0; i < call.s.slots; ++i) {
      if (std::find(written.begin(), written.end(), i) != written.end()) continue;
      const auto first = static_cast<std::size_t>(i) * slot;
      EXPECT_EQ(std::memcmp(&memory->bytes[first], &memory->before[first], slot), 0)
          << "slot " << i;
    }
  }
}

/// A call without speculation: sequence b in slot indices[b], or b.
void check(const Shape& shape, int wave, const std::vector<std::string>& sanitizers = kMemorySafe,
           const sim::SimOptions& options = {}) {
  Call call(shape);
  ASSERT_NO_FATAL_FAILURE(run(call, wave, sanitizers, options));
  const auto& s = call.s;
  std::vector<std::int64_t> written;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::int64_t slot = s.indices.empty() ? b : s.indices[static_cast<std::size_t>(b)];
    const std::int64_t target =
        s.write_indices.empty() ? slot : s.write_indices[static_cast<std::size_t>(b)];
    const std::int64_t lowest = s.padding == "nonpositive" && !s.indices.empty() ? 1 : 0;
    if (slot < lowest || slot >= s.slots) {
      const std::int64_t count = s.tokens * call.HV * s.V;
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(call.out.get(b * count + i), 0);
      continue;
    }
    const Expected expected(call, b, slot, slot, s.history - (s.taps - 1));
    expect_output(call, b, expected);
    if (target < lowest) continue;
    written.push_back(target);
    expect_state(call, target, expected.states.back());
    for (std::int64_t c = 0; c < call.C; ++c) {
      for (std::int64_t w = 0; w < s.history; ++w) {
        const std::int64_t from = w + s.tokens;
        const double want = from < s.history ? call.conv.was(call.conv_at(slot, c, from))
                                             : call.input(b, from - s.history, c);
        ASSERT_EQ(call.conv.get(call.conv_at(target, c, w)), want) << "channel " << c << " " << w;
      }
    }
  }
  expect_untouched(call, written);
}

TEST(GdnDecodeSimulated, BothRowLayoutsBothStateOrdersBothWaves) {
  for (const bool flat : {false, true}) {
    for (const bool keys_last : {true, false}) {
      Shape shape;
      shape.flat = flat;
      shape.keys_last = keys_last;
      check(shape, flat == keys_last ? 32 : 64);
    }
  }
}

TEST(GdnDecodeSimulated, EveryHeadRatio) {
  for (const std::int64_t groups : {1, 4, 8}) {  // 2 and 3 are in the other tests.
    Shape shape;
    shape.H = groups == 8 ? 1 : 2;
    shape.G = groups;
    shape.flat = groups == 4;
    check(shape, 64);
  }
}

TEST(GdnDecodeSimulated, SizesThatFillNoVector) {
  for (const auto& [K, V] : {std::pair{5, 3}, {12, 40}, {33, 8}}) {
    Shape shape;
    shape.G = 2;
    shape.K = K;
    shape.V = V;
    shape.keys_last = K != 12;
    check(shape, 64);
  }
}

TEST(GdnDecodeSimulated, TapsAndValuesOfALaneThatAreNoPowerOfTwo) {
  // A lane writes V / 32 outputs, rounded up; of 130 values the last lanes have none.
  for (const auto& [taps, V] : {std::pair{3, 72}, {5, 136}, {6, 168}, {7, 130}}) {
    Shape shape;
    shape.taps = taps;
    shape.history = taps - 1;
    shape.V = V;
    shape.row = taps % 2 == 0 ? DType::f32 : DType::bf16;
    shape.tokens = taps == 3 ? 2 : 1;
    shape.keys_last = taps != 7;
    check(shape, taps > 5 ? 32 : 64);
  }
}

TEST(GdnDecodeSimulated, TheRealHeadSize) {
  Shape shape;
  shape.K = shape.V = 128;
  shape.row = DType::bf16;
  shape.channels_last = true;
  for (const int wave : {32, 64}) check(shape, wave);
}

TEST(GdnDecodeSimulated, ElementTypesConvolutionsAndGates) {
  Shape shape;
  shape.row = DType::bf16;
  shape.state = DType::bf16;
  check(shape, 64);
  shape.row = shape.state = DType::f16;
  shape.norm = false;
  check(shape, 64);
  Shape other;
  other.taps = 2;
  other.history = 1;
  other.conv_bias = true;
  other.sigmoid = true;
  check(other, 64);
  other.taps = 4;
  other.history = 4;  // As transformers keeps it.
  check(other, 64);
  other.history = 6;
  other.tokens = 2;
  other.channels_last = true;
  check(other, 64);
  other.tokens = 7;  // More than the buffer holds.
  check(other, 64);
}

TEST(GdnDecodeSimulated, PaddingTouchesNothingAndGivesZeros) {
  Shape shape;
  shape.indices = {2, -1};
  check(shape, 64);
  shape.indices = {std::int64_t{1} << 40, 3};  // Outside the pool.
  check(shape, 64);
  shape.indices = {3, 0};
  shape.padding = "nonpositive";
  check(shape, 64);
  shape.indices = {1, 2};
  shape.padding = "negative";
  shape.write_indices = {0, -1};  // Read from one slot, written to another, or not at all.
  check(shape, 64);
  shape.indices = {1, -1};
  for (const std::int64_t slot : {std::int64_t{2}, std::int64_t{0}, std::int64_t{1} << 40}) {
    shape.write_indices = {0, slot};  // Of padding: not looked at.
    check(shape, 64);
  }
}

TEST(GdnDecodeSimulated, SpeculativeTokensKeepTheStateAfterEach) {
  Shape shape;
  shape.tokens = 3;
  shape.slots = 8;
  shape.history = 5;
  shape.indices = {1, 2, 3, 4, 5, 6};
  shape.accepted = {2, 1};
  Call call(shape);
  ASSERT_NO_FATAL_FAILURE(run(call, 64));
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t window = shape.accepted[static_cast<std::size_t>(b)] - 1;
    const std::int64_t first = 1 + 3 * b;
    const Expected expected(call, b, first + window, first, window);
    expect_output(call, b, expected);
    for (std::int64_t t = 0; t < 3; ++t) {
      expect_state(call, first + t, expected.states[static_cast<std::size_t>(t)]);
    }
    for (std::int64_t c = 0; c < call.C; ++c) {
      for (std::int64_t w = 0; w < 5; ++w) {
        const double want =
            w < 2 ? call.conv.was(call.conv_at(first, c, window + 1 + w)) : call.input(b, w - 2, c);
        ASSERT_EQ(call.conv.get(call.conv_at(first, c, w)), want);
      }
    }
  }
}

TEST(GdnDecodeSimulated, NoTwoLanesRaceInAnyOrder) {
  sim::SimOptions options;
  options.lane_order = sim::SimOrder::random;
  options.block_order = sim::SimOrder::reverse;
  Shape shape;
  shape.tokens = 2;
  check(shape, 64, {"race"}, options);
  shape.keys_last = false;
  check(shape, 32, {"race"}, options);
}

}  // namespace
}  // namespace truefuse::gdn_testing
