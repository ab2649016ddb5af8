"""Runs Ninja and tells how far it is where no terminal shows it: one line a minute, and all that compilers say."""

import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator
from typing import IO

# Ninja's own line about each step, made recognisable: finished, all, description.
_STATUS = "[step %f of %t] "
_STEP = re.compile(r"\[step (\d+) of (\d+)\] (.*)")
_KEPT_BACK = ("ninja: no work to do.", "ninja: Entering directory")


def _lines(stream: IO[bytes], interval: float) -> Iterator[str | None]:
    """The stream's lines as they come, and None each time that `interval` seconds passed without a None."""
    waiting, rest = selectors.DefaultSelector(), b""
    waiting.register(stream, selectors.EVENT_READ)
    due = time.monotonic() + interval
    while True:
        while (left := due - time.monotonic()) <= 0:
            due += interval
            yield None
        if not waiting.select(left):
            continue
        data = os.read(stream.fileno(), 1 << 16)
        *whole, rest = (rest + data).split(b"\n")
        for line in whole if data else [*whole, rest]:
            if line or data:
                yield line.decode(errors="replace")
        if not data:
            return


def run(command: list[str], interval: float = 60) -> int:
    """Runs a Ninja command and returns its exit status.

    Its lines about single steps are kept back; every `interval` seconds a line says how many steps are done. What
    compilers and failed steps print comes through at once.
    """
    started = time.monotonic()
    done = total = "0"
    environment = {**os.environ, "NINJA_STATUS": _STATUS}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as ninja:
        assert ninja.stdout is not None
        for line in _lines(ninja.stdout, interval):
            if line is None:
                print(f"-- {done} of {total} steps after {(time.monotonic() - started) / 60:.0f} min", flush=True)
            elif step := _STEP.match(line):
                done, total = step[1], step[2]
            elif not line.startswith(_KEPT_BACK):
                print(line, flush=True)
    return ninja.returncode
