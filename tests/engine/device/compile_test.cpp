// The device headers through every GPU compiler found here: no memory that nobody asked for, the
// right wave, 16-byte accesses.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/code_object.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/temporary_directory.h>
#include <truefuse/jit/toolchains.h>
#include <truefuse/sim/embedded.h>

namespace truefuse {
namespace {

const char* const kSource = R"(#include "truefuse/device.h"
template <class T, int N>
TF_DEVICE void activate(const T* x, const float* bias, T* y, tf::u32 count) {
  const tf::u32 i = (tf::block_x() * tf::block_dim_x() + tf::thread_x()) * N;
  if (i + N > count) return;
  auto v = tf::to_float(tf::load_streaming<N>(x + i));
  const auto b = tf::load<N>(bias + i);
  TF_UNROLL for (int k = 0; k < N; ++k) {
    const float u = v[k] + b[k];
    v[k] = u * tf::reciprocal_fast(1.0f + tf::exp2_fast(tf::fma(u, u, u)));
  }
  tf::store(y + i, tf::from_float<T>(v));
}
TF_KERNEL(256) void activate_f16(const tf::f16* x, const float* b, tf::f16* y, tf::u32 n) {
  activate<tf::f16, 8>(x, b, y, n);
}
TF_KERNEL(256) void activate_bf16(const tf::bf16* x, const float* b, tf::bf16* y, tf::u32 n) {
  activate<tf::bf16, 8>(x, b, y, n);
}
TF_KERNEL(256) void activate_f32(const float* x, const float* b, float* y, tf::u32 n) {
  activate<float, 4>(x, b, y, n);
}
TF_KERNEL(256) void doubles(const double* x, double* y) {
  const tf::u32 i = tf::thread_x() * 2;
  auto v = tf::load<2>(x + i);
  TF_UNROLL for (int k = 0; k < 2; ++k) {
    v[k] = tf::tanh(v[k]) * tf::exp(v[k]) + tf::fma(v[k], tf::sqrt(v[k]), tf::rsqrt(v[k]));
  }
  tf::store_streaming(y + i, v);
}
TF_KERNEL(256) void more_doubles(const double* x, double* y) {
  const double v = x[tf::thread_x()];
  y[tf::thread_x()] = tf::erfc(v) + tf::min(tf::log(tf::abs(v)), tf::infinity<double>());
}
TF_KERNEL(1024) void lanes(const float* x, float* y, double* d) {
  TF_SHARED_DYNAMIC(float, dynamic);
  TF_SHARED(double, fixed, 8);
  dynamic[tf::thread_x()] = x[tf::thread_linear() + tf::grid_dim_x() * tf::block_y()];
  tf::block_sync();
  float v = tf::block_sum(dynamic[tf::thread_x() ^ 1]);
  v += tf::block_max(v) + tf::subgroup_max<8>(v);
  v += tf::shuffle_down<16>(v, 3) + tf::shuffle<TF_WAVE>(v, 5) + tf::shuffle_xor<8>(v, 1);
  if (tf::lane() < 8) fixed[tf::lane()] = v;
  tf::block_sync();
  y[tf::thread_x()] = tf::erfc(v) + tf::tanh(v) * tf::exp(v) + tf::log(tf::abs(v)) + tf::sqrt(v) +
                      tf::rsqrt(v) + tf::min(v, tf::nan());
  d[tf::thread_x()] = tf::subgroup_sum<32>(fixed[tf::lane() % 8]);
}
TF_KERNEL(256) void votes(const float* x, tf::u64* y) {
  const float v = x[tf::thread_x()];
  y[tf::thread_x()] = tf::ballot<TF_WAVE>(v > 0) + tf::ballot<8>(v > 1) +
                      (tf::any<32>(v > 2) && tf::all<16>(v < 3));
  tf::wave_sync();
  y[256 + tf::thread_x()] = tf::bit_cast<tf::u32>(tf::shuffle_up<16>(v, 3));
}
template <class T>
TF_DEVICE void all_atomics(T* p, T v) {
  constexpr auto kOrdered = tf::MemoryOrder::acq_rel;
  v = tf::atomic_add<kOrdered>(p, v) + tf::atomic_exchange(p + 1, v) + tf::atomic_load<kOrdered>(p);
  tf::atomic_store<kOrdered>(p + 2, v);
  if constexpr (!tf::IsSame<T, float>::value) {
    v = tf::atomic_min(p, v) + tf::atomic_max(p, v) + tf::atomic_or(p, v) + tf::atomic_and(p, v);
    tf::atomic_compare_exchange<kOrdered>(p, v, tf::atomic_xor(p, v));
  }
}
TF_KERNEL(256) void atomics(tf::u32* u, tf::i32* i, tf::u64* l, float* f) {
  TF_SHARED(tf::u32, local, 4);
  if (tf::thread_x() == 0) local[0] = 0;
  tf::block_sync();
  tf::atomic_add(local, 1u);
  tf::block_sync();
  all_atomics(u, local[0]);
  all_atomics(i, 1);
  all_atomics(l, tf::u64{1});
  all_atomics(f, 1.0f);
}
)";

class DeviceHeaders : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Arch, DeviceHeaders,
                         testing::Values("gfx906", "gfx908", "gfx90a", "gfx1030", "sm_80", "sm_90a",
                                         "sm_100"));

