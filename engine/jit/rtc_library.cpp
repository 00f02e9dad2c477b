#include <cstring>

#include <truefuse/core/error.h>
#include <truefuse/jit/compile_support.h>
#include <truefuse/jit/rtc_library.h>

namespace truefuse::jit {
namespace {

SharedLibrary load(const std::string& name, const std::string& path) {
  std::string why;
  auto library = SharedLibrary::open(path, &why);
  if (!library) throw Error(name + " at " + path + " cannot be loaded: " + why);
  return *library;
}

}  // namespace

std::string name_of(RtcLibrary::Kind kind) {
  return kind == RtcLibrary::Kind::nvrtc ? "NVRTC" : "hipRTC";
}

RtcLibrary::RtcLibrary(Kind kind, const std::string& path)
    : kind_(kind), name_(name_of(kind)), library_(load(name_, path)) {
  const auto find = [&]<class Function>(Function*& function, const char* suffix) {
    const std::string symbol = (kind == Kind::nvrtc ? "nvrtc" : "hiprtc") + std::string(suffix);
    function = library_.function<Function>(symbol.c_str());
    if (function == nullptr) {
      throw Error(name_ + " at " + path + " has no function " + symbol +
                  "; it is another library or too old");
    }
  };
  find(create_, "CreateProgram");
  find(compile_, "CompileProgram");
  find(destroy_, "DestroyProgram");
  find(log_size_, "GetProgramLogSize");
  find(log_, "GetProgramLog");
  find(code_size_, kind == Kind::nvrtc ? "GetCUBINSize" : "GetCodeSize");
  find(code_, kind == Kind::nvrtc ? "GetCUBIN" : "GetCode");
  find(version_, "Version");
  find(error_string_, "GetErrorString");
}

std::string RtcLibrary::version() const {
  int major = 0, minor = 0;
  if (version_(&major, &minor) != 0) return "unknown";
  return std::to_string(major) + "." + std::to_string(minor);
}

std::vector<int> RtcLibrary::supported_archs() const {
  if (kind_ != Kind::nvrtc) return {};
  auto* count_of = library_.function<int(int*)>("nvrtcGetNumSupportedArchs");
  auto* list = library_.function<int(int*)>("nvrtcGetSupportedArchs");
  int count = 0;
  if (count_of == nullptr || list == nullptr || count_of(&count) != 0 || count <= 0) return {};
  std::vector<int> archs(static_cast<std::size_t>(count));
  return list(archs.data()) == 0 ? archs : std::vector<int>{};
}

CodeObject RtcLibrary::compile(const Program& program, const std::string& target,
                               const std::vector<std::string>& options) const {
  if (program.text.empty()) throw Error("kernel program \"" + program.name + "\" has no text");
  std::vector<const char*> header_texts, header_names, arguments;
  for (const auto& [name, text] : program.headers) {
    header_names.push_back(name.c_str());
    header_texts.push_back(text.c_str());
  }
  for (const std::string& option : options) arguments.push_back(option.c_str());

  const auto fail = [&](int status, const std::string& log) {
    const char* words = error_string_(status);
    throw Error(name_ + " " + version() + " could not compile \"" + program.name + "\" for " +
                target + " (" + (words != nullptr ? words : "error " + std::to_string(status)) +
                ")" + (log.empty() ? ", and gave no reason" : ":\n" + log));
  };

  Handle handle = nullptr;
  if (const int status = create_(&handle, program.text.c_str(), program.name.c_str(),
                                 static_cast<int>(header_names.size()), header_texts.data(),
                                 header_names.data())) {
    fail(status, {});
  }
  struct Destroy {
    int (*function)(Handle*);
    Handle* handle;
    ~Destroy() { function(handle); }
  } const destroy{destroy_, &handle};

  const int status = compile_(handle, static_cast<int>(arguments.size()), arguments.data());
  CodeObject object;
  std::size_t size = 0;
  if (log_size_(handle, &size) == 0 && size > 1) {
    // One byte more than asked for: not every version counts the final zero.
    object.log.assign(size + 1, '\0');
    if (log_(handle, object.log.data()) != 0) object.log.clear();
    object.log.resize(std::strlen(object.log.c_str()));
    while (!object.log.empty() && object.log.back() == '\n') object.log.pop_back();
  }
  if (status != 0) fail(status, object.log);

  if (const int code_status = code_size_(handle, &size)) fail(code_status, object.log);
  object.code.assign(size, '\0');
  if (const int code_status = size == 0 ? 0 : code_(handle, object.code.data())) {
    fail(code_status, object.log);
  }
  object.target = target;
  check_object(object, name_);
  return object;
}

}  // namespace truefuse::jit
