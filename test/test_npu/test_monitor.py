"""What torch.cuda asks NVIDIA's library for: a simulated NPU measures its load, and refuses what nobody can know."""

import time

import acl_stub
from common_utils import TestCase, run_in_process, run_tests

import torch

SENSORS = ("memory_usage", "temperature", "power_draw", "clock_rate")


class TestMonitor(TestCase):
    def setUp(self):
        if not torch.npu.get_device_properties().is_simulated:
            self.skipTest("a card's load is told by npu-smi")

    def sampled(self, work) -> int:
        """The load while `work` runs, between two calls that do not sleep."""
        torch.npu.synchronize()
        torch.npu.utilization()
        work()
        return torch.npu.utilization()

    def test_busy_and_idle(self):
        def busy():
            torch.npu._sleep(400_000_000)
            torch.npu.synchronize()

        self.assertGreater(self.sampled(busy), 60)
        self.assertLess(self.sampled(lambda: time.sleep(0.4)), 40)

    def test_streams_that_work_together_are_at_most_all(self):
        def both():
            for stream in (torch.npu.Stream(), torch.npu.Stream()):
                with torch.npu.stream(stream):
                    torch.npu._sleep(300_000_000)
            torch.npu.synchronize()

        load = self.sampled(both)
        self.assertTrue(60 < load <= 100, load)

    def test_the_first_call_sleeps_and_does_not_wait_for_the_device(self):
        torch.npu.synchronize()
        torch.npu.utilization()
        begin = time.monotonic()
        torch.npu._sleep(2_000_000_000)
        # What runs counts before it has ended.
        self.assertGreater(torch.npu.utilization(), 60)
        self.assertGreater(torch.npu.utilization(), 60)
        self.assertLess(time.monotonic() - begin, 1.5)
        torch.npu.synchronize()

    def test_each_device_has_its_own(self):
        if torch.npu.device_count() < 2:
            self.skipTest("needs two devices")

        def busy():
            torch.npu.utilization(1)
            torch.npu._sleep(300_000_000)
            torch.npu.synchronize()

        self.assertGreater(self.sampled(busy), 40)
        self.assertLess(torch.npu.utilization("npu:1"), 40)

    def test_how_a_device_is_named(self):
        for device in (None, 0, "npu", "npu:0", torch.device("npu", 0)):
            self.assertTrue(0 <= torch.npu.utilization(device) <= 100)
        for name in ("utilization", *SENSORS):
            with self.assertRaisesRegex(AssertionError, "Invalid device id"):
                getattr(torch.npu, name)(torch.npu.device_count())
            with self.assertRaisesRegex(ValueError, "npu"):
                getattr(torch.npu, name)("cpu")

    def test_what_a_simulated_device_has_not(self):
        for name in SENSORS:
            with self.assertRaisesRegex(NotImplementedError, rf"torch\.npu\.{name}: a simulated NPU has no"):
                getattr(torch.npu, name)()

    def test_a_card_is_not_guessed_at(self):
        script = f"""
import torch
for name in ("utilization", *{SENSORS}):
    try:
        print(getattr(torch.npu, name)())
    except NotImplementedError as error:
        print(error)
"""
        with acl_stub.behind_cann() as card:
            done = run_in_process(script, **card)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 5, done.stdout)
        for line in lines:
            self.assertRegex(line, r"torch\.npu\.\w+: not read from the card; `npu-smi info -t \w+ -i <card>` tells it")


if __name__ == "__main__":
    run_tests()
