#!/usr/bin/env bash
# `make gpu`: on a machine with a GPU builds, runs the GPU tests and the benchmarks, and writes the
# results. Needs no network where python3 has torch, pytest and the packages of the command line.
#
#   PYTHON=...    the Python with torch (default python3)
#   OUT=...       where results go (default bench/results/DATE-DEVICE)
#   ONLY=...      a regular expression: only stages whose name matches, after the build
#
# A stage that fails or takes too long does not keep the later ones from running; any failure makes
# the exit status 1. Writes gpu.log (everything), gpu-summary.txt, and what the benchmarks write.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=${PYTHON:-python3}
if ! device=$("$python" -c 'import torch; print(torch.cuda.get_device_name())'); then
  echo "$python has no torch that sees a GPU; set PYTHON= to one that does" >&2
  exit 1
fi
out=${OUT:-bench/results/$(date +%F)-${device//[^A-Za-z0-9]/-}}
mkdir -p "$out"
out=$(cd "$out" && pwd)
: > "$out/gpu-summary.txt"
failed=0

# stage NAME SECONDS COMMAND...
stage() {
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  [[ $name =~ ^build$|${ONLY:-.} ]] || return 0
  echo "== $name"
  timeout --kill-after=10 "$limit" "$@" < /dev/null || status=$?
  local verdict=ok
  case $status in
    0) ;;
    124 | 137) verdict="FAILED: more than $limit s" ;;
    *) verdict="FAILED: status $status" ;;
  esac
  [[ $verdict == ok ]] || failed=1
  printf '%-28s %4d s  %s\n' "$name" $((SECONDS - start)) "$verdict" | tee -a "$out/gpu-summary.txt"
}

all() {
  nvidia-smi 2> /dev/null || rocminfo 2> /dev/null | grep -E 'Marketing Name|gfx' || true
  stage build 300 "$python" scripts/dev.py build
  ((failed == 0)) || return
  # The last line says where the package is and what else has to be importable.
  local paths
  paths=$("$python" scripts/dev.py paths) || { failed=1; return; }
  paths=${paths##*$'\n'}
  export PYTHONPATH=$paths PYTHONUNBUFFERED=1
  export PYTHONPYCACHEPREFIX=$PWD/build/pycache PYTHONDONTWRITEBYTECODE=
  stage doctor 120 "$python" -m truefuse doctor
  # Most of their time is compiling; a test of more than 2^31 elements needs 20 GB of the device.
  local spread=() workers
  workers=$("$python" -c 'import xdist, torch
print(min(4, torch.cuda.get_device_properties(0).total_memory // 20_000_000_000))' 2> /dev/null)
  ((${workers:-0} < 2)) || spread=(-n "$workers")
  stage tests 400 "$python" -m pytest "${spread[@]}" tests/gpu
  stage adversarial 400 "$python" -m pytest "${spread[@]}" tests/adversarial
  local case operator
  for case in operators/*/case.py; do
    operator=$(basename "$(dirname "$case")")
    stage "check $operator" 200 \
      "$python" -m truefuse check "$operator" --device cuda --output "$out/report-$operator"
  done
  local bench
  for bench in bench/*.py; do
    stage "$bench" 300 "$python" "$bench" --output "$out/$(basename "$bench" .py).json"
  done
}

{
  all
  echo "== summary (in $out)"
  cat "$out/gpu-summary.txt"
  exit "$failed"
} 2>&1 | tee "$out/gpu.log"
exit "${PIPESTATUS[0]}"
