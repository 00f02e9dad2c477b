#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/process.h>
#include <truefuse/sim/simulator.h>
#include <truefuse/sim/symbols.h>

namespace truefuse::sim {
namespace {

using jit::Descriptor;

/// Newer kernels may make anonymous files that cannot be executed unless asked; older ones do not
/// know the flag.
int create_anonymous(const char* name) {
  constexpr unsigned kExecutable = 0x10;  // MFD_EXEC
  const int file = memfd_create(name, MFD_CLOEXEC | kExecutable);
  return file >= 0 || errno != EINVAL ? file : memfd_create(name, MFD_CLOEXEC);
}

/// A file without a name, which a child process reaches through /proc.
class AnonymousFile {
 public:
  AnonymousFile(const char* name, std::string_view contents) : descriptor_(create_anonymous(name)) {
    const int error = descriptor_ ? jit::write_all(descriptor_.get(), contents) : errno;
    if (error != 0) {
      throw Error("the simulator has no memory for a file of " + std::to_string(contents.size()) +
                  " bytes: " + jit::error_words(error));
    }
  }

  std::string path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_.get());
  }
  int descriptor() const { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
};

/// The shared file, mapped.
class SharedFile {
 public:
  explicit SharedFile(std::string_view contents) : file_("truefuse-sim", contents) {
    size_ = contents.size();
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.descriptor(), 0);
    if (memory_ == MAP_FAILED) {
      throw Error("the simulator cannot map " + std::to_string(size_) +
                  " bytes: " + jit::error_words(errno));
    }
  }
  ~SharedFile() { munmap(memory_, size_); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  std::string path() const { return file_.path(); }
  tf_sim::Control& control() { return *static_cast<tf_sim::Control*>(memory_); }
  const std::byte* at(std::uint64_t offset) const {
    return static_cast<const std::byte*>(memory_) + offset;
  }

 private:
  AnonymousFile file_;
  std::size_t size_ = 0;
  void* memory_ = nullptr;
};

/// Lays the shared file out: Control, then parameter and buffer records, then their bytes.
class Layout {
 public:
  explicit Layout(std::size_t bytes) { text_.resize(bytes); }

