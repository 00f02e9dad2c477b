#include <cctype>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <sstream>

#include <truefuse/jit/code_object.h>
#include <truefuse/jit/hipcc.h>
#include <truefuse/jit/hiprtc.h>
#include <truefuse/jit/nvcc.h>
#include <truefuse/jit/nvrtc.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::say_missing;

/// Two kernels, one with static shared memory and a launch bound, one with a local array; and a
/// dynamic one that a system reservation must not be mistaken for.
Program three_kernels() {
  Program program;
  program.name = "three";
  program.text =
      "#if defined(__HIP__) && !defined(__HIPCC_RTC__)\n"
      "#include <hip/hip_runtime.h>\n"
      "#endif\n"
      "extern \"C\" __global__ void __launch_bounds__(192) tiled(float* y, const float* x, int n) "
      "{\n"
      "  __shared__ float tile[200];\n"
      "  tile[threadIdx.x] = x[threadIdx.x];\n"
      "  __syncthreads();\n"
      "  y[threadIdx.x] = tile[(threadIdx.x * 7 + n) % 192];\n"
      "}\n"
      "extern \"C\" __global__ void local(float* y, int n) {\n"
      "  float b[100];\n"
      "  for (int i = 0; i < 100; ++i) b[i] = y[i];\n"
      "  for (int i = 0; i < n; ++i) b[(i * 7 + n) % 100] += b[i % 13];\n"
      "  float sum = 0;\n"
      "  for (int i = 0; i < 100; ++i) sum += b[i] * i;\n"
      "  y[threadIdx.x] = sum;\n"
      "}\n"
      "extern \"C\" __global__ void dynamic(float* y) {\n"
      "  extern __shared__ float tile[];\n"
      "  tile[threadIdx.x] = y[threadIdx.x];\n"
      "  __syncthreads();\n"
      "  y[threadIdx.x] = tile[threadIdx.x ^ 1];\n"
      "}\n";
  return program;
}

const Resources* find(const std::vector<Resources>& kernels, const std::string& name) {
  for (const Resources& kernel : kernels) {
    if (kernel.kernel == name) return &kernel;
  }
  return nullptr;
}

/// The number in front of `words` in the part of `text` after `begin`; 0 if it is not stated.
int number_before(const std::string& text, std::size_t begin, const std::string& words) {
  const std::size_t end_of_kernel = text.find("Compiling entry function", begin + 1);
  const std::size_t at = text.find(words, begin);
  if (at == std::string::npos || at > end_of_kernel) return 0;
  std::size_t first = at;
  while (first > begin && std::isdigit(static_cast<unsigned char>(text[first - 1])) != 0) --first;
  return std::atoi(text.c_str() + first);
}

TEST(CodeObject, AgreesWithPtxasAboutCubins) {
  if (find_nvcc().empty()) {
    say_missing("nvcc");
    EXPECT_TRUE(resources_of("no object").empty());
    return;
  }
  Nvcc nvcc(find_nvcc());
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
    if (!nvcc.refusal(arch).empty()) continue;
    const CodeObject object = nvcc.compile(three_kernels(), arch, {});
    EXPECT_EQ(target_of(object.code), arch);
    const auto kernels = resources_of(object.code, object.log);
    EXPECT_EQ(kernels.size(), 3u);
    for (const char* name : {"tiled", "local", "dynamic"}) {
      const Resources* kernel = find(kernels, name);
      ASSERT_NE(kernel, nullptr) << name;
      const std::string entry = "Compiling entry function '" + std::string(name) + "'";
      const std::size_t begin = object.log.find(entry);
      ASSERT_NE(begin, std::string::npos) << object.log;
      EXPECT_EQ(kernel->registers, number_before(object.log, begin, " registers")) << name << arch;
      EXPECT_EQ(kernel->shared_bytes, number_before(object.log, begin, " bytes smem"))
          << name << arch;
      EXPECT_EQ(kernel->scratch_bytes,
                number_before(object.log, begin, " bytes cumulative stack size"))
          << name << arch;
      EXPECT_EQ(kernel->spills, number_before(object.log, begin, " bytes spill stores"))
          << name << arch;
      EXPECT_EQ(kernel->max_threads, std::string(name) == "tiled" ? 192 : -1);
      EXPECT_EQ(kernel->wave, 32);
    }
    EXPECT_GT(find(kernels, "local")->scratch_bytes, 0);
  }
}

