#!/usr/bin/env bash
# Trains ResNet-50 on npu:0: on 5,000 real digits, which it makes into a data set first, or on --data DIR.
# `build.sh train` calls it. PYTHON is the interpreter to use (default: python); other options go to main.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
python=${PYTHON:-python}
data=
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --data) data=${2:?train.sh: --data needs a folder}; shift 2 ;;
    --data=*) data=${1#--data=}; shift ;;
    *) options+=("$1"); shift ;;
  esac
done
if [ -z "$data" ]; then
  data=$root/data/mnist5k
  "$python" "$here/make_mnist5k.py" "$data"
fi
exec "$python" "$here/main.py" "$data" --arch resnet50 --device npu --output "$root/build/train" "${options[@]}"
