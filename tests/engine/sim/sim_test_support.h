#pragma once

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <truefuse/sim/embedded.h>
#include <truefuse/sim/host_compiler.h>
#include <truefuse/sim/simulator.h>

namespace truefuse::sim {

/// The program of a kernel source of one file, "kernel.hip", whose first line is the #include.
inline jit::Program program_of(const std::string& kernel_source) {
  jit::Source source{"kernel.hip", device_files()};
  source.files["kernel.hip"] = "#include \"truefuse/device.h\"\n" + kernel_source;
  return jit::resolve(source, {});
}

inline HostCompiler& compiler() {
  static const std::unique_ptr<HostCompiler> found = HostCompiler::find();
  if (found == nullptr) throw std::runtime_error("these tests need a C++ compiler");
  return *found;
}

/// Compiled once per source, wave size and sanitizers.
inline const std::string& executable(const std::string& kernel_source, int wave,
                                     const std::vector<std::string>& sanitizers) {
  static std::map<std::tuple<std::string, int, std::vector<std::string>>, std::string> made;
  std::string& code = made[{kernel_source, wave, sanitizers}];
  if (code.empty()) {
    std::vector<std::string> options;
    for (const std::string& name : sanitizers) options.push_back("--sanitize=" + name);
    const std::string arch = "sim:wave" + std::to_string(wave);
    code = compiler().compile(program_of(kernel_source), arch, options).code;
  }
  return code;
}

template <class T>
SimBuffer buffer_of(const std::vector<T>& values) {
  SimBuffer buffer;
  buffer.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(buffer.bytes.data(), values.data(), buffer.bytes.size());
  return buffer;
}

template <class T>
std::vector<T> values_of(const SimBuffer& buffer) {
  std::vector<T> values(buffer.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), buffer.bytes.data(), buffer.bytes.size());
  return values;
}

inline std::string describe(const SimOutcome& outcome) {
  return outcome.fault ? outcome.fault->text() + "\n" + outcome.fault->details : "no fault";
}

}  // namespace truefuse::sim
