#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/truefuse.h>
#include <truefuse/contract/contract.h>
#include <truefuse/core/error.h>
#include <truefuse/gpu/kernel_table.h>
#include <truefuse/jit/build.h>
#include <truefuse/jit/cache.h>
#include <truefuse/jit/code_object.h>
#include <truefuse/jit/toolchains.h>
#include <truefuse/operator/operator.h>

namespace truefuse::capi {
namespace {

const Operator& operator_named(const char* name) {
  if (const Operator* op = find_operator(name)) return *op;
  std::string known;
  for (const Operator* op : registered_operators()) known += (known.empty() ? "" : ", ") + op->name;
  throw Error("there is no operator \"" + std::string(name) + "\"; there are: " + known);
}

Operator::NamedVariant variant_named(const Operator& op, const std::string& label,
                                     const std::string& arch) {
  std::string known;
  for (const Operator::NamedVariant& variant : variants_for(op, facts_of_absent(arch))) {
    if (variant.label == label) return variant;
    known += (known.empty() ? "\"" : ", \"") + variant.label + '"';
  }
  throw Error(op.name + " has no variant \"" + label + "\"; it has: " + known);
}

jit::BuildRequest request_for(const Operator& op, const Operator::NamedVariant& variant) {
  jit::BuildRequest request;
  request.program = program_of(op, variant.variant);
  request.label = op.name + " " + variant.label;
  return request;
}

std::string compiler_version(const std::string& arch, const std::string& name) {
  const auto found = jit::compilers_for(arch, jit::search_paths(), name);
  return found.empty() ? "" : found.front()->version();
}

void write(JsonWriter& json, const jit::Resources& resources) {
  json.begin_object();
  json.key("registers").integer(resources.registers);
  json.key("scalar_registers").integer(resources.scalar_registers);
  json.key("shared_bytes").integer(resources.shared_bytes);
  json.key("scratch_bytes").integer(resources.scratch_bytes);
  json.key("spills").integer(resources.spills);
  json.key("max_threads").integer(resources.max_threads);
  json.key("wave").integer(resources.wave);
  json.end_object();
}

void write(JsonWriter& json, const jit::Occupancy& occupancy) {
  json.begin_object();
  json.key("value").number(occupancy.value);
  json.key("maximum").number(occupancy.maximum);
  json.key("unit").string(occupancy.unit);
  json.key("limited_by").string(occupancy.limited_by);
  json.end_object();
}

void write_compiled(JsonWriter& json, const Operator::NamedVariant& variant,
                    const std::string& arch, const jit::Built& built) {
  json.begin_object();
  json.key("compiler").string(built.compiler);
  json.key("compiler_version").string(compiler_version(arch, built.compiler));
  json.key("target").string(built.target);
  json.key("seconds").number(built.seconds);
  json.key("compile_seconds").number(built.compile_seconds);
  json.key("source").string(built.from_cache ? "disk" : "compiled");
  json.key("code_bytes").integer(static_cast<std::int64_t>(built.code.size()));
  json.key("key").string(built.key.digest());
  const auto all = jit::resources_of(built.code);
  const auto found = std::find_if(all.begin(), all.end(), [&](const jit::Resources& resources) {
    return resources.kernel == variant.kernel;
  });
  if (found == all.end()) {
    throw Error("the compiled object holds no kernel named " + std::string(variant.kernel));
  }
  json.key("resources");
  write(json, *found);
  json.key("occupancy");
  write(json, jit::occupancy(*found, jit::parse_arch(built.target), variant.block_threads, 0));
  json.end_object();
}

void write_operator(JsonWriter& json, const Operator& op) {
  json.begin_object();
  json.key("namespace").string(op.name_space);
  json.key("name").string(op.name);
  json.key("schema").string(op.schema);
  json.key("summary").string(op.summary);
  json.key("contract").raw(op.contract.json());
  json.key("tunable").boolean(op.variants_on != nullptr);
  json.key("variants").begin_array();
  for (const Operator::NamedVariant& variant : op.variants) {
    json.begin_object();
    json.key("label").string(variant.label);
    json.key("kernel").string(variant.kernel);
    json.key("shown").boolean(variant.shown);
    json.key("only_for").begin_array();
    for (const std::string& beginning : variant.only_for) json.string(beginning);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

/// For one entry: whether a build today would use it, and in which parts its key differs if not.
void write_reason(JsonWriter& json, const Operator& op, const jit::Cache::Listing& listing) {
  const std::string target = listing.key.value_of("target");
  json.begin_object();
  json.key("digest").string(listing.digest);
  json.key("label").string(listing.label);
  json.key("target").string(target);
  json.key("modified").integer(listing.modified_unix_seconds);
  std::vector<std::string> differences;
  try {
    const auto variant = variant_named(op, listing.label.substr(op.name.size() + 1), target);
    const jit::BuildRequest request = request_for(op, variant);
    const auto compilers =
        jit::compilers_for(target, jit::search_paths(), listing.key.value_of("compiler"));
    if (compilers.empty()) throw Error("its compiler is no longer found");
    differences = jit::differences(listing.key, jit::key_of(request, *compilers.front(), target));
  } catch (const Error& error) {
    differences = {error.what()};
  }
  json.key("current").boolean(differences.empty());
  json.key("differences").begin_array();
  for (const std::string& difference : differences) json.string(difference);
  json.end_array();
  json.end_object();
}

jit::Cache cache_here(std::vector<std::string>* reasons = nullptr) {
  return jit::Cache(jit::Cache::default_directory(reasons));
}

std::vector<std::string> lines_of(const char* text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace
}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

const char* truefuse_version(void) { return TRUEFUSE_VERSION; }

void truefuse_free(char* text) { std::free(text); }

void truefuse_set_search_paths(const char* torch_lib, const char* site_dirs) {
  std::free(capi::answer([&](JsonWriter&) {
    jit::set_search_paths({torch_lib, capi::lines_of(site_dirs)});
  }));
}

char* truefuse_operators(void) {
  return capi::answer([](JsonWriter& json) {
    json.begin_array();
    for (const Operator* op : registered_operators()) capi::write_operator(json, *op);
    json.end_array();
  });
}

char* truefuse_contract(const char* text) {
  return capi::answer([&](JsonWriter& json) { json.raw(Contract::parse(text).json()); });
}

char* truefuse_toolchains(void) {
  return capi::answer(
      [](JsonWriter& json) { json.raw(jit::to_json(jit::find_toolchains(jit::search_paths()))); });
}

char* truefuse_refusal(const char* arch, const char* compiler) {
  return capi::answer([&](JsonWriter& json) {
    std::string refusal;
    try {
      jit::compiler_for(arch, jit::search_paths(), compiler);
    } catch (const Error& error) {
      refusal = error.what();
    }
    json.begin_object().key("refusal").string(refusal).end_object();
  });
}

char* truefuse_compile(const char* op_name, const char* arch, const char* label,
                       const char* compiler, int use_cache) {
  return capi::answer([&](JsonWriter& json) {
    const Operator& op = capi::operator_named(op_name);
    const Operator::NamedVariant variant = capi::variant_named(op, label, arch);
    jit::BuildRequest request = capi::request_for(op, variant);
    request.arch = arch;
    request.compiler = compiler;
    request.use_cache = use_cache != 0;
    capi::write_compiled(json, variant, arch, jit::build(request));
  });
}

char* truefuse_cache(void) {
  return capi::answer([](JsonWriter& json) {
    std::vector<std::string> reasons;
    const jit::Cache cache = capi::cache_here(&reasons);
    json.begin_object();
    json.key("directory").string(cache.directory());
    json.key("reasons").begin_array();
    for (const std::string& reason : reasons) json.string(reason);
    json.end_array();
    json.key("entries").begin_array();
    for (const jit::Cache::Listing& entry : cache.list()) {
      json.begin_object();
      json.key("digest").string(entry.digest);
      json.key("label").string(entry.label);
      json.key("target").string(entry.key.value_of("target"));
      json.key("compiler").string(entry.key.value_of("compiler"));
      json.key("path").string(entry.path);
      json.key("bytes").integer(entry.bytes);
      json.key("modified").integer(entry.modified_unix_seconds);
      json.key("valid").boolean(entry.valid);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  });
}

char* truefuse_cache_why(const char* op_name) {
  return capi::answer([&](JsonWriter& json) {
    const Operator& op = capi::operator_named(op_name);
    json.begin_array();
    for (const jit::Cache::Listing& entry : capi::cache_here().list()) {
      if (entry.valid && entry.label.rfind(op.name + " ", 0) == 0) {
        capi::write_reason(json, op, entry);
      }
    }
    json.end_array();
  });
}

char* truefuse_cache_clear(void) {
  return capi::answer([](JsonWriter& json) {
    json.begin_object().key("removed").integer(capi::cache_here().clear()).end_object();
  });
}

char* truefuse_devices(void) {
  return capi::answer([](JsonWriter& json) {
    gpu::Driver& driver = gpu::Driver::instance();
    json.begin_object();
    json.key("driver").string(driver.name());
    json.key("library").string(driver.library());
    json.key("version").integer(driver.version());
    json.key("devices").begin_array();
    for (int device = 0; device < driver.device_count(); ++device) {
      const DeviceFacts& facts = gpu::facts_of(device);
      json.begin_object();
      json.key("index").integer(device);
      json.key("name").string(driver.device_name(device));
      json.key("arch").string(facts.arch);
      json.key("multiprocessors").integer(facts.multiprocessors);
      json.key("wave").integer(facts.wave);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  });
}

char* truefuse_prepare(const char* op_name, int device) {
  return capi::answer([&](JsonWriter& json) {
    gpu::prepare(capi::operator_named(op_name), device);
    json.begin_object().end_object();
  });
}

}  // extern "C"
