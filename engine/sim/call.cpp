#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <variant>

#include <truefuse/core/error.h>
#include <truefuse/jit/build.h>
#include <truefuse/sim/call.h>
#include <truefuse/sim/host_compiler.h>

namespace truefuse::sim {
namespace {

HostCompiler& compiler() {
  static const std::unique_ptr<HostCompiler> found = HostCompiler::find();
  if (found == nullptr) {
    throw Error(
        "a simulated device needs a C++ compiler: install g++, or name one in TRUEFUSE_CXX");
  }
  return *found;
}

std::vector<std::string> options_of(const SimDevice& device) {
  std::vector<std::string> options;
  for (const std::string& name : device.sanitizers) options.push_back("--sanitize=" + name);
  if (device.options.trace) options.push_back("--trace");
  return options;
}

/// From a tensor's first byte to its last.
HostRange range_of(const TensorView& view, bool is_writable) {
  std::int64_t low = 0, high = 0;
  for (std::size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] == 0) return {};
    const std::int64_t reach = (view.sizes[d] - 1) * view.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  return {static_cast<std::byte*>(view.data) + low * size,
          static_cast<std::size_t>((high - low + 1) * size), is_writable};
}

std::byte* begin_of(const HostRange& range) { return static_cast<std::byte*>(range.begin); }

/// Sorted, and made one where they overlap.
std::vector<HostRange> merged(std::vector<HostRange> ranges) {
  std::erase_if(ranges, [](const HostRange& range) { return range.bytes == 0; });
  std::sort(ranges.begin(), ranges.end(),
            [](const HostRange& a, const HostRange& b) { return begin_of(a) < begin_of(b); });
  std::vector<HostRange> result;
  for (const HostRange& range : ranges) {
    if (result.empty() || begin_of(result.back()) + result.back().bytes <= begin_of(range)) {
      result.push_back(range);
      continue;
    }
    HostRange& last = result.back();
    const auto distance = static_cast<std::size_t>(begin_of(range) - begin_of(last));
    last.bytes = std::max(last.bytes, distance + range.bytes);
    last.is_writable = last.is_writable || range.is_writable;
  }
  return result;
}

std::vector<HostRange> ranges_of(const Operator& op, const Call& call) {
  std::vector<HostRange> ranges;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (const auto* view = std::get_if<TensorView>(&call.arguments[i])) {
      ranges.push_back(range_of(*view, op.contract.arguments()[i].tensor()->mutated));
    }
  }
  for (const TensorView& output : call.outputs) ranges.push_back(range_of(output, true));
  return merged(std::move(ranges));
}

}  // namespace

DeviceFacts facts_of(const SimDevice& device) {
  DeviceFacts facts;
  facts.arch = device.arch;
  facts.multiprocessors = 4;
  facts.wave = device.arch == "sim:wave32" ? 32 : 64;
  facts.max_shared_bytes = facts.max_shared_bytes_opt_in = 64 << 10;
  facts.max_grid_threads_x = (std::int64_t{1} << 32) - 1;  // As HIP, whose devices it stands for.
  return facts;
}

std::string executable_of(const jit::Program& program, const std::string& label,
                          const SimDevice& device) {
  jit::BuildRequest request;
  request.program = program;
  request.label = label + " " + device.arch;
  request.arch = device.arch;
  request.options = options_of(device);
  return jit::build_with(compiler(), request).code;
}

const std::string& executable_of(const Operator& op, const Variant& variant,
                                 const SimDevice& device) {
  using Id =
      std::tuple<const Operator*, std::string, std::vector<std::string>, std::vector<std::int64_t>>;
  static std::mutex mutex;
  static std::map<Id, std::string> made;
  const Id id(&op, device.arch, options_of(device), {variant.begin(), variant.end()});
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = made.find(id); found != made.end()) return found->second;
  }
  std::string code = executable_of(program_of(op, variant), op.name, device);
  const std::scoped_lock lock(mutex);
  return made.try_emplace(id, std::move(code)).first->second;
}

void run(const Operator& op, const Call& call, const SimDevice& device, CallTrace* trace) {
  if (op.check_values != nullptr) op.check_values(call);
  Plan plan;
  op.plan(call, facts_of(device), plan);
  const std::vector<HostRange> ranges = ranges_of(op, call);
  if (trace != nullptr) trace->ranges = ranges;
  const auto keep = [&](const Launch& launch, SimOutcome& outcome) {
    if (trace == nullptr) return;
    trace->launches.push_back(
        {launch.kernel, launch.grid, launch.block, std::move(outcome.accesses)});
  };
  const SimOutcome last =
      run([&](const Launch& launch) { return executable_of(op, launch.variant, device); }, plan,
          ranges, device.options, keep);
  if (last.fault) throw Error(op.name + " on " + device.arch + ": " + last.fault->text());
}

}  // namespace truefuse::sim