TEST(CodeObject, ReadsSpillsFromThePtxasReport) {
  if (find_nvcc().empty()) {
    say_missing("nvcc");
    EXPECT_EQ(target_of(""), "");
    return;
  }
  const CodeObject object =
      Nvcc(find_nvcc()).compile(three_kernels(), "sm_80", {"-maxrregcount=16"});
  const std::string report =
      "ptxas info    : Function properties for local\n"
      "    400 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n"
      "ptxas info    : Function properties for unrelated\n"
      "    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n";
  const auto kernels = resources_of(object.code, report);
  ASSERT_NE(find(kernels, "local"), nullptr);
  EXPECT_EQ(find(kernels, "local")->spills, 24);
  EXPECT_EQ(find(kernels, "tiled")->spills, -1);
}

TEST(CodeObject, ReadsWhatNvrtcWrites) {
  const std::string path = find_nvrtc(testing::python_paths());
  if (path.empty()) {
    say_missing("NVRTC");
    EXPECT_EQ(target_of("text"), "");
    return;
  }
  Nvrtc nvrtc(path);
  for (const char* arch : {"sm_61", "sm_75", "sm_80", "sm_90", "sm_90a", "sm_120"}) {
    if (!nvrtc.refusal(arch).empty()) continue;
    const CodeObject object = nvrtc.compile(three_kernels(), arch, {});
    EXPECT_EQ(target_of(object.code), arch);
    const auto kernels = resources_of(object.code);
    ASSERT_EQ(kernels.size(), 3u);
    EXPECT_EQ(find(kernels, "tiled")->shared_bytes, 800) << arch;
    EXPECT_EQ(find(kernels, "tiled")->max_threads, 192) << arch;
    EXPECT_EQ(find(kernels, "dynamic")->shared_bytes, 0) << arch;
    EXPECT_EQ(find(kernels, "local")->scratch_bytes, 400) << arch;
    for (const Resources& kernel : kernels) {
      EXPECT_GT(kernel.registers, 0) << arch << kernel.kernel;
      EXPECT_EQ(kernel.spills, -1);
    }
  }
}

/// The number after ".key:" in the block of `llvm-readelf --notes` that names the kernel.
int note_value(const std::string& notes, const std::string& kernel, const std::string& key) {
  const std::size_t name = notes.find(".name:           " + kernel + "\n");
  if (name == std::string::npos) return -2;
  const std::size_t begin = notes.rfind("\n  - .", name);
  const std::size_t at = notes.find(key + ":", begin);
  return at == std::string::npos ? -2 : std::atoi(notes.c_str() + at + key.size() + 1);
}

std::string readelf_for_amd() {
  for (const char* name : {"llvm-readelf", "llvm-readelf-15", "llvm-readelf-19"}) {
    if (std::string path = find_program(name); !path.empty()) return path;
  }
  return {};
}

TEST(CodeObject, AgreesWithLlvmReadelfAboutAmdObjects) {
  const std::string readelf = readelf_for_amd(), hipcc_path = find_hipcc();
  if (readelf.empty() || hipcc_path.empty()) {
    say_missing("hipcc or llvm-readelf");
    EXPECT_TRUE(resources_of("").empty());
    return;
  }
  Hipcc hipcc(hipcc_path);
  for (const char* arch : {"gfx906:sramecc-:xnack-", "gfx90a", "gfx1030"}) {
    const CodeObject object = hipcc.compile(three_kernels(), arch, {});
    EXPECT_EQ(target_of(object.code), arch);
    const TemporaryDirectory directory;
    const std::string file = directory.path() + "/object";
    std::ofstream(file, std::ios::binary) << object.code;
    const ProcessResult notes = run_process({readelf, "--notes", file});
    ASSERT_TRUE(notes.ok()) << notes.how_it_ended();
    const auto kernels = resources_of(object.code);
    EXPECT_EQ(kernels.size(), 3u);
    for (const char* name : {"tiled", "local", "dynamic"}) {
      const Resources* kernel = find(kernels, name);
      ASSERT_NE(kernel, nullptr) << name;
      const auto value = [&](const char* key) { return note_value(notes.output, name, key); };
      EXPECT_EQ(kernel->registers, value(".vgpr_count"));
      EXPECT_EQ(kernel->scalar_registers, value(".sgpr_count"));
      EXPECT_EQ(kernel->shared_bytes, value(".group_segment_fixed_size"));
      EXPECT_EQ(kernel->scratch_bytes, value(".private_segment_fixed_size"));
      EXPECT_EQ(kernel->spills, value(".vgpr_spill_count") + value(".sgpr_spill_count"));
      EXPECT_EQ(kernel->max_threads, value(".max_flat_workgroup_size"));
      EXPECT_EQ(kernel->wave, value(".wavefront_size"));
      EXPECT_EQ(kernel->wave, parse_arch(arch).wave);
    }
    EXPECT_EQ(find(kernels, "tiled")->shared_bytes, 800);
  }
}

