#pragma once

#include <truefuse/capi/raw.h>

#ifdef __cplusplus
extern "C" {
#endif

/// out = x sigmoid(x). x: any strides. out: the same sizes and dtype, without gaps and in the order
/// of x's strides; contiguous if x is.
TRUEFUSE_EXPORT char* truefuse_swish(const truefuse_tensor* x, const truefuse_tensor* out,
                                     int device, void* stream);

#ifdef __cplusplus
}
#endif
