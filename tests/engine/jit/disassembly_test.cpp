#include <gtest/gtest.h>

#include <truefuse/jit/disassembly.h>

namespace truefuse::jit {
namespace {

TEST(Disassembly, WideAccessesAndScratchOfAmdAreCounted) {
  const MemoryInstructions found = memory_instructions_in(
      "\tglobal_load_dwordx4 v[0:3], v[0:1], off\n\tglobal_load_dwordx2 v[4:5], v[0:1], off\n"
      "\tflat_load_dwordx4 v[0:3], v[0:1]\n\tglobal_store_dwordx4 v[0:1], v[0:3], off\n"
      "\tbuffer_store_dword v0, off, s[0:3], 0\n\ts_load_dwordx4 s[0:3], s[4:5], 0x0\n",
      "gfx906");
  EXPECT_EQ(found.wide_loads, 2);
  EXPECT_EQ(found.wide_stores, 1);
  EXPECT_EQ(found.scratch, 1);
  EXPECT_EQ(memory_instructions_in("global_load_b128 v[0:3], v[0:1], off", "gfx1100").wide_loads,
            1);
}

TEST(Disassembly, WideAccessesAndLocalMemoryOfNvidiaAreCounted) {
  const MemoryInstructions found = memory_instructions_in(
      "        LDG.E.EF.128.CONSTANT R4, desc[UR4][R2.64] ;\n        LDG.E.64 R4, [R2.64] ;\n"
      "        LDS.128 R4, [R2] ;\n        STG.E.128 desc[UR4][R2.64], R4 ;\n"
      "        STL [R1], R4 ;\n        LDL R4, [R1] ;\n",
      "sm_90a");
  EXPECT_EQ(found.wide_loads, 1);
  EXPECT_EQ(found.wide_stores, 1);
  EXPECT_EQ(found.scratch, 2);
}

}  // namespace
}  // namespace truefuse::jit
