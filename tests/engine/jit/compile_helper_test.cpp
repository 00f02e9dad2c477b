// Compilers that crash or hang, in the process that is theirs.

#include <csignal>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/hiprtc.h>
#include <truefuse/jit/nvrtc.h>
#include <truefuse/jit/temporary_directory.h>

#include "compiler_testing.h"

namespace truefuse::jit {
namespace {

using testing::error_of;
using testing::ScopedVariable;

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

HelperRequest request_here() {
  HelperRequest request;
  request.kind = RtcLibrary::Kind::nvrtc;
  request.preload = {"a", ""};
  request.library = "/some/libhiprtc.so";
  request.target = "gfx936";
  request.options = {"--offload-arch=gfx936", "-DX=a b"};
  request.program = testing::axpy_program();
  request.program.text += std::string("\0tail", 5);
  return request;
}

const std::string kGreeting(kHelperGreeting.substr(0, kHelperGreeting.size() - 1));

TEST(CompileHelper, MessagesSurviveTheJourney) {
  HelperRequest request = request_here();
  const std::string bytes = serialize(request);
  const auto read = parse_helper_request(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, RtcLibrary::Kind::nvrtc);
  EXPECT_EQ(read->preload, request.preload);
  EXPECT_EQ(read->library, request.library);
  EXPECT_EQ(read->target, request.target);
  EXPECT_EQ(read->options, request.options);
  EXPECT_EQ(read->program.name, request.program.name);
  EXPECT_EQ(read->program.text, request.program.text);
  EXPECT_EQ(read->program.headers, request.program.headers);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_helper_request(std::string(bytes.data(), size))) << size;
  }
  EXPECT_FALSE(parse_helper_request(bytes + "x"));
  request.kind = RtcLibrary::Kind::hiprtc;
  EXPECT_EQ(parse_helper_request(serialize(request))->kind, RtcLibrary::Kind::hiprtc);

  const std::string reply = serialize(HelperReply{true, true, {"code", "log", "gfx936"}, ""});
  ASSERT_TRUE(parse_helper_reply(reply));
  EXPECT_EQ(parse_helper_reply(reply)->object.code, "code");
  EXPECT_TRUE(parse_helper_reply(reply)->loaded && parse_helper_reply(reply)->ok);
  EXPECT_FALSE(parse_helper_reply(serialize(HelperReply{true, false, {}, "no"}))->ok);
  for (std::size_t size = 0; size < reply.size(); ++size) {
    EXPECT_FALSE(parse_helper_reply(std::string(reply.data(), size))) << size;
  }
}

TEST(CompileHelper, EveryEndIsAnOrdinaryError) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/helper";
  const ScopedVariable variable("TRUEFUSE_COMPILE_HELPER", script.c_str());
  const auto message_of = [&](const std::string& body) {
    testing::write_script(script, "echo '" + kGreeting + "'; " + body);
    try {
      compile_in_helper(request_here(), std::chrono::milliseconds(400));
    } catch (const HelperUnavailable&) {
      ADD_FAILURE() << "the helper ran: " << body;
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error_of([] { compile_in_helper(request_here()); }),
         "is missing (looked at " + script + ")");
  expect(message_of("echo LLVM is unhappy >&2; kill -ABRT $$"),
         "was killed by SIGABRT (Aborted), after printing: LLVM is unhappy");
  expect(message_of("kill -SEGV $$"), "was killed by SIGSEGV");
  expect(message_of("exit 7"), "ended with exit code 7");
  expect(message_of("echo rubbish"), "gave no answer");
  expect(message_of("exit 0"), "gave no answer");
  expect(message_of("sleep 1000"), "did not end within 1 s and was killed");
}