TEST(CodeObject, DamagedObjectsAreSafeToRead) {
  std::vector<std::string> objects;
  if (const std::string path = find_nvrtc(testing::python_paths()); !path.empty()) {
    objects.push_back(Nvrtc(path).compile(three_kernels(), "sm_80", {}).code);
  }
  if (const std::string path = find_hiprtc(testing::python_paths()); !path.empty()) {
    HipRtc hiprtc(path, find_comgr(path, {"/usr/lib/x86_64-linux-gnu"}));
    objects.push_back(hiprtc.compile(three_kernels(), "gfx906", {}).code);
  }
  if (objects.empty()) say_missing("NVRTC and hipRTC");
  objects.emplace_back(
      "\x7f"
      "ELF");
  std::mt19937 random(3);
  for (const std::string& object : objects) {
    for (int round = 0; round < 3000; ++round) {
      std::string damaged =
          object.substr(0, random() % 4 == 0 ? random() % object.size() : object.size());
      for (std::size_t flips = damaged.empty() ? 0 : 1 + random() % 6; flips > 0; --flips) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      EXPECT_LE(resources_of(damaged).size(), damaged.size());
      EXPECT_LE(target_of(damaged).size(), damaged.size());
    }
  }
}

Resources resources(int registers, int shared_bytes = 0, int scalar_registers = 16) {
  Resources result;
  result.registers = registers;
  result.shared_bytes = shared_bytes;
  result.scalar_registers = scalar_registers;
  return result;
}

struct Case {
  const char* arch;
  Resources needs;
  int threads, dynamic_shared;
  double value, maximum;
  const char* limited_by;
};

TEST(Occupancy, FollowsThePublishedLimits) {
  const Case cases[] = {
      // 64 Ki registers per multiprocessor, handed out in steps of 256 per warp.
      {"sm_90a", resources(32), 256, 0, 64, 64, "nothing"},
      {"sm_90", resources(33), 256, 0, 48, 64, "registers"},
      {"sm_80", resources(64), 256, 0, 32, 64, "registers"},
      {"sm_80", resources(255), 256, 0, 8, 64, "registers"},
      // As the driver of an H200 answers (cuOccupancyMaxActiveBlocksPerMultiprocessor).
      {"sm_90a", resources(168), 32, 0, 12, 64, "registers"},
      {"sm_90a", resources(124), 96, 0, 15, 64, "registers"},
      {"sm_90a", resources(32), 192, 0, 60, 64, "block size"},
      {"sm_90a", resources(32), 320, 10240, 60, 64, "block size"},
      {"sm_90a", resources(28), 96, 10240, 60, 64, "shared memory"},
      {"sm_90a", resources(14), 768, 200000, 24, 64, "shared memory"},
      // 48 KiB and 1 KiB of the system's, three times in 164 KiB.
      {"sm_80", resources(32, 48 << 10), 256, 0, 24, 64, "shared memory"},
      {"sm_90", resources(32), 128, 227 << 10, 4, 64, "shared memory"},
      {"sm_86", resources(32), 1024, 0, 32, 48, "block size"},
      {"sm_75", resources(32), 32, 0, 16, 32, "block size"},
      {"gfx906", resources(24), 256, 0, 10, 10, "nothing"},
      {"gfx906", resources(25), 256, 0, 9, 10, "registers"},
      {"gfx906", resources(128), 256, 0, 2, 10, "registers"},
      {"gfx906", resources(256), 64, 0, 1, 10, "registers"},
      {"gfx906", resources(16, 16 << 10), 256, 0, 4, 10, "shared memory"},
      {"gfx906", resources(16), 256, 32 << 10, 2, 10, "shared memory"},
      {"gfx906", resources(16, 0, 102), 256, 0, 7, 10, "registers"},
      {"gfx90a:sramecc+:xnack-", resources(64), 256, 0, 8, 8, "nothing"},
      {"gfx90a", resources(65), 256, 0, 7, 8, "registers"},
      {"gfx90a", resources(300), 256, 0, 1, 8, "registers"},
      {"gfx1030", resources(64), 256, 0, 16, 16, "nothing"},
      {"gfx1030", resources(128), 256, 0, 8, 16, "registers"},
      {"gfx1100", resources(256), 256, 0, 4, 16, "registers"},
  };
  for (const Case& test : cases) {
    const Occupancy found =
        occupancy(test.needs, parse_arch(test.arch), test.threads, test.dynamic_shared);
    std::ostringstream shown;
    shown << test.arch << " registers " << test.needs.registers << " threads " << test.threads;
    EXPECT_EQ(found.value, test.value) << shown.str();
    EXPECT_EQ(found.maximum, test.maximum) << shown.str();
    EXPECT_EQ(found.limited_by, test.limited_by) << shown.str();
  }
}

