// truefuse-compile-helper: reads one request from standard input, compiles it with NVRTC or hipRTC
// and writes the reply to standard output. It exists because a compiler may crash, abort or never
// end, over a kernel or over an architecture that it does not know; here that costs a child process
// and nothing else.

#include <iostream>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/rtc_library.h>
#include <truefuse/jit/shared_library.h>

int main() {
  using namespace truefuse::jit;
  // Whatever the vendor's libraries print must not get into the reply.
  const int reply_to = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);

  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto request = parse_helper_request(input);
  if (!request) {
    std::cerr
        << "truefuse-compile-helper: standard input is not a compile request; this program is "
           "started by the truefuse library\n";
    return 2;
  }
  HelperReply reply;
  try {
    for (const std::string& path : request->preload) SharedLibrary::open(path);
    const RtcLibrary library(request->kind, request->library);
    reply.loaded = true;
    reply.object = library.compile(request->program, request->target, request->options);
    reply.ok = true;
  } catch (const truefuse::Error& error) {
    reply.message = error.what();
  }
  const bool written = write_all(reply_to, serialize(reply)) == 0;
  // Past the exit handlers of the vendor's libraries, which have been seen to crash.
  _exit(written ? 0 : 1);
}
