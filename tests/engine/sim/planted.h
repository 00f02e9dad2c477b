#pragma once

#include <gtest/gtest.h>

#include "sim_test_support.h"

// Kernels with a planted fault, each with a healthy twin that differs in one place.

namespace truefuse::sim {

struct Planted {
  const char* name;
  std::vector<std::string> sanitizers;
  SimFaultKind kind;
  const char* message;  ///< Part of it.
  /// Of a kernel with parameters (const float* x, float* y, tf::u32 count, tf::u32* counters); t is
  /// the thread and i the element. TF_IF_FAULTY(a, b) is a in the faulty kernel, b in the healthy
  /// one. FAULT marks the line to be named, SECOND the other place where there are two.
  std::string body;
  std::vector<SimOrder> orders = {SimOrder::forward};  ///< In each of which the fault is found.
  bool starts_early = false;
};

using PlantedList = std::vector<Planted>;

/// One source with every kernel of the same sanitizers, faulty and healthy: few compiles.
inline std::string source_for(const PlantedList& list, const std::vector<std::string>& sanitizers) {
  std::string source;
  const auto add = [&](const Planted& planted, const std::string& prefix, const char* chosen) {
    source += "#undef TF_IF_FAULTY\n#define TF_IF_FAULTY(faulty, healthy) ";
    source += chosen;
    source += "\nTF_KERNEL(128) void " + prefix + planted.name +
              "(const float* x, float* y, tf::u32 count, tf::u32* counters) {\n"
              "const tf::u32 t = tf::thread_x(), i = tf::block_x() * 128 + t;\n"
              "if (i >= count) return;\n" +
              planted.body + "\n}\n";
  };
  for (const Planted& planted : list) {
    if (planted.sanitizers != sanitizers) continue;
    add(planted, "Faulty", "faulty");
    add(planted, "Healthy", "healthy");
  }
  return source;
}

/// 2 blocks of 128 threads, 256 elements in x and y, 512 bytes of dynamic shared memory, 16
/// counters that are 0.
inline SimOutcome run_planted(const PlantedList& list, const Planted& planted,
                              const std::string& prefix, int wave, const SimOptions& options) {
  SimLaunch launch{prefix + planted.name, {2, 1, 1}, {128, 1, 1}, 512, {}, planted.starts_early};
  launch.parameters.add_pointer(0).add_pointer(1).add(std::uint32_t{256}).add_pointer(2);
  return run(executable(source_for(list, planted.sanitizers), wave, planted.sanitizers), launch,
             {buffer_of(std::vector<float>(256, 1.0f)), buffer_of(std::vector<float>(256)),
              buffer_of(std::vector<std::uint32_t>(16))},
             options);
}

/// The line of a mark in the faulty kernel; 0 if it has none.
inline int line_in(const PlantedList& list, const Planted& planted, std::string_view mark) {
  const std::string source = source_for(list, planted.sanitizers);
  const std::size_t begin = source.find(std::string("Faulty") + planted.name + "(");
  const std::size_t at = source.find(mark, begin);
  if (at > source.find("void Healthy", begin)) return 0;
  // The first line of the file includes the device header.
  return 2 + static_cast<int>(std::count(source.begin(), source.begin() + at, '\n'));
}

inline SimOptions all_in(SimOrder order) {
  SimOptions options;
  options.lane_order = options.block_order = order;
  return options;
}

inline void expect_found_and_twin_passes(const PlantedList& list, const Planted& planted,
                                         int wave) {
  for (const SimOrder order : planted.orders) {
    const SimOutcome outcome = run_planted(list, planted, "Faulty", wave, all_in(order));
    ASSERT_TRUE(outcome.fault) << "nothing was found";
    EXPECT_EQ(name_of(outcome.fault->kind), name_of(planted.kind)) << describe(outcome);
    EXPECT_NE(outcome.fault->message.find(planted.message), std::string::npos) << describe(outcome);
    EXPECT_EQ(outcome.fault->place.file, "kernel.hip") << describe(outcome);
    const std::pair<int, int> lines(outcome.fault->place.line, outcome.fault->other.line);
    const std::pair<int, int> marks(line_in(list, planted, "// FAULT"),
                                    line_in(list, planted, "SECOND"));
    // Of two accesses in a race, the later one depends on the order.
    const bool turned = order != SimOrder::forward && lines == std::pair(marks.second, marks.first);
    EXPECT_TRUE(lines == marks || turned) << describe(outcome);
  }
  for (const SimOrder order :
       {SimOrder::forward, SimOrder::reverse, SimOrder::random, SimOrder::interleaved}) {
    const SimOutcome twin = run_planted(list, planted, "Healthy", wave, all_in(order));
    EXPECT_FALSE(twin.fault) << describe(twin);
  }
}

}  // namespace truefuse::sim
