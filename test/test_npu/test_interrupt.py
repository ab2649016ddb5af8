"""Ctrl-C while Python waits for the device: it ends the wait, not the process, and what was queued goes on."""

import unittest

from common_utils import TestCase, run_in_process, run_tests

import torch

SETTING = """
import os, signal, sys, threading, time
import torch

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


if __name__ == "__main__":
    run_tests()
