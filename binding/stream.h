#pragma once

namespace truefuse::binding {

/// PyTorch's current stream of a CUDA, ROCm or DCU device, as the driver's stream handle. Asked of
/// the PyTorch that is loaded, without its GPU headers. Throws Error if this PyTorch cannot say.
void* current_stream(int device);

/// How current_stream asks: "aoti_torch_get_current_cuda_stream in <library>" or the sentence of
/// the error. For `truefuse doctor`.
const char* current_stream_method();

/// Second choice, for a PyTorch without that symbol: a function that Python installs, which reads
/// torch._C._cuda_getCurrentRawStream.
void set_stream_fallback(void* (*function)(int device));

}  // namespace truefuse::binding
