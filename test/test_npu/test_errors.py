"""Errors of the device: texts with code, name, reason and hint; when they are raised; the process stays usable."""

from common_utils import TestCase, run_in_process, run_tests

import torch

HINTS = ("TASK_QUEUE_ENABLE=0", "/var/log/npu/slog/host-0/", "ascend/log", "ERROR")


class TestTexts(TestCase):
    def run_script(self, script, **environment):
        result = run_in_process("import torch\n" + script, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout + result.stderr)
        return result.stdout

    def test_a_failure_on_the_device_is_raised_by_the_next_synchronisation(self):
        for wait in ("torch.npu.synchronize()", "torch.npu.current_stream().synchronize()", "z.cpu()"):
            text = self.run_script(
                f"""
x = torch.ones(300, 300, device="npu")
y = torch.ones(300, 300, device="npu")
z = x + y
try:
    {wait}
    print("not raised")
except RuntimeError as error:
    assert isinstance(error, torch.AcceleratorError) and error.error_code > 0
    print(error)
assert (x + y).sum().item() == 2 * 300 * 300
""",
                ASCEND_SIM_FAULT="Add:error@1",
            )
            self.assertRegex(text, r"\w+:c10/npu/\S+\.cpp:\d+ NPU error, error code is \d+")
            self.assertRegex(text, r"NPU error, NPU error code is \d+ \(ACL_ERROR_\w+\)")
            self.assertIn("Add", text)
            for hint in HINTS:
                self.assertIn(hint, text)

    def test_device_synchronisation_names_itself(self):
        text = self.run_script(
            """
z = torch.ones(300, 300, device="npu") + torch.ones(300, 300, device="npu")
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
""",
            ASCEND_SIM_FAULT="Add:error@1",
        )
        self.assertRegex(text, r"npuSynchronizeDevice:c10/npu/NPUFunctions\.cpp:\d+ NPU error, error code is \d+")

    def test_launch_blocking_raises_at_the_operator(self):
        text = self.run_script(
            """
x = torch.ones(300, 300, device="npu")
try:
    x + x
except RuntimeError as error:
    print("at the operator")
torch.npu.synchronize()
""",
            ASCEND_SIM_FAULT="Add:error@1",
            ASCEND_LAUNCH_BLOCKING="1",
        )
        self.assertEqual(text, "at the operator\n")

    def test_out_of_memory_on_demand(self):
        text = self.run_script(
            """
torch.ones(1, device="npu")
for _ in range(1):
    try:
        torch.empty(64 << 20, device="npu")
    except torch.OutOfMemoryError as error:
        print(error)
torch.ones(1, device="npu").add(1)
""",
            ASCEND_SIM_FAULT="malloc:oom@2,malloc:oom@3",
        )
        self.assertIn("NPU out of memory. Tried to allocate 256.00 MiB", text)
        self.assertRegex(text, r"malloc:c10/npu/\S+\.cpp:\d+ NPU error, error code is \d+")

    def test_wrong_values_of_switches(self):
        for name, value in (("TASK_QUEUE_ENABLE", "yes"), ("TASK_QUEUE_ENABLE", "3"), ("ACL_DEVICE_SYNC_TIMEOUT", "soon")):
            text = self.run_script(
                "try:\n    torch.npu.synchronize(); torch.ones(1, device='npu').add(1)\nexcept ValueError as e:\n    print(e)",
                **{name: value},
            )
            self.assertIn(name, text)
            self.assertIn(value, text)

    def test_waits_are_bounded(self):
        text = self.run_script(
            """
x = torch.ones(300, 300, device="npu")
y = x @ x
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
""",
            ASCEND_SIM_FAULT="MatMul:hang@1,MatMulV2:hang@1,BatchMatMul:hang@1",
            ACL_DEVICE_SYNC_TIMEOUT="1",
        )
        self.assertRegex(text, "TIMEOUT")


class TestTaskQueue(TestCase):
    """TASK_QUEUE_ENABLE: 0 at the call, 1 the default, 2 through the queue's thread on the simulator, too."""

    def run_script(self, script, mode):
        result = run_in_process("import torch\n" + script, TASK_QUEUE_ENABLE=mode)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout + result.stderr)
        return result.stdout

    def test_results_are_the_same(self):
        script = """
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4)).npu()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
x, t = torch.randn(16, 20).npu(), torch.randint(4, (16,)).npu()
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), t)
    loss.backward()
    optimizer.step()
print(loss.item().hex())
"""
        results = {mode: self.run_script(script, mode) for mode in "012"}
        self.assertEqual(len(set(results.values())), 1, results)

    def test_streams_and_events_keep_the_order(self):
        script = """
side, main = torch.npu.Stream(), torch.npu.current_stream()
x = torch.zeros(1000, device="npu")
for i in range(50):
    x += 1
    side.wait_stream(main)
    with torch.npu.stream(side):
        x *= 2
        x /= 2
    main.wait_stream(side)
assert x.eq(50).all().item()
start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
start.record(); x + 1; end.record(); end.synchronize()
assert start.elapsed_time(end) >= 0
"""
        for mode in "012":
            self.run_script(script, mode)

    def test_a_failed_launch(self):
        # A file that no operator library knows makes the launch itself fail.
        script = """
import sys
mode = sys.argv[0]
x = torch.ones(4, device="npu")
raised = None
try:
    torch.npu.set_device(0)
    y = torch._C._npu_launchUnknownOperator()
except RuntimeError as error:
    raised = "at the call"
    text = str(error)
if raised is None:
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        raised = "later"
        text = str(error)
print(raised); print(text)
assert (x + 1).sum().item() == 8
"""
        if not hasattr(torch._C, "_npu_launchUnknownOperator"):
            self.skipTest("no binding launches an operator by name")
        for mode, when in (("0", "at the call"), ("1", "at the call"), ("2", "later")):
            text = self.run_script(script, mode)
            self.assertTrue(text.startswith(when), text)
            self.assertRegex(text, r"Run:\S+:\d+ NPU error,NPU error code is:\d+")
            self.assertIn("HelpACLExecute", text)


if __name__ == "__main__":
    run_tests()
