#include "driver.h"

#include <dlfcn.h>

/* Returns 0 for success, as both vendors' functions do. */
static void* library;
static int load(void* function, const char* symbol) {
  void* found = dlsym(library, symbol);
  *(void**)function = found;
  return found == NULL;
}

/* ---- CUDA ---- */

static int (*cu_mem_alloc)(unsigned long long*, size_t);
static int (*cu_to_device)(unsigned long long, const void*, size_t);
static int (*cu_to_host)(void*, unsigned long long, size_t);
static int (*cu_synchronize)(void);

static void* cuda_allocate(size_t bytes) {
  unsigned long long pointer = 0;
  return cu_mem_alloc(&pointer, bytes) == 0 ? (void*)pointer : NULL;
}
static int cuda_to_device(void* to, const void* from, size_t bytes) {
  return cu_to_device((unsigned long long)to, from, bytes);
}
static int cuda_to_host(void* to, const void* from, size_t bytes) {
  return cu_synchronize() != 0 || cu_to_host(to, (unsigned long long)from, bytes) != 0;
}
static const driver cuda = {"CUDA", cuda_allocate, cuda_to_device, cuda_to_host};

static const driver* open_cuda(void) {
  int (*init)(unsigned);
  int (*get_device)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  void* context;
  int device;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return NULL;
  if (load(&init, "cuInit") || load(&get_device, "cuDeviceGet") ||
      load(&retain, "cuDevicePrimaryCtxRetain") || load(&set_current, "cuCtxSetCurrent") ||
      load(&cu_mem_alloc, "cuMemAlloc_v2") || load(&cu_to_device, "cuMemcpyHtoD_v2") ||
      load(&cu_to_host, "cuMemcpyDtoH_v2") || load(&cu_synchronize, "cuCtxSynchronize")) {
    return NULL;
  }
  if (init(0) || get_device(&device, 0) || retain(&context, device) || set_current(context)) {
    return NULL;
  }
  return &cuda;
}

/* ---- AMD and DCU ---- */

static int (*hip_malloc)(void**, size_t);
static int (*hip_memcpy)(void*, const void*, size_t, int); /* waits for the device */

static void* hip_allocate(size_t bytes) {
  void* pointer = NULL;
  return hip_malloc(&pointer, bytes) == 0 ? pointer : NULL;
}
static int hip_to_device(void* to, const void* from, size_t bytes) {
  return hip_memcpy(to, from, bytes, 1);
}
static int hip_to_host(void* to, const void* from, size_t bytes) {
  return hip_memcpy(to, from, bytes, 2);
}
static const driver hip = {"HIP", hip_allocate, hip_to_device, hip_to_host};

static const driver* open_hip(void) {
  int (*set_device)(int);
  library = dlopen("libamdhip64.so", RTLD_NOW);
  if (library == NULL) library = dlopen("libgalaxyhip.so", RTLD_NOW);
  if (library == NULL) return NULL;
  if (load(&set_device, "hipSetDevice") || load(&hip_malloc, "hipMalloc") ||
      load(&hip_memcpy, "hipMemcpy") || set_device(0)) {
    return NULL;
  }
  return &hip;
}

const driver* open_driver(void) {
  const driver* found = open_cuda();
  return found != NULL ? found : open_hip();
}
