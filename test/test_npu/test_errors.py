"""Errors of the device: texts with code, name, reason and hint; when they are raised; the process stays usable."""

import contextlib
import ctypes
import os

import acl_stub
from common_utils import TestCase, run_in_process, run_tests

import torch

HINTS = ("TASK_QUEUE_ENABLE=0", "/var/log/npu/slog/host-0/", "ascend/log", "ERROR")


@contextlib.contextmanager
def fault(specification):
    """Make the simulator fail as ASCEND_SIM_FAULT would."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib", "ascend_sim")
    simulator = ctypes.CDLL(os.path.join(folder, "libascendcl.so"))
    assert simulator.aclsimSetFault(specification.encode()) == 0
    try:
        yield
    finally:
        simulator.aclsimSetFault(b"")


def run_script(test, script, **environment):
    result = run_in_process("import torch\n" + script, **environment)
    test.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout + result.stderr)
    return result.stdout


class TestDeviceFailures(TestCase):
    def setUp(self):
        if not torch.npu.get_device_properties().is_simulated:
            self.skipTest("a card fails only by itself")
        self.x = torch.ones(300, 300, device="npu")
        torch.npu.synchronize()

    def test_raised_by_the_next_synchronisation(self):
        for wait in (
            lambda result: torch.npu.synchronize(),
            lambda result: torch.npu.current_stream().synchronize(),
            lambda result: result.cpu(),
        ):
            with fault("Add:error@1"):
                result = self.x + self.x
                with self.assertRaises(torch.AcceleratorError) as caught:
                    wait(result)
            text = str(caught.exception)
            self.assertGreater(caught.exception.error_code, 0)
            self.assertIsInstance(caught.exception, RuntimeError)
            self.assertRegex(text, r"\A\w+:c10/npu/\S+\.cpp:\d+ NPU error, error code is \d+\n")
            self.assertRegex(text, r"NPU error, NPU error code is \d+ \(ACL_ERROR_\w+\): HelpACLExecute:")
            self.assertRegex(text, r"Reason: .*Add\(float32\[300,300\]")
            for hint in HINTS:
                self.assertIn(hint, text)
            self.assertEqual((self.x + self.x).sum().item(), 2 * 300 * 300)

    def test_device_synchronisation_names_itself(self):
        with fault("Add:error@1"):
            self.x + self.x
            with self.assertRaisesRegex(RuntimeError, r"\AnpuSynchronizeDevice:c10/npu/NPUFunctions\.cpp:\d+ "):
                torch.npu.synchronize()

    def test_out_of_memory_on_demand(self):
        torch.npu.empty_cache()
        # The allocator tries again after giving back what it has cached.
        with fault("malloc:oom@1"):
            torch.empty(64 << 20, device="npu")
        torch.npu.empty_cache()
        with fault("malloc:oom@1,malloc:oom@2"), self.assertRaises(torch.OutOfMemoryError) as caught:
            torch.empty(64 << 20, device="npu")
        text = str(caught.exception)
        self.assertIn("NPU out of memory. Tried to allocate 256.00 MiB", text)
        self.assertRegex(text, r"malloc:c10/npu/\S+\.cpp:\d+ NPU error, error code is \d+\.")
        self.assertEqual(torch.empty(64 << 20, device="npu").numel(), 64 << 20)

    def test_a_launch_that_fails_is_raised_at_the_call(self):
        """On a card, which is told by itself which dtypes it takes: the simulated device refuses them before."""
        script = """
import torch
x = torch.ones(300, 300, device="npu")
y = torch.ones(4).to(torch.float8_e4m3fn).npu()
try:
    y + y
except torch.AcceleratorError as error:
    print(error)
