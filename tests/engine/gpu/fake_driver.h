#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

/// What the fake drivers were asked, and how they are to behave. The test and the library that it
/// loads see the same object through fake_state().
struct FakeState {
  int major = 9;
  int version = 13000;  // Of CUDA.
  int launch_result = 0;
  int retained = 0;
  int capture_mode = 0;
  int capture_mode_at_load = -1;
  int device_at_load = -1;
  int device_at_launch = -1;
  int dynamic_shared = 0;
  int static_shared = 0;
  int launches = 0;
  int early_launches = 0;
  unsigned grid = 0, block = 0, shared = 0;
  void* stream = nullptr;
  int first_parameter = 0;

  void record(unsigned grid_x, unsigned block_x, unsigned shared_bytes, void* on,
              void** parameters) {
    ++launches;
    grid = grid_x;
    block = block_x;
    shared = shared_bytes;
    stream = on;
    std::memcpy(&first_parameter, parameters[0], sizeof first_parameter);
  }
};
