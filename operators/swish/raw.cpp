#include <truefuse/capi/run.h>
#include <truefuse/operators/swish/operator.h>
#include <truefuse/operators/swish/raw.h>

extern "C" char* truefuse_swish(const truefuse_tensor* x, const truefuse_tensor* out, int device,
                                void* stream) {
  return truefuse::capi::run_raw(truefuse::swish_operator, device, stream,
                                 [&](truefuse::capi::RawCall& call) {
                                   call.add_argument(x);
                                   call.add_output(out);
                                 });
}
