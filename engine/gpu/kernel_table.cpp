#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include <truefuse/gpu/kernel_table.h>
#include <truefuse/jit/statistics.h>

namespace truefuse::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxDevices = 64;
constexpr std::size_t kMostCompilers = 16;  // At a time, for prepare().

struct KernelId {
  const Operator* op;
  const char* kernel;
  int device;
  Variant variant;

  friend bool operator==(const KernelId& a, const KernelId& b) {
    return a.op == b.op && a.device == b.device && a.variant == b.variant &&
           std::strcmp(a.kernel, b.kernel) == 0;
  }
};

struct KernelIdHash {
  std::size_t operator()(const KernelId& id) const {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(id.op) ^
                         static_cast<std::uint64_t>(id.device) * 0x9e3779b97f4a7c15U;
    for (std::uint32_t i = 0; i < id.variant.count; ++i) {
      hash = (hash ^ static_cast<std::uint64_t>(id.variant.values[i])) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29U;
    }
    return hash;
  }
};

using Table = std::unordered_map<KernelId, Function, KernelIdHash>;

/// Readers see an immutable table; a writer publishes a copy with one more kernel. Old tables are
/// kept, because a reader may still be in one: there are as many as variants were ever loaded.
struct Registry {
  std::atomic<const Table*> current{nullptr};
  std::mutex writing;
  std::vector<std::unique_ptr<const Table>> tables;
};

Registry& registry() {
  static auto* instance = new Registry;  // Outlives static destruction: kernels may run until exit.
  return *instance;
}

const Function* find(const KernelId& id) {
  const Table* table = registry().current.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto found = table->find(id);
  return found == table->end() ? nullptr : &found->second;
}

std::string label_of(const Operator& op, const Launch& launch, const DeviceFacts& device) {
  for (const Operator::NamedVariant& candidate : variants_for(op, device)) {
    if (candidate.variant == launch.variant && std::strcmp(candidate.kernel, launch.kernel) == 0) {
      return op.name + " " + candidate.label;
    }
  }
  return op.name;
}

Function load_function(int device, const std::string& code, const char* kernel) {
  const auto begin = Clock::now();
  try {
    const Function function = Driver::instance().load(device, code, kernel);
    jit::record(jit::Event::loaded, std::chrono::duration<double>(Clock::now() - begin).count());
    return function;
  } catch (const Error& error) {
    throw Error(std::string(error.what()) +
                ". If a graph is being captured, call truefuse.prepare(...) before the capture");
  }
}

const Function& load(const KernelId& id, const Launch& launch, bool may_compile) {
  jit::BuildRequest request;
  request.program = program_of(*id.op, launch.variant);
  request.arch = facts_of(id.device).arch;
  request.label = label_of(*id.op, launch, facts_of(id.device));
  request.arch_is_reported_by_device = true;
  request.may_compile = may_compile;
  // Outside the lock: other kernels need not wait. Of two threads that want the same one, the cache
  // lets one compile.
  const jit::Built built = jit::build(request);

  Registry& state = registry();
  const std::scoped_lock lock(state.writing);
  if (const Function* function = find(id)) return *function;
  auto table = state.tables.empty() ? std::make_unique<Table>()
                                    : std::make_unique<Table>(*state.tables.back());
  const auto entry = table->emplace(id, load_function(id.device, built.code, launch.kernel));
  state.tables.push_back(std::move(table));
  state.current.store(state.tables.back().get(), std::memory_order_release);
  return entry.first->second;
}

}  // namespace

const DeviceFacts& facts_of(int device) {
  static std::array<std::once_flag, kMaxDevices> asked;
  static std::array<DeviceFacts, kMaxDevices> facts;
  const auto i = static_cast<std::size_t>(device);
  if (device < 0 || i >= kMaxDevices) {
    throw Error("device index " + std::to_string(device) + " is outside 0..63");
  }
  std::call_once(asked[i], [&] {
    DeviceFacts found = Driver::instance().facts(device);
    found.tuned = tuned_policies(found.arch);
    facts[i] = std::move(found);
  });
  return facts[i];
}

const Function& function_for(const Operator& op, const Launch& launch, int device) {
  const KernelId id{&op, launch.kernel, device, launch.variant};
  if (const Function* function = find(id)) return *function;
  return load(id, launch, !jit::compiling_is_forbidden());
}

void run(const Operator& op, const Call& call, int device, void* stream,
         const ScratchAllocator& allocate) {
  Plan plan;
  op.plan(call, facts_of(device), plan);
  plan.bind_scratch(plan.scratch_bytes > 0 ? allocate(plan.scratch_bytes) : nullptr);
  for (std::size_t i = 0; i < plan.count; ++i) {
    Launch& launch = plan.launches[i];
    const Function& function = function_for(op, launch, device);
    std::array<void*, KernelParameters::kMaxParameters> parameters;
    for (std::size_t p = 0; p < launch.parameters.size(); ++p) {
      parameters[p] = launch.parameters.data(p);
    }
    try {
      Driver::instance().launch(device, function, launch, stream, parameters.data());
    } catch (const Error& error) {
      throw Error(op.name + ": launch of kernel " + launch.kernel + " on device " +
                  std::to_string(device) + " (grid " + std::to_string(launch.grid.x) + "x" +
                  std::to_string(launch.grid.y) + "x" + std::to_string(launch.grid.z) + ", block " +
                  std::to_string(launch.block.x) + "x" + std::to_string(launch.block.y) + "x" +
                  std::to_string(launch.block.z) + "): " + error.what());
    }
  }
}

void prepare(const Operator& op, int device) {
  const std::vector<Operator::NamedVariant> variants = variants_for(op, facts_of(device));
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < variants.size(); i = next++) {
      Launch launch;
      launch.kernel = variants[i].kernel;
      launch.variant = variants[i].variant;
      const KernelId id{&op, launch.kernel, device, launch.variant};
      if (find(id) != nullptr) continue;
      try {
        load(id, launch, /*may_compile=*/true);
      } catch (...) {
        next = variants.size();  // The others stop after the kernel they are at.
        throw;
      }
    }
  };
  // A compiler works in one thread, and takes some 200 MB.
  const std::size_t threads = std::min<std::size_t>(
      {variants.size(), kMostCompilers, std::max(1U, std::thread::hardware_concurrency())});
  std::vector<std::future<void>> others;
  try {
    for (std::size_t i = 1; i < threads; ++i) {
      others.push_back(std::async(std::launch::async, work));
    }
  } catch (const std::system_error&) {  // No more threads can be had: those that there are do it.
  }
  work();
  for (std::future<void>& other : others) other.get();
}

WarmLookup warm_lookup() {
  const Table* const table = registry().current.load(std::memory_order_acquire);
  if (table == nullptr) return {};
  std::vector<KernelId> ids;
  for (const auto& [id, function] : *table) ids.push_back(id);
  constexpr std::size_t kLookups = 10000;
  const Function* volatile found = nullptr;  // So that no look-up is left out.
  const auto begin = Clock::now();
  for (std::size_t i = 0, k = 0; i < kLookups; ++i, k = k + 1 == ids.size() ? 0 : k + 1) {
    found = find(ids[k]);
  }
  const std::chrono::duration<double> passed = Clock::now() - begin;
  return {ids.size(), found == nullptr ? 0 : passed.count() / kLookups};
}

}  // namespace truefuse::gpu
