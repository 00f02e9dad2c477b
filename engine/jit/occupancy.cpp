#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <truefuse/jit/code_object.h>

namespace truefuse::jit {
namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

std::int64_t round_up(std::int64_t value, std::int64_t granule) {
  return (value + granule - 1) / granule * granule;
}

struct StreamingMultiprocessor {
  int number, warps, blocks, shared_kib;
};

// Limits per multiprocessor, from the compute capability tables of the CUDA programming guide.
constexpr std::array<StreamingMultiprocessor, 11> kNvidia = {{{70, 64, 32, 96},
                                                              {75, 32, 16, 64},
                                                              {80, 64, 32, 164},
                                                              {86, 48, 16, 100},
                                                              {87, 48, 16, 164},
                                                              {89, 48, 24, 100},
                                                              {90, 64, 32, 228},
                                                              {100, 64, 32, 228},
                                                              {103, 64, 32, 228},
                                                              {120, 48, 24, 100},
                                                              {121, 48, 24, 100}}};

struct ComputeUnit {
  int max_waves;         // Per SIMD.
  int vector_registers;  // Per SIMD and lane.
  int register_granule;
  bool scalar_limit;  // SGPRs are shared out among the waves (up to gfx9).
  int simds;          // That share one LDS.
  int shared_bytes;   // LDS.
};

std::optional<ComputeUnit> compute_unit(const Arch& arch) {
  // Only processors whose documentation states these figures; Hygon's are not published.
  const std::string& base = arch.base;
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), base) != names.end();
  };
  if (is_one_of({"gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90c"})) {
    return ComputeUnit{10, 256, 4, true, 4, 64 << 10};
  }
  if (is_one_of({"gfx90a", "gfx940", "gfx941", "gfx942"})) {
    return ComputeUnit{8, 512, 8, true, 4, 64 << 10};
  }
  // From gfx10 on, a block runs on a pair of compute units with 4 SIMDs and 128 KiB of LDS.
  if (is_one_of({"gfx1010", "gfx1011", "gfx1012", "gfx1013"})) {
    return ComputeUnit{20, 1024, 8, false, 4, 128 << 10};
  }
  if (is_one_of({"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"})) {
    return ComputeUnit{16, 1024, 16, false, 4, 128 << 10};
  }
  if (is_one_of({"gfx1100", "gfx1101"})) return ComputeUnit{16, 1536, 24, false, 4, 128 << 10};
  return std::nullopt;
}

/// Up to gfx9, 800 SGPRs per SIMD are given out in steps of 16, at most 102 to a wave.
std::int64_t waves_for_scalar_registers(int registers) {
  if (registers <= 80) return 10;
  if (registers <= 88) return 9;
  return registers <= 100 ? 8 : 7;
}

struct Limit {
  std::int64_t blocks;
  const char* name;
};

Occupancy from_blocks(std::initializer_list<Limit> limits, std::int64_t waves_per_block,
                      double units, double maximum, const char* unit) {
  const Limit tightest =
      *std::min_element(limits.begin(), limits.end(),
                        [](const Limit& a, const Limit& b) { return a.blocks < b.blocks; });
  Occupancy result;
  result.value = static_cast<double>(tightest.blocks * waves_per_block) / units;
  result.maximum = maximum;
  result.unit = unit;
  result.limited_by = result.value >= maximum ? "nothing" : tightest.name;
  return result;
}

Occupancy nvidia(const Resources& resources, const Arch& arch, std::int64_t threads,
                 std::int64_t dynamic_shared) {
  const auto found = std::find_if(kNvidia.begin(), kNvidia.end(), [&](const auto& candidate) {
    return candidate.number == arch.number;
  });
  Occupancy unknown;
  unknown.unit = "warps per SM";
  if (found == kNvidia.end()) {
    unknown.limited_by = "the limits of " + arch.base + " are not known here";
    return unknown;
  }
  const std::int64_t warps = round_up(threads, 32) / 32;
  // Four schedulers have a quarter of the 64 Ki registers each, handed out per warp in steps of
  // 256.
  const std::int64_t per_warp = round_up(std::max(resources.registers, 1) * std::int64_t{32}, 256);
  const std::int64_t by_registers = (65536 / 4 / per_warp) * 4 / warps;
  const std::int64_t system = arch.number >= 80 ? 1024 : 0;  // Reserved in every block.
  const std::int64_t shared = round_up(
      std::max(resources.shared_bytes, 0) + dynamic_shared + system, arch.number >= 80 ? 128 : 256);
  const std::int64_t by_shared =
      shared == 0 ? kUnlimited : (std::int64_t{found->shared_kib} << 10) / shared;
  return from_blocks({{found->warps / warps, "block size"},
                      {found->blocks, "block size"},
                      {by_registers, "registers"},
                      {by_shared, "shared memory"}},
                     warps, 1, found->warps, "warps per SM");
}

Occupancy amd(const Resources& resources, const Arch& arch, std::int64_t threads,
              std::int64_t dynamic_shared) {
  const std::optional<ComputeUnit> unit = compute_unit(arch);
  Occupancy unknown;
  unknown.unit = "waves per SIMD";
  if (!unit) {
    unknown.limited_by = "the limits of " + arch.base + " are not published";
    return unknown;
  }
  const std::int64_t waves = round_up(threads, arch.wave) / arch.wave;
  const auto blocks = [&](std::int64_t waves_per_simd) {
    return waves_per_simd * unit->simds / waves;
  };
  const std::int64_t by_vector =
      unit->vector_registers / round_up(std::max(resources.registers, 1), unit->register_granule);
  const std::int64_t by_scalar =
      unit->scalar_limit ? waves_for_scalar_registers(resources.scalar_registers) : unit->max_waves;
  const std::int64_t shared = std::max(resources.shared_bytes, 0) + dynamic_shared;
  // Each block of more than one wave takes one of the barriers.
  const std::int64_t by_barriers = waves == 1 ? kUnlimited : (arch.wave == 64 ? 16 : 32);
  return from_blocks({{blocks(unit->max_waves), "block size"},
                      {by_barriers, "block size"},
                      {blocks(by_vector), "registers"},
                      {blocks(by_scalar), "registers"},
                      {shared == 0 ? kUnlimited : unit->shared_bytes / shared, "shared memory"}},
                     waves, unit->simds, unit->max_waves, "waves per SIMD");
}

}  // namespace

Occupancy occupancy(const Resources& resources, const Arch& arch, int block_threads,
                    int dynamic_shared) {
  Occupancy result;
  if (resources.registers < 0 || block_threads <= 0) {
    result.limited_by = "registers or block size are not known";
    return result;
  }
  result = arch.vendor == Vendor::nvidia
               ? nvidia(resources, arch, block_threads, std::max(dynamic_shared, 0))
               : amd(resources, arch, block_threads, std::max(dynamic_shared, 0));
  const int bound = resources.max_threads > 0 ? resources.max_threads : 1024;
  if (result.value >= 0 && block_threads > bound) {
    result.value = 0;
    result.limited_by = "the launch bound";
  }
  return result;
}

}  // namespace truefuse::jit
