#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/types.h>
#include <thread>

#include <truefuse/core/error.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/source.h>
#include <truefuse/jit/toolchains.h>

namespace truefuse::jit::testing {

/// Sets (or with nullptr removes) an environment variable until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~ScopedVariable() { set(before_ ? before_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

/// Works in another directory until the end of the scope.
class ScopedDirectory {
 public:
  explicit ScopedDirectory(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~ScopedDirectory() { std::filesystem::current_path(before_); }
  ScopedDirectory(const ScopedDirectory&) = delete;
  ScopedDirectory& operator=(const ScopedDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

/// Lowers RLIMIT_FSIZE to this many bytes until the end of the scope.
class ScopedFileLimit {
 public:
  explicit ScopedFileLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~ScopedFileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  ScopedFileLimit(const ScopedFileLimit&) = delete;
  ScopedFileLimit& operator=(const ScopedFileLimit&) = delete;

 private:
  rlimit before_{};
};

/// The packages of the Python that the tests belong to: TRUEFUSE_PYTHON, else python3.
inline SearchPaths python_paths() {
  const char* python = std::getenv("TRUEFUSE_PYTHON");
  static const ProcessResult result =
      run_process({python != nullptr ? python : "python3", "-c",
                   "import sysconfig; print(sysconfig.get_paths()['purelib'], end='')"});
  SearchPaths paths;
  if (result.ok()) {
    paths.python_site_dirs = {result.output};
    paths.torch_lib_dir = result.output + "/torch/lib";
  }
  return paths;
}

/// A kernel whose text needs a header that is given in memory, under a folder's name.
inline Program axpy_program() {
  Program program;
  program.name = "axpy";
  program.text =
      "#if defined(__HIP__) && !defined(__HIPCC_RTC__)\n"
      "#include <hip/hip_runtime.h>\n"
      "#endif\n"
      "#include \"folder/scale.h\"\n"
      "extern \"C\" __global__ void __launch_bounds__(256) axpy(float* y, const float* x, int n) "
      "{\n"
      "  __shared__ float tile[256];\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  tile[threadIdx.x] = i < n ? x[i] : 0.0f;\n"
      "  __syncthreads();\n"
      "  if (i < n) y[i] += scale(tile[threadIdx.x ^ 1]);\n"
      "}\n";
  program.headers["folder/scale.h"] =
      "__device__ inline float scale(float x) { return TF_TEST_FACTOR * x; }\n";
  return program;
}

/// The text of the Error that `call` throws; empty if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

inline void write_script(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

/// Whether the process is gone within ten seconds. One that was killed, but is collected by whoever
/// inherits it, still answers signal 0.
inline bool ends(pid_t pid) {
  for (int i = 0; i < 1000; ++i) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    if (text.empty() || text.find(") Z") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// Prints that a tool is missing here; the test then checks what a user without it is told.
inline void say_missing(std::string_view tool) {
  std::cout << "[ MISSING  ] " << tool << " is not installed here; checked the sentence instead\n";
}

/// Says so, and checks that the error for a user without the compiler names it and the remedy.
inline void expect_missing(const char* compiler, const char* arch, const std::string& remedy) {
  say_missing(compiler);
  const ScopedVariable rtc("TRUEFUSE_RTC", nullptr);
  const std::string message = error_of([&] { compiler_for(arch, python_paths(), compiler); });
  EXPECT_NE(message.find(std::string(compiler) + " not found"), std::string::npos) << message;
  EXPECT_NE(message.find("(" + remedy), std::string::npos) << message;
}

}  // namespace truefuse::jit::testing
