#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <truefuse/capi/answer.h>
#include <truefuse/capi/describe.h>
#include <truefuse/core/error.h>
#include <truefuse/description/watched.h>

namespace truefuse::capi {
namespace {

using description::Described;
using description::Sources;
using description::Watched;

struct Table {
  std::mutex mutex;
  std::vector<std::unique_ptr<Watched>> operators;
};

Table& table() {
  static auto* instance = new Table;  // PyTorch holds on to the operators until the process ends.
  return *instance;
}

void write_added(JsonWriter& json, std::unique_ptr<Watched> watched) {
  const Described& found = watched->first();
  json.begin_object();
  json.key("namespace").string(found.op.name_space);
  json.key("name").string(found.op.name);
  json.key("schema").string(found.op.schema);
  json.key("contract").raw(found.op.contract.json());
  json.key("reference").string(found.reference);
  json.key("cpu").string(found.cpu);
  json.key("gpu").string(found.gpu);
  json.key("has_kernel").boolean(found.has_kernel);
  json.key("backward_file").string(found.backward_file);
  json.key("backward").string(found.backward_function);
  json.key("gradients").begin_array();
  for (const std::string& name : found.gradients) json.string(name);
  json.end_array();
  json.key("origin").string(watched->origin());
  Table& all = table();
  const std::scoped_lock lock(all.mutex);
  json.key("handle").integer(static_cast<std::int64_t>(all.operators.size()));
  all.operators.push_back(std::move(watched));
  json.end_object();
}

Sources sources_of(const char* name, const char* text, const truefuse_file* files, int count) {
  Sources sources;
  sources.name = std::string(name) + "/description";
  sources.prefix = name;
  sources.text = text;
  for (int i = 0; i < count; ++i) sources.files[files[i].name] = files[i].text;
  return sources;
}

}  // namespace

Watched& described(int handle) {
  Table& all = table();
  const std::scoped_lock lock(all.mutex);
  if (handle < 0 || static_cast<std::size_t>(handle) >= all.operators.size()) {
    throw Error("no description has the handle " + std::to_string(handle));
  }
  return *all.operators[static_cast<std::size_t>(handle)];
}

}  // namespace truefuse::capi

using namespace truefuse;  // NOLINT: this file is the boundary of the namespace.

extern "C" {

char* truefuse_describe_folder(const char* path, const char* file, const char* name_space,
                               const char* op) {
  return capi::answer([&](JsonWriter& json) {
    capi::write_added(json, description::Watched::folder(path, file, name_space, op));
  });
}

char* truefuse_describe_texts(const char* name, const char* text, const truefuse_file* files,
                              int count, const char* name_space, const char* op) {
  return capi::answer([&](JsonWriter& json) {
    description::Sources sources = capi::sources_of(name, text, files, count);
    sources.name_space = name_space;
    sources.op_name = op;
    capi::write_added(json, description::Watched::texts(std::move(sources)));
  });
}

char* truefuse_describe_replace(int handle, const char* text, const truefuse_file* files,
                                int count) {
  return capi::answer([&](JsonWriter& json) {
    description::Watched& watched = capi::described(handle);
    const Operator& op = watched.first().op;
    description::Sources sources = capi::sources_of(watched.origin().c_str(), text, files, count);
    sources.name_space = op.name_space;
    sources.op_name = op.name;
    watched.replace(std::move(sources));
    json.begin_object().end_object();
  });
}

}  // extern "C"
