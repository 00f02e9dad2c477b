#pragma once

#include <truefuse/capi/raw.h>

#ifdef __cplusplus
extern "C" {
#endif

/// out = swish(gate) up, or gelu(gate) up. gate, up: [rows.., hidden], any strides; out:
/// contiguous. gate_rounding: "none", or "storage": the activated gate is rounded to the dtype
/// before it is multiplied. approximate: "tanh" or "none".
TRUEFUSE_EXPORT char* truefuse_swiglu(const truefuse_tensor* gate, const truefuse_tensor* up,
                                      const char* gate_rounding, const truefuse_tensor* out,
                                      int device, void* stream);
TRUEFUSE_EXPORT char* truefuse_geglu(const truefuse_tensor* gate, const truefuse_tensor* up,
                                     const char* approximate, const char* gate_rounding,
                                     const truefuse_tensor* out, int device, void* stream);

/// The same of one tensor [rows.., 2 * hidden]; packing: "gate|up", "up|gate", "gate,up
/// interleaved" or "up,gate interleaved".
TRUEFUSE_EXPORT char* truefuse_swiglu_packed(const truefuse_tensor* packed, const char* packing,
                                             const char* gate_rounding, const truefuse_tensor* out,
                                             int device, void* stream);
TRUEFUSE_EXPORT char* truefuse_geglu_packed(const truefuse_tensor* packed, const char* packing,
                                            const char* approximate, const char* gate_rounding,
                                            const truefuse_tensor* out, int device, void* stream);

#ifdef __cplusplus
}
#endif
