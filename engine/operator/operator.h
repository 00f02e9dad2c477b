#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <truefuse/contract/contract.h>
#include <truefuse/core/error.h>
#include <truefuse/core/tensor.h>
#include <truefuse/jit/source.h>
#include <truefuse/operator/policy.h>

namespace truefuse {

/// What a plan may know about the device that it plans for.
struct DeviceFacts {
  std::string arch;  ///< Whole, as the device reports it: "sm_90a", "gfx936:sramecc+:xnack-".
  int multiprocessors = 0;          ///< Streaming multiprocessors or compute units; 0: not known.
  int wave = 32;                    ///< Lanes per wave (warp).
  int max_shared_bytes = 48 << 10;  ///< Shared memory (LDS) one block can have without an opt-in.
  int max_shared_bytes_opt_in = 48 << 10;  ///< And with one, which a launch makes by itself.
  /// Threads of a whole grid along x: by default as many as 2^31 - 1 blocks can have.
  std::int64_t max_grid_threads_x = ((std::int64_t{1} << 31) - 1) * 1024;
  std::vector<TunedPolicy> tuned = {};  ///< The user's choices for this architecture.

  /// What grids are made of: one where the device does not say, for a grid of 0 blocks is left out.
  int multiprocessors_or_one() const { return std::max(multiprocessors, 1); }

  /// The choice for an operator and dtype; `standard`, where there is none.
  LaunchPolicy policy(std::string_view op, DType dtype, const LaunchPolicy& standard) const {
    for (const TunedPolicy& choice : tuned) {
      if (choice.dtype == dtype && choice.op == op) return choice.policy.or_else(standard);
    }
    return standard;
  }
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// A kernel's parameters, in order, as bytes; fixed capacity, so that a call allocates nothing.
/// A parameter may be a place in the call's scratch memory (Plan::scratch_bytes), which is not
/// known while the call is planned.
class KernelParameters {
 public:
  static constexpr std::size_t kMaxParameters = 48;
  static constexpr std::size_t kMaxBytes = 512;

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void add(const T& value) {
    const std::size_t begin = (bytes_used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (count_ == kMaxParameters || begin + sizeof(T) > kMaxBytes) {
      throw Error("a kernel takes at most 48 parameters of 512 bytes together");
    }
    std::memcpy(bytes_.data() + begin, &value, sizeof(T));
    slots_[count_++] = {static_cast<std::uint16_t>(begin), static_cast<std::uint16_t>(sizeof(T)),
                        std::is_pointer_v<T>, false};
    bytes_used_ = begin + sizeof(T);
  }

  /// A pointer to `offset` bytes past the beginning of the scratch memory.
  void add_scratch(std::size_t offset) {
    add(reinterpret_cast<void*>(offset));
    slots_[count_ - 1].is_scratch = true;
  }

  /// Makes the scratch parameters point into `scratch`, of `bytes` bytes.
  void bind_scratch(void* scratch, std::size_t bytes);

  struct Slot {  // No initialisers: a Plan is made for every call.
    std::uint16_t offset;
    std::uint16_t size;
    bool is_pointer;
    bool is_scratch;  ///< Not bound yet.
  };

  std::size_t size() const { return count_; }
  const Slot& slot(std::size_t i) const { return slots_[i]; }
  const std::byte* data(std::size_t i) const { return bytes_.data() + slots_[i].offset; }
  std::byte* data(std::size_t i) { return bytes_.data() + slots_[i].offset; }

 private:
  alignas(16) std::array<std::byte, kMaxBytes> bytes_;
  std::array<Slot, kMaxParameters> slots_;
  std::size_t count_ = 0;
  std::size_t bytes_used_ = 0;
};

/// The compile-time constants of one kernel variant: values for the names in
/// Operator::constants, in that order. Whatever is in here selects another compiled kernel;
/// whatever changes from call to call (rows, pointers, strides) belongs into the parameters.
struct Variant {
  static constexpr std::size_t kMaxConstants = 64;

  std::array<std::int64_t, kMaxConstants> values;  // The first `count`; a Plan is made per call.
  std::uint32_t count = 0;

  Variant() = default;

  void add(std::int64_t value) {
    if (count == kMaxConstants) throw Error("a kernel variant holds at most 64 constants");
    values[count++] = value;
  }
  const std::int64_t* begin() const { return values.data(); }
  const std::int64_t* end() const { return values.data() + count; }
  friend bool operator==(const Variant& a, const Variant& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
};

/// One kernel launch: pure data, made without touching a device.
struct Launch {
  /// extern "C" name in the operator's source, always the same literal: kernels are looked up by
  /// its address.
  const char* kernel = nullptr;
  Variant variant;
  Dim3 grid;
  Dim3 block;
  std::uint32_t shared_bytes = 0;  ///< Dynamic shared memory.
  /// Whether it may begin while the launch before it in the stream ends, on a device that can do
  /// so. Only for a kernel that begins with tf::wait_for_earlier_launches(), which the simulator
  /// sees to.
  bool starts_early = false;
  KernelParameters parameters;
};

/// The launches of a call, in stream order; empty when there is nothing to do.
struct Plan {
  static constexpr std::size_t kMaxLaunches = 4;

