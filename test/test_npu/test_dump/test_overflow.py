"""The float status register and its operators, and the check that names what overflowed or underflowed."""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import acl_library as acl
import several_devices  # noqa: F401
from torch.testing._internal.common_methods_invocations import binary_ufuncs, unary_ufuncs

import torch

INF, NAN = float("inf"), float("nan")


class TestRegister(acl.AclTestCase):
    """The register through the C functions."""

    lib = acl.Library()

    def setUp(self):
        super().setUp()
        self.ok(self.lib.aclrtSetDevice(3))  # nobody else here makes it look at floats
        self.stream = self.lib.stream()

    def tearDown(self):
        self.ok(self.lib.aclrtDestroyStream(self.stream))
        self.ok(self.lib.aclrtSetDevice(torch.npu.current_device()))  # torch remembers its thread's device

    def tensor(self, *values):
        return (acl.FLOAT, [len(values)], self.lib.upload(acl.floats(*values)), 4 * len(values))

    def run_op(self, op, inputs, outputs, **kwargs):
        self.ok(self.lib.run(op, inputs, outputs, stream=self.stream, **kwargs))
        self.ok(self.lib.aclrtSynchronizeStream(self.stream))

    def add(self, *values):
        x = self.tensor(*values)
        self.run_op("Add", [x, x], [x])

    def status(self, version=1):
        """Reads and clears."""
        status = self.tensor(*[5] * 8)
        if version == 1:
            out = self.tensor(*[5] * 8)
            self.run_op("NPUGetFloatStatus", [status], [out])
            values = self.lib.download(status[2], ctypes.c_float, 8)
            self.assertEqual(values, self.lib.download(out[2], ctypes.c_float, 8))
            self.run_op("NPUClearFloatStatus", [status], [out])
            self.assertEqual(self.lib.download(out[2], ctypes.c_float, 8), [0] * 8)
        elif version == 2:
            self.run_op("NPUGetFloatStatusV2", [], [(acl.INT32, [8], status[2], 32)])
            values = self.lib.download(status[2], ctypes.c_int32, 8)
            self.run_op("NPUClearFloatStatusV2", [], [])
        else:
            memory = self.lib.malloc(64)
            self.ok(self.lib.aclrtGetOverflowStatus(memory, 64, self.stream))
            self.ok(self.lib.aclrtResetOverflowStatus(self.stream))
            self.ok(self.lib.aclrtSynchronizeStream(self.stream))
            values = self.lib.download(memory, ctypes.c_uint32, 16)
        self.assertFalse(any(values[1:]))
        return values[0]

    def test_off_until_somebody_asks(self):
        script = """
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            eight = (acl.FLOAT, [8], lib.malloc(32), 32)
            x = (acl.FLOAT, [1], lib.upload(acl.floats(3e38)), 4)
            def status():
                lib.check(lib.run("NPUGetFloatStatus", [eight], [eight]))
                lib.check(lib.run("Add", [x, x], [(acl.FLOAT, [1], lib.malloc(4), 4)]))
                lib.check(lib.aclrtSynchronizeStream(None))
                return lib.download(eight[2], ctypes.c_float, 1)[0]
            print(status(), status())
            lib.check(lib.run("NPUAllocFloatStatus", [], [eight]))
            print(lib.download(eight[2], ctypes.c_float, 8) == [0] * 8, status(), status())
            lib.check(lib.aclrtResetDevice(0))
            lib.check(lib.aclrtSetDevice(0))
            eight = (acl.FLOAT, [8], lib.malloc(32), 32)
            x = (acl.FLOAT, [1], lib.upload(acl.floats(3e38)), 4)
            print(status(), status())
        """
        result = acl.run_script(script)
        self.assertEqual(result.stdout.splitlines(), ["0.0 0.0", "True 0.0 1.0", "0.0 0.0"], result.stderr)

    def test_switch_of_a_stream(self):
        for version in (1, 2, 3):
            self.ok(self.lib.aclrtSetStreamOverflowSwitch(self.stream, 1))
            self.add(1, 2)
            self.assertEqual(self.status(version), 0)
            self.add(1, 3e38)
            self.add(1, 2)  # sticky
            self.assertEqual(self.status(version), 1)
            self.assertEqual(self.status(version), 0)
            self.ok(self.lib.aclrtSetStreamOverflowSwitch(self.stream, 0))
            self.add(1, 3e38)
            self.assertEqual(self.status(version), 0)

    def test_what_counts_as_overflow(self):
        self.ok(self.lib.aclrtSetStreamOverflowSwitch(self.stream, 1))
        for values, expected in (
            ((3e38,), 1),
            ((1, -3e38), 1),
            ((INF, 1), 0),
            ((NAN, 3e38), 0),
            ((1e-45, 1), 0),
            (([1] * 100000 + [3e38]), 1),
        ):
            self.add(*values)
            self.assertEqual(self.status(), expected, values[:3])

    def test_count_of_underflows(self):
        lib, memory = self.lib, self.lib.malloc(64)
        self.ok(lib.aclrtSetStreamOverflowSwitch(self.stream, 1))

        def words(*values, version=3):
            x = self.tensor(*values)
            self.run_op("Mul", [x, x], [x])
            if version < 3:
                return self.status(version)
            self.ok(lib.aclrtGetOverflowStatus(memory, 64, self.stream))
            self.ok(lib.aclrtSynchronizeStream(self.stream))
            return lib.download(memory, ctypes.c_uint32, 16)

        self.assertEqual(words(1, 2, 0), [0] * 16)
        self.assertEqual(words(1, 1e-30, 0, -1e-25), [0, 2] + [0] * 14)
        self.assertEqual(words(1e-30, 3e38), [1, 3] + [0] * 14)  # both stay until they are cleared
        self.ok(lib.aclrtResetOverflowStatus(self.stream))
        # A loss scaler adds up all words of the operators' status: an underflow is none of its business.
        for version in (1, 2):
            self.assertEqual(words(1e-30, version=version), 0)
        self.ok(lib.aclrtSetStreamOverflowSwitch(self.stream, 0))
        self.assertEqual(words(1e-30), [0] * 16)

    def test_bad_arguments(self):
        lib, memory = self.lib, self.lib.malloc(64)
        self.refused(lib.aclrtGetOverflowStatus(None, 64, self.stream), acl.INVALID_PARAM)
        self.refused(lib.aclrtGetOverflowStatus(memory, 32, self.stream), acl.INVALID_PARAM, text="it has 64 bytes")
        self.refused(lib.aclrtGetOverflowStatus(memory, 64, 0xDEAD0), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtResetOverflowStatus(0xDEAD0), acl.RT_INVALID_HANDLE)
        mode = ctypes.c_int(7)
        self.ok(lib.aclrtGetDeviceSatMode(ctypes.addressof(mode)))
        self.assertEqual(mode.value, 1)  # infinities and NaNs
        self.ok(lib.aclrtSetDeviceSatMode(1))
        self.refused(lib.aclrtGetDeviceSatMode(None), acl.INVALID_PARAM)

    def test_bad_operands(self):
        self.lib.run("NPUGetFloatStatus", [self.tensor(1, 2)], [self.tensor(*[0] * 8)], stream=self.stream)
        self.refused(
            self.lib.aclrtSynchronizeStream(self.stream),
            acl.RT_AICORE_EXCEPTION,
            100021,
            text="NPUGetFloatStatus(float32[2]",
        )