torch.npu.synchronize()
assert (x + x).sum().item() == 2 * 300 * 300
"""
        with acl_stub.behind_cann() as variables:
            text = run_script(self, script, TASK_QUEUE_ENABLE="0", **variables)
        self.assertRegex(text, r"\ARun:c10/npu/\S+\.cpp:\d+ NPU error,NPU error code is:\d+\n")
        self.assertRegex(text, r"NPU error, NPU error code is \d+ \(ACL_ERROR_\w+\): HelpACLExecute: Add ")
        self.assertIn("float8", text)

    def test_an_error_of_one_stream_leaves_others_alone(self):
        side = torch.npu.Stream()
        with torch.npu.stream(side), fault("Add:error@1"):
            self.x + self.x
        torch.npu.current_stream().synchronize()
        with self.assertRaises(RuntimeError):
            side.synchronize()
        side.synchronize()


class TestWhatFollowsAFailure(TestCase):
    """An operator that fails leaves its outputs as they were; indices among them must not harm the process."""

    def test_gradients_of_a_failed_forward(self):
        self.assertEqual(
            run_script(
                self,
                """
from torch.nn import functional as F

def fails(function, *shapes):
    # What is freed here is what the failing operators leave behind.
    garbage = [torch.full((n,), 10**12, device="npu") for n in (64, 64, 64, 64, 64, 64, 1000)]
    del garbage
    inputs = [torch.randn(shape, device="npu", requires_grad=True) for shape in shapes]
    try:
        function(*inputs).sum().backward()
        torch.npu.synchronize()
        return False
    except RuntimeError:
        torch.npu.synchronize()
        return True

def ints(*values):
    return torch.tensor(values, device="npu")

for bad in (7, -1, 10**9, -(10**9)):
    assert fails(lambda w: F.embedding(ints(bad, 1), w, scale_grad_by_freq=True), (3, 4))
    for mode in ("sum", "mean", "max"):
        assert fails(lambda w: F.embedding_bag(ints(bad, 1), w, ints(0), mode=mode), (3, 4))
    assert fails(lambda w: F.embedding_bag(ints(0, 1), w, ints(0, bad)), (3, 4))
    assert fails(
        lambda w, s: F.embedding_bag(ints(bad, 1), w, ints(0), mode="sum", per_sample_weights=s), (3, 4), (2,)
    )
    assert fails(lambda x: torch.segment_reduce(x, "sum", lengths=ints(bad, 1)), (3,))
    for labels in (ints(bad, 1), ints(bad, 1)[None]):
        assert fails(lambda x: F.ctc_loss(x.log_softmax(-1), labels, ints(5), ints(2)), (5, 1, 3))
    pivots = ints(bad, 1, 2).int()
    assert fails(lambda x, y: torch.linalg.lu_solve(x, pivots, y), (3, 3), (3, 3))
    if bad != -1:  # a negative pivot is one of a pair
        assert fails(lambda x, y: torch.linalg.ldl_solve(x.detach(), pivots, y.detach()) + x, (3, 3), (3, 3))
print(torch.arange(1000.0, device="npu").sum().item())
""",
            ),
            "499500.0\n",
        )

    def test_positions_that_a_failed_pooling_left(self):
        pools = {
            "MaxPoolWithArgmaxV3": "lambda x: F.max_pool2d(x, 2)",
            "MaxPool3DWithArgmaxV2": "lambda x: F.max_pool3d(x[None], 2)",
            "AdaptiveMaxPool2d": "lambda x: F.adaptive_max_pool2d(x, 2)",
            "AdaptiveMaxPool3d": "lambda x: F.adaptive_max_pool3d(x[None], 2)",
            "FractionalMaxPool2DWithFixedKsize": "lambda x: F.fractional_max_pool2d(x, 2, 2)",
        }
        for name, pool in pools.items():
            run_script(
                self,
                f"""
from torch.nn import functional as F
x = torch.randn(2, 4, 8, 8, device="npu", requires_grad=True)
garbage = [torch.full((n,), 10**12, device="npu") for n in (32, 64, 128)]
del garbage
try:
    ({pool})(x).sum().backward()
    torch.npu.synchronize()
    assert False