  std::array<Launch, kMaxLaunches> launches;
  std::size_t count = 0;

  /// Memory of the device that all launches of the call share, uninitialised, aligned to 256 bytes,
  /// and given back when they are done. How much may depend on all that a plan may look at, strides
  /// and alignments too, so it is known once the call has been planned, and not from shapes alone.
  std::size_t scratch_bytes = 0;

  Launch& add() {
    if (count == kMaxLaunches) throw Error("a plan holds at most 4 launches");
    return launches[count++];
  }
  std::span<const Launch> view() const { return {launches.data(), count}; }

  /// To be called before the launches, with memory of scratch_bytes bytes.
  void bind_scratch(void* scratch) {
    for (std::size_t i = 0; i < count; ++i) {
      launches[i].parameters.bind_scratch(scratch, scratch_bytes);
    }
  }
};

/// A checked call: the arguments in schema order, then the allocated outputs.
struct Call {
  std::span<const Argument> arguments;
  std::span<const TensorView> outputs;

  const TensorView& tensor(std::size_t i) const { return std::get<TensorView>(arguments[i]); }
  bool flag(std::size_t i) const { return std::get<bool>(arguments[i]); }
  std::string_view text(std::size_t i) const { return std::get<std::string_view>(arguments[i]); }
};

/// Everything there is to know about an operator. A library that wants an operator makes one of
/// these and registers it; nothing in the engine or in the binding knows any operator by name.
struct Operator {
  std::string name_space;  ///< Of torch.ops: "truefuse".
  std::string name;        ///< "bias_gelu".
  std::string
      schema;  ///< PyTorch schema without the namespace: "bias_gelu(Tensor x, ...) -> Tensor".
  Contract contract;    ///< What the arguments must be, and what the outputs are.
  std::string summary;  ///< One sentence for documentation and `truefuse ops`.

  jit::Source source;                  ///< Kernel source with all of its headers.
  std::vector<std::string> constants;  ///< Names of Variant's values: "TF_VECTOR", ...

  /// A pure function of the call's dtypes, sizes, strides, pointer alignments and the device facts.
  std::function<void(const Call& call, const DeviceFacts& device, Plan& plan)> plan;

  /// Refuses arguments that do not fit together, where the contract cannot say so; throws Error.
  /// Looks at sizes, strides, dtypes and scalars, at no memory. Called for meta tensors whose sizes
  /// are all numbers; the CPU path and `plan` find the same by themselves. Null: there is no more.
  void (*check_arguments)(const Call& call) = nullptr;

  /// Looks into the call's int32 and int64 tensors (indices, counts), which are in host memory here
  /// whatever the device says; throws Error. Null: any value will do. Called before the CPU path
  /// and, with TRUEFUSE_CHECK=1, before a launch.
  void (*check_values)(const Call& call) = nullptr;

  /// The variants that `truefuse compile` and the compile-coverage tests build, each with a label
  /// such as "f32 tanh vector". Together they must be all that `plan` can ask for; where a constant
  /// comes from the caller (sizes, a layout), those of well-known models.
  struct NamedVariant {
    std::string label;
    const char* kernel = nullptr;
    Variant variant;
    bool shown = false;  ///< Listed by default; the others with --all.
    int block_threads = 256;
    /// Beginnings of the architectures that it is for, such as "sm_90"; empty: all.
    std::vector<std::string> only_for;

    bool is_for(std::string_view arch) const;
  };
  std::vector<NamedVariant> variants;

  /// For an operator whose plan asks DeviceFacts::policy: the variants that it can ask for on such
  /// a device. Null: `variants`, whatever the device.
  std::vector<NamedVariant> (*variants_on)(const DeviceFacts& device) = nullptr;

  /// Of an operator whose sources may change while the process runs: the description as they are
  /// now, with the same schema and contract. What it returns lives for the rest of the process, and
  /// kernels are kept by its address, so no call runs code of an older one. Empty: this one.
  std::function<const Operator&()> latest;
  const Operator& now() const { return latest ? latest() : *this; }

  std::string qualified_name() const { return name_space + "::" + name; }
};

/// Adds an operator to the process-wide table. Throws Error if the name is taken. `op` must live
/// for the rest of the process, or until it is removed.
void register_operator(const Operator& op);
void unregister_operator(const Operator& op);

/// All registered operators, in order of registration.
std::vector<const Operator*> registered_operators();

/// What is known of a device that is not here: its architecture, and the user's choices for it.
DeviceFacts facts_of_absent(std::string_view arch);

/// The variants that a plan can ask for on such a device.
std::vector<Operator::NamedVariant> variants_for(const Operator& op, const DeviceFacts& device);

/// Null if there is none of that name ("bias_gelu" or "truefuse::bias_gelu"). As its sources are
/// now: throws Error if they cannot be read.
const Operator* find_operator(std::string_view name);

/// The program of one variant: constants in front of the operator's source, every include resolved.
jit::Program program_of(const Operator& op, const Variant& variant);

}  // namespace truefuse
