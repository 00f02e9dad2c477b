#include <chrono>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/statistics.h>
#include <truefuse/gpu/kernel_table.h>
#include <truefuse/jit/cache.h>
#include <truefuse/jit/statistics.h>

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_statistics(void) {
  return capi::answer([](JsonWriter& json) {
    json.begin_object();
    const auto tallies = jit::statistics();
    for (std::size_t i = 0; i < tallies.size(); ++i) {
      json.key(jit::kEventNames[i]).begin_object();
      json.key("count").integer(static_cast<std::int64_t>(tallies[i].count));
      json.key("seconds").number(tallies[i].seconds);
      json.key("most_seconds").number(tallies[i].most_seconds);
      json.end_object();
    }
    const gpu::WarmLookup warm = gpu::warm_lookup();
    json.key("warm").begin_object();
    json.key("kernels").integer(static_cast<std::int64_t>(warm.kernels));
    json.key("lookup_seconds").number(warm.seconds);
    json.end_object().end_object();
  });
}

char* truefuse_cache_costs(void) {
  return capi::answer([](JsonWriter& json) {
    const jit::Cache cache(jit::Cache::default_directory());
    std::vector<double> read;
    std::vector<double> compile;
    std::int64_t bytes = 0;
    for (const jit::Cache::Listing& entry : cache.list()) {
      bytes += entry.bytes;
      if (!entry.valid) continue;
      const auto begin = std::chrono::steady_clock::now();
      if (!cache.lookup(entry.key)) continue;  // Gone meanwhile.
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
      read.push_back(passed.count());
      compile.push_back(entry.compile_seconds);
    }
    json.begin_object();
    json.key("directory").string(cache.directory());
    json.key("bytes").integer(bytes);
    json.key("compile_seconds").begin_array();
    for (const double seconds : compile) json.number(seconds);
    json.end_array().key("read_seconds").begin_array();
    for (const double seconds : read) json.number(seconds);
    json.end_array().end_object();
  });
}

}  // extern "C"
