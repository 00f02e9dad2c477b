#pragma once

#include <truefuse/capi/describe.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Registers a described operator (capi/describe.h) with PyTorch: for CUDA, ROCm and DCU its
/// kernels, for CPU tensors the simulator unless the description names a function, Meta and
/// Autograd. `backward` is the handle of the described operator that computes its gradients, or -1.
/// If the description names a function for that instead, `<name>_backward` is defined, for Python
/// to implement. Either everything is registered or nothing. {backward: "ns::name" or ""}
TRUEFUSE_EXPORT char* truefuse_torch_describe(int handle, int backward);

#ifdef __cplusplus
}
#endif
