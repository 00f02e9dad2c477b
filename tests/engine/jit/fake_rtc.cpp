// A run-time compiler for tests, with the names of NVRTC's functions and of hipRTC's. Its code is
// the program that it runs in. A source that says CRASH ends that program, after a word; one that
// says HANG keeps it for ever.

#include <cstring>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <stdio.h>
#include <string>
#include <unistd.h>

namespace {

std::string source;

int create(void** handle, const char* text) {
  source = text;
  *handle = &source;
  return 0;
}

int compile() {
  if (source.find("CRASH") != std::string::npos) {
    fputs("Stack dump of the fake\n", stderr);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  while (source.find("HANG") != std::string::npos) pause();
  return 0;
}

std::string code() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int copy_code(char* to) {
  const std::string bytes = code();
  std::memcpy(to, bytes.data(), bytes.size());
  return 0;
}

}  // namespace

#define FAKE_RTC(prefix, code_size, get_code)                                                      \
  extern "C" {                                                                                     \
  int prefix##CreateProgram(void** handle, const char* text, const char*, int, const char* const*, \
                            const char* const*) {                                                  \
    return create(handle, text);                                                                   \
  }                                                                                                \
  int prefix##CompileProgram(void*, int, const char* const*) { return compile(); }                 \
  int prefix##DestroyProgram(void**) { return 0; }                                                 \
  int prefix##GetProgramLogSize(void*, size_t* size) { return *size = 0, 0; }                      \
  int prefix##GetProgramLog(void*, char*) { return 0; }                                            \
  int prefix##code_size(void*, size_t* size) { return *size = code().size(), 0; }                  \
  int prefix##get_code(void*, char* to) { return copy_code(to); }                                  \
  int prefix##Version(int* major, int* minor) { return *major = 1, *minor = 0, 0; }                \
  const char* prefix##GetErrorString(int) { return "fake error"; }                                 \
  }

FAKE_RTC(nvrtc, GetCUBINSize, GetCUBIN)
FAKE_RTC(hiprtc, GetCodeSize, GetCode)
