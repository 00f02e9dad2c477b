#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/jit/compiler.h>
#include <truefuse/jit/cxx.h>

namespace truefuse::sim {

/// Compiles a kernel's source, unchanged, for the CPU: with g++ and the simulator's runtime, into
/// an executable that sim::run starts. Architectures: "sim:wave32" and "sim:wave64".
///
/// Options, any number of them:
///   --sanitize=address    accesses outside a buffer or a shared array
///   --sanitize=undefined  misaligned accesses by casts, indices outside an array, overflow, ...
///   --sanitize=race       unordered accesses to the same bytes, shared memory read unwritten;
///                         not together with address
///   --sanitize=none       nothing; the same as no option
///   --trace               the executable can write a trace (SimOptions); not together with address
///   -DTF_NAME=VALUE
/// Barriers, exchanges between lanes and the alignment of tf::load and tf::store are always
/// checked.
class HostCompiler : public jit::Compiler {
 public:
  /// `program` is the path of a g++ or compatible compiler.
  explicit HostCompiler(std::string program) : cxx_(std::move(program)) {}

  /// Of jit::Cxx::find(); null if there is none.
  static std::unique_ptr<HostCompiler> find();

  std::string name() const override { return "g++ (sim)"; }
  std::string version() const override { return cxx_.version(); }
  std::string path() const override { return cxx_.program(); }
  std::vector<std::pair<std::string, std::string>> identity() const override;
  std::string refusal(std::string_view arch) override;
  jit::CodeObject compile(const jit::Program& program, std::string_view arch,
                          const std::vector<std::string>& options) override;

 private:
  std::string run(const std::vector<std::string>& arguments, const std::string& directory,
                  const std::string& what) const;
  const std::string& runtime_object(const std::vector<std::string>& options);

  jit::Cxx cxx_;
  std::mutex runtimes_mutex_;
  std::map<std::vector<std::string>, std::string> runtimes_;  ///< By the compiler's options.
};

}  // namespace truefuse::sim
