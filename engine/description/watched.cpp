#include <algorithm>
#include <cerrno>
#include <chrono>
#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sys/stat.h>
#include <system_error>

#include <truefuse/core/error.h>
#include <truefuse/description/watched.h>

namespace truefuse::description {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTick = 2'000'000'000;  // The coarsest clock of a file system here.
constexpr std::string_view kDescription = "description.txt";
constexpr std::uintmax_t kMaxBytes = 1 << 20;

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Stamp stamp_of(const std::string& path) {
  struct stat facts {};
  Stamp stamp;
  stamp.path = path;
  if (::stat(path.c_str(), &facts) != 0) return stamp;
  stamp.device = facts.st_dev;
  stamp.inode = facts.st_ino;
  stamp.bytes = static_cast<std::uint64_t>(facts.st_size);
  stamp.modified = nanoseconds(facts.st_mtim);
  stamp.changed = nanoseconds(facts.st_ctim);
  return stamp;
}

bool is_source(const fs::path& path) {
  const std::string suffix = path.extension().string();
  return suffix == ".hip" || suffix == ".cu" || suffix == ".h" || suffix == ".cuh" ||
         suffix == ".hpp" || suffix == ".cpp";
}

/// Nothing if there is no such file. Throws Error for one that cannot be read, or is no text.
std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    if (reason == ENOENT) return std::nullopt;
    throw Error("'" + path + "' cannot be read: " + std::generic_category().message(reason));
  }
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.find('\0') != std::string::npos) {
    throw Error("'" + path + "' is no text in UTF-8: it holds a byte 0. Save it as UTF-8");
  }
  return text;
}

}  // namespace

std::unique_ptr<Watched> Watched::folder(const std::string& path, const std::string& file,
                                         const std::string& name_space, const std::string& name) {
  std::unique_ptr<Watched> watched(new Watched);
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  if (error || !fs::is_directory(whole)) {
    throw Error("there is no folder '" + path + "' with a description of an operator");
  }
  watched->origin_ = whole.string();
  watched->file_ = file;
  watched->name_space_ = name_space;
  watched->name_ = name;
  Sources sources;
  auto version = watched->look(sources);
  const std::shared_ptr<Content> content = described(std::move(sources));
  version->content = watched->first_of(content);
  watched->add(std::move(version));
  return watched;
}

std::unique_ptr<Watched> Watched::texts(Sources sources) {
  std::unique_ptr<Watched> watched(new Watched);
  watched->origin_ = sources.prefix;
  watched->replace(std::move(sources));
  return watched;
}

std::shared_ptr<Watched::Content> Watched::described(Sources sources) {
  auto content = std::make_shared<Content>();
  content->sources = std::move(sources);
  content->described = read(content->sources);
  return content;
}

/// The content whose operator is registered.
std::shared_ptr<Watched::Content> Watched::first_of(std::shared_ptr<Content> content) {
  content->described->op.latest = [this]() -> const Operator& { return latest(); };
  return content;
}

/// What the folder holds, not described yet.
std::unique_ptr<Watched::Version> Watched::look(Sources& sources) const {
  auto version = std::make_unique<Version>();
  version->read_at = now();
  sources.prefix = fs::path(origin_).filename().string();
  sources.name = sources.prefix + "/" + file_;
  sources.name_space = name_space_;
  sources.op_name = name_;
  // Stamps are taken before the contents: a change in between shows at the next call.
  version->stamps.push_back(stamp_of(origin_));
  const std::string description = origin_ + "/" + file_;
  version->stamps.push_back(stamp_of(description));
  const std::optional<std::string> text = read_file(description);
  if (!text) {
    throw Error("'" + origin_ + "' holds no " + file_ +
                (file_ == kDescription ? "; `truefuse new` writes a folder that does"
                                       : ", which the description names as its backward"));
  }
  sources.text = *text;
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(origin_, error)) {
    if (entry.is_regular_file(error) && is_source(entry.path())) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = origin_ + "/" + name;
    version->stamps.push_back(stamp_of(path));
    if (version->stamps.back().bytes > kMaxBytes) {
      throw Error("'" + path + "' is larger than a mebibyte, which no kernel source is");
    }
    if (std::optional<std::string> source = read_file(path))
      sources.files[name] = *std::move(source);
  }
  version->is_settled =
      std::all_of(version->stamps.begin(), version->stamps.end(),
                  [&](const Stamp& stamp) { return stamp.changed + kTick < version->read_at; });
  return version;
}

void Watched::compare_with_first(const Described& described) const {
  const Described& first = this->first();
  const auto differ = [&](const char* what) {
    throw Error(
        origin_ + ": " + what +
        " has changed since the operator was loaded, and PyTorch's registration of " +
        first.op.qualified_name() +
        " keeps what it had. Load it under another name (truefuse.load(..., name=...)) or in a "
        "new process");
  };
  if (described.op.qualified_name() != first.op.qualified_name()) differ("the operator's name");
  if (described.op.schema != first.op.schema) differ("the schema");
  if (described.op.contract.text() != first.op.contract.text()) differ("the contract");
  if (described.cpu != first.cpu || described.gpu != first.gpu ||
      described.has_kernel != first.has_kernel || described.reference != first.reference ||
      described.backward_file != first.backward_file ||
      described.backward_function != first.backward_function ||
      described.gradients != first.gradients) {
    differ("reference, cpu, gpu or backward");
  }
}

void Watched::add(std::unique_ptr<Version> version) {
  if (!versions_.empty()) compare_with_first(*version->content->described);
  versions_.push_back(std::move(version));
  current_.store(versions_.back().get(), std::memory_order_release);
}

/// Whether the folder still holds what the version was read from.
bool Watched::is_current(const Version& version) const {
  for (const Stamp& stamp : version.stamps) {
    if (stamp_of(stamp.path) != stamp) return false;
  }
  if (version.is_settled.load(std::memory_order_relaxed)) return true;
  const std::int64_t looked_at = now();
  bool is_settled = true;
  for (const Stamp& stamp : version.stamps) is_settled &= stamp.changed + kTick < looked_at;
  for (const auto& [name, text] : version.content->sources.files) {
    if (read_file(origin_ + "/" + name) != text) return false;
  }
  if (read_file(origin_ + "/" + file_) != version.content->sources.text) return false;
  if (is_settled) version.is_settled.store(true, std::memory_order_relaxed);
  return true;
}

const Operator& Watched::latest() {
  const Version* current = current_.load(std::memory_order_acquire);
  if (current->stamps.empty() || is_current(*current)) return current->content->described->op;
  const std::scoped_lock lock(reading_);
  current = current_.load(std::memory_order_acquire);
  if (is_current(*current)) return current->content->described->op;
  Sources sources;
  std::unique_ptr<Version> version = look(sources);
  const bool is_same = sources.text == current->content->sources.text &&
                       sources.files == current->content->sources.files;
  version->content = is_same ? current->content : described(std::move(sources));
  add(std::move(version));
  return versions_.back()->content->described->op;
}

void Watched::replace(Sources sources) {
  const std::scoped_lock lock(reading_);
  auto version = std::make_unique<Version>();
  const std::shared_ptr<Content> content = described(std::move(sources));
  version->content = versions_.empty() ? first_of(content) : content;
  add(std::move(version));
}

}  // namespace truefuse::description