TEST(Occupancy, SaysWhenItIsNotKnown) {
  const Occupancy hygon = occupancy(resources(32), parse_arch("gfx936:sramecc+:xnack-"), 256, 0);
  EXPECT_EQ(hygon.value, -1);
  EXPECT_EQ(hygon.unit, "waves per SIMD");
  EXPECT_EQ(hygon.limited_by, "the limits of gfx936 are not published");
  EXPECT_EQ(occupancy(resources(32), parse_arch("sm_199"), 256, 0).value, -1);
  EXPECT_EQ(occupancy(Resources{}, parse_arch("sm_90"), 256, 0).value, -1);
  Resources bound = resources(32);
  bound.max_threads = 128;
  EXPECT_EQ(occupancy(bound, parse_arch("sm_90"), 256, 0).value, 0);
  EXPECT_EQ(occupancy(bound, parse_arch("sm_90"), 256, 0).limited_by, "the launch bound");
  EXPECT_EQ(occupancy(resources(32), parse_arch("sm_90"), 128, 240 << 10).value, 0);
}

TEST(Occupancy, AgreesWithClangsRemark) {
  if (find_hipcc().empty()) {
    say_missing("hipcc");
    EXPECT_EQ(occupancy(resources(32), parse_arch("gfx936"), 256, 0).value, -1);
    return;
  }
  Program program;
  program.name = "pressure";
  program.text =
      "#include <hip/hip_runtime.h>\n"
      "template <int kLive>\n"
      "__device__ void keep_alive(float* y, int n) {\n"
      "  float a[kLive];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < kLive; ++i) a[i] = y[i * n];\n"
      "  __syncthreads();\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < kLive; ++i) y[i * n + 1] = a[kLive - 1 - i] * a[i];\n"
      "}\n"
      "#define KERNEL(live) extern \"C\" __global__ void __launch_bounds__(256) live_##live( \\\n"
      "    float* y, int n) { keep_alive<live>(y, n); }\n"
      "KERNEL(16) KERNEL(50) KERNEL(130)\n";
  Hipcc hipcc(find_hipcc());
  for (const char* arch : {"gfx906", "gfx90a", "gfx1030"}) {
    const CodeObject object =
        hipcc.compile(program, arch, {"-Rpass-analysis=kernel-resource-usage"});
    const auto kernels = resources_of(object.code);
    ASSERT_EQ(kernels.size(), 3u);
    std::set<double> seen;
    for (const Resources& kernel : kernels) {
      const std::size_t begin = object.log.find("Function Name: " + kernel.kernel);
      const std::string label = "Occupancy [waves/SIMD]: ";
      const std::size_t at = object.log.find(label, begin);
      ASSERT_NE(at, std::string::npos) << object.log;
      const double value = occupancy(kernel, parse_arch(arch), 256, 0).value;
      EXPECT_EQ(value, std::atoi(object.log.c_str() + at + label.size()))
          << arch << " " << kernel.kernel << " " << kernel.registers << " registers";
      seen.insert(value);
    }
    EXPECT_GE(seen.size(), 2u) << arch;  // More than one step of the scale is compared.
  }
}

}  // namespace
}  // namespace truefuse::jit
