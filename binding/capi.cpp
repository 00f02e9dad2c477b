#include <cstdint>

#include <truefuse/binding/capi.h>
#include <truefuse/binding/stream.h>
#include <truefuse/capi/answer.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/common_cpu/parallel.h>

extern "C" {

char* truefuse_torch_cpu(void) {
  return truefuse::capi::answer([](truefuse::JsonWriter& json) {
    json.begin_object();
    json.key("level").string(truefuse::cpu::name_of(truefuse::cpu::level()));
    json.key("threads").integer(truefuse::cpu::parallel_threads());
    json.end_object();
  });
}

char* truefuse_torch_current_stream(int device) {
  return truefuse::capi::answer([&](truefuse::JsonWriter& json) {
    const auto stream = reinterpret_cast<std::uintptr_t>(truefuse::binding::current_stream(device));
    json.begin_object();
    json.key("stream").integer(static_cast<std::int64_t>(stream));
    json.key("method").string(truefuse::binding::current_stream_method());
    json.end_object();
  });
}

void truefuse_torch_set_stream_fallback(void* (*function)(int device)) {
  truefuse::binding::set_stream_fallback(function);
}

}  // extern "C"
