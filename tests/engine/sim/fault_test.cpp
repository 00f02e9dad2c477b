// Each planted fault is found, at the line that is marked FAULT (and SECOND, where there are two
// places); the same kernel without it runs through, in every order.

#include <gtest/gtest.h>

#include "sim_test_support.h"

namespace truefuse::sim {
namespace {

struct Planted {
  const char* name;
  std::vector<std::string> sanitizers;
  SimFaultKind kind;
  const char* message;  ///< Part of it.
  std::string body;     ///< Of a kernel with parameters (const float* x, float* y, tf::u32 count).
};

// Launched as 2 blocks of 128 threads with 256 elements in x and y and 512 bytes of dynamic shared
// memory. TF_IF_FAULTY(a, b) is a in the faulty kernel, b in the healthy one.
const std::vector<Planted> kPlanted = {
    {"ReadsBehindABuffer",
     {"address"},
     SimFaultKind::global_read_out_of_bounds,
     "a lane reads 4 bytes at byte 1024 of buffer 0, which has 1024 bytes",
     "y[i] = x[i + TF_IF_FAULTY(1, 0)];  // FAULT"},
    {"ReadsBeforeABuffer",
     {"address"},
     SimFaultKind::global_read_out_of_bounds,
     "at byte -4 of buffer 0",
     "y[i] = *(x + i - TF_IF_FAULTY(1, 0));  // FAULT"},
    {"WritesBehindABuffer",
     {"address"},
     SimFaultKind::global_write_out_of_bounds,
     "a lane writes 4 bytes at byte 1024 of buffer 1",
     "y[i + TF_IF_FAULTY(1, 0)] = 1.0f;  // FAULT"},
    {"VectorRunsOverTheEnd",
     {"address"},
     SimFaultKind::global_read_out_of_bounds,
     "of buffer 0",
     "if (i * 4 + TF_IF_FAULTY(0, 4) > count) return;\n"
     "const auto v = tf::load<4>(x + i * 4);  // FAULT\n"
     "if (v[0] > 1e9f) y[i] = 0.0f;"},
    {"MisalignedVectorLoad",
     {"none"},
     SimFaultKind::misaligned_access,
     "an access of 16 bytes must lie at a multiple of 16; this one is 4 bytes past one",
     "const auto v = tf::load_streaming<4>(x + TF_IF_FAULTY(1, 4));  // FAULT\n"
     "y[i] = v[0];"},
    {"MisalignedVectorStore",
     {"none"},
     SimFaultKind::misaligned_access,
     "an access of 8 bytes must lie at a multiple of 8; this one is 4 bytes past one",
     "tf::Vector<float, 2> v = {{1.0f, 2.0f}};\n"
     "tf::store(y + TF_IF_FAULTY(1, 2), v);  // FAULT"},
    {"MisalignedCast",
     {"undefined"},
     SimFaultKind::misaligned_access,
     "which requires 16 byte alignment",
     "struct alignas(16) Four { float v[4]; };\n"
     "y[i] = ((const Four*)(x + TF_IF_FAULTY(1, 4)))->v[0];  // FAULT"},
    {"ReadsBehindDynamicShared",
     {"address"},
     SimFaultKind::shared_read_out_of_bounds,
     "a lane reads 4 bytes at byte 512 of an array in shared memory, which has 512 bytes",
     "TF_SHARED_DYNAMIC(float, s);\n"
     "s[t] = x[i];\n"
     "tf::block_sync();\n"
     "y[i] = s[t + TF_IF_FAULTY(1, 0)];  // FAULT"},
    {"WritesBehindStaticShared",
     {"address"},
     SimFaultKind::shared_write_out_of_bounds,
     "of an array in shared memory, which has 508 bytes",
     "TF_SHARED(float, s, TF_IF_FAULTY(127, 128));\n"
     "float* const p = s;\n"
     "p[t] = x[i];  // FAULT\n"
     "y[i] = p[t];"},
    {"IndexOutsideAnArray",
     {"undefined"},
     SimFaultKind::undefined_behaviour,
     "out of bounds for type 'float",
     "TF_SHARED(float, s, TF_IF_FAULTY(127, 128));\n"
     "s[t] = x[i];  // FAULT\n"
     "y[i] = s[t];"},
    {"SignedOverflow",
     {"undefined"},
     SimFaultKind::undefined_behaviour,
     "signed integer overflow",
     "y[i] = (float)((int)count * TF_IF_FAULTY(0x7fffffff, 1));  // FAULT"},
    {"BarrierThatSomeSkip",
     {"none"},
     SimFaultKind::exited_lane_at_barrier,
     "which has returned",
     "if (t >= TF_IF_FAULTY(100, 128)) return;\n"
     "tf::block_sync();  // FAULT\n"
     "y[i] = x[i];"},
    {"TwoBarriers",
     {"none"},
     SimFaultKind::divergent_barrier,
     "lane 0 of the block waits at one barrier, lane 1 at another",
     "if (t % 2 == 0 || TF_IF_FAULTY(0, 1)) {\n"
     "  tf::block_sync();  // FAULT\n"
     "} else {\n"
     "  tf::block_sync();  // SECOND\n"
     "}\n"
     "y[i] = x[i];"},
    {"ShuffleThatSomeSkip",
     {"none"},
     SimFaultKind::divergent_collective,
     "waits at the block's barrier",
     "float v = x[i];\n"
     "if (t % 32 < TF_IF_FAULTY(16, 32)) {\n"
     "  v = tf::shuffle_xor<8>(v, 1);  // FAULT\n"
     "}\n"
     "tf::block_sync();  // SECOND\n"
     "y[i] = v;"},
    {"TwoShuffles",
     {"none"},
     SimFaultKind::divergent_collective,
     "lane 0 of the block is in shuffle_xor<8>, lane 1 of the same wave in shuffle_down<4>",
     "float v = x[i];\n"
     "if (t % 2 == 0 || TF_IF_FAULTY(0, 1)) {\n"
     "  v = tf::shuffle_xor<8>(v, 1);  // FAULT\n"
     "} else {\n"
     "  v = tf::shuffle_down<4>(v, 1);  // SECOND\n"
     "}\n"
     "y[i] = v;"},
    {"BlockSumInABranch",
     {"none"},
     SimFaultKind::exited_lane_at_barrier,
     "which has returned",
     "if (t < TF_IF_FAULTY(64, 128)) {\n"
     "  y[i] = tf::block_sum(x[i]);  // FAULT\n"
     "}"},
    {"ShuffleFromAnExitedLane",
     {"none"},
     SimFaultKind::exited_lane_read,
     "shuffle_down<16>: lane 2 of the block reads lane 3, which has returned",
     "if (t % 32 == 3 && TF_IF_FAULTY(1, 0)) return;\n"
     "y[i] = tf::shuffle_down<16>(x[i], 1);  // FAULT"},
    {"ShuffleOutsideTheSubgroup",
     {"none"},
     SimFaultKind::operand_out_of_range,
     "shuffle over subgroups of 16 lanes is called with 16",
     "y[i] = tf::shuffle<16>(x[i], TF_IF_FAULTY(16, 15));  // FAULT"},
    {"NullPointer",
     {"address"},
     SimFaultKind::memory_fault,
     "belongs to no buffer",
     "const float* p = TF_IF_FAULTY(nullptr, x);\n"
     "asm(\"\" : \"+r\"(p));\n"
     "y[i] = p[i];  // FAULT"},
    {"SharedMemoryReadBeforeItIsWritten",
     {"race"},
     SimFaultKind::shared_read_uninitialised,
     "is read but was never written",
     "TF_SHARED(float, s, 128);\n"
     "if (t < TF_IF_FAULTY(127, 128)) s[t] = x[i];\n"
     "tf::block_sync();\n"
     "y[i] = s[t];  // FAULT"},
    {"MissingBarrier",
     {"race"},
     SimFaultKind::race,
     "of an array of 512 bytes in shared memory: lane 1 of block 0 writes it and lane 2 of block 0 "
     "reads it; nothing orders the two",
     "TF_SHARED(float, s, 128);\n"
     "s[t] = x[i];  // SECOND\n"
     "TF_IF_FAULTY((void)0, tf::block_sync());\n"
     "if (t > 1) y[i] = s[t - 1];  // FAULT"},
    {"MissingBarrierBeforeReuse",
     {"race"},
     SimFaultKind::race,
     "reads it and lane 1 of block 0 writes it",
     "TF_SHARED_DYNAMIC(float, s);\n"
     "s[t] = x[i];\n"
     "tf::block_sync();\n"
     "y[i] = s[0];  // SECOND\n"
     "TF_IF_FAULTY((void)0, tf::block_sync());\n"
     "if (t == 1) s[0] = 1.0f;  // FAULT"},
    {"TwoBlocksWriteOneElement",
     {"race"},
     SimFaultKind::race,
     "byte 0 of buffer 1 (1024 bytes): lane 0 of block 0 writes it and lane 0 of block 1 writes it",
     "y[TF_IF_FAULTY(t, i)] = x[i];  // FAULT SECOND"},
};

/// One source with every kernel of the same sanitizers, faulty and healthy: few compiles.
std::string source_for(const std::vector<std::string>& sanitizers) {
  std::string source;
  const auto add = [&](const Planted& planted, const std::string& prefix, const char* chosen) {
    source += "#undef TF_IF_FAULTY\n#define TF_IF_FAULTY(faulty, healthy) ";
    source += chosen;
    source += "\nTF_KERNEL(128) void " + prefix + planted.name +
              "(const float* x, float* y, tf::u32 count) {\n"
              "const tf::u32 t = tf::thread_x(), i = tf::block_x() * 128 + t;\n"
              "if (i >= count) return;\n" +
              planted.body + "\n}\n";
  };
  for (const Planted& planted : kPlanted) {
    if (planted.sanitizers != sanitizers) continue;
    add(planted, "Faulty", "faulty");
    add(planted, "Healthy", "healthy");
  }
  return source;
}

SimOutcome run_planted(const Planted& planted, const std::string& prefix, int wave,
                       const SimOptions& options) {
  SimLaunch launch{prefix + planted.name, {2, 1, 1}, {128, 1, 1}, 512, {}};
  launch.parameters.add_pointer(0).add_pointer(1).add(std::uint32_t{256});
  return run(executable(source_for(planted.sanitizers), wave, planted.sanitizers), launch,
             {buffer_of(std::vector<float>(256, 1.0f)), buffer_of(std::vector<float>(256))},
             options);
}

/// The line of a mark in the faulty kernel; 0 if it has none.
int line_in(const Planted& planted, std::string_view mark) {
  const std::string source = source_for(planted.sanitizers);
  const std::size_t begin = source.find(std::string("Faulty") + planted.name + "(");
  const std::size_t at = source.find(mark, begin);
  if (at > source.find("void Healthy", begin)) return 0;
  // The first line of the file includes the device header.
  return 2 + static_cast<int>(std::count(source.begin(), source.begin() + at, '\n'));
}

class PlantedFault : public testing::TestWithParam<std::tuple<std::size_t, int>> {};
INSTANTIATE_TEST_SUITE_P(Fault, PlantedFault,
                         testing::Combine(testing::Range<std::size_t>(0, kPlanted.size()),
                                          testing::Values(32, 64)),
                         [](const auto& info) {
                           return std::string(kPlanted[std::get<0>(info.param)].name) + "Wave" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(PlantedFault, IsFoundAndItsHealthyTwinPasses) {
  const auto [index, wave] = GetParam();
  const Planted& planted = kPlanted[index];
  const SimOutcome outcome = run_planted(planted, "Faulty", wave, {});
  ASSERT_TRUE(outcome.fault) << "nothing was found";
  EXPECT_EQ(name_of(outcome.fault->kind), name_of(planted.kind)) << describe(outcome);
  EXPECT_NE(outcome.fault->message.find(planted.message), std::string::npos) << describe(outcome);
  EXPECT_EQ(outcome.fault->place.file, "kernel.hip") << describe(outcome);
  EXPECT_EQ(outcome.fault->place.line, line_in(planted, "// FAULT")) << describe(outcome);
  EXPECT_EQ(outcome.fault->other.line, line_in(planted, "SECOND")) << describe(outcome);

  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::random}) {
    SimOptions options;
    options.lane_order = options.block_order = order;
    const SimOutcome twin = run_planted(planted, "Healthy", wave, options);
    EXPECT_FALSE(twin.fault) << describe(twin);
  }
}

}  // namespace
}  // namespace truefuse::sim
