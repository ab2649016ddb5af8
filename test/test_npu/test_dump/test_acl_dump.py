"""The device's dump of operands: aclmdlInitDump/SetDump/FinalizeDump, torch.npu.init_dump and kin, and the files read
with tools/msaccucmp/acl_dump.py."""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[3] / "tools" / "msaccucmp")]

import acl_dump  # noqa: E402
import acl_library as acl  # noqa: E402
import several_devices  # noqa: E402, F401

import torch  # noqa: E402

PARSE_FILE, INVALID_DUMP_CONFIG, WRITE_FILE = 100006, 100009, 100004


class DumpTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"

    def configure(self, text=None, **fields):
        """Writes dump.json: the text, or the usual fields with changes (None leaves one out)."""
        whole = {"dump_list": [], "dump_path": str(self.out), "dump_mode": "all", "dump_op_switch": "on"} | fields
        path = self.folder / "dump.json"
        path.write_text(text or json.dumps({"dump": {k: v for k, v in whole.items() if v is not None}}))
        return path

    def files(self, out=None):
        """All dumps below a folder, in the order in which the operators were launched."""
        found = [acl_dump.read(p) for p in (out or self.out).rglob("*") if p.is_file()]
        return sorted(found, key=lambda d: int(d.op_name.rsplit("_", 1)[1]))

    def python(self, body, expect=0, **env):
        result = subprocess.run(
            [sys.executable, "-c", "import torch\n" + textwrap.dedent(body)],
            env=os.environ | env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(result.returncode, expect, result.stderr)
        return result


class TestLibrary(DumpTest, acl.AclTestCase):
    """The C functions."""

    lib = acl.Library()

    def setUp(self):
        DumpTest.setUp(self)
        acl.AclTestCase.setUp(self)
        self.open = False

    def tearDown(self):
        if self.open:
            self.lib.aclmdlFinalizeDump()

    def begin(self, **fields):
        if not self.open:
            self.ok(self.lib.aclmdlInitDump())
            self.open = True
        self.ok(self.lib.aclmdlSetDump(str(self.configure(**fields)).encode()))

    def end(self):
        self.ok(self.lib.aclrtSynchronizeDevice())
        self.ok(self.lib.aclmdlFinalizeDump())
        self.open = False

    def add_in_place(self, pointer, count, stream=None):
        x = (acl.FLOAT, [count], pointer, 4 * count)
        self.ok(self.lib.run("Add", [x, x], [x], stream=stream))

    def test_names_and_bytes(self):
        pointer = self.lib.upload(acl.floats(1, 2, 3))
        self.begin()
        self.add_in_place(pointer, 3)
        self.end()
        (path,) = (p for p in self.out.rglob("*") if p.is_file())
        self.assertRegex(str(path.relative_to(self.out)), r"^\d{14}/0/0/0/Add\.Add_0\.\d+\.\d+\.\d{16}$")
        data = path.read_bytes()
        (length,) = np.frombuffer(data[:8], "<u8")
        self.assertEqual(data[8 + length :], np.float32([1, 2, 3, 1, 2, 3, 2, 4, 6]).tobytes())
        # DumpData { version = 1, dump_time = 2, output = 3, input = 4, op_name = 6 }, by hand
        time = data[8 + 5 + 1 :][:8]
        shape = b"\x1a\x03\x0a\x01\x03"  # shape = 3 { dim = 1, packed }
        header = b"\x0a\x032.0\x10" + time
        header += b"\x1a\x10\x08\x01\x10\x02" + shape + b"\x30\x0c" + b"\x3a" + shape[1:]
        header += 2 * (b"\x22\x10\x08\x01\x10\x02" + shape + b"\x28\x0c" + b"\x32" + shape[1:])
        self.assertEqual(data[8 : 8 + length], header + b"\x32\x05Add_0")

    def test_operands_as_the_operator_saw_them(self):
        pointer = self.lib.upload(acl.floats(1, 2))
        self.begin()
        for _ in range(6):  # the host does not wait in between
            self.add_in_place(pointer, 2)
        self.end()
        dumps = self.files()
        self.assertEqual([d.op_name for d in dumps], [f"Add_{i}" for i in range(6)])
        self.assertEqual([d.task_id for d in dumps], list(range(dumps[0].task_id, dumps[0].task_id + 6)))
        self.assertEqual([d.timestamp for d in dumps], sorted(d.timestamp for d in dumps))
        for i, d in enumerate(dumps):
            for x in d.inputs:
                np.testing.assert_array_equal(x.array, np.float32([1, 2]) * 2**i)
            np.testing.assert_array_equal(d.outputs[0].array, np.float32([1, 2]) * 2 ** (i + 1))

    def test_modes_and_switch(self):
        pointer = self.lib.upload(acl.floats(1))
        for fields, inputs, outputs in (
            ({"dump_mode": None}, 0, 1),
            ({"dump_mode": "output"}, 0, 1),
            ({"dump_mode": "input"}, 2, 0),
            ({"dump_mode": "all"}, 2, 1),
        ):
            out = self.folder / f"mode-{inputs}-{outputs}-{len(fields)}-{fields['dump_mode']}"
            self.begin(dump_path=str(out), **fields)
            self.add_in_place(pointer, 1)
            self.end()
            (d,) = self.files(out)
            self.assertEqual((len(d.inputs), len(d.outputs)), (inputs, outputs))
        for switch in ("off", None):
            self.begin(dump_op_switch=switch)
            self.add_in_place(pointer, 1)
            self.end()
        self.assertEqual(self.files(), [])

    def test_only_what_is_launched_in_the_session(self):
        pointer, stream = self.lib.upload(acl.floats(1)), self.lib.stream()
        self.add_in_place(pointer, 1, stream)
        self.begin()
        self.add_in_place(pointer, 1, stream)
        other = self.folder / "other"
        self.begin(dump_path=str(other))  # replaces the first
        self.add_in_place(pointer, 1, stream)
        self.ok(self.lib.aclmdlFinalizeDump())  # what was launched before is still written
        self.open = False
        self.add_in_place(pointer, 1, stream)
        self.ok(self.lib.aclrtSynchronizeStream(stream))
        for folder, value in ((self.out, 4), (other, 8)):
            (d,) = self.files(folder)
            self.assertEqual(d.outputs[0].array, value)
        self.ok(self.lib.aclrtDestroyStream(stream))

    def test_absent_and_host_operands(self):
        self.begin()
        x = (acl.FLOAT, [2], self.lib.upload(acl.floats(-1, 3)), 8)
        number = acl.floats(0.5)
        y = (acl.FLOAT, [2], self.lib.malloc(8), 8)
        scalar = (acl.FLOAT, [], ctypes.addressof(number), 4)
        self.ok(self.lib.run("Mul", [x, scalar], [y], host=(1,)))
        self.end()
        (d,) = self.files()
        self.assertEqual(d.inputs[1].array.shape, ())
        np.testing.assert_array_equal(d.inputs[1].array, 0.5)
        np.testing.assert_array_equal(d.outputs[0].array, np.float32([-0.5, 1.5]))

    def test_debug_dumps_what_overflows(self):
        big = (acl.FLOAT, [2], self.lib.upload(acl.floats(1, 3e38)), 8)
        small = (acl.FLOAT, [2], self.lib.upload(acl.floats(1, 2)), 8)
        y = (acl.FLOAT, [2], self.lib.malloc(8), 8)
        self.begin(dump_debug="on", dump_op_switch=None, dump_mode=None)
        for operands in ([small, small], [big, big], [big, small]):
            self.ok(self.lib.run("Add", operands, [y]))
        self.end()
        (d,) = self.files()
        self.assertEqual((d.op_name, len(d.inputs)), ("Add_1", 2))
        np.testing.assert_array_equal(d.outputs[0].array, np.float32([2, np.inf]))

    def test_refused_configurations(self):
        lib = self.lib
        self.ok(lib.aclmdlInitDump())
        self.open = True
        name = str(self.folder / "dump.json")

        def refused(code, text, content=None, **fields):
            path = self.configure(content, **fields)
            self.refused(lib.aclmdlSetDump(str(path).encode()), code, text=text)

        refused(PARSE_FILE, f"{name}:1:1: this is not JSON", "no")
        refused(INVALID_DUMP_CONFIG, "'dump_debug' cannot be on together", dump_debug="on")
        refused(INVALID_DUMP_CONFIG, "'dump_debug' cannot", dump_debug="on", dump_op_switch="off", dump_list=[{}])
        # The guide's sample for acl.json.
        refused(PARSE_FILE, f"{name}:4:3: this is not JSON: ',' or '}}' was expected", GUIDE_SAMPLE)
        refused(PARSE_FILE, "a name in double quotes was expected", '{"dump": {"dump_path": "x",}}')
        refused(PARSE_FILE, "the end of the file", '{"dump": {"dump_path": "x"')
        refused(PARSE_FILE, "a value was expected", "[" * 200)
        refused(PARSE_FILE, "the end of the file was expected", "{} {}")
        refused(PARSE_FILE, "a value was expected", '{"dump": \x01}')
        refused(INVALID_DUMP_CONFIG, "an object with an object 'dump' was expected", '{"dmp": {}}')
        refused(INVALID_DUMP_CONFIG, "'dump_path' is missing or empty", dump_path=None)
        refused(INVALID_DUMP_CONFIG, "'dump_path' is missing or empty", dump_path="")
        refused(INVALID_DUMP_CONFIG, "there is no dump field 'dump_mod'; known are", dump_mod="all")
        refused(INVALID_DUMP_CONFIG, "'dump_mode' cannot be 'both'; it can be input|output|all", dump_mode="both")
        refused(INVALID_DUMP_CONFIG, "'dump_op_switch' cannot be 'yes'; it can be on|off", dump_op_switch="yes")
        refused(INVALID_DUMP_CONFIG, "'dump_list' must be a list, not a text", dump_list="")
        unsupported = f"{name}:3: the simulated device does not support 'dump_scene'"
        refused(INVALID_DUMP_CONFIG, unsupported, '{"dump":\n{\n"dump_scene": "x"}}')
        refused(acl.INVALID_FILE, "the dump_path '/proc/none' cannot be written to", dump_path="/proc/none")
        refused(acl.INVALID_FILE, f"'{name}' cannot be written to: Not a directory", dump_path=name)
        self.refused(lib.aclmdlSetDump(b"/does/not/exist.json"), acl.INVALID_FILE, text="/does/not/exist.json")
        self.refused(lib.aclmdlSetDump(b""), acl.INVALID_PARAM)
        self.assertEqual(self.files(), [])

    def test_life_cycle(self):
        path = str(self.configure()).encode()
        self.refused(self.lib.aclmdlSetDump(path), acl.DUMP_NOT_RUN)
        self.refused(self.lib.aclmdlFinalizeDump(), acl.DUMP_NOT_RUN)
        self.begin()
        self.refused(self.lib.aclmdlInitDump(), acl.DUMP_ALREADY_RUN)
        self.end()
        self.refused(self.lib.aclmdlFinalizeDump(), acl.DUMP_NOT_RUN)

    def test_relative_path_and_escapes(self):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            self.begin(dump_path="ä b")  # json.dumps writes \\u00e4
        finally:
            os.chdir(before)
        self.add_in_place(self.lib.upload(acl.floats(1)), 1)
        self.end()
        self.assertEqual(len(self.files(self.folder / "ä b")), 1)

    def test_a_full_disk(self):
        script = """
            import pathlib, resource, sys
            lib = acl.Library()
            lib.check(lib.aclrtSetDevice(0))
            lib.check(lib.aclmdlInitDump())
            lib.check(lib.aclmdlSetDump(sys.argv[0].encode()))
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
            out = pathlib.Path(sys.argv[0]).with_name("out")
            for count in (4, 1000, 4):
                x = (acl.FLOAT, [count], lib.upload((ctypes.c_float * count)(*([1] * count))), 4 * count)
                lib.check(lib.run("Add", [x, x], [x]))
                print(lib.aclrtSynchronizeStream(None), lib.message(), lib.download(x[2], ctypes.c_float, count)[-1])
            print(len([p for p in out.rglob("*") if p.is_file()]), lib.aclmdlFinalizeDump())
        """
        path = self.configure()
        result = acl.run_script(f"import sys; sys.argv = [{str(path)!r}]" + script.replace("\n            ", "\n"))
        self.assertEqual(result.returncode, 0, result.stderr)
        first, second, third, last = result.stdout.splitlines()
        self.assertEqual(first, "0  2.0")
        name = rf"'{self.out}/.*/Add\.Add_1\..*'"
        self.assertRegex(second, rf"^{WRITE_FILE} .*the dump file {name} could not be written: File too large 2\.0$")
        self.assertEqual(third, "0  2.0")  # nothing more is tried
        self.assertEqual(last, "1 0")

    def test_configuration_of_aclinit(self):
        script = """
            lib = acl.Library()
            print(lib.aclInit(b"wrong.json"), lib.message())
            print(lib.aclInit(b"dump.json"))
            lib.check(lib.aclrtSetDevice(0))
            x = (acl.FLOAT, [1], lib.upload(acl.floats(1)), 4)
            lib.check(lib.run("Add", [x, x], [x]))
            print(lib.aclrtSynchronizeStream(None))
        """
        self.configure()
        (self.folder / "wrong.json").write_text('{"dump": {}}')
        result = acl.run_script(f"import os; os.chdir({str(self.folder)!r})" + script.replace("\n            ", "\n"))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], rf"^{INVALID_DUMP_CONFIG} .*wrong.json:1: 'dump_path' is missing")
        self.assertEqual(lines[1:], ["0", "0"])
        self.assertEqual(len(self.files()), 1)


