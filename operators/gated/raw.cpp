#include <truefuse/capi/run.h>
#include <truefuse/operators/gated/operator.h>
#include <truefuse/operators/gated/raw.h>

namespace {

/// All arguments in the order of the schema, then the output.
template <class... Arguments>
char* run(const truefuse::Operator& (*get)(), int device, void* stream, const truefuse_tensor* out,
          Arguments... arguments) {
  return truefuse::capi::run_raw(get, device, stream, [&](truefuse::capi::RawCall& call) {
    (call.add_argument(arguments), ...);
    call.add_output(out);
  });
}

}  // namespace

extern "C" {

char* truefuse_swiglu(const truefuse_tensor* gate, const truefuse_tensor* up,
                      const char* gate_rounding, const truefuse_tensor* out, int device,
                      void* stream) {
  return run(truefuse::swiglu_operator, device, stream, out, gate, up, gate_rounding);
}

char* truefuse_geglu(const truefuse_tensor* gate, const truefuse_tensor* up,
                     const char* approximate, const char* gate_rounding, const truefuse_tensor* out,
                     int device, void* stream) {
  return run(truefuse::geglu_operator, device, stream, out, gate, up, approximate, gate_rounding);
}

char* truefuse_swiglu_packed(const truefuse_tensor* packed, const char* packing,
                             const char* gate_rounding, const truefuse_tensor* out, int device,
                             void* stream) {
  return run(truefuse::swiglu_packed_operator, device, stream, out, packed, packing, gate_rounding);
}

char* truefuse_geglu_packed(const truefuse_tensor* packed, const char* packing,
                            const char* approximate, const char* gate_rounding,
                            const truefuse_tensor* out, int device, void* stream) {
  return run(truefuse::geglu_packed_operator, device, stream, out, packed, packing, approximate,
             gate_rounding);
}

}  // extern "C"
