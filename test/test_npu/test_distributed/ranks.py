"""Runs a function on several ranks, each a process of its own with a simulated device, and returns their results."""

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from nursery import Nursery

HERE = Path(__file__).resolve().parent
# What a rank runs: the function by name from its file, in a group that meets through a file unless the time-out is 0.
_PROGRAM = f"""
import importlib.util, os, pickle, sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
rank, size, path, name, store, result = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:7]
timeout = int(sys.argv[8])
import torch
import torch.distributed as dist
spec = importlib.util.spec_from_file_location("ranks_program", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
args = pickle.loads(bytes.fromhex(sys.argv[7]))
torch.npu.set_device(rank % torch.npu.device_count())
if timeout:
    from datetime import timedelta
    dist.init_process_group("hccl", init_method="file://" + store, rank=rank, world_size=size,
                            timeout=timedelta(seconds=timeout))
value = getattr(module, name)(rank, size, *args)
with open(result, "wb") as file:
    pickle.dump(value, file)
if timeout and dist.is_initialized():
    dist.destroy_process_group()
"""


class RankError(AssertionError):
    """A rank ended otherwise than expected; its output is in the text."""


_nursery = None


def _start(env, argv, output):
    global _nursery
    _nursery = _nursery or Nursery(_PROGRAM)
    if _nursery.can_start(env):
        return _nursery.start(env, argv, output)
    with open(output, "wb") as file:
        command = [sys.executable, "-c", _PROGRAM, *argv[1:]]
        return subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT)


def run(path, function, size, *args, group=True, timeout=60, env=None, codes=None, limit=120):
    """Calls `function(rank, size, *args)` of the file `path` on `size` ranks and returns the results by rank.

    group: make the default group of back end hccl first, whose operations have `timeout` seconds
    env: variables, or a function from the rank to variables
    codes: exit codes that are not 0, by rank; such a rank's result is None
    Raises RankError with the output of what failed; nothing outlives the call.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            variables = dict(os.environ, ASCEND_SIM_DEVICE_COUNT=str(size), OMP_NUM_THREADS="1")
            variables.update(env(rank) if callable(env) else env or {})
            argv = ["-c", str(rank), str(size), str(path), function, os.path.join(folder, "store")]
            argv += [os.path.join(folder, f"result{rank}"), pickle.dumps(args).hex(), str(timeout if group else 0)]
            ranks.append(_start(variables, argv, os.path.join(folder, f"out{rank}")))
        timer = threading.Timer(limit, lambda: [rank.kill() for rank in ranks])
        timer.start()
        started = time.monotonic()
        try:
            for rank in ranks:
                rank.wait()
        finally:
            timer.cancel()
            for rank in ranks:
                rank.kill()
                rank.wait()
        results, problems = [], []
        for rank, process in enumerate(ranks):
            expected = (codes or {}).get(rank, 0)
            text = Path(folder, f"out{rank}").read_text(errors="replace")
            if process.returncode != expected:
                late = " (killed: the time was up)" if time.monotonic() - started >= limit else ""
                problems.append(f"rank {rank} ended with {process.returncode}{late}:\n{text[-6000:]}")
            path_of_result = Path(folder, f"result{rank}")
            results.append(pickle.loads(path_of_result.read_bytes()) if path_of_result.exists() else None)
        if problems:
            raise RankError("\n".join(problems))
        return results
