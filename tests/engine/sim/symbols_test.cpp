#include <gtest/gtest.h>

#include <truefuse/sim/symbols.h>

namespace truefuse::sim {
namespace {

TEST(Symbols, TheFirstFrameOfTheKernelCounts) {
  const SimPlace place = place_in_stack(
      "==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x401\n"
      "READ of size 16 at 0x602 thread T0\n"
      "    #0 0x401 in memcpy ../../../../src/libsanitizer/sanitizer_common_interceptors.inc:827\n"
      "    #1 0x401 in tf::Vector<float, 4> tf::load<4, float>(float const*) "
      "truefuse/device/vector.h:81\n"
      "    #2 0x402 in body<4> my_op/math.h:7\n"
      "    #3 0x403 in kernel my_op/kernel.hip:12\n"
      "\n"
      "0x602 is located 0 bytes to the right of 64-byte region [0x5c2,0x602)\n"
      "allocated by thread T0 here:\n"
      "    #0 0x7f in posix_memalign my_op/other.hip:1\n");
  EXPECT_EQ(place.file, "my_op/math.h");
  EXPECT_EQ(place.line, 7);
}

TEST(Symbols, OtherStacksAndOtherTextsDoNot) {
  EXPECT_EQ(place_in_stack("    #0 0x401 in f truefuse/sim/main.h:3\n"
                           "    #1 0x402 in g (/lib/libc.so.6+0x26d09)\n"
                           "\n"
                           "    #0 0x403 in h kernel.hip:5\n")
                .line,
            0);
  EXPECT_EQ(place_in_stack("").line, 0);
  EXPECT_EQ(place_in_stack("kernel.hip:3: hello\n").line, 0);
  EXPECT_EQ(place_in_stack("  #0 0x1 in f kernel.hip:3:14").line, 3);
}

TEST(Symbols, FindingsAreTakenOutOfTheText) {
  EXPECT_EQ(undefined_behaviour_in("a.h:1:2: runtime error: division by zero\n    #0 ..."),
            "division by zero");
  EXPECT_EQ(undefined_behaviour_in("nothing"), "");
  EXPECT_EQ(signal_in("AddressSanitizer: SEGV on unknown address 0x10 (pc 0x4)").second,
            "a lane uses address 0x10, which belongs to no buffer and no shared array");
  EXPECT_EQ(signal_in("AddressSanitizer: stack-overflow on address").first,
            SimFaultKind::stack_overflow);
  EXPECT_EQ(signal_in("nothing").first, SimFaultKind::crash);
}

}  // namespace
}  // namespace truefuse::sim
