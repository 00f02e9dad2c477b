#pragma once

#include <truefuse/capi/truefuse.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Compiles every variant of operators for archs (names with newlines between; no operator: all),
/// at most `jobs` at once, and writes them into a bundle: {path, entries, bytes, sha256}
TRUEFUSE_EXPORT char* truefuse_bundle_pack(const char* path, const char* ops, const char* archs,
                                           int jobs);

/// Publishes a bundle's kernels ("PATH#SHA256") in the cache: {directory, entries}
TRUEFUSE_EXPORT char* truefuse_bundle_unpack(const char* spec);

/// {directory, entries, bytes, limit, damaged: [paths], removed}: reads every entry whole; `repair`
/// removes those that are damaged.
TRUEFUSE_EXPORT char* truefuse_cache_verify(int repair);

#ifdef __cplusplus
}
#endif