GUIDE_SAMPLE = """{
  "dump": {
\t\t"dump_list":[]
\t\t"dump_path":"./output_IR2TBE"# Mapping result output path
\t\t"dump_mode":"all"
  }
}"""


class TestTorch(DumpTest):
    """torch.npu.init_dump, set_dump and finalize_dump."""

    def run_dumped(self, body, **fields):
        torch.npu.init_dump()
        try:
            torch.npu.set_dump(self.configure(**fields))
            self.assertTrue(torch.npu._acl_dump_active())
            body()
        finally:
            torch.npu.finalize_dump()
        self.assertFalse(torch.npu._acl_dump_active())
        return self.files()

    def test_the_guides_example(self):
        torch.npu.set_device("npu:0")
        a = torch.tensor([2, 2]).to("npu:0")
        (d,) = self.run_dumped(lambda: a.add_(1))
        self.assertEqual((d.op_type, d.inputs[0].dtype), ("Add", "int64"))
        np.testing.assert_array_equal(d.inputs[0].array, [2, 2])
        np.testing.assert_array_equal(d.outputs[0].array, [3, 3])
        self.assertTrue(acl_dump.is_dump_name(next(p for p in self.out.rglob("*") if p.is_file()).name))

    def test_forward_and_backward_of_a_network(self):
        # Channels-last is how the device stores such images; files hold the host's order.
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).npu()
        x = torch.randn(2, 3, 5, 5)
        kept = {}

        def step():
            kept["out"] = net(x.npu())
            kept["out"].sum().backward()

        dumps = {}
        for d in self.run_dumped(step):
            dumps.setdefault(d.op_type, d)
        self.assertIn("Conv2D", dumps)
        np.testing.assert_array_equal(dumps["Conv2D"].inputs[0].array, x.numpy())
        relu = dumps["Relu"].outputs[0]
        self.assertEqual((relu.format, relu.array.shape), ("NCHW", (2, 4, 3, 3)))
        np.testing.assert_array_equal(relu.array, kept["out"].detach().cpu().numpy())
        grad = net[0].weight.grad.cpu().numpy()
        gradients = [t.array for _, _, t in dumps["Conv2DBackpropFilter"].tensors() if t.array.shape == grad.shape]
        self.assertTrue(any(np.array_equal(g, grad) for g in gradients))

    def test_dtypes(self):
        values = [0, 1, 2.5, -3]
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.bool):
            x = torch.tensor(values).abs().to(dtype) if dtype == torch.uint8 else torch.tensor(values).to(dtype)
            out = self.folder / str(dtype)
            y = x.npu()
            self.run_dumped(lambda y=y: y == y, dump_path=str(out))
            (d,) = self.files(out)
            self.assertEqual(d.inputs[0].dtype, str(dtype).removeprefix("torch."))
            np.testing.assert_array_equal(d.inputs[0].array, x.float().numpy())

    def test_private_formats(self):
        for fmt, number, shape in (
            ("NC1HWC0", 3, (2, 20, 3, 5)),
            ("FRACTAL_Z", 4, (18, 7, 3, 2)),
            ("FRACTAL_NZ", 29, (3, 20, 33)),
            ("NDC1HWC0", 32, (2, 5, 3, 2, 4)),
            ("FRACTAL_Z_3D", 33, (17, 5, 3, 2, 4)),
        ):
            x = torch.randn(shape).half()
            y = x.npu()
            out = self.folder / fmt
            self.run_dumped(lambda y=y, number=number: torch.npu_format_cast(y, number), dump_path=str(out))
            (d,) = (d for d in self.files(out) if d.op_type == "TransData")
            private = d.outputs[0]
            self.assertEqual(private.format, fmt)
            self.assertNotEqual(private.stored.shape, shape)
            np.testing.assert_array_equal(private.array, x.numpy())

    def test_devices_streams_and_threads(self):
        def work():
            for device in ("npu:0", "npu:1"):
                with torch.npu.stream(torch.npu.Stream(device)):
                    thread = threading.Thread(target=lambda d=device: torch.zeros(2, device=d) + 1)
                    thread.start()
                    thread.join()
                    torch.ones(2, device=device) * 3

        self.run_dumped(work)
        paths = [p.relative_to(self.out) for p in self.out.rglob("*") if p.is_file()]
        self.assertEqual({p.parts[1] for p in paths}, {"0", "1"})
        streams = {(p.parts[1], p.name.split(".")[3]) for p in paths}
        self.assertEqual(len(streams), 4)

    def test_an_injected_fault_is_seen(self):
        body = f"""
            torch.npu.init_dump()
            torch.npu.set_dump({str(self.configure())!r})
            x = torch.ones(3).npu()
            x * 2
            torch.npu.finalize_dump()
        """
        self.python(body, ASCEND_SIM_FAULT="Mul:scale=5@1")
        (d,) = (d for d in self.files() if d.op_type == "Mul")
        np.testing.assert_array_equal(d.outputs[0].array, np.float32([10, 10, 10]))

    def test_task_queue(self):
        body = f"""
            x = torch.ones(3).npu()
            x + 1
            torch.npu.init_dump()
            torch.npu.set_dump({str(self.configure())!r})
            x + 2
            torch.npu.finalize_dump()
            x + 3
            torch.npu.synchronize()
        """
        self.python(body, TASK_QUEUE_ENABLE="2")
        (d,) = self.files()
        np.testing.assert_array_equal(d.outputs[0].array, np.float32([3, 3, 3]))

    def test_dump_from_the_start(self):
        self.configure(dump_path="./result").rename(self.folder / "acl.json")
        body = "x = torch.ones(2).npu() + 1; torch.npu.synchronize(); print(torch.npu._acl_dump_active())"
        self.assertEqual(self.python(body, ACL_DUMP_DATA="1").stdout, "True\n")
        self.assertEqual([d.op_type for d in self.files(self.folder / "result")], ["Add"])
        self.assertEqual(self.python(body, ACL_DUMP_DATA="0").stdout, "False\n")
        again = self.python("torch.npu.init_dump()", expect=1, ACL_DUMP_DATA="1")
        self.assertIn("the file that aclInit read dumps already", again.stderr)
        (self.folder / "acl.json").unlink()
        failed = self.python(body, expect=1, ACL_DUMP_DATA="1")
        self.assertIn("acl.json", failed.stderr)
        self.assertIn("ACL_DUMP_DATA must be an integer", self.python(body, expect=1, ACL_DUMP_DATA="x").stderr)

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "aclmdlInitDump was not called"):
            torch.npu.set_dump(self.configure())
        with self.assertRaisesRegex(RuntimeError, "aclmdlInitDump was not called"):
            torch.npu.finalize_dump()
        torch.npu.init_dump()
        try:
            with self.assertRaisesRegex(RuntimeError, "aclmdlInitDump was called before"):
                torch.npu.init_dump()
            with self.assertRaisesRegex(RuntimeError, re.escape(f"{self.folder}/dump.json:4:3: this is not JSON")):
                torch.npu.set_dump(self.configure(GUIDE_SAMPLE))
            with self.assertRaisesRegex(RuntimeError, "no/such.json"):
                torch.npu.set_dump("no/such.json")
            self.assertFalse(torch.npu._acl_dump_active())
        finally:
            torch.npu.finalize_dump()


