#pragma once

#include <truefuse/capi/truefuse.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Of this process: {"compiled": {"count", "seconds", "most_seconds"}, and so on for "disk",
/// "bundle", "failed" and "loaded" (jit/statistics.h); "warm": {"kernels", "lookup_seconds"}}
TRUEFUSE_EXPORT char* truefuse_statistics(void);

/// Of the cache directory: {directory, bytes, compile_seconds: [what each valid entry cost when it
/// was made], read_seconds: [what looking it up costs now]}
TRUEFUSE_EXPORT char* truefuse_cache_costs(void);

#ifdef __cplusplus
}
#endif
