// Faults in memory and in what lanes do together: found at their line; healthy twins run in every
// order.

#include "planted.h"

namespace truefuse::sim {
namespace {

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
    {"BallotThatSomeSkip",
     {"none"},
     SimFaultKind::divergent_collective,
     "lane 0 of the block is in ballot<32>, lane 7 of the same wave in wave_sync<",
     "tf::u64 votes = 0;\n"
     "if (t % 32 != 7 || TF_IF_FAULTY(0, 1)) {\n"
     "  votes = tf::ballot<32>(x[i] > 0.0f);  // FAULT\n"
     "}\n"
     "tf::wave_sync();  // SECOND\n"
     "y[i] = (float)votes;"},
    {"ShuffleUpFromAnExitedLane",
     {"none"},
     SimFaultKind::exited_lane_read,
     "shuffle_up<32>: lane 4 of the block reads lane 3, which has returned",
     "if (t % 32 == 3 && TF_IF_FAULTY(1, 0)) return;\n"
     "y[i] = tf::shuffle_up<32>(x[i], 1);  // FAULT"},
    {"AtomicBehindABuffer",
     {"address"},
     SimFaultKind::global_read_out_of_bounds,
     "of buffer 2, which has 64 bytes",
     "tf::atomic_add(counters + TF_IF_FAULTY(16, 15), 1u);  // FAULT"},
    {"MisalignedAtomic",
     {"none"},
     SimFaultKind::misaligned_access,
     "an access of 8 bytes must lie at a multiple of 8; this one is 4 bytes past one",
     "tf::atomic_add((tf::u64*)(counters + TF_IF_FAULTY(1, 2)), 1u);  // FAULT"},
};

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
  expect_found_and_twin_passes(kPlanted, kPlanted[index], wave);
}

}  // namespace
}  // namespace truefuse::sim