class TestReader(DumpTest):
    """acl_dump.py by itself."""

    def test_written_and_read(self):
        arrays = [
            np.arange(6).astype(dtype).reshape(shape)
            for dtype in (np.float32, np.float16, np.int8, np.uint16, np.int64, np.float64, np.complex64, np.bool_)
            for shape in ((6,), (2, 3), (1, 2, 3, 1))
        ]
        arrays += [np.float32(3).reshape(()), np.empty((0, 3), np.float32)]
        dump = acl_dump.AclDump("a/b c", "x.y\\z", 7, 3)
        dump.inputs = [acl_dump.DumpTensor(a) for a in arrays]
        dump.inputs.append(acl_dump.DumpTensor(np.empty(0, np.float32), absent=True))
        dump.outputs = [acl_dump.DumpTensor(np.uint16([0x3F80, 0xC000]), dtype="bfloat16")]
        path = acl_dump.write(self.folder, dump)
        self.assertRegex(path.name, r"^a_b_c\.x_y_z\.7\.3\.\d{16}$")
        again = acl_dump.read(path)
        self.assertEqual((again.op_name, again.task_id, again.stream_id), ("x.y\\z", 7, 3))
        for a, b in zip(arrays, again.inputs, strict=False):
            self.assertEqual((a.dtype, a.shape), (b.array.dtype, b.array.shape))
            np.testing.assert_array_equal(a, b.array)
        self.assertTrue(again.inputs[-1].absent)
        np.testing.assert_array_equal(again.outputs[0].array, np.float32([1, -2]))
        self.assertEqual(again.npy_name("output", 0), f"a_b_c.x_y_z.7.{again.timestamp}.output.0.npy")

    def test_files_that_are_none(self):
        dump = acl_dump.AclDump("Add", "add", outputs=[acl_dump.DumpTensor(np.ones(5, np.float32))])
        path = acl_dump.write(self.folder, dump)
        whole = path.read_bytes()
        for data in (
            *(whole[:n] for n in (0, 5, 8, 20, len(whole) - 1)),
            whole + b"x",
            b"\x1f\x8b" * 50,
            whole[:8] + b"\xff" * (len(whole) - 8),
        ):
            path.write_bytes(data)
            with self.assertRaisesRegex(ValueError, re.escape(f"{path}: this is not a complete ACL dump file")):
                acl_dump.read(path)

    def test_formats(self):
        for fmt, shapes in {
            "NC1HWC0": [(2, 16, 3, 3), (1, 5, 2, 4), (3, 33, 1, 1)],
            "FRACTAL_Z": [(16, 16, 1, 1), (5, 3, 7, 7)],
            "FRACTAL_NZ": [(16, 16), (5, 40), (2, 3, 17, 1)],
            "NDC1HWC0": [(2, 17, 2, 3, 4)],
            "FRACTAL_Z_3D": [(5, 17, 2, 3, 4)],
        }.items():
            for shape in shapes:
                x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
                stored = acl_dump.from_logical(x, fmt)
                item = acl_dump.DumpTensor(stored, fmt, original_shape=shape)
                path = acl_dump.write(self.folder, acl_dump.AclDump("Op", "op", outputs=[item]))
                item = acl_dump.read(path).outputs[0]
                self.assertEqual(item.stored.shape, stored.shape)
                np.testing.assert_array_equal(item.array, x)
        # Known places: element (n, c, h, w) lies at [n, c // 16, h, w, c % 16].
        x = np.random.rand(2, 20, 3, 4).astype(np.float16)
        stored = acl_dump.from_logical(x, "NC1HWC0")
        self.assertEqual(stored.shape, (2, 2, 3, 4, 16))
        self.assertEqual(stored[1, 1, 2, 3, 2], x[1, 18, 2, 3])
        # Rows and columns in 16 x 16 blocks, the blocks column by column.
        x = np.random.rand(20, 40)
        stored = acl_dump.from_logical(x, "FRACTAL_NZ")
        self.assertEqual(stored.shape, (3, 2, 16, 16))
        self.assertEqual(stored[2, 1, 3, 5], x[19, 37])
        # Weights: [c1 * h * w, n1, n0, c0].
        x = np.random.rand(20, 18, 2, 3)
        stored = acl_dump.from_logical(x, "FRACTAL_Z")
        self.assertEqual(stored.shape, (12, 2, 16, 16))
        self.assertEqual(stored[1 * 6 + 1 * 3 + 2, 1, 3, 1], x[19, 17, 1, 2])

    def test_to_format(self):
        x = np.random.rand(2, 20, 3, 4)
        item = acl_dump.DumpTensor(acl_dump.from_logical(x, "NC1HWC0"), "NC1HWC0", original_shape=x.shape)
        np.testing.assert_array_equal(acl_dump.to_format(item, "NCHW"), x)
        np.testing.assert_array_equal(acl_dump.to_format(item, "NHWC"), x.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(acl_dump.to_format(item, "HWCN"), x.transpose(2, 3, 1, 0))
        np.testing.assert_array_equal(acl_dump.to_format(item, "ND"), x)
        np.testing.assert_array_equal(acl_dump.to_format(item, "NC1HWC0"), item.stored)
        rows = acl_dump.DumpTensor(x.transpose(0, 2, 3, 1).copy(), "NHWC")
        np.testing.assert_array_equal(acl_dump.to_format(rows, "NCHW"), x)
        with self.assertRaisesRegex(ValueError, "cannot convert ND of shape .2, 3. to NCHW: it has 2 dims"):
            acl_dump.to_format(acl_dump.DumpTensor(np.ones((2, 3))), "NCHW")
        with self.assertRaisesRegex(ValueError, "cannot convert to FRACTAL_Z"):
            acl_dump.to_format(item, "FRACTAL_Z")
        lost = acl_dump.DumpTensor(item.stored, "NC1HWC0", original_shape=item.stored.shape)
        with self.assertRaisesRegex(ValueError, "the plain shape of a tensor in NC1HWC0 is not known"):
            acl_dump.to_format(lost, "NCHW")


if __name__ == "__main__":
    unittest.main()
