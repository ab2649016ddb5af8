#!/usr/bin/env bash
# Two hosts of two devices each, as network namespaces with addresses of their own, joined by a virtual cable:
#   1. four ranks over TCP train as one CPU process does;
#   2. one host's agent (torchrun) is killed and started again: training goes on from the checkpoint, to the same end.
# Needs root, or a kernel that lets users make namespaces. Exit status 77: namespaces cannot be made here.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../../.." && pwd)
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}

if [[ ${1:-} != inside ]]; then
  # A mount namespace of its own, where `ip netns` keeps its names: nothing outlives this script.
  make=(unshare --mount --net --pid --fork --kill-child)
  [[ $(id -u) == 0 ]] || make+=(--user --map-root-user)
  "${make[@]}" true 2>/dev/null || { echo "two_hosts.sh: namespaces cannot be made here"; exit 77; }
  exec "${make[@]}" bash "${BASH_SOURCE[0]}" inside
fi

mount -t tmpfs tmpfs /run
# Processes of other pid namespaces would show in the old /proc.
mount -t proc proc /proc
for host in a b; do ip netns add "$host"; done
ip link add cable-a netns a type veth peer name cable-b netns b
ip -n a addr add 10.77.0.1/24 dev cable-a
ip -n b addr add 10.77.0.2/24 dev cable-b
for host in a b; do
  ip -n "$host" link set lo up
  ip -n "$host" link set "cable-$host" up
done

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export ASCEND_SIM_DEVICE_COUNT=2 OMP_NUM_THREADS=1 ASCEND_SIM_THREADS=1
# An agent that comes later does not find the address of a shared store (torchrun tells it in the first round only).
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

# agent HOST FOLDER [options of torchrun]: starts one host's agent in the background; its number is in $agent. The first
# host keeps the store in which agents meet.
agent() {
  local host=$1 folder=$2 meeting=keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=1,is_host=
  shift 2
  [[ $host == a ]] && meeting+=true || meeting+=false
  ip netns exec "$host" env GLOO_SOCKET_IFNAME="cable-$host" "$PYTHON" -m torch.distributed.run \
    --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 10.77.0.1:29688 --rdzv_id "$(basename "$folder")" --rdzv_conf "$meeting" \
    --local_addr "$(ip -n "$host" -o -4 addr show "cable-$host" | sed 's/.*inet \([0-9.]*\).*/\1/')" \
    "$@" "$HERE/two_hosts.py" "$folder" >"$folder/$host.$RANDOM.log" 2>&1 &
  agent=$!
}

fail() {
  echo "two_hosts.sh: $1"
  tail -n 40 "$2"/*.log
  exit 1
}

echo '== two hosts, two devices each'
mkdir "$WORK/parity"
agent a "$WORK/parity"; first=$agent
agent b "$WORK/parity"; second=$agent
wait "$first" || fail 'the first host failed' "$WORK/parity"
wait "$second" || fail 'the second host failed' "$WORK/parity"
grep -h '^rank 0' "$WORK"/parity/*.log

echo '== an agent is killed and started again'
mkdir "$WORK/elastic"
export STEP_SECONDS=0.5
agent a "$WORK/elastic" --max_restarts 3; first=$agent
agent b "$WORK/elastic" --max_restarts 3; second=$agent
for _ in $(seq 600); do
  [[ -f $WORK/elastic/step ]] && (($(cat "$WORK/elastic/step") >= 4)) && break
  sleep 0.1
done
# The agent and its ranks, as a host that goes down.
pkill -KILL -P "$second" || true
kill -KILL "$second"
for process in $(ip netns pids b); do kill -KILL "$process" 2>/dev/null || true; done
echo "killed at step $(cat "$WORK/elastic/step")"
agent b "$WORK/elastic" --max_restarts 3; second=$agent
wait "$first" || fail 'the first host did not come through' "$WORK/elastic"
wait "$second" || fail 'the new agent failed' "$WORK/elastic"
grep -h '^rank 0' "$WORK"/elastic/*.log
grep -qh '^rank 0 goes on from step' "$WORK"/elastic/*.log || fail 'nothing was resumed' "$WORK/elastic"
echo 'two_hosts.sh: OK'
