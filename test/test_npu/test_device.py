"""When a device is opened, and which one a thread uses."""

import os
import subprocess
import sys
import threading
import time

from common_utils import TestCase, run_in_process, run_tests

import torch


class TestLazyDevices(TestCase):
    def run_ok(self, script, **environment):
        result = run_in_process(
            "import torch\nopened = lambda i: torch._C._npu_hasPrimaryContext(i)\n" + script, **environment
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_choosing_a_device_opens_none(self):
        self.run_ok("""
torch.npu.set_device(3)
with torch.npu.device(2):
    pass
assert not any(opened(i) for i in range(torch.npu.device_count()))
""")

    def test_choosing_a_device_initialises(self):
        self.run_ok("""
assert not torch.npu.is_initialized()
torch.npu.set_device(-1)
assert not torch.npu.is_initialized()
torch.npu.set_device(3)
assert torch.npu.is_initialized() and torch.npu.current_device() == 3
""")

    def test_only_the_device_in_use_is_opened(self):
        self.run_ok("""
x = torch.ones(4, device="npu:1", requires_grad=True)
(x * 2).sum().backward()
assert x.grad.device == torch.device("npu:1")
s = torch.npu.Stream(1)
e = s.record_event()
e.synchronize()
e = torch.Event(device="npu:1")
e.record(s)
assert e.query() in (True, False)
assert [i for i in range(torch.npu.device_count()) if opened(i)] == [1]
""")

    def test_visible_devices(self):
        self.run_ok(
            "assert torch.npu.device_count() == 2\ntorch.ones(1, device='npu:1')\n"
            "try:\n    torch.npu.set_device(2)\n    assert False\nexcept RuntimeError as e:\n"
            "    assert 'Invalid npu device index 2' in str(e), e\n",
            ASCEND_RT_VISIBLE_DEVICES="3,5",
        )

    def test_one_device_by_default(self):
        script = "import os, torch\nprint(torch.npu.device_count())\ntry:\n    torch.ones(1, device='npu:1')\n"
        script += "except RuntimeError as e:\n    print(e)"
        alone = {name: value for name, value in os.environ.items() if name != "ASCEND_SIM_DEVICE_COUNT"}
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=alone, timeout=60)
        self.assertEqual((result.returncode, result.stdout.splitlines()[0]), (0, "1"), result.stderr)
        self.assertRegex(result.stdout, "Invalid npu device index 1: .*from 0 to 0.*ASCEND_SIM_DEVICE_COUNT")

    def test_nothing_looks_at_the_devices_before_a_script_does(self):
        """A script says how many there are after its imports: Dynamo, which torchvision loads, does not count."""
        result = run_in_process(
            "import os, torch, torch._dynamo, torch.distributed, torch.optim, torch.profiler, torch.npu\n"
            "os.environ['ASCEND_SIM_DEVICE_COUNT'] = '3'\nprint(torch.npu.device_count())"
        )
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "3"), result.stderr)

    def test_no_device_says_why(self):
        result = run_in_process(
            "import torch\nassert torch.npu.device_count() == 0 and not torch.npu.is_available()\n"
            "try:\n    torch.ones(1, device='npu')\nexcept RuntimeError as e:\n    print(e)",
            ASCEND_SIMULATOR="off",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("No NPU is available", result.stdout)

    def test_no_visible_device_names_the_variable(self):
        script = "try:\n    torch.ones(1, device='npu')\nexcept RuntimeError as e:\n    print(e)"
        result = run_in_process("import torch\n" + script, ASCEND_RT_VISIBLE_DEVICES="abc")
        self.assertIn("No NPU is available: ASCEND_RT_VISIBLE_DEVICES='abc'", result.stdout)


class TestThreads(TestCase):
    def test_a_thread_that_ends_gives_back_what_it_had(self):
        x = torch.ones(100, device="npu")

        def resident():
            with open("/proc/self/statm") as numbers:
                return int(numbers.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        def run(count):
            for _ in range(count):
                thread = threading.Thread(target=lambda: (x + 1).exp().sort())
                thread.start()
                thread.join()

        run(50)
        before = resident()
        run(200)
        self.assertLess(resident() - before, 200 * (16 << 10))

    def test_results_do_not_depend_on_who_computes_them(self):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 10)).npu()
        x, large = torch.randn(4, 3, 8, 8, device="npu"), torch.ones(700, 700, device="npu")

        def gradients(wait):
            net.zero_grad()
            if not wait:
                large @ large  # what follows queues up behind it
            loss = net(x).square().mean()
            if wait:
                torch.npu.synchronize()
            loss.backward()
            return [p.grad.cpu() for p in net.parameters()]

        expected = gradients(True)
        for wait in (False, True, False):
            for actual, wanted in zip(gradients(wait), expected, strict=True):
                self.assertTrue(torch.equal(actual, wanted))


class TestExit(TestCase):
    def test_daemon_threads_in_operators_do_not_disturb_it(self):
        result = run_in_process("""
import threading, time
import torch

x = torch.ones(100, 100, device="npu")

def launch():
    with torch.npu.stream(torch.npu.Stream()):
        y = x
        while True:
            y = (y @ x) / 100

def wait():
    while True:
        (x + 1).sum().item()

for work in (launch, launch, wait):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_nobody_waits_for_gradients_of_daemon_threads(self):
        """The autograd engine would wait ten seconds for its threads, if one of them stays in the device layer."""
        for _ in range(4):
            result = run_in_process("""
import atexit, threading, time
atexit.register(lambda: print(time.time()))
import torch

net, x = torch.nn.Linear(30, 30).npu(), torch.randn(30, 30, device="npu")

def work():
    while True:
        net(x).sum().backward()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertLess(time.time() - float(result.stdout), 8)


class TestCurrentDevice(TestCase):
    def test_threads_have_their_own_and_may_switch(self):
        sums, errors = {}, []

        def work(first, second):
            try:
                torch.npu.set_device(first)
                x = torch.full((1000,), float(first), device="npu")
                torch.npu.set_device(second)
                y = torch.full((1000,), float(second), device="npu")
                torch.npu.set_device(first)
                sums[first] = (x.device.index, y.device.index, x.sum().item(), y.sum().item())
            except RuntimeError as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i, (i + 1) % 4)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(sums, {i: (i, (i + 1) % 4, i * 1000.0, ((i + 1) % 4) * 1000.0) for i in range(4)})
        self.assertEqual(torch.npu.current_device(), 0)

    def test_operators_run_on_the_device_of_their_operands(self):
        x = torch.arange(4.0, device="npu:2")
        self.assertEqual((x + x).device, torch.device("npu:2"))
        self.assertEqual((x + x).cpu(), torch.arange(4.0) * 2)
        self.assertEqual(torch.npu.current_device(), 0)

    def test_a_pointer_knows_its_device(self):
        x = torch.empty(10, device="npu:1")
        self.assertEqual(torch.npu.memory_allocated(1) > 0, True)
        with self.assertRaises(RuntimeError):
            torch.npu.caching_allocator_delete(x.data_ptr() + 512)

    def test_generic_device_interface(self):
        torch.accelerator.set_device_index(1)
        try:
            self.assertEqual(torch.npu.current_device(), 1)
            self.assertEqual(torch.empty(1, device="npu").device.index, 1)
        finally:
            torch.accelerator.set_device_index(0)
        torch.accelerator.synchronize()


if __name__ == "__main__":
    run_tests()
