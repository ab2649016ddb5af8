"""Runs a function on several ranks, each a process with a simulated device of its own; compares what they return."""

import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What a rank runs: the function by name from its file, in a group that meets through a file.
_PROGRAM = """
import importlib.util, os, pickle, sys
sys.path[:0] = [{here!r}, {tests!r}]
rank, size, path, name, store, result = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:7]
import torch
import torch.distributed as dist
spec = importlib.util.spec_from_file_location("ranks_program", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
args = pickle.loads(bytes.fromhex(sys.argv[7]))
torch.npu.set_device(rank % torch.npu.device_count())
if {group}:
    from datetime import timedelta
    dist.init_process_group("hccl", init_method="file://" + store, rank=rank, world_size=size,
                            timeout=timedelta(seconds={timeout}))
value = getattr(module, name)(rank, size, *args)
with open(result, "wb") as file:
    pickle.dump(value, file)
if {group} and dist.is_initialized():
    dist.destroy_process_group()
"""


class RankError(AssertionError):
    """A rank ended otherwise than expected; its output is in the text."""


def run(path, function, size, *args, group=True, timeout=60, env=None, codes=None, limit=120):
    """Calls `function(rank, size, *args)` of the file `path` on `size` ranks and returns the results by rank.

    group: make the default group of back end hccl first, whose operations have `timeout` seconds
    env: variables, or a function from the rank to variables
    codes: exit codes that are not 0, by rank; such a rank's result is None
    Raises RankError with the output of what failed; nothing outlives the call.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = textwrap.dedent(_PROGRAM).format(here=str(HERE), tests=str(HERE.parent), group=group, timeout=timeout)
        ranks = []
        for rank in range(size):
            variables = dict(os.environ, ASCEND_SIM_DEVICE_COUNT=str(size), OMP_NUM_THREADS="1")
            variables.update(env(rank) if callable(env) else env or {})
            output = open(os.path.join(folder, f"out{rank}"), "wb")  # noqa: SIM115
            command = [sys.executable, "-c", program, str(rank), str(size), str(path), function]
            command += [os.path.join(folder, "store"), os.path.join(folder, f"result{rank}"), pickle.dumps(args).hex()]
            ranks.append(subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT))
            output.close()
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
