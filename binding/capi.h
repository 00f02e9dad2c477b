#pragma once

#include <truefuse/capi/truefuse.h>

/// The C face of the PyTorch binding; same rules as truefuse/capi/truefuse.h.

#ifdef __cplusplus
extern "C" {
#endif

/// {level: "base"|"avx2"|"avx512", threads}
TRUEFUSE_EXPORT char* truefuse_torch_cpu(void);

/// {stream, method}
TRUEFUSE_EXPORT char* truefuse_torch_current_stream(int device);

/// Second choice for reading PyTorch's current stream, where its C symbol is missing.
TRUEFUSE_EXPORT void truefuse_torch_set_stream_fallback(void* (*function)(int device));

#ifdef __cplusplus
}
#endif