/// How often each 16-byte access is in an AMD object's code; nothing without a disassembler.
std::pair<int, int> wide_accesses(const std::string& code) {
  std::string tool;
  for (const char* const name : {"llvm-objdump", "llvm-objdump-19", "llvm-objdump-15"}) {
    if (tool.empty()) tool = jit::find_program(name);
  }
  if (tool.empty()) return {-1, -1};
  const jit::TemporaryDirectory directory;
  const std::string path = directory.path() + "/kernel.co";
  std::ofstream(path, std::ios::binary) << code;
  const std::string text = jit::run_process({tool, "-d", path}).output;
  const auto count = [&](std::string_view word) {
    int n = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      ++n;
    }
    return n;
  };
  return {count("global_load_dwordx4"), count("global_store_dwordx4")};
}

TEST_P(DeviceHeaders, CompileWithoutHiddenCosts) {
  const std::string arch = GetParam();
  jit::Source source{"kernel.hip", device_files()};
  source.files["kernel.hip"] = kSource;
  const jit::Program program = jit::resolve(source, {});
  const auto compilers = jit::compilers_for(arch, {});
  if (compilers.empty()) GTEST_SKIP() << "no compiler for " << arch;
  int compiled = 0;
  for (const auto& compiler : compilers) {
    if (!compiler->refusal(arch).empty()) continue;
    SCOPED_TRACE(compiler->name());
    const jit::CodeObject object = compiler->compile(program, arch, {});
    ++compiled;
    const bool is_amd = arch.starts_with("gfx");
    const int wave = arch == "gfx1030" || !is_amd ? 32 : 64;
    const std::vector<jit::Resources> kernels = jit::resources_of(object.code, object.log);
    EXPECT_EQ(kernels.size(), 8u);
    for (const jit::Resources& kernel : kernels) {
      // Eight doubles, and one float for each wave of a block_sum and of a block_max.
      int shared = kernel.kernel == "lanes" ? 8 * 8 + 2 * 4 * 1024 / wave : 0;
      if (kernel.kernel == "atomics") shared = 16;
      EXPECT_EQ(kernel.shared_bytes, shared) << kernel.kernel;
      EXPECT_LE(kernel.scratch_bytes, 0) << kernel.kernel;
      EXPECT_LE(kernel.spills, 0) << kernel.kernel;
      EXPECT_EQ(kernel.max_threads, kernel.kernel == "lanes" ? 1024 : 256) << kernel.kernel;
      if (is_amd) {
        EXPECT_EQ(kernel.wave, wave) << kernel.kernel;
      }
    }
    if (!is_amd) continue;
    const auto [loads, stores] = wide_accesses(object.code);
    if (loads < 0) continue;
    EXPECT_EQ(loads, 3 + 3 + 2 + 1) << "x, and float bias in one or two accesses";
    EXPECT_EQ(stores, 4);
  }
  if (compiled == 0) GTEST_SKIP() << "no compiler here takes " << arch;
}

}  // namespace
}  // namespace truefuse