class TestOperators(unittest.TestCase):
    """torch.npu_alloc_float_status and kin."""

    def overflows(self, run):
        status = torch.npu_alloc_float_status(torch.zeros(1, device="npu"))
        torch.npu_clear_float_status(status)
        run()
        result = torch.npu_get_float_status(status)
        self.assertEqual(result.data_ptr(), status.data_ptr())
        cleared = torch.npu_clear_float_status(status)
        self.assertEqual(cleared.cpu().tolist(), [0] * 8)
        return status.cpu()[0].item() != 0

    def test_as_a_loss_scaler_uses_it(self):
        x = torch.tensor([40000.0], dtype=torch.float16, device="npu")
        self.assertFalse(self.overflows(lambda: x * 1))
        self.assertTrue(self.overflows(lambda: x + x))
        self.assertFalse(self.overflows(lambda: x / 2))
        self.assertEqual(x.npu_alloc_float_status().shape, (8,))

    def test_dtypes_and_operators(self):
        big = {torch.float16: 60000.0, torch.bfloat16: 3e38, torch.float32: 3e38}
        for dtype, value in big.items():
            x = torch.full((3, 5), value, dtype=dtype, device="npu")
            m = torch.full((4, 4), value, dtype=dtype, device="npu")
            one = torch.ones(3, 5, dtype=dtype, device="npu")
            for name, run in {
                "mul": lambda x=x: x * 4,
                "mul_": lambda x=x: x.clone().mul_(4),
                "matmul": lambda m=m: m @ m,
                "exp": lambda x=x: x.exp(),
                "sum": lambda x=x: x.sum(),
                "div": lambda one=one: one / 0,
                "log": lambda one=one: (one - 1).log(),
            }.items():
                self.assertTrue(self.overflows(run), (dtype, name))
            for name, run in {
                "add": lambda one=one: one + one,
                "fill": lambda one=one: torch.full_like(one, INF),
                "masked": lambda one=one: one.masked_fill(one > 0, -INF),
                "double": lambda x=x: x.double() * 1e300 * 1e300,
                "softmax": lambda one=one: torch.softmax(one, 1),
                "of an infinity": lambda one=one: torch.log(one.masked_fill(one > 0, INF)) - INF,
            }.items():
                self.assertFalse(self.overflows(run), (dtype, name))
        self.assertTrue(self.overflows(lambda: torch.tensor([1e5], device="npu").half()))

    def test_ai_cpu_operators_do_not_count(self):
        zero = torch.zeros(2, device="npu")
        self.assertEqual(torch.special.bessel_y0(zero).cpu().tolist(), [-INF, -INF])
        self.assertFalse(self.overflows(lambda: torch.special.bessel_y0(zero)))

    def test_each_device_has_its_own(self):
        a = torch.full((2,), 3e38, device="npu:0")
        other = torch.npu_alloc_float_status(torch.zeros(1, device="npu:1"))
        torch.npu_clear_float_status(other)
        self.assertTrue(self.overflows(lambda: a * 2))
        self.assertEqual(torch.npu_get_float_status(other).cpu()[0], 0)

    def test_arguments(self):
        with self.assertRaisesRegex(RuntimeError, r"npu_get_float_status: expected .*float32, shape \[8\].* got"):
            torch.npu_get_float_status(torch.zeros(3, device="npu"))
        with self.assertRaisesRegex(RuntimeError, "npu_clear_float_status: expected"):
            torch.npu_clear_float_status(torch.zeros(8, device="npu").half())
        self.assertEqual(torch.npu_alloc_float_status(torch.empty(2, device="meta")).shape, (8,))


