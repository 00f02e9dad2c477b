#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <truefuse/jit/compile_helper.h>
#include <truefuse/jit/elf.h>
#include <truefuse/jit/log.h>
#include <truefuse/jit/process.h>
#include <truefuse/jit/shared_library.h>
#include <truefuse/jit/temporary_directory.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kRequestMagic = "truefuse compile request 3\n";

/// A message is its magic, or what went ahead of it, then strings and lists of strings, each with
/// its 64-bit length in front.
class Writer {
 public:
  explicit Writer(std::string_view magic) : bytes_(magic) {}

  void number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  void list(const std::vector<std::string>& values) {
    number(values.size());
    for (const std::string& value : values) text(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// After a read beyond the end, ok() is false and everything read is empty.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view magic) : bytes_(bytes) {
    ok_ = bytes.starts_with(magic);
    at_ = magic.size();
  }

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && at_ == bytes_.size(); }

  std::uint64_t number() {
    ok_ = ok_ && bytes_.size() - at_ >= 8;
    if (!ok_) return 0;
    at_ += 8;
    return read_integer<std::uint64_t>(bytes_, at_ - 8);
  }
  std::string text() {
    const std::uint64_t size = number();
    ok_ = ok_ && size <= bytes_.size() - at_;
    if (!ok_) return {};
    at_ += size;
    return std::string(bytes_.substr(at_ - size, size));
  }
  std::vector<std::string> list() {
    std::vector<std::string> values;
    for (std::uint64_t count = number(); ok_ && count > 0; --count) values.push_back(text());
    return values;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = false;
};

std::string last_lines(std::string_view text) {
  constexpr std::size_t kMost = 2000;
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  return std::string(text.size() > kMost ? text.substr(text.size() - kMost) : text);
}

}  // namespace

std::string serialize(const HelperRequest& request) {
  Writer writer(kRequestMagic);
  writer.number(request.kind == RtcLibrary::Kind::nvrtc ? 1 : 0);
  writer.list(request.preload);
  writer.text(request.library);
  writer.text(request.target);
  writer.list(request.options);
  writer.text(request.program.name);
  writer.text(request.program.text);
  writer.number(request.program.headers.size());
  for (const auto& [name, text] : request.program.headers) {
    writer.text(name);
    writer.text(text);
  }
  return writer.take();
}

std::optional<HelperRequest> parse_helper_request(std::string_view bytes) {
  Reader reader(bytes, kRequestMagic);
  HelperRequest request;
  request.kind = reader.number() == 1 ? RtcLibrary::Kind::nvrtc : RtcLibrary::Kind::hiprtc;
  request.preload = reader.list();
  request.library = reader.text();
  request.target = reader.text();
  request.options = reader.list();
  request.program.name = reader.text();
  request.program.text = reader.text();
  for (std::uint64_t count = reader.number(); reader.ok() && count > 0; --count) {
    std::string name = reader.text();
    request.program.headers[std::move(name)] = reader.text();
  }
  if (!reader.at_end()) return std::nullopt;
  return request;
}

std::string serialize(const HelperReply& reply) {
  Writer writer("");
  writer.number(reply.loaded ? 1 : 0);
  writer.number(reply.ok ? 1 : 0);
  writer.text(reply.message);
  writer.text(reply.object.code);
  writer.text(reply.object.log);
  writer.text(reply.object.target);
  return writer.take();
}

std::optional<HelperReply> parse_helper_reply(std::string_view bytes) {
  Reader reader(bytes, "");
  HelperReply reply;
  reply.loaded = reader.number() == 1;
  reply.ok = reader.number() == 1;
  reply.message = reader.text();
  reply.object.code = reader.text();
  reply.object.log = reader.text();
  reply.object.target = reader.text();
  if (!reader.at_end()) return std::nullopt;
  return reply;
}

std::string find_compile_helper(std::string* looked_at) {
  std::vector<std::string> places;
  if (const char* named = std::getenv("TRUEFUSE_COMPILE_HELPER");
      named != nullptr && *named != '\0') {
    places.emplace_back(named);
  } else {
    const std::filesystem::path directory =
        std::filesystem::path(library_of(reinterpret_cast<const void*>(&find_compile_helper)))
            .parent_path();
    for (const char* relative : {".", "bin", "../bin"}) {
      places.push_back(
          (directory / relative / "truefuse-compile-helper").lexically_normal().string());
    }
  }
  for (const std::string& place : places) {
    // Absolute, because it is started in another directory.
    if (access(place.c_str(), X_OK) == 0) return std::filesystem::absolute(place).string();
    if (looked_at != nullptr) *looked_at += (looked_at->empty() ? "" : ", ") + place;
  }
  return {};
}

CodeObject compile_in_helper(const HelperRequest& request, std::chrono::milliseconds time_limit) {
  std::string looked_at;
  const std::string helper = find_compile_helper(&looked_at);
  if (helper.empty()) {
    throw HelperUnavailable(
        "the program that runs a compiler in a process of its own is missing (looked at " +
        looked_at +
        "); set TRUEFUSE_COMPILE_HELPER to the truefuse-compile-helper that was built with this "
        "library");
  }
  // The compiler's intermediate files go with the directory, also where the helper is killed.
  std::optional<TemporaryDirectory> directory;
  try {
    directory.emplace();
  } catch (const Error& error) {
    throw HelperUnavailable(error.what());  // NVRTC, for one, needs none.
  }
  ProcessOptions options;
  options.time_limit = time_limit;
  options.directory = directory->path();
  options.environment = {{"TMPDIR", directory->path()}};
  options.input = serialize(request);
  // The helper's own limit is for when this process is not there to end it, and comes after ours.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time_limit).count() + 1;
  const ProcessResult result =
      run_process({helper, std::to_string(getpid()), std::to_string(seconds)}, options);
  const std::string who = name_of(request.kind) + " (" + request.library +
                          "), asked in a process of its own to compile for " + request.target +
                          ": the process ";
  if (!result.started) throw HelperUnavailable(who + result.how_it_ended());
  const std::string words = last_lines(result.errors);
  const std::string ending = who + (result.ok() ? "gave no answer" : result.how_it_ended()) +
                             (words.empty() ? "" : ", after printing: " + words);
  // A helper without its library ends before it says anything, one of another release says
  // something else.
  if (!result.output.starts_with(kHelperGreeting)) throw HelperUnavailable(ending);
  const auto reply =
      parse_helper_reply(std::string_view(result.output).substr(kHelperGreeting.size()));
  // A whole answer counts however the process ended: a program that does not keep SIGCHLD, or
  // collects all its children, leaves no status.
  if (!reply) throw Error(ending);
  if (!reply->loaded) throw HelperUnavailable(reply->message);
  if (!reply->ok) throw Error(reply->message);
  return reply->object;
}

CodeObject compile_apart(const HelperRequest& request,
                         const std::function<CodeObject()>& compile_here) {
  try {
    return compile_in_helper(request, std::chrono::minutes(5));
  } catch (const HelperUnavailable& error) {
    log_decision(std::string(error.what()) + "; compiling in this process");
  }
  return compile_here();
}

}  // namespace truefuse::jit