except RuntimeError as error:
    assert "fault injected" in str(error), error
assert torch.ones(3, device="npu").sum().item() == 3
""",
                ASCEND_SIM_FAULT=f"{name}:error@1",
            )


class TestSwitches(TestCase):
    def test_launch_blocking_raises_at_the_operator(self):
        text = run_script(
            self,
            """
x = torch.ones(300, 300, device="npu")
try:
    x + x
except RuntimeError:
    print("at the operator")
torch.npu.synchronize()
""",
            ASCEND_SIM_FAULT="Add:error@1",
            ASCEND_LAUNCH_BLOCKING="1",
        )
        self.assertEqual(text, "at the operator\n")

    def test_wrong_values(self):
        script = "try:\n    torch.ones(1, device='npu').add(1)\nexcept ValueError as e:\n    print(e)"
        for name, value in (
            ("TASK_QUEUE_ENABLE", "3"),
            ("ACL_DEVICE_SYNC_TIMEOUT", "soon"),
            ("NPU_FALLBACK", "maybe"),
            ("PYTORCH_NPU_ALLOC_CONF", "nonsense"),
            ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:many"),
            ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:-5"),
        ):
            text = run_script(self, script, **{name: value})
            self.assertIn(name, text)
            self.assertIn(f"'{value}'", text)

    def test_waits_are_bounded(self):
        result = run_in_process(
            """
import torch
x = torch.ones(300, 300, device="npu")
x + x
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
""",
            ASCEND_SIM_FAULT="Add:hang@1",
            ACL_DEVICE_SYNC_TIMEOUT="1",
        )
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, "ACL_DEVICE_SYNC_TIMEOUT.*\n.*stream 0")
        self.assertIn("left unfinished", result.stderr)

    def test_copies_to_the_host_are_bounded_too(self):
        for mode in "12":
            result = run_in_process(
                """
import torch
x = torch.ones(300, 300, device="npu")
y = x + x
for read in (y.cpu, y.sum().item):
    try:
        read()
    except RuntimeError as error:
        assert "ACL_DEVICE_SYNC_TIMEOUT" in str(error)
        print("late")
side = torch.npu.Stream()
with torch.npu.stream(side):
    print(torch.ones(3, device="npu").sum().item())
""",
                ASCEND_SIM_FAULT="Add:hang@1",
                ACL_DEVICE_SYNC_TIMEOUT="1",
                TASK_QUEUE_ENABLE=mode,
            )
            self.assertEqual((result.returncode, result.stdout), (0, "late\n" * 2 + "3.0\n"), result.stderr)


class TestTaskQueue(TestCase):
    """TASK_QUEUE_ENABLE: 0 at the call; 1, the default; 2 through the queue's thread on the simulator, too."""

    SCRIPT = """
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
host = torch.arange(1000.0)
y = host.npu()
host.zero_()
assert y.sum().item() == 499500

y = torch.ones(4).to(torch.float8_e4m3fn).npu()
try:
    y + y
    when = "later"
    torch.npu.synchronize()
except RuntimeError as error:
    when = locals().get("when", "at the call")
    print(when)
    print(error)
assert (x + 1).sum().item() == 51000
"""

    def test_modes(self):
        with acl_stub.behind_cann() as variables:
            texts = {
                mode: run_script(self, self.SCRIPT, TASK_QUEUE_ENABLE=mode, **variables).splitlines() for mode in "012"
            }
        self.assertEqual(len({lines[0] for lines in texts.values()}), 1, texts)
        self.assertEqual([texts[mode][1] for mode in "012"], ["at the call", "later", "later"])
        for lines in texts.values():
            self.assertRegex(lines[2], r"Run:\S+:\d+ NPU error,NPU error code is:\d+")
            self.assertIn("HelpACLExecute: Add", lines[3])


if __name__ == "__main__":
    run_tests()
