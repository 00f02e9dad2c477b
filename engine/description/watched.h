#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <truefuse/description/description.h>

namespace truefuse::description {

/// A file as it was when it was read.
struct Stamp {
  std::string path;
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified = 0, changed = 0;  ///< Nanoseconds: of the contents; of anything.

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

/// A described operator whose sources may change while the process runs: those of a folder, or
/// texts that are replaced. Each version is an Operator of its own, which stays alive; schema,
/// contract, and what Python provides stay as they were first.
///
/// Before each call the folder's files are looked at (`stat`, about half a microsecond for each of
/// a few files). Their contents are read again if that shows a change, and also where a file was
/// changed less than two seconds before it was read, since a second change in the same tick of the
/// file system's clock would not show.
class Watched {
 public:
  /// Of a folder; `file` is the description's name in it. Throws Error as read() does.
  static std::unique_ptr<Watched> folder(const std::string& path, const std::string& file,
                                         const std::string& name_space, const std::string& name);
  /// Of texts.
  static std::unique_ptr<Watched> texts(Sources sources);

  /// The first version, which is the one to register: its `latest` asks this object.
  const Described& first() const { return *versions_.front()->content->described; }

  /// As the sources are now. Throws Error with the place if they are not readable, not right, or
  /// differ in what must stay; then nothing of an older version runs.
  const Operator& latest();

  /// Throws Error as latest() does; then everything stays as it was. Only for texts.
  void replace(Sources sources);

  /// A folder's path, or what stands for it.
  const std::string& origin() const { return origin_; }

 private:
  struct Content {
    Sources sources;
    std::unique_ptr<Described> described;
  };
  struct Version {
    std::shared_ptr<const Content> content;  ///< Two versions that differ in time alone share it.
    std::vector<Stamp> stamps;
    std::int64_t read_at = 0;                     ///< Nanoseconds.
    mutable std::atomic<bool> is_settled = true;  ///< Stamps alone show a change.
  };

  Watched() = default;
  std::unique_ptr<Version> look(Sources& sources) const;
  static std::shared_ptr<Content> described(Sources sources);
  std::shared_ptr<Content> first_of(std::shared_ptr<Content> content);
  void add(std::unique_ptr<Version> version);
  bool is_current(const Version& version) const;
  void compare_with_first(const Described& described) const;

  std::string origin_, file_, name_space_, name_;
  std::atomic<const Version*> current_ = nullptr;
  std::mutex reading_;
  std::vector<std::unique_ptr<Version>> versions_;
};

}  // namespace truefuse::description
