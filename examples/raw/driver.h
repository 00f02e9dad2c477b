#pragma once

#include <stddef.h>

/* The little of a GPU driver that the example needs, found at run time: CUDA's, or AMD's runtime.
 */

typedef struct driver {
  const char* name;
  void* (*allocate)(size_t bytes);
  int (*to_device)(void* to, const void* from, size_t bytes);
  int (*to_host)(void* to, const void* from, size_t bytes); /* after all work on the device */
} driver;

/* NULL if there is no driver or no device. The first device becomes current. */
const driver* open_driver(void);