TEST(CompileHelper, RefusesWhatIsNoRequest) {
  const std::string helper = find_compile_helper();
  ASSERT_NE(helper, "") << "truefuse-compile-helper must be built beside the tests";
  const ProcessResult result = run_process({helper, std::to_string(getpid()), "60"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("not a compile request"), std::string::npos);
  const ProcessResult bare = run_process({helper});
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_NE(bare.errors.find("PARENT and SECONDS are not given"), std::string::npos);
}

HelperRequest hanging_request() {
  HelperRequest request = request_here();
  request.preload = {};
  request.library = TRUEFUSE_FAKE_RTC;
  request.program.text = "HANG";
  return request;
}

/// The first child of a process, waited for.
pid_t child_of(pid_t parent) {
  for (int i = 0; i < 1000; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid == 0) continue;
      const std::string stat = contents_of(entry.path() / "stat");
      std::istringstream after_name(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
      char state = 0;
      pid_t found = 0;
      if (after_name >> state >> found && found == parent) return pid;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

TEST(CompileHelper, EndsWithWhoeverAsked) {
  const TemporaryDirectory directory;
  const ScopedVariable temporary("TMPDIR", directory.path().c_str());
  const pid_t asker = fork();
  if (asker == 0) {
    error_of([] { compile_in_helper(hanging_request()); });
    _exit(1);
  }
  const pid_t helper = child_of(asker);
  // Some time for it to begin, but it must end whatever it has come to.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(asker, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(asker, &status, 0), asker);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it did not wait: " << status;
  ASSERT_GT(helper, 0);
  EXPECT_TRUE(testing::ends(helper));
}

TEST(CompileHelper, DoesNotBeginForOneThatHasEnded) {
  ProcessOptions options;
  options.input = serialize(hanging_request());
  options.time_limit = std::chrono::seconds(20);
  const ProcessResult result =
      run_process({find_compile_helper(), std::to_string(getppid()), "60"}, options);
  EXPECT_EQ(result.exit_code, 2) << result.how_it_ended();
  EXPECT_NE(result.errors.find("has ended"), std::string::npos) << result.errors;
}

TEST(CompileHelper, HasALimitOfItsOwn) {
  ProcessOptions options;
  options.input = serialize(hanging_request());
  options.time_limit = std::chrono::seconds(20);
  auto* const handler = std::signal(SIGALRM, SIG_IGN);
  const ProcessResult result =
      run_process({find_compile_helper(), std::to_string(getpid()), "1"}, options);
  std::signal(SIGALRM, handler);
  EXPECT_EQ(result.signal, SIGALRM) << result.how_it_ended();
}

TEST(CompileHelper, ReportsALibraryThatCannotBeLoaded) {
  const std::string message = error_of([] { compile_in_helper(request_here()); });
  EXPECT_NE(message.find("NVRTC at /some/libhiprtc.so cannot be loaded"), std::string::npos)
      << message;
  EXPECT_THROW(compile_in_helper(request_here()), HelperUnavailable);
}

struct Kind {
  const char* arch;
  std::unique_ptr<Compiler> (*make)();
};

class CompilerLibrary : public ::testing::TestWithParam<Kind> {
 protected:
  const std::unique_ptr<Compiler> compiler_ = GetParam().make();

  CodeObject compile(const std::string& text) {
    return compiler_->compile(Program{"program", text, {}}, GetParam().arch, {});
  }
};

INSTANTIATE_TEST_SUITE_P(Fake, CompilerLibrary,
                         ::testing::Values(Kind{"sm_80",
                                                []() -> std::unique_ptr<Compiler> {
                                                  return std::make_unique<Nvrtc>(TRUEFUSE_FAKE_RTC);
                                                }},
                                           Kind{"gfx906",
                                                []() -> std::unique_ptr<Compiler> {
                                                  return std::make_unique<HipRtc>(TRUEFUSE_FAKE_RTC,
                                                                                  "");
                                                }}),
                         [](const auto& info) { return std::string(info.param.arch); });

TEST_P(CompilerLibrary, ThatCrashesTakesDownNothingAndIsAskedAgain) {
  const std::string message = error_of([&] { compile("CRASH"); });
  EXPECT_NE(message.find(compiler_->name() + " (" + TRUEFUSE_FAKE_RTC + ")"), std::string::npos)
      << message;
  EXPECT_NE(message.find("was killed by SIGSEGV (Segmentation fault), after printing: Stack dump "
                         "of the fake"),
            std::string::npos)
      << message;
  EXPECT_EQ(compile("sound").code, contents_of(find_compile_helper()));
}

TEST_P(CompilerLibrary, ThatHangsIsStopped) {
  HelperRequest request = request_here();
  request.kind = compiler_->name() == "NVRTC" ? RtcLibrary::Kind::nvrtc : RtcLibrary::Kind::hiprtc;
  request.library = TRUEFUSE_FAKE_RTC;
  request.program.text = "HANG";
  const std::string message =
      error_of([&] { compile_in_helper(request, std::chrono::milliseconds(600)); });
  EXPECT_NE(message.find("did not end within 1 s and was killed"), std::string::npos) << message;
}

TEST(CompileHelper, WhereThereIsNoneTheCompilerRunsHere) {
  const TemporaryDirectory directory;
  const std::string script = directory.path() + "/helper";
  const ScopedVariable variable("TRUEFUSE_COMPILE_HELPER", script.c_str());
  Nvrtc nvrtc(TRUEFUSE_FAKE_RTC);
  const auto code = [&] { return nvrtc.compile({"program", "sound", {}}, "sm_80", {}).code; };
  EXPECT_EQ(code(), contents_of("/proc/self/exe"));
  {
    const ScopedVariable none("TRUEFUSE_COMPILE_HELPER", nullptr);
    EXPECT_EQ(code(), contents_of(find_compile_helper()));
    const ScopedVariable nowhere("TMPDIR", "/nonexistent/tmp");
    EXPECT_EQ(code(), contents_of("/proc/self/exe")) << "nor one where nothing can be written";
  }
  testing::write_script(script, "");
  std::ofstream(script) << "#!/nonexistent/interpreter\n";
  EXPECT_EQ(code(), contents_of("/proc/self/exe"));
}

TEST(CompileHelper, WhereItDoesNotRunTheCompilerRunsHere) {
  const TemporaryDirectory directory;
  const std::string moved = directory.path() + "/helper";
  std::filesystem::copy_file(find_compile_helper(), moved);
  const ScopedVariable variable("TRUEFUSE_COMPILE_HELPER", moved.c_str());
  Nvrtc nvrtc(TRUEFUSE_FAKE_RTC);
  const auto code = [&] { return nvrtc.compile({"program", "sound", {}}, "sm_80", {}).code; };
  // Moved without the library, which it loads from beside itself.
  EXPECT_NE(error_of([] { compile_in_helper(request_here()); }).find("exit code 127"),
            std::string::npos);
  EXPECT_EQ(code(), contents_of("/proc/self/exe"));
  // Of another release.
  for (const char* body : {"echo rubbish", "echo 'truefuse compile reply 2'", "exit 2"}) {
    testing::write_script(moved, body);
    EXPECT_EQ(code(), contents_of("/proc/self/exe")) << body;
  }
}

TEST(CompileHelper, IsStartedByARelativePathToo) {
  const std::string helper = find_compile_helper();
  const testing::ScopedDirectory here(std::filesystem::path(helper).parent_path());
  const ScopedVariable variable("TRUEFUSE_COMPILE_HELPER", "./truefuse-compile-helper");
  const TemporaryDirectory directory;
  const std::string relative = std::filesystem::relative(directory.path()).string();
  const ScopedVariable temporary("TMPDIR", relative.c_str());
  Nvrtc nvrtc(TRUEFUSE_FAKE_RTC);
  EXPECT_EQ(nvrtc.compile({"program", "sound", {}}, "sm_80", {}).code, contents_of(helper));
}

TEST(CompileHelper, AnswersUnderALimitOfFileSizes) {
  const std::string code = contents_of(find_compile_helper());
  Nvrtc nvrtc(TRUEFUSE_FAKE_RTC);
  const testing::ScopedFileLimit limit(8192);
  ASSERT_GT(code.size(), 8192u);
  EXPECT_EQ(nvrtc.compile({"program", "sound", {}}, "sm_80", {}).code, code);
}

TEST(CompileHelper, AnswersWhereTheHostKeepsNoStatusOfItsChildren) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  Nvrtc nvrtc(TRUEFUSE_FAKE_RTC);
  EXPECT_EQ(nvrtc.compile({"program", "sound", {}}, "sm_80", {}).code,
            contents_of(find_compile_helper()));
  EXPECT_NE(error_of([&] {
              nvrtc.compile({"program", "CRASH", {}}, "sm_80", {});
            }).find("ended, but its status was lost"),
            std::string::npos);
  std::signal(SIGCHLD, before);
}

// A real one: a term this deep overflows the stack of clang's parser.
TEST(CompileHelper, AKernelThatCrashesHipRtcIsAnError) {
  const std::string path = find_hiprtc(testing::python_paths());
  if (path.empty()) return testing::say_missing("hipRTC");
  HipRtc hiprtc(path, find_comgr(path, {"/usr/lib/x86_64-linux-gnu"}));
  std::string terms;
  for (int i = 0; i < 200'000; ++i) terms += "- ";
  Program program = {"deep", "", {}};
  program.text = "extern \"C\" __global__ void deep(float* y) { y[0] = " + terms + "y[1]; }";
  const std::string message = error_of([&] { hiprtc.compile(program, "gfx906", {}); });
  // A release that takes it has no error; none ends this process.
  if (!message.empty()) {
    EXPECT_TRUE(message.starts_with("hipRTC")) << message;
  }
}

}  // namespace
}  // namespace truefuse::jit
