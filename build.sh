#!/usr/bin/env bash
# The one entry point: sets up .venv, builds, installs, trains, tests. `bash build.sh --help` says how.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$ROOT"

usage() {
  cat <<'TEXT'
Usage: bash build.sh [wheel|develop|train|test|check|check-native|clean] [options] [arguments for a program]

  wheel     (default) build dist/torch-2.13.0+ascend-*.whl and install it into .venv
  develop   lay the fork into .venv as links: an edited Python file needs no build
  train     what is missing of the above, then ResNet-50 on real images on npu:0 (examples/imagenet/main.py)
  test      what is missing of the above, then the tests (pytest)
  check     what is missing of the above, then lint: ruff, clang-format, mypy, clang-tidy (tools/lint.py; or some by name)
  check-native  C++ tests and a shard of the Python ones; SANITIZE=thread or SANITIZE=address,undefined instruments
                the device layer and the simulator first (an argument is a --gtest_filter)
  clean     remove what was built; downloads and .venv stay

  --python=3.11        the Python to build for, 3.10 to 3.14; others than 3.11 have folders of their own, .venv-3.12 and
                       build/python3.12
  --base-wheel FILE    upstream's CPU wheel of torch 2.13.0 for that Python; else pip downloads it once
  --help               this text

Switches are environment variables, 0 or 1:
  DEBUG USE_NPU USE_HCCL USE_DUMP USE_DISTRIBUTED BUILD_TEST   change what is built
  MAX_JOBS                                                     how many compilers run at once
  USE_CUDA USE_NCCL USE_MKLDNN USE_NNPACK USE_XNNPACK BUILD_BREAKPAD
                                                               accepted; the base wheel has settled them
Other variables: VENV_DIR, BUILD_DIR, DIST_DIR, DOWNLOAD_DIR move the folders.
TEXT
}

stage() { printf '== %s\n' "$*"; }
fail() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

command=wheel
case "${1:-}" in
  wheel | develop | train | test | check | check-native | clean) command=$1; shift ;;
esac
PY_VERSION=3.11
passed=()
while (($#)); do
  case "$1" in
    --help | -h)
      # After train, test or check, the other program's help is meant.
      if [[ $command == train || $command == test || $command == check ]]; then passed+=("$1"); else usage; exit 0; fi ;;
    --python=*) PY_VERSION=${1#--python=} ;;
    --python) PY_VERSION=${2:?--python needs a version}; shift ;;
    --base-wheel=*) BASE_WHEEL=${1#--base-wheel=} ;;
    --base-wheel) BASE_WHEEL=${2:?--base-wheel needs a file}; shift ;;
    *)
      [[ $command == train || $command == test || $command == check* ]] || fail "unknown argument '$1' (see bash build.sh --help)"
      passed+=("$1") ;;
  esac
  shift
done
[[ $PY_VERSION =~ ^3\.1[0-4]$ ]] ||
  fail "--python=$PY_VERSION: upstream's base wheels are for Python 3.10 to 3.14; use --python=3.11, or another of them"
if [[ -n ${BASE_WHEEL:-} ]]; then
  [[ -f $BASE_WHEEL ]] || fail "--base-wheel $BASE_WHEEL: no such file"
  BASE_WHEEL=$(cd "$(dirname "$BASE_WHEEL")" && pwd)/$(basename "$BASE_WHEEL")
  export BASE_WHEEL
fi
# One Python's environment and objects are no other's.
if [[ $PY_VERSION == 3.11 ]]; then
  VENV=${VENV_DIR:-$ROOT/.venv}
else
  VENV=${VENV_DIR:-$ROOT/.venv-$PY_VERSION}
  export BUILD_DIR=${BUILD_DIR:-$ROOT/build/python$PY_VERSION}
fi
BUILD=${BUILD_DIR:-$ROOT/build}
PIP_LOG=$BUILD/pip.log
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Errors only: warnings about this machine's indexes and its pip would drown our lines. They are in the log, which pip
# itself does not write: with --log it warns and draws its bars however quiet it is told to be.
pip_install() {
  mkdir -p "$BUILD"
  "$VENV/bin/python" -m pip install --progress-bar off "$@" >"$PIP_LOG" 2>&1 && return
  grep '^ERROR' "$PIP_LOG" >&2 || true
  return 1
}

