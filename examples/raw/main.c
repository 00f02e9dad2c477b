/* An engine without PyTorch: device memory, a stream, and swiglu on them. Without a GPU it shows what
   the library says. */

#include <math.h>
#include <stdio.h>

#include <truefuse/operators/gated/raw.h>
#include <truefuse/operators/swish/raw.h>

#include "driver.h"

enum { kRows = 64, kHidden = 256, kCount = kRows * kHidden };

static float gate[kCount], up[kCount], out[kCount];

/* Prints and releases the sentence; 1 if there was one. */
static int said(const char* what, char* sentence) {
  if (sentence == NULL) return 0;
  printf("%s: %s\n", what, sentence);
  truefuse_free(sentence);
  return 1;
}

static int compute(const driver* gpu) {
  const size_t bytes = sizeof gate;
  const int64_t sizes[2] = {kRows, kHidden}, strides[2] = {kHidden, 1};
  truefuse_tensor tensors[3];
  float* const host[3] = {gate, up, out};
  for (int i = 0; i < 3; ++i) {
    void* const memory = gpu->allocate(bytes);
    if (memory == NULL || gpu->to_device(memory, host[i], bytes) != 0) return 1;
    tensors[i] = (truefuse_tensor){memory, truefuse_f32, 2, sizes, strides};
  }
  /* On device 0, on its default stream. */
  if (said("swiglu", truefuse_swiglu(&tensors[0], &tensors[1], "none", &tensors[2], 0, NULL))) {
    return 1;
  }
  if (gpu->to_host(out, tensors[2].data, bytes) != 0) return 1;
  double largest = 0;
  for (int i = 0; i < kCount; ++i) {
    const double want = gate[i] / (1 + exp(-gate[i])) * up[i];
    largest = fmax(largest, fabs(out[i] - want));
  }
  printf("swiglu on %s: largest difference %.1e\n", gpu->name, largest);
  return largest < 1e-5 ? 0 : 1;
}

int main(void) {
  const int64_t sizes[2] = {kRows, kHidden}, strides[2] = {kHidden, 1};
  for (int i = 0; i < kCount; ++i) {
    gate[i] = (float)(i % 97) / 8 - 6;
    up[i] = (float)(i % 89) / 16 - 3;
  }
  /* A call that is wrong says so before anything is launched. */
  const truefuse_tensor x = {gate, truefuse_f32, 2, sizes, strides};
  const truefuse_tensor wrong = {out, truefuse_bf16, 2, sizes, strides};
  if (!said("refused", truefuse_swish(&x, &wrong, 0, NULL))) return 1;
  if (!said("refused", truefuse_swish(&x, NULL, 0, NULL))) return 1;
  if (!said("refused", truefuse_swiglu(&x, &x, "sometimes", &x, 0, NULL))) return 1;

  const driver* const gpu = open_driver();
  if (gpu != NULL) return compute(gpu);
  /* The data is never touched: there is no device to read it. */
  return said("without a GPU", truefuse_swish(&x, &x, 0, NULL)) ? 0 : 1;
}
