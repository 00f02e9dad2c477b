#!/usr/bin/env bash
# Installs what only tests need from Debian or Ubuntu: GoogleTest, the HIP compilers (hipcc and
# hipRTC, which also compile without an AMD device) and, with CI=true, g++-11 and clang-19. As root it installs;
# otherwise it prints the command. A package that this release does not have is named and left out.
set -euo pipefail

missing=()
[[ -e /usr/include/gtest/gtest.h ]] || missing+=(libgtest-dev)
# A ROCm or DTK that is there brings its own compilers.
command -v hipcc > /dev/null || [[ -e /opt/rocm || -e /opt/dtk ]] ||
  missing+=(hipcc libamdhip64-dev rocm-device-libs)
[[ ${CI:-} != true ]] || command -v g++-11 > /dev/null || missing+=(g++-11)
[[ ${CI:-} != true ]] || command -v clang-19 > /dev/null || missing+=(clang-19 lld-19)
if ((${#missing[@]} == 0)); then exit 0; fi

if ! command -v apt-get > /dev/null; then
  echo "tests also use, and this system has no apt-get to install: ${missing[*]}"
  exit 0
fi
if ((EUID != 0)); then
  echo "tests also use: sudo apt-get install ${missing[*]}"
  exit 0
fi

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" < /dev/null > /dev/null; }
echo "installing ${missing[*]}"
apt update || echo "apt-get update failed; going on with the package lists that are there"
for package in "${missing[@]}"; do
  apt install -y --no-install-recommends "$package" || echo "could not install $package"
done
