#!/usr/bin/env bash
# Installs truefuse and what its command line needs into a Python that has torch, without network.
# Nothing that is there is changed. PYTHON= names the Python (default python3).
#
#   ./install.sh                  the wheel of this kit, or from source where it does not fit
#   ./install.sh --from-source    from source in any case: needs g++ 11 or newer
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
pip=("$python" -m pip --disable-pip-version-check)
offline=(--no-index --no-deps)

case "$#:${1:-}" in
  0:) from_source=false ;;
  1:--from-source) from_source=true ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac

facts=$("$python" "$here/torch_facts.py")
minor=$(sed -n 's/^minor=//p' <<< "$facts")
abi=$(sed -n 's/^cxx11_abi=//p' <<< "$facts")

shopt -s nullglob
wheels=("$here"/wheels/truefuse-*+torch"$minor".cxx11abi"$abi"-*_"$(uname -m)".whl)
if $from_source || ((${#wheels[@]} == 0)); then
  echo "building for torch $minor, C++11 ABI $abi (some minutes)"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  tar -xzf "$here/source.tar.gz" -C "$work"
  "${pip[@]}" install --quiet "${offline[@]}" --find-links "$here/build-wheels" \
    --target "$work/tools" scikit-build-core pathspec packaging cmake ninja \
    exceptiongroup tomli typing-extensions
  PATH="$work/tools/bin:$PATH" PYTHONPATH="$work/tools${PYTHONPATH:+:$PYTHONPATH}" \
    "${pip[@]}" wheel "${offline[@]}" --no-build-isolation --wheel-dir "$work" "$work/source"
  wheels=("$work"/truefuse-*.whl)
fi

# Named without versions: what is installed already, in any version, stays.
mapfile -t cli < "$here/cli.txt"
"${pip[@]}" install "${offline[@]}" --find-links "$here/wheels" "${cli[@]}"
"${pip[@]}" install "${offline[@]}" --force-reinstall "${wheels[0]}"
