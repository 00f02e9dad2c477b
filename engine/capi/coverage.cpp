#include <algorithm>
#include <string>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/coverage.h>
#include <truefuse/capi/parallel.h>
#include <truefuse/core/error.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/code_object.h>
#include <truefuse/jit/disassembly.h>
#include <truefuse/operator/operator.h>

namespace truefuse::capi {
namespace {

struct Row {
  const Operator* op;
  Operator::NamedVariant variant;
  std::string error;
  jit::Built built;
  jit::Resources resources;
  jit::Occupancy occupancy;
  jit::MemoryInstructions memory;
  bool is_disassembled = false;
};

void compile(Row& row, const std::string& arch) {
  jit::BuildRequest request;
  request.program = program_of(*row.op, row.variant.variant);
  request.label = row.op->name + " " + row.variant.label;
  request.arch = arch;
  row.built = jit::build(request);
  const std::vector<jit::Resources> all = jit::resources_of(row.built.code);
  const auto found = std::find_if(all.begin(), all.end(), [&](const jit::Resources& resources) {
    return resources.kernel == row.variant.kernel;
  });
  if (found == all.end()) {
    throw Error("the object holds no kernel named " + std::string(row.variant.kernel));
  }
  row.resources = *found;
  row.occupancy =
      jit::occupancy(*found, jit::parse_arch(row.built.target), row.variant.block_threads, 0);
  const std::string text = jit::disassemble(row.built.code, row.built.target);
  row.is_disassembled = !text.empty();
  row.memory = jit::memory_instructions_in(text, row.built.target);
}

void write(JsonWriter& json, const Row& row) {
  json.begin_object();
  json.key("operator").string(row.op->name);
  json.key("label").string(row.variant.label);
  json.key("compiler").string(row.built.compiler);
  json.key("target").string(row.built.target);
  if (!row.error.empty()) {
    json.key("error").string(row.error).end_object();
    return;
  }
  json.key("registers").integer(row.resources.registers);
  json.key("shared_bytes").integer(row.resources.shared_bytes);
  json.key("scratch_bytes").integer(row.resources.scratch_bytes);
  json.key("spills").integer(row.resources.spills);
  json.key("max_threads").integer(row.resources.max_threads);
  json.key("wave").integer(row.resources.wave);
  json.key("occupancy").number(row.occupancy.value);
  json.key("occupancy_maximum").number(row.occupancy.maximum);
  json.key("occupancy_unit").string(row.occupancy.unit);
  json.key("wide_loads").integer(row.is_disassembled ? row.memory.wide_loads : -1);
  json.key("wide_stores").integer(row.is_disassembled ? row.memory.wide_stores : -1);
  json.key("code_bytes").integer(static_cast<std::int64_t>(row.built.code.size()));
  json.end_object();
}

}  // namespace
}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_compile_table(const char* arch, int jobs) {
  return capi::answer([&](JsonWriter& json) {
    std::vector<capi::Row> rows;
    const DeviceFacts device = facts_of_absent(arch);
    for (const Operator* op : registered_operators()) {
      for (Operator::NamedVariant& variant : variants_for(*op, device)) {
        rows.push_back({op, std::move(variant), {}, {}, {}, {}, {}, false});
      }
    }
    capi::in_parallel(rows.size(), jobs, [&](std::size_t i) {
      try {
        capi::compile(rows[i], arch);
      } catch (const Error& error) {
        rows[i].error = error.what();
      }
    });
    json.begin_array();
    for (const capi::Row& row : rows) capi::write(json, row);
    json.end_array();
  });
}

}  // extern "C"
