#pragma once

#include <truefuse/capi/raw.h>

#ifdef __cplusplus
extern "C" {
#endif

/// out = gelu(x + bias). x: [rows.., hidden], contiguous in its last dimension; bias: [hidden];
/// approximate: "tanh" or "none"; out: as x, contiguous.
TRUEFUSE_EXPORT char* truefuse_bias_gelu(const truefuse_tensor* x, const truefuse_tensor* bias,
                                         const char* approximate, const truefuse_tensor* out,
                                         int device, void* stream);

#ifdef __cplusplus
}
#endif
