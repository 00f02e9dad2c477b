#include <truefuse/capi/run.h>
#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/bias_gelu/raw.h>

extern "C" char* truefuse_bias_gelu(const truefuse_tensor* x, const truefuse_tensor* bias,
                                    const char* approximate, const truefuse_tensor* out, int device,
                                    void* stream) {
  return truefuse::capi::run_raw(truefuse::bias_gelu_operator, device, stream,
                                 [&](truefuse::capi::RawCall& call) {
                                   call.add_argument(x);
                                   call.add_argument(bias);
                                   call.add_argument(approximate);
                                   call.add_output(out);
                                 });
}
