#!/usr/bin/env bash
# How long the build takes: from nothing (limit 600 s), and from a changed kernel file to a running test (limit 30 s).
# A base wheel that is already downloaded is used; fresh folders are used for everything else. Prints the machine's load, because
# other processes on few cores change the numbers. Exit status 1 when a limit is missed.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export VENV_DIR=$WORK/venv BUILD_DIR=$WORK/build DIST_DIR=$WORK/dist
KERNEL=$(find aten/src/ATen/native/npu -name "*Kernel.cpp" -printf "%s %p\n" | sort -rn | head -1 | cut -d" " -f2)
TEST=test/test_npu/test_network_ops/test_div.py

load() { cut -d' ' -f1 /proc/loadavg; }
printf 'machine: %s cores, load %s\n' "$(nproc)" "$(load)"

SECONDS=0
bash build.sh develop
cold=$SECONDS
printf 'cold build: %d s (limit 600), load %s\n' "$cold" "$(load)"

# A new time stamp is a change to the build; the file's text stays as it is.
touch "$KERNEL"
SECONDS=0
bash build.sh develop
"$VENV_DIR/bin/python" "$TEST"
warm=$SECONDS
printf 'changed kernel file (%s) to a finished test: %d s (limit 30), load %s\n' "${KERNEL##*/}" "$warm" "$(load)"

((cold <= 600 && warm <= 30)) || { echo 'build_time: a limit is missed' >&2; exit 1; }
