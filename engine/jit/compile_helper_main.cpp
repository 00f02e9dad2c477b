// truefuse-compile-helper PARENT SECONDS: reads one request from standard input, compiles it with
// NVRTC or hipRTC and writes the reply to standard output. PARENT is the process that asks, SECONDS
// the most that this may take. It exists because a compiler may crash, abort or never end, over a
// kernel or over an architecture that it does not know; here that costs a child process and nothing
// else.

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/file.h>
#include <truefuse/jit/rtc_library.h>
#include <truefuse/jit/shared_library.h>

int main(int count, char** arguments) {
  using namespace truefuse::jit;
  constexpr const char* kNotForPeople = "; this program is started by the truefuse library\n";
  if (count != 3) {
    std::cerr << "truefuse-compile-helper: PARENT and SECONDS are not given" << kNotForPeople;
    return 2;
  }
  // Whoever asks ends this process at its limit, unless that is killed first. The signal comes at
  // the end of the thread that asks, which waits for the reply.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != std::atoi(arguments[1])) {
    std::cerr << "truefuse-compile-helper: process " << arguments[1]
              << " has ended, or did not itself start this program\n";
    return 2;
  }
  std::signal(SIGALRM, SIG_DFL);
  alarm(static_cast<unsigned>(std::atoi(arguments[2])));
  // Whatever the vendor's libraries print must not get into the reply.
  const int reply_to = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);

  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto request = parse_helper_request(input);
  if (!request) {
    std::cerr << "truefuse-compile-helper: standard input is not a compile request"
              << kNotForPeople;
    return 2;
  }
  if (write_all(reply_to, kHelperGreeting) != 0) return 1;
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
