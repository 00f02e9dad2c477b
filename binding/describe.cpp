#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <truefuse/binding/describe.h>
#include <truefuse/binding/registration.h>
#include <truefuse/capi/answer.h>
#include <truefuse/description/derivative.h>
#include <truefuse/description/watched.h>
#include <truefuse/sim/call.h>

namespace truefuse::binding {
namespace {

using description::Described;
using description::Watched;

/// What one described operator has in PyTorch, for the rest of the process.
struct Registered {
  std::unique_ptr<const Operator>
      function_backward;  // Its backward operator, if Python computes it.
  std::unique_ptr<torch::Library> function_library;
  std::vector<Registration> registrations;
};

/// Runs the kernels in the simulator, and says so once.
CpuFunction in_simulator(Watched& watched) {
  const auto is_said = std::make_shared<std::atomic<bool>>(false);
  return [&watched, is_said](const Call& call) {
    const Operator& op = watched.latest();
    if (!is_said->exchange(true)) {
      TORCH_WARN(op.qualified_name(),
                 " has no path of its own for CPU tensors: its kernel runs in the "
                 "simulator, which is right and slow. Name a function in the description's 'cpu:' "
                 "for another path");
    }
    sim::run(op, call, {});
  };
}

void refuse_taken(const Operator& op) {
  const auto found = c10::Dispatcher::singleton().findSchema({op.qualified_name(), ""});
  if (!found) return;
  throw Error(
      "an operator named " + op.qualified_name() +
      " is already registered; load this one under another name: truefuse.load(..., name=...) or "
      "namespace=...");
}

void refuse_malformed(const Described& described) {
  const auto refuse = [&](const std::string& why) {
    throw Error(
        described.schema_place +
        ": PyTorch cannot read this schema, which has the form name(Tensor x, *, float eps) "
        "-> Tensor: " +
        why);
  };
  try {
    torch::schema(described.op.schema.c_str());
  } catch (const c10::Error& error) {  // From PyTorch 2.15 on.
    refuse(error.what_without_backtrace());
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

Registration registered(Watched& watched, const Derivative& derivative) {
  const Described& first = watched.first();
  refuse_malformed(first);
  try {
    if (!first.has_kernel) return Registration::without_devices(first.op, derivative);
    return first.cpu.empty() ? Registration::boxed(first.op, in_simulator(watched), derivative)
                             : Registration::without_cpu(first.op, derivative);
  } catch (const c10::Error& error) {
    throw Error(first.schema_place + ": " + error.what_without_backtrace());
  } catch (const Error& error) {
    throw Error(first.schema_place + ": " + error.what());
  }
}

/// `<name>_backward`, which Python implements.
Derivative defined_backward(const Described& first, Registered& all) {
  all.function_backward = std::make_unique<const Operator>(description::backward_of(first));
  refuse_taken(*all.function_backward);
  all.function_library = std::make_unique<torch::Library>(
      torch::Library::FRAGMENT, first.op.name_space, std::nullopt, __FILE__, __LINE__);
  all.function_library->def(torch::schema(all.function_backward->schema.c_str()),
                            {at::Tag::pt2_compliant_tag});
  return Derivative::by(*all.function_backward);
}

std::string add(Watched& watched, Watched* backward) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<Registered>;
  const std::scoped_lock lock(mutex);
  const Described& first = watched.first();
  refuse_taken(first.op);
  Registered all;
  Derivative derivative;
  if (backward != nullptr) {
    const Described& described = backward->first();
    if (!described.backward_file.empty() || !described.backward_function.empty()) {
      throw Error(described.schema_place + ": a backward operator has no backward of its own here");
    }
    refuse_taken(described.op);
    all.registrations.push_back(registered(*backward, {}));
    derivative = Derivative::by(described.op);
  } else if (!first.backward_function.empty()) {
    derivative = defined_backward(first, all);
  }
  all.registrations.push_back(registered(watched, derivative));
  kept->push_back(std::move(all));
  return derivative.backward() == nullptr ? "" : derivative.backward()->qualified_name();
}

}  // namespace
}  // namespace truefuse::binding

extern "C" char* truefuse_torch_describe(int handle, int backward) {
  return truefuse::capi::answer([&](truefuse::JsonWriter& json) {
    using truefuse::capi::described;
    const std::string name =
        truefuse::binding::add(described(handle), backward < 0 ? nullptr : &described(backward));
    json.begin_object().key("backward").string(name).end_object();
  });
}
