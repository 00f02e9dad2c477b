#pragma once

#include <truefuse/capi/truefuse.h>

/// The simulated device, for Python: an operator's plan and kernels on tensors in host memory.
/// Answers are JSON as in truefuse.h.

#ifdef __cplusplus
extern "C" {
#endif

/// One argument of a call, in the order of the schema.
struct truefuse_argument {
  enum { none, tensor, integer, number, boolean, text } kind;
  const char* string;        ///< Of a text: it. Of a tensor: its dtype, as "float32".
  const char* device;        ///< Of a tensor: "cpu", "cuda", "meta" or another.
  int dims;                  ///< Of a tensor, as the rest.
  const long long* sizes;    ///< Elements, outermost first.
  const long long* strides;  ///< Elements.
  void* data;
  long long whole;  ///< Of an integer or a boolean.
  double real;      ///< Of a number.
};

struct truefuse_sim_device {
  const char* arch;        ///< "sim:wave32" or "sim:wave64".
  const char* sanitizers;  ///< Names with commas between: "address,undefined".
  const char* order;       ///< Of lanes and blocks: "forward", "reverse", "random", "interleaved".
  unsigned long long seed;
  int resident_blocks;
  int trace;
};

/// Checks the arguments against the operator's contract:
/// [{name, dtype, sizes: [..]}] of the outputs that it promises.
TRUEFUSE_EXPORT char* truefuse_sim_outputs(const char* op, const truefuse_argument* arguments,
                                           int count);

/// Runs the call: {} or, with a trace, {wave, launches: [{kernel, grid, block, accesses: [[line,
/// writes, bytes, address, block, thread], ..]}]}; addresses are those of the caller's memory.
TRUEFUSE_EXPORT char* truefuse_sim_call(const char* op, const truefuse_argument* arguments,
                                        int count, const truefuse_argument* outputs,
                                        int output_count, const truefuse_sim_device* device);

/// Compiles every variant of the operator for the device, at most `jobs` at once: {variants}
TRUEFUSE_EXPORT char* truefuse_sim_prepare(const char* op, const truefuse_sim_device* device,
                                           int jobs);

/// Runs one kernel of a source of its own, which includes "truefuse/device.h" or is in the dialect
/// of CUDA and HIP that "truefuse/sim/cuda.h" gives. `name` is the source's name in reports,
/// `shape` the grid and the block. An argument is a tensor (`whole` says whether it is written;
/// contiguous), or a number or an integer whose `string` is its dtype.
/// {fault: null or {kind, text, file, line, other_line, message}, lane_switches}
TRUEFUSE_EXPORT char* truefuse_sim_kernel(const char* name, const char* source, const char* kernel,
                                          const unsigned shape[6], unsigned shared_bytes,
                                          const truefuse_argument* arguments, int count,
                                          const truefuse_sim_device* device);

#ifdef __cplusplus
}
#endif
