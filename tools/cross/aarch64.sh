#!/usr/bin/env bash
# Builds the fork for aarch64 on another machine and runs its C++ tests under emulation. `--help` says how.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT"

fail() { printf 'aarch64.sh: %s\n' "$*" >&2; exit 1; }

version=3.11
passed=()
while (($#)); do
  case "$1" in
    --python=*) version=${1#--python=} ;;
    --python) version=${2:?--python needs a version}; shift ;;
    *) passed+=("$1") ;;
  esac
  shift
done
command -v "python$version" >/dev/null || fail "python$version is missing: apt install python$version python$version-venv python$version-dev"

# A tree of its own: the libraries are another machine's, and so is the base wheel.
export BUILD_DIR=${BUILD_DIR:-$ROOT/build/aarch64} TARGET_MACHINE=aarch64 PIP_DISABLE_PIP_VERSION_CHECK=1
PYTHON=$BUILD_DIR/venv$version/bin/python
if [[ ! -x $PYTHON ]]; then
  mkdir -p "$BUILD_DIR"
  "python$version" -m venv "$BUILD_DIR/venv$version"
fi
if [[ ! -f $BUILD_DIR/venv$version/.ready ]]; then
  # The build's tools, and of the developers' list the sources of GoogleTest.
  grep '^ros-gtest-vendor' requirements-dev.txt >"$BUILD_DIR/gtest.txt"
  "$PYTHON" -m pip install -q -r requirements-build.txt -r "$BUILD_DIR/gtest.txt" || fail "pip could not install requirements-build.txt"
  touch "$BUILD_DIR/venv$version/.ready"
fi
exec "$PYTHON" -m tools.cross.aarch64 "${passed[@]}"
