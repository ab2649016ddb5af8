"""Operators outside of the repository, as examples/operators shows them: a C++ extension, a Python one, and an IR
operator that the simulated device takes from a shared library."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.npu
from torch.npu.utils.cpp_extension import build_simulator_ops

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "operators"

USE = """
import sys
import torch
import npu_example as ops

torch.manual_seed(0)
for dtype in (torch.float32, torch.float16):
    x, gate = (torch.randn(5, 7, dtype=dtype) for _ in range(2))
    expected = torch.nn.functional.silu(x.float()) * gate.float()
    torch.testing.assert_close(ops.swish_gate(x.npu(), gate.npu()).cpu().float(), expected, atol=3e-3, rtol=3e-3)
# Operands that are not contiguous are the frame's business, not the kernel's.
x, gate = torch.randn(7, 5).t(), torch.randn(5, 14)[:, ::2]
torch.testing.assert_close(ops.swish_gate(x.npu(), gate.npu()).cpu(), torch.nn.functional.silu(x) * gate)

inputs = [torch.randn(3, 4, dtype=torch.double, device="npu", requires_grad=True) for _ in range(2)]
torch.autograd.gradcheck(ops.swish_gate, inputs)
torch.library.opcheck(torch.ops.npu_example.swish_gate.default, tuple(inputs))
try:
    ops.swish_gate(inputs[0], inputs[0][0])
except RuntimeError as error:
    assert "they must be alike" in str(error), error
else:
    raise AssertionError("shapes that differ were accepted")

if "log_cosh" in sys.argv:
    y = inputs[0]
    torch.testing.assert_close(ops.log_cosh(y).cpu(), y.detach().cpu().cosh().log())
    torch.autograd.gradcheck(ops.log_cosh, y)
    compiled = torch.compile(lambda x: ops.log_cosh(x) * 2, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(y).cpu(), 2 * y.cpu().cosh().log())
    try:
        ops.log_cosh(y.int())
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "LogCosh" in str(error) and "int32" in str(error), error
    else:
        raise AssertionError("a dtype that the operator does not list was accepted")
else:
    try:
        ops.log_cosh(inputs[0])
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "LogCosh" in str(error), error
    else:
        raise AssertionError("the device has no LogCosh, and yet it ran")
torch.testing.assert_close((torch.ones(3, device="npu") * 2).cpu(), torch.full((3,), 2.0))
print("done")
"""


def run(command, **environment):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "MAX_JOBS": "2", **environment}
    )


class Scratch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    def python(self, *arguments, **environment):
        return run([sys.executable, *map(str, arguments)], **environment)


class ExtensionTest(Scratch):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.extension = cls.folder / "extension"
        shutil.copytree(EXAMPLES / "extension", cls.extension)
        built = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=cls.extension,
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stdout + built.stderr

    def check(self, *arguments, **environment):
        done = self.python("-c", USE, *arguments, PYTHONPATH=str(self.extension), **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "done\n")

    def test_kernel_through_op_command(self):
        self.check()

    def test_ir_operator_of_ones_own(self):
        made = self.python(
            "-m", "torch.npu.utils.cpp_extension", self.folder / "opp", EXAMPLES / "simulator_ops/log_cosh.cpp"
        )
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(made.stdout.strip(), str(self.folder / "opp/op_impl/simulator/liblog_cosh.so"))
        self.check("log_cosh", ASCEND_CUSTOM_OPP_PATH=str(self.folder / "opp"))
        # An empty entry and a CANN package without operators for the simulator do no harm.
        (self.folder / "cann" / "op_impl" / "ai_core").mkdir(parents=True)
        self.check("log_cosh", ASCEND_CUSTOM_OPP_PATH=f":{self.folder / 'cann'}:{self.folder / 'opp'}")


class PythonOperatorTest(Scratch):
    def test_example(self):
        done = self.python(EXAMPLES / "python_op.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("opcheck and gradcheck passed", done.stdout)


class ExtensionApiTest(unittest.TestCase):
    def test_npu_extension(self):
        from torch.utils.cpp_extension import CppExtension, NpuExtension

        extension = NpuExtension("name", ["a.cpp"], libraries=["mine"], extra_compile_args=["-g"])
        plain = CppExtension("name", ["a.cpp"])
        self.assertEqual(extension.include_dirs, plain.include_dirs)
        self.assertEqual(extension.language, "c++")
        self.assertLessEqual({"mine", "c10_npu", "torch_npu", *plain.libraries}, set(extension.libraries))
        self.assertIn("NpuExtension", torch.utils.cpp_extension.__all__)

    def test_import_name_of_the_plug_in(self):
        import torch_npu.utils.cpp_extension
        from torch_npu.utils.cpp_extension import NpuExtension

        self.assertIs(torch_npu.utils.cpp_extension, torch.npu.utils.cpp_extension)
        self.assertIs(NpuExtension, torch.npu.utils.cpp_extension.NpuExtension)

    def test_build_errors(self):
        with self.assertRaisesRegex(FileNotFoundError, "no source .*missing.cpp"):
            build_simulator_ops("missing.cpp", "opp")
        with self.assertRaisesRegex(ValueError, "no sources"):
            build_simulator_ops([], "opp")


class BadLibraryTest(Scratch):
    """What is wrong with a library of operators is said by the first use of the device, with the path."""

    def refused(self, path):
        done = self.python("-c", "import torch; torch.ones(1, device='npu')", ASCEND_CUSTOM_OPP_PATH=str(path))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ASCEND_CUSTOM_OPP_PATH: ", done.stderr)
        self.assertIn(str(path), done.stderr)
        return done.stderr

    def compiled(self, name, text):
        """The folder of a library made from plain C++ without PyTorch's headers, which compiles at once."""
        place = self.folder / name / "op_impl" / "simulator"
        place.mkdir(parents=True)
        source = self.folder / f"{name}.cpp"
        source.write_text(text)
        done = run(["c++", "-shared", "-fPIC", "-o", str(place / "libops.so"), str(source)])
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def test_no_folder(self):
        self.assertIn("is not a directory", self.refused(self.folder / "nowhere"))

    def test_not_a_library(self):
        place = self.folder / "text" / "op_impl" / "simulator"
        place.mkdir(parents=True)
        (place / "libtext.so").write_text("not a library")
        self.assertIn("cannot be opened", self.refused(self.folder / "text"))

    def test_undefined_symbol(self):
        folder = self.compiled("undefined", "void nowhere_defined(); void* f() { return (void*)&nowhere_defined; }")
        self.assertIn("nowhere_defined", self.refused(folder))

    def test_no_operators(self):
        self.assertIn("has no symbol acl_sim_custom_ops", self.refused(self.compiled("empty", "int x;")))

    def test_other_version(self):
        folder = self.compiled(
            "version",
            'extern "C" { struct L { unsigned v, b; const char* t; void (*f)(void*); };'
            'extern const L acl_sim_custom_ops; const L acl_sim_custom_ops = {99, 8, "2.0", nullptr}; }',
        )
        text = self.refused(folder)
        self.assertIn("version 99", text)
        self.assertIn("compile it again", text)

    def test_existing_type(self):
        source = self.folder / "again.cpp"
        source.write_text(
            "#include <simulator/custom_op.h>\n"
            "static void f(acl_sim::OpContext&) {}\n"
            'SIM_CUSTOM_OPS(ops) { ops.add("Add").inputs(2).run(f); }\n'
        )
        build_simulator_ops(source, self.folder / "again")
        self.assertIn("defines Add, which exists already", self.refused(self.folder / "again"))


if __name__ == "__main__":
    unittest.main()
