#!/usr/bin/env bash
# In hipcc's place, for targets that the installed ROCm is too old for (gfx942, gfx1100): clang-19 with
# that ROCm's headers and device libraries.
#
#   TRUEFUSE_HIPCC=scripts/hipcc_clang.sh truefuse compile bias_gelu --arch gfx942 --arch gfx1100
#
# Where ROCm has no library for a chip, that of a near one stands in; it sets a version number, no more.
# So the code is good for looking at: registers, spills, instructions. Nobody has run it.
set -euo pipefail

clang=$(command -v clang-19) || { echo "needs clang-19 and lld-19" >&2; exit 1; }
libraries=
for folder in /opt/rocm/amdgcn/bitcode /usr/lib/x86_64-linux-gnu/amdgcn/bitcode; do
  [[ -e $folder/ocml.bc ]] && libraries=$folder && break
done
[[ $libraries ]] || { echo "needs ROCm's device libraries (rocm-device-libs)" >&2; exit 1; }

own=${TMPDIR:-/tmp}/truefuse-device-libs  # TMPDIR is a private folder of the compile.
mkdir -p "$own"
ln -sf "$libraries"/*.bc "$own"
[[ -e $own/oclc_isa_version_942.bc ]] || ln -sf "$libraries"/oclc_isa_version_940.bc "$own"/oclc_isa_version_942.bc
[[ -e $own/oclc_isa_version_1100.bc ]] || ln -sf "$libraries"/oclc_isa_version_1036.bc "$own"/oclc_isa_version_1100.bc

arguments=()
for argument; do
  case $argument in
    --version)
      echo "HIP version: $("$clang" --version | sed -n '1s/.*version \([^ ]*\).*/clang \1/p')"
      exit
      ;;
    --genco) arguments+=(--cuda-device-only --no-gpu-bundle-output) ;;
    *) arguments+=("$argument") ;;
  esac
done
exec "$clang" -x hip --rocm-path=/usr --hip-path=/usr --rocm-device-lib-path="$own" "${arguments[@]}"
