"""Starts ranks as forks of one process that has imported torch and opened no device: an import takes seconds of a core.

The process reads one JSON object a line: {"start": {"env", "argv", "output"}} forks a rank that runs as a script of
that environment and writes to that file, and is answered with its number; {"reap": number} waits for a rank's end, and
is answered with its exit code, negative for a signal. It ends with its standard input.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading

# What is read when torch is imported; a rank that wants another value needs a process of its own.
IMPORTED = ("OMP_", "MKL_", "TORCH_DISTRIBUTED_", "TORCH_CPP_", "TORCH_SHOW_", "PYTHON", "LD_")


def serve(program):
    # Not what imports torch._dynamo: it counts the devices, and so settles how many there are.
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor

    import torch.npu  # noqa: F401

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                replies.close()
                _become(**request["start"])
                return program
        print(answer, file=replies, flush=True)
    os._exit(0)


def _become(env, argv, output):
    """Makes the forked process what it would be if it had been started with these."""
    os.environ.clear()
    os.environ.update(env)
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, output, os.O_WRONLY | os.O_CREAT)):
        opened = os.open(path, flags | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = argv


class Rank:
    """A forked rank, with what is used of subprocess.Popen's interface."""

    def __init__(self, nursery, pid):
        self.pid, self.returncode = pid, None
        self._nursery = nursery
        self._end = os.pidfd_open(pid)

    def wait(self):
        if self.returncode is None:
            select.select([self._end], [], [])
            self.returncode = self._nursery.ask(reap=self.pid)
            os.close(self._end)
        return self.returncode

    def kill(self):
        if self.returncode is None:  # else the number may be another's
            os.kill(self.pid, 9)


class Nursery:
    def __init__(self, program):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        code = f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
        code += "import nursery\nexec(nursery.serve(sys.argv[1]))"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._lock = threading.Lock()
        self._seen = environment
        atexit.register(self.close)

    def can_start(self, env):
        """Whether a fork is as good as a new process for this environment."""
        names = {name for name in {*env, *self._seen} if name.startswith(IMPORTED)}
        return self._process.poll() is None and all(env.get(name) == self._seen.get(name) for name in names)

    def start(self, env, argv, output):
        return Rank(self, self.ask(start={"env": env, "argv": argv, "output": output}))

    def ask(self, **request):
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