class TestCheck(unittest.TestCase):
    """torch._C._npu_set_overflow_check, on which torch.utils.dumper(check_overflow=True) stands."""

    def setUp(self):
        self.set(True)
        self.addCleanup(self.set, False)

    def set(self, on):
        torch._C._npu_set_overflow_check(on)

    def take(self):
        return torch._C._npu_take_overflows()

    def types(self):
        return [found["op_type"] for found in self.take()]

    def test_forward(self):
        x = torch.full((4,), 300.0, dtype=torch.float16, device="npu")
        y = x * x
        (y + 1).exp()
        z = x.clone().mul_(1000)
        found = self.take()
        self.assertEqual([f["op_type"] for f in found], ["Mul", "Mul"])
        self.assertEqual(found[0]["op_name"], f"Mul_{found[0]['sequence']}")
        self.assertLess(found[0]["sequence"], found[1]["sequence"])
        self.assertEqual({f["kind"] for f in found}, {"overflow"})
        self.assertEqual((z[0].item(), self.take()), (INF, []))

    def underflows(self, run):
        run()
        found = self.take()
        self.assertLessEqual({f["kind"] for f in found}, {"underflow"})
        return [(f["op_type"], f["lost"]) for f in found]

    def test_underflow(self):
        for dtype, small in ((torch.float16, 1e-4), (torch.bfloat16, 1e-25), (torch.float32, 1e-25)):
            x = torch.tensor([small, 1.0, 0.0, -small], dtype=dtype, device="npu")
            image = x.reshape(1, 1, 2, 2)
            ones = torch.ones(1, 1, 2, 2, dtype=dtype, device="npu")
            self.assertEqual(self.take(), [])
            for name, run, expected in (
                ("mul", lambda x=x: x * x, [("Mul", 2)]),
                ("mul_", lambda x=x: x.clone().mul_(x), [("Mul", 2)]),
                ("square", lambda x=x: x.square(), [("Pow", 2)]),
                ("matmul", lambda x=x: x[:1, None] @ x[None], [("MatMulV2", 2)]),
                ("channels_last", lambda i=image: i.to(memory_format=torch.channels_last).square(), [("Pow", 2)]),
                ("0 from a difference", lambda x=x: x - x, []),
                ("0 from a choice", lambda x=x: torch.relu(-x), []),
                ("0 from zeros", lambda x=x: x * 0, []),
                ("masked", lambda x=x: torch.softmax(x.masked_fill(x > 0, -INF), 0), []),
                ("constant row", lambda i=ones: torch.nn.functional.layer_norm(i * 0.1, (2, 2)), []),
                ("dropout", lambda i=ones: torch.nn.functional.dropout(i.expand(9, 9, 2, 2)), []),
            ):
                with self.subTest(name, dtype=dtype):
                    self.assertEqual(self.underflows(run), expected)
        half = torch.tensor([1e-6, 1e-9], device="npu")
        self.assertEqual(self.underflows(lambda: half.half()), [("Cast", 1)])  # 1e-6 is subnormal: kept
        logits = torch.tensor([0.0, 30.0], dtype=torch.float16, device="npu")
        self.assertEqual(self.underflows(lambda: torch.softmax(logits, 0)), [("SoftmaxV2", 1)])

    def test_underflow_against_double_precision(self):
        """Elementwise operators: what they lose is what the CPU keeps in double precision."""
        not_the_ai_core = {"igamma", "igammac", "polygamma", "mvlgamma"}
        told_as_steps = {"nn.functional.tanhshrink"}  # the difference of x and tanh(x) in fp16 is 0
        lossy = 0
        for op in [*unary_ufuncs, *binary_ufuncs]:
            if op.name.startswith(("special.", "jiterator", "_refs")) or op.name in not_the_ai_core | told_as_steps:
                continue
            for sample in list(op.sample_inputs("cpu", torch.float16))[:6] if torch.float16 in op.dtypes else ():
                operands = [sample.input, *sample.args]
                if {getattr(x, "dtype", None) for x in operands} != {torch.float16} or any(
                    isinstance(x, torch.Tensor) for x in sample.kwargs.values()
                ):
                    continue
                operands = [x.detach() * 3e-5 for x in operands]
                on_npu = [x.npu() for x in operands]
                self.take()
                result = op(*on_npu, **sample.kwargs)
                hits = [h["lost"] for h in self.take() if h["kind"] == "underflow"]
                if not isinstance(result, torch.Tensor) or result.dtype != torch.float16:
                    continue
                exact = op(*[x.double() for x in operands], **sample.kwargs)
                lost = ((result.cpu() == 0) & (exact != 0) & (exact.abs() < 2.0**-24)).sum().item()
                if op.name == "nextafter":  # of double precision is another number
                    lost = 0
                with self.subTest(op.name):
                    # A step on the way to the result may lose something as well.
                    (self.assertGreaterEqual if lost else self.assertEqual)(sum(hits), lost)
                lossy += lost > 0
        self.assertGreater(lossy, 10)

    def test_underflow_in_a_backward(self):
        for dtype, scale in ((torch.float16, 1e-4), (torch.bfloat16, 1e-22)):
            x = torch.full((8,), 0.5, dtype=dtype, device="npu", requires_grad=True)
            y = (x.tanh() * scale).neg().clone()
            self.assertEqual(self.types(), [])
            y.backward(torch.full_like(y, scale))
            # Not the gradient of tanh, whose input is zero already.
            self.assertEqual([(f["op_type"], f["kind"], f["lost"]) for f in self.take()], [("Mul", "underflow", 8)])
            self.assertEqual(x.grad.abs().max().item(), 0)

    def test_overflow_and_underflow_at_once(self):
        x = torch.tensor([1e-5, 1e4], dtype=torch.float16, device="npu")
        x * x
        self.assertEqual(
            [(f["op_type"], f["kind"], f["lost"]) for f in self.take()],
            [("Mul", "overflow", 0), ("Mul", "underflow", 1)],
        )

    def test_in_the_middle_of_a_backward(self):
        for dtype, scale, gradient in (
            (torch.float16, 1e3, 100.0),
            (torch.bfloat16, 1e30, 1e10),
            (torch.float32, 1e30, 1e10),
        ):
            x = torch.full((8,), 0.5, dtype=dtype, device="npu", requires_grad=True)
            y = (x.tanh() * scale).neg().clone()
            self.assertEqual(self.types(), [])
            y.backward(torch.full_like(y, gradient))
            # What only passes the infinity on (the gradient of tanh) is not named.
            self.assertEqual(self.types(), ["Mul"], dtype)
            self.assertEqual(x.grad[0].item(), -INF)

    def test_a_planted_operator(self):
        class Planted(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                return torch.exp(grad * 0 + 100)

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).npu().half()
        x = torch.ones(2, 4, device="npu").half()
        net(x).sum().backward()
        self.assertEqual(self.types(), [])
        net[2](Planted.apply(net[0](x))).sum().backward()
        self.assertEqual(self.types(), ["Exp"])

    def test_streams_threads_and_devices(self):
        def work(device, value):
            with torch.npu.stream(torch.npu.Stream(device)):
                x = torch.full((100,), value, device=device)
                for _ in range(20):
                    x * 2
                x.exp()

        threads = [
            threading.Thread(target=work, args=(device, value))
            for device, value in (("npu:0", 1.0), ("npu:0", 100.0), ("npu:1", 2.0))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = self.take()
        self.assertEqual([(f["op_type"], f["device"]) for f in found], [("Exp", 0)])

    def test_costs_nothing_when_off(self):
        self.set(False)
        x = torch.full((4,), 3e38, device="npu")
        torch.npu.synchronize()
        before = torch._C._npu_simulatorCounters(0)["ops_launched"]
        x * 2
        self.assertEqual(torch._C._npu_simulatorCounters(0)["ops_launched"], before + 1)
        self.assertEqual(self.take(), [])
        self.set(True)
        x * 2
        self.assertEqual([(f["op_type"], f["sequence"]) for f in self.take()], [("Mul", 1)])

    def run_python(self, body, **env):
        text = "import torch\ntorch._C._npu_set_overflow_check(True)\n" + textwrap.dedent(body)
        result = subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def test_through_the_task_queue(self):
        body = """
            x = torch.full((4,), 3e38, device="npu")
            x + 1
            x + x
            x * 1
            print([(f["op_type"], f["sequence"]) for f in torch._C._npu_take_overflows()])
        """
        self.assertEqual(self.run_python(body, TASK_QUEUE_ENABLE="2"), "[('Add', 3)]")

    def test_a_failing_operator_is_still_an_error(self):
        body = """
            x = torch.ones(4, device="npu")
            try:
                x * 2
                torch.npu.synchronize()
            except RuntimeError as error:
                print("fault injected" in str(error), "Mul" in str(error))
            print((x + 1).tolist())
        """
        output = self.run_python(body, ASCEND_SIM_FAULT="Mul:error@1")
        self.assertEqual(output.splitlines(), ["True True", "[2.0, 2.0, 2.0, 2.0]"])


if __name__ == "__main__":
    unittest.main()
