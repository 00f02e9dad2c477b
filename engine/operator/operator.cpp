#include <algorithm>
#include <mutex>

#include <truefuse/operator/operator.h>
#include <truefuse/sim/embedded.h>

namespace truefuse {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const Operator*> operators;
};

Registry& registry() {
  static auto* instance = new Registry;  // Used by static initialisers of other libraries.
  return *instance;
}

}  // namespace

void KernelParameters::bind_scratch(void* scratch, std::size_t bytes) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (!slots_[i].is_scratch) continue;
    std::size_t offset = 0;
    std::memcpy(&offset, data(i), sizeof offset);
    if (offset >= bytes) {
      throw Error("a kernel parameter points " + std::to_string(offset) +
                  " bytes into scratch memory of " + std::to_string(bytes) + " bytes");
    }
    std::byte* const pointer = static_cast<std::byte*>(scratch) + offset;
    std::memcpy(data(i), &pointer, sizeof pointer);
    slots_[i].is_scratch = false;
  }
}

void register_operator(const Operator& op) {
  Registry& state = registry();
  const std::scoped_lock lock(state.mutex);
  for (const Operator* other : state.operators) {
    if (other->qualified_name() == op.qualified_name()) {
      throw Error("an operator named " + op.qualified_name() +
                  " is already registered; choose another name or namespace");
    }
  }
  state.operators.push_back(&op);
}

void unregister_operator(const Operator& op) {
  Registry& state = registry();
  const std::scoped_lock lock(state.mutex);
  std::erase(state.operators, &op);
}

std::vector<const Operator*> registered_operators() {
  Registry& state = registry();
  const std::scoped_lock lock(state.mutex);
  return state.operators;
}

DeviceFacts facts_of_absent(std::string_view arch) {
  DeviceFacts device;
  device.arch = arch;
  device.tuned = tuned_policies(arch);
  return device;
}

std::vector<Operator::NamedVariant> variants_for(const Operator& op, const DeviceFacts& device) {
  const bool is_tuned = op.variants_on != nullptr && !device.tuned.empty();
  std::vector<Operator::NamedVariant> all = is_tuned ? op.variants_on(device) : op.variants;
  std::erase_if(all, [&](const auto& variant) { return !variant.is_for(device.arch); });
  return all;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator* op : registered_operators()) {
    if (op->name == name || op->qualified_name() == name) return &op->now();
  }
  return nullptr;
}

jit::Program program_of(const Operator& op, const Variant& variant) {
  if (variant.count != op.constants.size()) {
    throw Error(op.name + ": a variant has " + std::to_string(variant.count) +
                " constants; the operator names " + std::to_string(op.constants.size()));
  }
  std::vector<jit::Constant> constants;
  for (std::uint32_t i = 0; i < variant.count; ++i) {
    constants.push_back({op.constants[i], std::to_string(variant.values[i])});
  }
  jit::Source source = op.source;
  // A kernel in CUDA's own language includes "truefuse/sim/cuda.h" for the simulator.
  for (const auto* files : {&device_files(), &sim_runtime_files()}) {
    for (const auto& [name, text] : *files) source.files.emplace(name, text);
  }
  return jit::resolve(source, constants);
}

bool Operator::NamedVariant::is_for(std::string_view arch) const {
  return only_for.empty() ||
         std::any_of(only_for.begin(), only_for.end(),
                     [&](const std::string& beginning) { return arch.starts_with(beginning); });
}

}  // namespace truefuse
