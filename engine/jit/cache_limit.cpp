#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <truefuse/jit/cache_limit.h>
#include <truefuse/jit/log.h>

namespace truefuse::jit {
namespace {

constexpr double kDefaultMebibytes = 2048;
constexpr std::int64_t kUseIsNews = 3600;

struct Found {
  std::string name;
  std::int64_t bytes;
  timespec used;
};

bool is_earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

bool stat_entry(int directory, const std::string& name, struct stat* status) {
  return ::fstatat(directory, name.c_str(), status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(status->st_mode);
}

}  // namespace

std::int64_t cache_limit_bytes() {
  double mebibytes = kDefaultMebibytes;
  const char* const text = std::getenv("TRUEFUSE_CACHE_LIMIT");
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (*end == '\0' && value >= 0 && value <= 1e9) {
      mebibytes = value;
    } else {
      warn_once("TRUEFUSE_CACHE_LIMIT", "TRUEFUSE_CACHE_LIMIT=" + std::string(text) +
                                            " is not a number of MiB from 0 (no limit) to "
                                            "1000000000; 2048 is used");
    }
  }
  return static_cast<std::int64_t>(mebibytes * (1 << 20));
}

void mark_used(int directory, const std::string& name) {
  struct stat status {};
  if (stat_entry(directory, name, &status) && status.st_mtime < std::time(nullptr) - kUseIsNews) {
    ::utimensat(directory, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
}

int evict(int directory, const std::vector<std::string>& entries, std::int64_t limit,
          const std::string& keep) {
  if (limit == 0) return 0;
  std::vector<Found> found;
  std::int64_t total = 0;
  for (const std::string& name : entries) {
    struct stat status {};
    if (!stat_entry(directory, name, &status)) continue;
    total += status.st_size;
    found.push_back({name, status.st_size, status.st_mtim});
  }
  if (total <= limit) return 0;
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return is_earlier(a.used, b.used); });
  int removed = 0;
  for (const Found& entry : found) {
    if (total <= limit / 10 * 9) break;
    struct stat now {};
    if (entry.name == keep || !stat_entry(directory, entry.name, &now) ||
        is_earlier(entry.used, now.st_mtim) || ::unlinkat(directory, entry.name.c_str(), 0) != 0) {
      continue;
    }
    total -= entry.bytes;
    ++removed;
  }
  if (removed > 0) {
    log_decision("cache limit: removed " + std::to_string(removed) + " entries, " +
                 std::to_string(total >> 20) + " MiB remain (TRUEFUSE_CACHE_LIMIT)");
  }
  return removed;
}

}  // namespace truefuse::jit
