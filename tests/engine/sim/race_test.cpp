// Accesses that nothing orders are found, with both places; what barriers, wave_sync and ordering
// atomics order is none of them.

#include "planted.h"

namespace truefuse::sim {
namespace {

const std::vector<Planted> kPlanted = {
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
    {"LockstepWithoutWaveSync",
     {"race"},
     SimFaultKind::race,
     "nothing orders the two",
     "TF_SHARED(float, s, 128);\n"
     "s[t] = x[i];  // SECOND\n"
     "TF_IF_FAULTY((void)0, tf::wave_sync());\n"
     "if (t % 32 > 0) y[i] = s[t - 1];  // FAULT"},
    {"TicketWithoutOrder",
     {"race"},
     SimFaultKind::race,
     "of buffer 1",
     "y[i] = x[i];  // SECOND\n"
     "TF_SHARED(tf::u32, ticket, 1);\n"
     "tf::block_sync();\n"
     "constexpr auto kOrder = TF_IF_FAULTY(tf::MemoryOrder::relaxed, tf::MemoryOrder::acq_rel);\n"
     "if (t == 0) ticket[0] = tf::atomic_add<kOrder>(counters, 1u);\n"
     "tf::block_sync();\n"
     "if (ticket[0] == 1) y[i] = y[255 - i];  // FAULT",
     {SimOrder::forward, SimOrder::reverse}},
    {"TicketTakenBeforeTheBarrier",
     {"race"},
     SimFaultKind::race,
     "of buffer 1",
     "TF_SHARED(tf::u32, ticket, 1);\n"
     "y[i] = x[i];  // SECOND\n"
     "TF_IF_FAULTY((void)0, tf::block_sync());\n"
     "if (t == 0) ticket[0] = tf::atomic_add<tf::MemoryOrder::acq_rel>(counters, 1u);\n"
     "tf::block_sync();\n"
     "if (ticket[0] == 1) y[i] = y[255 - i];  // FAULT"},
    {"FlagThatNobodyFences",
     {"race"},
     SimFaultKind::race,
     "of buffer 1",
     "if (tf::block_x() == 0 && t == 0) {\n"
     "  y[0] = 2.0f;  // SECOND\n"
     "  TF_IF_FAULTY((void)0, tf::device_fence());\n"
     "  tf::atomic_store(counters, 1u);\n"
     "}\n"
     "if (tf::block_x() == 1 && t == 0) {\n"
     "  while (tf::atomic_load(counters) == 0) {}\n"
     "  TF_IF_FAULTY((void)0, tf::device_fence());\n"
     "  y[1] = y[0];  // FAULT\n"
     "}",
     {SimOrder::forward, SimOrder::interleaved}},
    {"PlainWriteBesideAnAtomic",
     {"race"},
     SimFaultKind::race,
     "of buffer 2",
     "if (TF_IF_FAULTY(t == 0 && tf::block_x() == 1, false)) {\n"
     "  counters[0] = 0;  // SECOND\n"
     "} else {\n"
     "  tf::atomic_max(counters, t);  // FAULT\n"
     "}",
     {SimOrder::forward}},
    // One block reads what its neighbour shifts in place: several value heads share a key head's
    // history. Healthy: one block owns the channels.
    {"InPlaceShiftBetweenBlocks",
     {"race"},
     SimFaultKind::race,
     "of buffer 1",
     "const tf::u32 head = TF_IF_FAULTY(0, tf::block_x()), at = (head * 32 + t) * 4;\n"
     "if (t < 32) {\n"
     "  const float sum = y[at] + y[at + 1] + y[at + 2];  // FAULT\n"
     "  if (sum < 0) tf::atomic_add(counters, 1u);\n"
     "  if (TF_IF_FAULTY(tf::block_x() == 0, true)) {\n"
     "    y[at] = y[at + 1];  // SECOND\n"
     "    y[at + 1] = y[at + 2];\n"
     "    y[at + 2] = x[i];\n"
     "  }\n"
     "}",
     {SimOrder::forward, SimOrder::reverse, SimOrder::random, SimOrder::interleaved}},
    // The same shift, left to the last block that has read. Faulty: to the first.
    {"ShiftByTheWrongBlock",
     {"race"},
     SimFaultKind::race,
     "of buffer 1",
     "TF_SHARED(tf::u32, ticket, 1);\n"
     "const float sum = y[t] + y[128 + t];  // SECOND\n"
     "tf::block_sync();\n"
     "if (t == 0) ticket[0] = tf::atomic_add<tf::MemoryOrder::acq_rel>(counters, 1u);\n"
     "tf::block_sync();\n"
     "if (ticket[0] == TF_IF_FAULTY(0, 1)) y[t] = 0.5f * sum;  // FAULT",
     {SimOrder::forward, SimOrder::reverse}},
    {"MemoryBeforeTheWait",
     {"race"},
     SimFaultKind::access_before_wait,
     "of buffer 0 is used before the lane has waited for the launches before this one",
     "TF_IF_FAULTY((void)0, tf::wait_for_earlier_launches());\n"
     "const float read = x[i];  // FAULT\n"
     "tf::wait_for_earlier_launches();\n"
     "y[i] = read;",
     {SimOrder::forward, SimOrder::interleaved},
     true},
    {"AtomicBeforeTheWait",
     {"race"},
     SimFaultKind::access_before_wait,
     "byte 4 of buffer 2",
     "TF_IF_FAULTY((void)0, tf::wait_for_earlier_launches());\n"
     "tf::atomic_add(counters + 1, 1u);  // FAULT\n"
     "tf::wait_for_earlier_launches();",
     {SimOrder::forward},
     true},
};

class PlantedRace : public testing::TestWithParam<std::tuple<std::size_t, int>> {};
INSTANTIATE_TEST_SUITE_P(Fault, PlantedRace,
                         testing::Combine(testing::Range<std::size_t>(0, kPlanted.size()),
                                          testing::Values(32, 64)),
                         [](const auto& info) {
                           return std::string(kPlanted[std::get<0>(info.param)].name) + "Wave" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(PlantedRace, IsFoundAndItsHealthyTwinPasses) {
  const auto [index, wave] = GetParam();
  expect_found_and_twin_passes(kPlanted, kPlanted[index], wave);
}

}  // namespace
}  // namespace truefuse::sim
