// Kernels from a bundle into a fake driver: what a call finds, and what is counted.

#include <dlfcn.h>
#include <thread>

#include <truefuse/gpu/kernel_table.h>
#include <truefuse/jit/bundle.h>
#include <truefuse/jit/sha256.h>
#include <truefuse/jit/statistics.h>
#include <truefuse/jit/toolchains.h>

#include "../error_of.h"
#include "../jit/cache_test_support.h"

namespace truefuse::gpu {
namespace {

Operator operator_of_one_kernel() {
  Operator op;
  op.name = "present";
  op.source.name = "present/kernel.hip";
  op.source.files["present/kernel.hip"] = "void present();\n";
  op.constants = {"TF_N"};
  return op;
}

Launch launch_of(std::int64_t constant) {
  Launch launch;
  launch.kernel = "present";
  launch.variant.add(constant);
  return launch;
}

Operator::NamedVariant variant_of(std::int64_t constant) {
  Operator::NamedVariant named;
  named.label = std::to_string(constant);
  named.kernel = "present";
  named.variant = launch_of(constant).variant;
  return named;
}

/// An entry as a compiler would have made it, of what the fake driver takes for a cubin.
jit::CacheEntry entry_of(const Operator& op, const Launch& launch) {
  const jit::Program program = program_of(op, launch.variant);
  jit::Key key;
  key.add("format", "1");
  const auto instructions = jit::instructions_for("sm_90a");
  for (const auto& [name, value] : instructions.front()) key.add(name, value);
  key.add("target", "sm_90a");
  key.add("program", program.text);
  for (const auto& [name, text] : program.headers) key.add_digest("file " + name, text);
  return {"present", key, "cubin", 0.25};
}

std::uint64_t count_of(jit::Event event) {
  return jit::statistics()[static_cast<std::size_t>(event)].count;
}

/// In a child: the fake driver, kernels from a bundle alone.
void serve(const jit::TestDirectory& directory, const std::vector<jit::CacheEntry>& entries) {
  ASSERT_NE(dlopen(TRUEFUSE_FAKE_CUDA, RTLD_NOW), nullptr) << dlerror();
  const std::string bundle = jit::Bundle::pack(entries);
  jit::write_file(directory.path() + "/b.tfb", bundle);
  const std::string spec = directory.path() + "/b.tfb#" + jit::sha256_hex(bundle);
  ::setenv("TRUEFUSE_BUNDLE", spec.c_str(), 1);
  ::setenv("TRUEFUSE_NO_COMPILE", "1", 1);
  ::setenv("TRUEFUSE_CACHE", "off", 1);
}

TEST(KernelTable, FindsWhatItHasLoadedAndCountsWhatItHadToFetch) {
  const jit::TestDirectory directory;
  jit::in_child([&] {
    const Operator op = operator_of_one_kernel();
    serve(directory, {entry_of(op, launch_of(1)), entry_of(op, launch_of(2))});

    const std::uint64_t compiles = count_of(jit::Event::compiled);
    EXPECT_EQ(warm_lookup().kernels, 0u);
    EXPECT_EQ(warm_lookup().seconds, 0);
    const Function& first = function_for(op, launch_of(1), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(&function_for(op, launch_of(1), 0), &first);
    EXPECT_EQ(count_of(jit::Event::bundle), 1u);
    EXPECT_EQ(count_of(jit::Event::loaded), 1u);
    function_for(op, launch_of(2), 0);
    function_for(op, launch_of(2), 1);  // Another device has its own.
    EXPECT_EQ(count_of(jit::Event::bundle), 3u);
    EXPECT_EQ(count_of(jit::Event::loaded), 3u);
    EXPECT_THROW(function_for(op, launch_of(3), 0), Error);  // Nobody may compile it.
    EXPECT_EQ(count_of(jit::Event::loaded), 3u);
    EXPECT_EQ(count_of(jit::Event::compiled), compiles);

    const WarmLookup warm = warm_lookup();
    EXPECT_EQ(warm.kernels, 3u);
    EXPECT_GT(warm.seconds, 0);
    std::printf("a loaded kernel is found in %.1f ns\n", 1e9 * warm.seconds);
  });
}

TEST(KernelTable, PreparesEveryVariantOnceInSeveralThreads) {
  const jit::TestDirectory directory;
  jit::in_child([&] {
    Operator op = operator_of_one_kernel();
    std::vector<jit::CacheEntry> entries;
    for (std::int64_t i = 0; i < 40; ++i) {
      op.variants.push_back(variant_of(i));
      entries.push_back(entry_of(op, launch_of(i)));
    }
    serve(directory, entries);

    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) callers.emplace_back([&] { prepare(op, 0); });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(warm_lookup().kernels, 40u);
    EXPECT_EQ(count_of(jit::Event::loaded), 40u);
    prepare(op, 0);
    EXPECT_EQ(count_of(jit::Event::loaded), 40u);
    for (std::int64_t i = 0; i < 40; ++i) function_for(op, launch_of(i), 0);
    EXPECT_EQ(count_of(jit::Event::loaded), 40u);
  });
}

TEST(KernelTable, AFailureOfOneVariantIsTheAnswerAndTheOthersAreKept) {
  const jit::TestDirectory directory;
  jit::in_child([&] {
    Operator op = operator_of_one_kernel();
    for (std::int64_t i = 0; i < 2; ++i) op.variants.push_back(variant_of(i));
    serve(directory, {entry_of(op, launch_of(0))});
    for (const char* compiler : {"TRUEFUSE_NVRTC", "TRUEFUSE_NVCC"}) {
      ::setenv(compiler, "/nonexistent", 1);
    }
    const std::string error = testing::error_of([&] { prepare(op, 0); });
    EXPECT_NE(error.find("no compiler here compiles for sm_90a"), std::string::npos) << error;
    EXPECT_EQ(warm_lookup().kernels, 1u);
    function_for(op, launch_of(0), 0);
  });
}

}  // namespace
}  // namespace truefuse::gpu
