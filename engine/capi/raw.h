#pragma once

/// Operators for engines without PyTorch: pointers to device memory and a stream, in C. A function
/// returns NULL, or a sentence that says what is wrong with the call, to be released with
/// truefuse_free; then nothing was launched. The launch is asynchronous; its kernel is compiled (or
/// read from the cache) at the first call. All functions are thread-safe. GPU only.

#include <stdint.h>

#include <truefuse/capi/truefuse.h>

#ifdef __cplusplus
extern "C" {
#endif

enum truefuse_dtype { truefuse_f64 = 0, truefuse_f32 = 1, truefuse_f16 = 2, truefuse_bf16 = 3 };

/// A tensor that the caller owns. Sizes and strides are in elements, outermost first; outputs are
/// contiguous unless a function says otherwise.
typedef struct truefuse_tensor {
  void* data; /* on the device */
  int32_t dtype;
  int32_t dims;
  const int64_t* sizes;
  const int64_t* strides;
} truefuse_tensor;

#ifdef __cplusplus
}
#endif
