#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/parallel.h>
#include <truefuse/capi/simulate.h>
#include <truefuse/contract/check.h>
#include <truefuse/core/error.h>
#include <truefuse/jit/include_scanner.h>
#include <truefuse/jit/source.h>
#include <truefuse/sim/call.h>
#include <truefuse/sim/embedded.h>

namespace truefuse::capi {
namespace {

const Operator& simulated_operator(const char* name) {
  if (const Operator* op = find_operator(name)) return *op;
  throw Error("there is no operator \"" + std::string(name) + "\"");
}

DType dtype_named(std::string_view torch) {
  for (int i = 0; i < static_cast<int>(DType::other); ++i) {
    if (torch_name(static_cast<DType>(i)) == torch) return static_cast<DType>(i);
  }
  return DType::other;
}

Device device_named(std::string_view name) {
  if (name == "cpu") return {DeviceType::cpu, -1};
  if (name == "meta") return {DeviceType::meta, -1};
  return {name == "cuda" ? DeviceType::cuda : DeviceType::other, 0};
}

static_assert(sizeof(long long) == sizeof(std::int64_t));
std::span<const std::int64_t> list(const long long* values, int count) {
  return {reinterpret_cast<const std::int64_t*>(values), static_cast<std::size_t>(count)};
}

TensorView view_of(const truefuse_argument& given) {
  return {dtype_named(given.string), device_named(given.device), list(given.sizes, given.dims),
          list(given.strides, given.dims), given.data};
}

std::vector<Argument> arguments_of(const truefuse_argument* given, int count) {
  std::vector<Argument> arguments;
  for (int i = 0; i < count; ++i) {
    switch (given[i].kind) {
      case truefuse_argument::none:
        arguments.emplace_back(std::monostate{});
        break;
      case truefuse_argument::tensor:
        arguments.emplace_back(view_of(given[i]));
        break;
      case truefuse_argument::integer:
        arguments.emplace_back(static_cast<std::int64_t>(given[i].whole));
        break;
      case truefuse_argument::number:
        arguments.emplace_back(given[i].real);
        break;
      case truefuse_argument::boolean:
        arguments.emplace_back(given[i].whole != 0);
        break;
      case truefuse_argument::text:
        arguments.emplace_back(std::string_view(given[i].string));
        break;
    }
  }
  return arguments;
}

sim::SimOrder order_named(std::string_view name) {
  if (name == "forward") return sim::SimOrder::forward;
  if (name == "reverse") return sim::SimOrder::reverse;
  if (name == "random") return sim::SimOrder::random;
  if (name == "interleaved") return sim::SimOrder::interleaved;
  throw Error("there is no order \"" + std::string(name) +
              "\"; there are forward, reverse, random and interleaved");
}

sim::SimDevice device_of(const truefuse_sim_device& given) {
  sim::SimDevice device;
  device.arch = given.arch;
  if (device.arch != "sim:wave32" && device.arch != "sim:wave64") {
    throw Error("there is no simulated device \"" + device.arch +
                "\"; there are sim:wave32 and sim:wave64");
  }
  device.sanitizers.clear();
  std::istringstream names(given.sanitizers);
  for (std::string name; std::getline(names, name, ',');) device.sanitizers.push_back(name);
  device.options.lane_order = device.options.block_order = order_named(given.order);
  device.options.seed = given.seed;
  device.options.resident_blocks = static_cast<std::uint32_t>(given.resident_blocks);
  device.options.trace = given.trace != 0;
  device.options.time_limit = std::chrono::minutes(5);
  return device;
}

void write(JsonWriter& json, const sim::CallTrace& trace) {
  json.key("launches").begin_array();
  for (const sim::TracedLaunch& launch : trace.launches) {
    json.begin_object();
    json.key("kernel").string(launch.kernel);
    json.key("grid").begin_array();
    for (const auto n : {launch.grid.x, launch.grid.y, launch.grid.z}) json.integer(n);
    json.end_array();
    json.key("block").begin_array();
    for (const auto n : {launch.block.x, launch.block.y, launch.block.z}) json.integer(n);
    json.end_array();
    json.key("accesses").begin_array();
    for (const sim::SimAccess& access : launch.accesses) {
      const auto begin = reinterpret_cast<std::uintptr_t>(trace.ranges[access.buffer].begin);
      json.begin_array();
      json.integer(access.line).integer(access.is_write ? 1 : 0).integer(access.bytes);
      json.integer(static_cast<std::int64_t>(begin + access.byte_offset));
      json.integer(static_cast<std::int64_t>(access.block)).integer(access.thread);
      json.end_array();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

template <class T>
void add(KernelParameters& parameters, const truefuse_argument& given) {
  const bool is_whole = given.kind == truefuse_argument::integer;
  parameters.add(is_whole ? static_cast<T>(given.whole) : static_cast<T>(given.real));
}

void add_scalar(KernelParameters& parameters, const truefuse_argument& given) {
  switch (dtype_named(given.string)) {
    case DType::f64:
      return add<double>(parameters, given);
    case DType::f32:
      return add<float>(parameters, given);
    case DType::i64:
      return add<std::int64_t>(parameters, given);
    case DType::i32:
      return add<std::int32_t>(parameters, given);
    default:
      throw Error("a kernel's scalar is float32, float64, int32 or int64, not " +
                  std::string(given.string));
  }
}

void write(JsonWriter& json, const sim::SimOutcome& outcome) {
  json.begin_object();
  json.key("fault");
  if (outcome.fault) {
    const sim::SimFault& fault = *outcome.fault;
    json.begin_object();
    json.key("kind").string(sim::name_of(fault.kind));
    json.key("text").string(fault.text());
    json.key("message").string(fault.message);
    json.key("file").string(fault.place.file);
    json.key("line").integer(fault.place.line);
    json.key("other_line").integer(fault.other.line);
    json.end_object();
  } else {
    json.null();
  }
  json.key("lane_switches").integer(static_cast<std::int64_t>(outcome.lane_switches));
  json.end_object();
}

/// The user's file as it is, so that lines are those of the file; in CUDA's and HIP's language,
/// behind what gives that language.
jit::Source kernel_source(const std::string& name, const std::string& text) {
  jit::Source source{name, device_files()};
  for (const auto& [file, contents] : sim_runtime_files()) source.files.emplace(file, contents);
  source.files[name] = text;
  const auto references = jit::scan_includes(name, text);
  const bool is_own = std::any_of(references.begin(), references.end(),
                                  [](const auto& r) { return r.name == "truefuse/device.h"; });
  if (!is_own) {
    source.name = "truefuse_sim_kernel.hip";
    source.files[source.name] = "#include \"truefuse/sim/cuda.h\"\n#include \"" + name + "\"\n";
  }
  return source;
}

}  // namespace
}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_sim_outputs(const char* op_name, const truefuse_argument* given, int count) {
  return capi::answer([&](JsonWriter& json) {
    const Operator& op = capi::simulated_operator(op_name);
    const std::vector<Argument> arguments = capi::arguments_of(given, count);
    const std::span<const Argument> view(arguments);
    const auto sizes = check<std::int64_t>(op.contract, op.name, view);
    json.begin_array();
    for (std::size_t i = 0; i < op.contract.outputs().size(); ++i) {
      SmallVector<std::int64_t, 8> output;
      output_sizes<std::int64_t>(op.contract, sizes, view, i, output);
      json.begin_object();
      json.key("name").string(op.contract.outputs()[i].name);
      json.key("dtype").string(torch_name(output_dtype<std::int64_t>(op.contract, view, i)));
      json.key("sizes").begin_array();
      for (std::size_t d = 0; d < output.size(); ++d) json.integer(output[d]);
      json.end_array().end_object();
    }
    json.end_array();
  });
}

char* truefuse_sim_call(const char* op_name, const truefuse_argument* given, int count,
                        const truefuse_argument* given_outputs, int output_count,
                        const truefuse_sim_device* given_device) {
  return capi::answer([&](JsonWriter& json) {
    const Operator& op = capi::simulated_operator(op_name);
    const std::vector<Argument> arguments = capi::arguments_of(given, count);
    std::vector<TensorView> outputs;
    for (int i = 0; i < output_count; ++i) outputs.push_back(capi::view_of(given_outputs[i]));
    check<std::int64_t>(op.contract, op.name, std::span<const Argument>(arguments));
    const sim::SimDevice device = capi::device_of(*given_device);
    sim::CallTrace trace;
    sim::run(op, {arguments, outputs}, device, device.options.trace ? &trace : nullptr);
    json.begin_object();
    json.key("wave").integer(sim::facts_of(device).wave);
    capi::write(json, trace);
    json.end_object();
  });
}

char* truefuse_sim_prepare(const char* op_name, const truefuse_sim_device* given_device, int jobs) {
  return capi::answer([&](JsonWriter& json) {
    const Operator& op = capi::simulated_operator(op_name);
    const sim::SimDevice device = capi::device_of(*given_device);
    std::vector<const Operator::NamedVariant*> variants;
    for (const Operator::NamedVariant& variant : op.variants) {
      if (variant.is_for("sim")) variants.push_back(&variant);
    }
    capi::in_parallel(variants.size(), jobs,
                      [&](std::size_t i) { sim::executable_of(op, variants[i]->variant, device); });
    const auto count = static_cast<std::int64_t>(variants.size());
    json.begin_object().key("variants").integer(count).end_object();
  });
}

char* truefuse_sim_kernel(const char* name, const char* text, const char* kernel,
                          const unsigned shape[6], unsigned shared_bytes,
                          const truefuse_argument* given, int count,
                          const truefuse_sim_device* given_device) {
  return capi::answer([&](JsonWriter& json) {
    const sim::SimDevice device = capi::device_of(*given_device);
    jit::Source source = capi::kernel_source(name, text);
    Launch launch;
    launch.kernel = kernel;
    launch.grid = {shape[0], shape[1], shape[2]};
    launch.block = {shape[3], shape[4], shape[5]};
    launch.shared_bytes = shared_bytes;
    std::vector<sim::HostRange> ranges;
    for (int i = 0; i < count; ++i) {
      if (given[i].kind != truefuse_argument::tensor) {
        capi::add_scalar(launch.parameters, given[i]);
        continue;
      }
      std::size_t bytes = size_of(capi::dtype_named(given[i].string));
      for (int d = 0; d < given[i].dims; ++d) bytes *= static_cast<std::size_t>(given[i].sizes[d]);
      launch.parameters.add(given[i].data);
      ranges.push_back({given[i].data, bytes, given[i].whole != 0});
    }
    const std::string code = sim::executable_of(jit::resolve(source, {}), name, device);
    capi::write(json, sim::run(code, launch, ranges, device.options));
  });
}

}  // extern "C"
