# What each target does is in scripts/dev.py. Exit statuses of `truefuse check` (0 accept, 1 reject,
# 3 unknown) are shown by make as "Error 1" and so on.
#
#   make check                 the main job
#   make test                  all tests that need no GPU
#   make simulate              every operator on the simulated devices: minutes of compiling
#   make targets               every kernel for every target, without a device
#   make check PYTHON=...      start from that Python; its torch is used as it is
#   make test TORCH=2.5.1      with that PyTorch, in a virtual environment of its own
#   make build CXX=g++-11      with that compiler
#   make check ARGS="--seed 7" further arguments of `truefuse check bias_gelu` (pytest for `make test`)

PYTHON ?= python3
ifeq ($(origin CXX),default)
CXX := g++
endif
export CXX TORCH ARGS

TARGETS := check build test simulate targets sanitize fuzz compilers kit gpu lint format clean
.PHONY: $(TARGETS)
.DEFAULT_GOAL := check

$(TARGETS):
	@"$(PYTHON)" scripts/dev.py $@
