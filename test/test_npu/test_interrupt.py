"""Ctrl-C while Python waits for the device: it ends the wait, not the process, and what was queued goes on."""

import unittest

from common_utils import TestCase, run_in_process, run_tests

import torch

SETTING = """
import os, signal, sys, threading, time
import torch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background starts without one

def press(after):
    threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()

x = torch.ones(300, 300, device="npu")
torch.npu.synchronize()
"""


@unittest.skipUnless(torch.npu.get_device_properties().is_simulated, "hangs are the simulator's")
class InterruptTest(TestCase):
    def run_script(self, script, **environment):
        result = run_in_process(SETTING + script, **environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def test_an_operator_that_hangs(self):
        """Each way of waiting ends; the process leaves without waiting for what hangs."""
        result = self.run_script(
            """
y = x + x
event = torch.npu.Event()
event.record()
for wait in (torch.npu.synchronize, torch.npu.current_stream().synchronize, event.synchronize, y.cpu, y.sum().item):
    press(0.3)
    begin = time.monotonic()
    try:
        wait()
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begin < 10)
side = torch.npu.Stream()
with torch.npu.stream(side):
    print(torch.ones(3, device="npu").sum().item())
print(time.monotonic() - begin < 10)
""",
            ASCEND_SIM_FAULT="Add:hang@1",
        )
        self.assertEqual(result.stdout, "interrupted True\n" * 5 + "3.0\nTrue\n")

    def test_what_is_queued_goes_on(self):
        result = self.run_script(
            """
a = torch.full((700, 700), 0.001, device="npu")
count = torch.zeros(300, 300, device="npu")
for _ in range(400):
    a @ a
    count += 1
press(0.3)
try:
    torch.npu.synchronize()
    print("done before")
except KeyboardInterrupt:
    print("interrupted")
torch.npu.synchronize()
print(count.sum().item())
"""
        )
        self.assertIn(result.stdout.splitlines()[0], ("interrupted", "done before"))
        self.assertEqual(result.stdout.splitlines()[1], f"{400.0 * 300 * 300}")

    def test_a_handler_of_ones_own(self):
        """What the handler raises is raised; a handler that raises nothing lets the wait go on."""
        result = self.run_script(
            """
calls = []
signal.signal(signal.SIGINT, lambda *_: calls.append(1))
x + x
press(0.3)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(len(calls), "ACL_DEVICE_SYNC_TIMEOUT" in str(error))
def stop(*_):
    raise ValueError("enough")
signal.signal(signal.SIGINT, stop)
press(0.3)
try:
    torch.npu.synchronize()
except ValueError as error:
    print(error)
""",
            ASCEND_SIM_FAULT="Add:hang@1",
            ACL_DEVICE_SYNC_TIMEOUT="2",
        )
        self.assertEqual(result.stdout, "1 True\nenough\n")

    def busy(self, script):
        """Runs it with busy(), which gives the device something to do for more than half a second."""
        return self.run_script(
            """
m = torch.randn(1000, 1000, device="npu")
begin = time.monotonic()
m @ m
torch.npu.synchronize()
times = int(0.7 / max(time.monotonic() - begin, 1e-4)) + 4
def busy():
    for _ in range(times):
        out = m @ m
    return out
def alarm(handler, after=0.05):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after)
"""
            + script
        ).stdout

    def test_a_handler_that_computes(self):
        """It is the user's program: gradients are recorded, and the device can be used, memory given back included."""
        output = self.busy(
            """
w = torch.ones(3, requires_grad=True, device="npu")
def handler(*_):
    (w * 2).sum().backward()
    torch.npu.empty_cache()
    print(w.grad.tolist(), torch.npu.memory_allocated() > 0)
for wait in (lambda y: y.sum().item(), lambda y: y.cpu(), lambda y: torch.npu.synchronize()):
    w.grad = None
    y = busy()
    alarm(handler)
    wait(y)
    time.sleep(0.06)  # in case the device was quicker
"""
        )
        self.assertEqual(output, "[2.0, 2.0, 2.0] True\n" * 3)

    def test_copies_are_not_cut(self):
        """Nobody frees what the device has yet to read."""
        output = self.busy(
            """
def handler(*_):
    raise KeyboardInterrupt
source = torch.ones(1 << 20, pin_memory=True)
target = torch.zeros(1 << 20, device="npu")
torch.npu.synchronize()
busy()
alarm(handler)
try:
    target.copy_(source)
except KeyboardInterrupt:
    pass
del source
torch.empty(1 << 20, pin_memory=True).fill_(7)
print(target.unique().tolist())
"""
        )
        self.assertEqual(output, "[1.0]\n")

    def test_an_allocation_that_waits(self):
        """Another thread that asks for statistics meanwhile does not lock up with it."""
        output = self.busy(
            """
total = torch.npu.mem_get_info()[1]
torch.npu.set_per_process_memory_fraction(0.05)
del_me = torch.empty(int(total * 0.05) // 8, device="npu")
del del_me  # half of what there is lies in the cache
busy()
def ask():
    torch.npu.memory_allocated()
    print("statistics", flush=True)
threading.Timer(0.1, ask).start()
torch.empty(int(total * 0.035) // 4, device="npu")
print("allocated")
"""
        )
        for done in ("allocated", "statistics"):  # in any order, even in one line
            self.assertIn(done, output)

    def test_an_error_waits_for_all_streams(self):
        output = self.busy(
            """
table, index = torch.randn(4, 4, device="npu"), torch.tensor([99], device="npu")
side = torch.npu.Stream()
torch.npu.synchronize()
with torch.npu.stream(side):
    busy()
torch.index_select(table, 0, index)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print("out of range" in str(error) or "index" in str(error), side.query())
"""
        )
        self.assertEqual(output, "True True\n")


if __name__ == "__main__":
    run_tests()