  std::uint64_t append(const void* bytes, std::size_t size) {
    text_.resize((text_.size() + 15) / 16 * 16);
    const std::uint64_t offset = text_.size();
    text_.append(static_cast<const char*>(bytes), size);
    return offset;
  }
  void place(std::size_t offset, const void* bytes, std::size_t size) {
    std::memcpy(text_.data() + offset, bytes, size);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void check(const SimLaunch& launch, const std::vector<SimBuffer>& buffers,
           const SimOptions& options) {
  const auto fail = [&](const std::string& text) {
    throw Error("simulated launch of " + launch.kernel + ": " + text);
  };
  if (launch.kernel.empty() || launch.kernel.size() >= sizeof(tf_sim::Control::kernel)) {
    fail("the kernel's name has " + std::to_string(launch.kernel.size()) +
         " characters; give 1 to 255");
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint64_t limit = i == 0 ? 0x7fffffff : 0xffff;
    if (launch.grid[i] == 0 || launch.grid[i] > limit) {
      fail("grid dimension " + std::to_string(i) + " is " + std::to_string(launch.grid[i]) +
           "; devices take 1 to " + std::to_string(limit));
    }
    if (launch.block[i] == 0 || launch.block[i] > 1024) {
      fail("block dimension " + std::to_string(i) + " is " + std::to_string(launch.block[i]) +
           "; devices take 1 to 1024");
    }
    if (std::uint64_t{launch.grid[i]} * launch.block[i] > 0xffffffff) {
      fail("grid times block is more than 2^32 - 1 threads in dimension " + std::to_string(i) +
           ", which AMD devices refuse or cut short");
    }
  }
  if (buffers.size() > 256) fail("it has more than 256 buffers");
  for (const SimBuffer& buffer : buffers) {
    if (buffer.misalignment >= 256) fail("a buffer's misalignment is not below 256");
  }
  for (const SimParameters::Item& item : launch.parameters.list()) {
    if (item.buffer && *item.buffer >= buffers.size()) {
      fail("a pointer names buffer " + std::to_string(*item.buffer) + " of " +
           std::to_string(buffers.size()));
    }
  }
  if (options.resident_blocks == 0) fail("resident_blocks is 0; at least one block must be alive");
}

std::string lay_out(const SimLaunch& launch, const std::vector<SimBuffer>& buffers,
                    const SimOptions& options, const std::string& trace) {
  tf_sim::Control control{};
  trace.copy(control.trace, sizeof control.trace - 1);
  control.state = tf_sim::State::not_started;
  std::copy(launch.kernel.begin(), launch.kernel.end(), control.kernel);
  std::copy(launch.grid.begin(), launch.grid.end(), control.grid);
  std::copy(launch.block.begin(), launch.block.end(), control.block_dim);
  control.shared_bytes = launch.shared_bytes;
  control.starts_early = launch.starts_early ? 1 : 0;
  control.lane_order = options.lane_order;
  control.block_order = options.block_order;
  control.seed = options.seed;
  control.resident_blocks = options.resident_blocks;

  Layout layout(sizeof control);
  std::vector<tf_sim::Parameter> parameters;
  for (const SimParameters::Item& item : launch.parameters.list()) {
    tf_sim::Parameter parameter{};
    parameter.size = static_cast<tf_sim::u32>(item.bytes.size());
    parameter.value_offset = layout.append(item.bytes.data(), item.bytes.size());
    parameter.is_pointer = item.buffer ? 1 : 0;
    parameter.buffer = item.buffer.value_or(0);
    parameter.byte_offset = item.byte_offset;
    parameters.push_back(parameter);
  }
  std::vector<tf_sim::Buffer> records;
  for (const SimBuffer& buffer : buffers) {
    records.push_back({layout.append(buffer.bytes.data(), buffer.bytes.size()), buffer.bytes.size(),
                       buffer.misalignment, buffer.is_writable ? 1u : 0u});
  }
  control.parameter_count = static_cast<tf_sim::u32>(parameters.size());
  control.parameters_offset =
      layout.append(parameters.data(), parameters.size() * sizeof(tf_sim::Parameter));
  control.buffer_count = static_cast<tf_sim::u32>(records.size());
  control.buffers_offset = layout.append(records.data(), records.size() * sizeof(tf_sim::Buffer));
  layout.place(0, &control, sizeof control);
  return layout.text();
}

/// Starts the executable; again if it dies before its first line: where addresses are spread over
/// 32 bits, older AddressSanitizers find their own memory taken now and then.
jit::ProcessResult start(const std::string& program, SharedFile& shared,
                         const SimOptions& options) {
  jit::ProcessOptions process;
  process.time_limit = options.time_limit;
  process.environment = {
      {"ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:print_legend=0:color=never"},
      {"UBSAN_OPTIONS", "print_stacktrace=1:color=never"},
      {"LD_PRELOAD", ""},
  };
  jit::ProcessResult result;
  for (int attempt = 0; attempt < 8; ++attempt) {
    result = jit::run_process({program, shared.path()}, process);
    if (!result.started || result.timed_out) break;
    if (shared.control().state != tf_sim::State::not_started) return result;
  }
  if (result.timed_out && shared.control().state != tf_sim::State::not_started) return result;
  throw Error("the simulated kernel " + result.how_it_ended() +
              " before it began; the executable needs /proc and the sanitizer libraries of the "
              "compiler that made it\n" +
              result.errors);
}

SimPlace place_of(const tf_sim::Where& where, const std::string& program) {
  if (where.line != 0) return {where.file, static_cast<int>(where.line)};
  return place_of_address(program, where.pc);
}

SimFault fault_of(const tf_sim::Control& control, const jit::ProcessResult& result,
                  const std::string& program) {
  SimFault fault;
  const tf_sim::Report& report = control.report;
  fault.kind = report.fault;
  fault.message = report.message;
  fault.details = result.errors;
  fault.place = place_of(report.where, program);
  fault.other = place_of(report.other, program);
  std::copy(std::begin(control.thread), std::end(control.thread), fault.thread.begin());
  std::copy(std::begin(control.block), std::end(control.block), fault.block.begin());
  if (result.timed_out) {
    fault.kind = SimFaultKind::time_limit;
    fault.message = "the launch did not end within " + std::to_string(result.time_limit.count()) +
                    " ms and was stopped";
  } else if (const std::string finding = undefined_behaviour_in(result.errors); !finding.empty()) {
    fault.kind = finding.find("misaligned address") != std::string::npos
                     ? SimFaultKind::misaligned_access
                     : SimFaultKind::undefined_behaviour;
    fault.message = finding;
  } else if (fault.kind == SimFaultKind::none) {
    std::tie(fault.kind, fault.message) = signal_in(result.errors);
    if (fault.kind == SimFaultKind::crash) {
      fault.message = "the kernel's process " + result.how_it_ended();
    }
  }
  if (fault.place.line == 0) fault.place = place_in_stack(result.errors);
  return fault;
}

std::vector<SimAccess> accesses_in(const AnonymousFile& trace, const std::string& program) {
  std::ifstream file(trace.path(), std::ios::binary);
  std::map<tf_sim::u64, int> lines;  // By address.
  std::vector<SimAccess> accesses;
  tf_sim::Transaction found;
  while (file.read(reinterpret_cast<char*>(&found), sizeof found)) {
    int line = static_cast<int>(found.line);
    if (found.pc != 0) {
      const auto [known, is_new] = lines.try_emplace(found.pc, 0);
      if (is_new) known->second = place_of_address(program, found.pc).line;
      line = known->second;
    }
    accesses.push_back({found.block, found.thread, found.buffer, found.byte_offset, found.bytes,
                        found.is_write != 0, line});
  }
  return accesses;
}

}  // namespace

std::string_view name_of(SimFaultKind kind) {
  static constexpr std::array<std::string_view, 20> kNames = {
      "none",
      "global_read_out_of_bounds",
      "global_write_out_of_bounds",
      "shared_read_out_of_bounds",
      "shared_write_out_of_bounds",
      "shared_read_uninitialised",
      "access_before_wait",
      "write_to_read_only",
      "misaligned_access",
      "divergent_barrier",
      "exited_lane_at_barrier",
      "divergent_collective",
      "exited_lane_read",
      "operand_out_of_range",
      "race",
      "undefined_behaviour",
      "memory_fault",
      "stack_overflow",
      "time_limit",
      "crash",
  };
  static_assert(kNames.size() == static_cast<std::size_t>(SimFaultKind::crash) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string SimFault::text() const {
  const auto triple = [](const std::array<std::uint32_t, 3>& index) {
    return std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
           std::to_string(index[2]);
  };
  const auto place_text = [](const SimPlace& where) {
    return where.file + ":" + std::to_string(where.line);
  };
  std::string text = place.line > 0 ? place_text(place) + ": " : std::string();
  text += std::string(name_of(kind)) + ": " + message;
  if (other.line > 0) text += "; the other place is " + place_text(other);
  return text + " (thread " + triple(thread) + " of block " + triple(block) + ")";
}

SimOutcome run(const std::string& executable, const SimLaunch& launch,
               std::vector<SimBuffer> buffers, const SimOptions& options) {
  check(launch, buffers, options);
  const AnonymousFile program("truefuse-kernel", executable);
  const AnonymousFile trace("truefuse-trace", "");
  SharedFile shared(lay_out(launch, buffers, options, options.trace ? trace.path() : ""));

  const auto begin = std::chrono::steady_clock::now();
  const jit::ProcessResult result = start(program.path(), shared, options);
  SimOutcome outcome;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const tf_sim::Control& control = shared.control();
  outcome.lane_switches = control.lane_switches;
  if (control.state == tf_sim::State::refused) {
    throw Error("simulated launch of " + launch.kernel + ": " + control.report.message);
  }
  if (control.state == tf_sim::State::done) {
    const std::byte* const records = shared.at(control.buffers_offset);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      tf_sim::Buffer record;
      std::memcpy(&record, records + i * sizeof record, sizeof record);
      const std::byte* const bytes = shared.at(record.data_offset);
      std::copy(bytes, bytes + record.bytes, buffers[i].bytes.begin());
    }
  } else {
    outcome.fault = fault_of(control, result, program.path());
  }
  outcome.buffers = std::move(buffers);
  if (options.trace) outcome.accesses = accesses_in(trace, program.path());
  return outcome;
}

}  // namespace truefuse::sim
