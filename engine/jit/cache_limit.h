#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace truefuse::jit {

/// What the entries of a cache may take: TRUEFUSE_CACHE_LIMIT in MiB (default 2048); 0: no limit.
std::int64_t cache_limit_bytes();

/// Notes that an entry is in use, at most once an hour. Its time of modification tells when that
/// was, because file systems need not keep times of access.
void mark_used(int directory, const std::string& name);

/// Removes the entries that were used longest ago until the rest takes nine tenths of `limit`; does
/// nothing while they take no more than `limit`. Never removes `keep`, nor one that was used or
/// replaced while this was deciding. A reader that has opened an entry goes on reading it. Returns
/// how many were removed.
int evict(int directory, const std::vector<std::string>& entries, std::int64_t limit,
          const std::string& keep);

}  // namespace truefuse::jit
