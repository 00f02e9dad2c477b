#pragma once

// For tests that run an operator's kernels in the simulator: elements of any dtype, host memory
// that stands for the device's, and executables that are compiled once.

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/device/types.h>
#include <truefuse/operator/operator.h>
#include <truefuse/sim/host_compiler.h>
#include <truefuse/sim/launch.h>

namespace truefuse::testing {

inline double value_of(const std::byte* at, DType dtype) {
  const auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f64:
      return read(double{});
    case DType::f32:
      return read(float{});
    case DType::f16:
      return tf::to_float(read(tf::f16{}));
    default:
      return tf::to_float(read(tf::bf16{}));
  }
}

inline void write(std::byte* at, DType dtype, double value) {
  const auto put = [&](auto element) { std::memcpy(at, &element, sizeof element); };
  switch (dtype) {
    case DType::f64:
      return put(value);
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f16:
      return put(tf::from_float<tf::f16>(static_cast<float>(value)));
    default:
      return put(tf::from_float<tf::bf16>(static_cast<float>(value)));
  }
}

/// Unit roundoff of a dtype.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

/// Host memory at a chosen distance from a multiple of 256 bytes.
class Memory {
 public:
  Memory(std::size_t bytes, std::size_t misalignment)
      : block_(static_cast<std::byte*>(
                   std::aligned_alloc(256, (bytes + misalignment) / 256 * 256 + 256)),
               &std::free),
        begin_(block_.get() + misalignment),
        bytes_(bytes) {
    std::memset(begin_, 0xa5, bytes);
  }
  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> block_;
  std::byte* begin_;
  std::size_t bytes_;
};

/// Compiled once per program, wave size and first sanitizer.
inline std::string executable(const Operator& op, const Launch& launch, int wave,
                              const std::vector<std::string>& sanitizers) {
  static std::map<std::pair<int, std::string>, std::string> made;
  static const auto compiler = sim::HostCompiler::find();
  if (compiler == nullptr) throw Error("the simulator needs g++");
  const jit::Program program = program_of(op, launch.variant);
  std::string& code = made[{wave, program.text + sanitizers.front()}];
  if (code.empty()) {
    std::vector<std::string> options;
    for (const std::string& name : sanitizers) options.push_back("--sanitize=" + name);
    code = compiler->compile(program, "sim:wave" + std::to_string(wave), options).code;
  }
  return code;
}

inline const std::vector<std::string> kMemorySafe{"address", "undefined"};

}  // namespace truefuse::testing