# Installs requirements files once; a changed file is installed again.
requirements() {
  local how=$1 file=$2 stamp
  stamp=$VENV/.installed-${file%.txt}
  if [[ ! -f $stamp ]] || ! cmp -s "$file" "$stamp"; then
    stage "installing $file"
    local flags=()
    [[ $how == nodeps ]] && flags+=(--no-deps)
    pip_install "${flags[@]}" -r "$file" || fail "pip could not install $file (all it said: ${PIP_LOG#"$ROOT"/})"
    cp "$file" "$stamp"
  fi
}

environment() {
  if [[ ! -x $VENV/bin/python ]]; then
    command -v "python$PY_VERSION" >/dev/null ||
      fail "python$PY_VERSION is missing: apt install python$PY_VERSION python$PY_VERSION-venv python$PY_VERSION-dev, or yum install python$PY_VERSION-devel"
    stage "creating ${VENV#"$ROOT"/}"
    "python$PY_VERSION" -m venv "$VENV" || fail "no virtual environment: apt install python$PY_VERSION-venv"
  fi
  [[ -x $VENV/bin/python$PY_VERSION ]] ||
    fail "$VENV holds another Python than $PY_VERSION: remove it, or say VENV_DIR=FOLDER for this one"
  command -v "${CXX:-g++}" >/dev/null || command -v c++ >/dev/null || fail "g++ is missing: apt install g++, or yum install gcc-c++"
  requirements plain requirements-build.txt
  requirements plain requirements.txt
}

# One command line, as the guides print it; a switch of the caller's environment wins.
run_setup() {
  DEBUG=${DEBUG:-0} USE_DISTRIBUTED=${USE_DISTRIBUTED:-1} USE_HCCL=${USE_HCCL:-1} USE_CUDA=${USE_CUDA:-0} USE_NPU=${USE_NPU:-1} \
    BUILD_TEST=${BUILD_TEST:-0} USE_DUMP=${USE_DUMP:-1} "$VENV/bin/python${PY_VERSION}" setup.py "$@"
}

do_develop() {
  environment
  stage "building into ${VENV#"$ROOT"/}"
  run_setup build develop
}

do_wheel() {
  environment
  stage "building the wheel"
  run_setup build bdist_wheel
  local wheel
  wheel=$("$VENV/bin/python" -m tools.fork.wheel --stale) || fail "no wheel in dist"
  if [[ -n $wheel ]]; then
    stage "installing $(basename "$wheel")"
    pip_install --no-deps --no-compile --force-reinstall "$wheel"
    # On all cores, which pip does not; where byte code may not be written, every process would compile anew. One of
    # upstream's files is for Python 3.12, so the status says nothing.
    local site
    site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$VENV/bin/python" -m compileall -qq -j 0 "$site/torch" || true
  fi
}

# Whatever is missing: the kind of installation that is there is brought up to date, a bare environment gets the quick one.
ensure() {
  if [[ -x $VENV/bin/python && $("$VENV/bin/python" -m tools.fork.develop --mode) == wheel ]]; then do_wheel; else do_develop; fi
  requirements plain requirements-test.txt
  requirements nodeps requirements-nodeps.txt
}

case "$command" in
  develop) do_develop ;;
  wheel) do_wheel ;;
  train)
    ensure
    stage "training"
    PYTHON=$VENV/bin/python exec bash examples/imagenet/train.sh "${passed[@]}" ;;
  test)
    ensure
    requirements plain requirements-libraries.txt
    stage "testing"
    ((${#passed[@]})) || passed=(test/test_npu)
    exec "$VENV/bin/python" -m pytest -q "${passed[@]}" ;;
  check)
    ensure
    requirements plain requirements-dev.txt
    exec "$VENV/bin/python" -m tools.lint "${passed[@]}" ;;
  check-native)
    ensure
    requirements plain requirements-dev.txt
    exec "$VENV/bin/python" -m tools.setup_helpers.check_native "${passed[@]}" ;;
  clean)
    rm -rf "$BUILD/base" "$BUILD/base.stamp" "$BUILD/release" "$BUILD/debug" "$BUILD"/sanitize-* "${DIST_DIR:-dist}"
    stage "clean" ;;
esac
