#!/usr/bin/env bash
# Trains ResNet-50 on npu:0: on 5,000 real digits, which it makes into a data set first, or on --data DIR.
# `--device-list 0,1` trains on several devices, a process each. `build.sh train` calls it. PYTHON is the interpreter to use (default: python); other options go to main.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
python=${PYTHON:-python}
data=
devices=
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=${2:?train.sh: --data needs a folder}; shift 2 ;;
    --data=*) data=${1#--data=}; shift ;;
    --device-list) devices=${2:?train.sh: --device-list needs numbers, 0,1}; shift 2 ;;
    --device-list=*) devices=${1#--device-list=}; shift ;;
    *) options+=("$1"); shift ;;
  esac
done
if [ -n "$devices" ]; then
  # Several devices: one process each, which meet on this machine; the simulated host gets as many as the list names.
  last=$(tr , '\n' <<<"$devices" | sort -n | tail -n 1)
  export ASCEND_SIM_DEVICE_COUNT=${ASCEND_SIM_DEVICE_COUNT:-$((last + 1))}
  options=(--device-list "$devices" --multiprocessing-distributed --dist-backend hccl --addr 127.0.0.1 --world-size 1
    --rank 0 "${options[@]}")
fi
if [ -z "$data" ]; then
  data=$root/data/mnist5k
  "$python" "$here/make_mnist5k.py" "$data"
fi
exec "$python" "$here/main.py" "$data" --arch resnet50 --device npu --output "$root/build/train" "${options[@]}"
