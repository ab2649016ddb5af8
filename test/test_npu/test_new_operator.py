"""tools/new_operator.py on scratch copies: what it writes fits the operator table and compiles; what it refuses."""

import ast
import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tools" / "codegen"))

import gen_npu_kernels  # noqa: E402
import new_operator  # noqa: E402
import npu_told  # noqa: E402
from npu_entries import load_entries  # noqa: E402

COPIED = ("aten/src/ATen/native/npu", "simulator/ops")
FACTS = "third_party/acl/ir_facts.yaml"
SOFTER_CLIP = (
    "npu_softer_clip",
    "--schema=(Tensor self, float limit=1.0) -> Tensor",
    "--compute=at::mul_out(y, at::tanh(x / limit), at::scalar_tensor(limit, x.options()))",
    "--reference=limit * torch.tanh(self / limit)",
    "--backward=grad * (1 - (result / limit).square())",
)


class NewOperatorTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in COPIED:
            shutil.copytree(ROOT / name, self.root / name)
        (self.root / FACTS).parent.mkdir(parents=True)
        shutil.copyfile(ROOT / FACTS, self.root / FACTS)

    def run_tool(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = new_operator.main([*arguments, f"--root={self.root}"])
        return status, out.getvalue(), err.getvalue()

    def texts(self):
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def made(self, *arguments):
        before = self.texts()
        status, out, err = self.run_tool(*arguments)
        self.assertEqual((status, err), (0, ""))
        after = self.texts()
        self.assertIn("next: bash build.sh develop", out)
        changed = {
            str(path.relative_to(self.root)): text.decode() for path, text in after.items() if before.get(path) != text
        }
        for name, text in changed.items():
            self.assertTrue(text.endswith("\n"), name)
            if name.endswith(".py"):
                ast.parse(text)
        return changed

    def refused(self, reason, *arguments):
        before = self.texts()
        status, out, err = self.run_tool(*arguments)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, reason)
        self.assertEqual(self.texts(), before)

    def generated(self):
        """The kernels of the scratch copy's declared operators."""
        out = self.root / "generated"
        self.assertEqual(gen_npu_kernels.main(["--output-dir", str(out), "--source", str(self.root / COPIED[0])]), 0)
        return (out / "GeneratedCustom.cpp").read_text()

    def test_own_operator_with_gradient(self):
        changed = self.made(*SOFTER_CLIP)
        self.assertEqual(
            set(changed),
            {
                "aten/src/ATen/native/npu/elementwise/npu_native_functions.yaml",
                "simulator/ops/elementwise/softer_clip.cpp",
                FACTS,
                "test/test_npu/test_network_ops/test_npu_softer_clip.py",
            },
        )
        entry = load_entries(self.root / COPIED[0]).summary()["custom"]["npu_softer_clip"]
        self.assertEqual((entry["kernel"], entry["autograd"]), ("npu_softer_clip", "npu_softer_clip_autograd"))
        kernel = self.generated()
        issued = 'cmd.Name("SofterClip").Input(self).Input(Scalar(limit),kDouble).Output(result).Run();'
        self.assertIn(issued, "".join(kernel.split()))
        self.assertIn("return {grad * (1 - (result / limit).square()), Tensor()};", kernel)
        self.assertIn("context->save_for_backward({result});", kernel)
        others = {t for group in yaml.safe_load((ROOT / FACTS).read_text())["simulator_only"] for t in group["types"]}
        listed = {t for group in yaml.safe_load(changed[FACTS])["simulator_only"] for t in group["types"]}
        self.assertEqual(listed - others, {"SofterClip"})
        simulator = changed["simulator/ops/elementwise/softer_clip.cpp"]
        self.assertIn("SIM_OP(SofterClip).inputs(2).dtypes(kFloatTypes).run(softer_clip);", simulator)
        table = yaml.safe_load(changed["aten/src/ATen/native/npu/elementwise/npu_native_functions.yaml"])
        told = npu_told.documentation(table["custom"])["npu_softer_clip"]
        self.assertEqual((told["method"], set(told["args"])), (True, {"self", "limit"}))
        self.assertEqual(table["custom"][-1]["sample"], "f(4, 3), 1.0")
        test = changed["test/test_npu/test_network_ops/test_npu_softer_clip.py"]
        for name in ("cpu_op_exec", "npu_op_exec", "assertRtolEqual", "create_common_tensor", "run_tests()"):
            self.assertIn(name, test)
        self.assertIn("output = limit * torch.tanh(input1 / limit)", test)

    def test_types_share_a_line_of_the_facts(self):
        facts = new_operator.with_type(new_operator.with_type((ROOT / FACTS).read_text(), "SofterClip"), "FirmClip")
        listed = yaml.safe_load(facts)["simulator_only"]
        self.assertTrue(any({"SofterClip", "FirmClip"} <= {*group["types"]} for group in listed))
        self.assertEqual(new_operator.with_type(facts, "Abs"), facts)

    def test_own_operator_with_a_kernel_by_hand(self):
        changed = self.made(*SOFTER_CLIP, "--kernel")
        kernel = changed["aten/src/ATen/native/npu/elementwise/SofterClipKernel.cpp"]
        self.assertIn('cmd.Name("SofterClip").Input(self).Input(Scalar(limit), kDouble).Output(result).Run();', kernel)
        self.assertIn("return {grad * (1 - (result / limit).square()), Tensor()};", kernel)
        entry = load_entries(self.root / COPIED[0]).summary()["custom"]["npu_softer_clip"]
        self.assertEqual((entry["kernel"], entry["autograd"]), ("npu_softer_clip", "npu_softer_clip_autograd"))
        self.assertNotIn("npu_softer_clip", self.generated())

    def test_own_reduction_and_several_tensors(self):
        changed = self.made(
            "npu_weighted_sum",
            "--family=reduction",
            "--schema=(Tensor self, Tensor weight, int[1] dim, bool keepdim=False) -> Tensor",
            "--compute=at::sum_out(y, x * x1, dim, keepdim)",
            "--reference=(self * weight).sum(dim, keepdim)",
        )
        kernel = self.generated()
        self.assertIn("shape_from_dim_mask(self, make_dim_mask(dim, self.dim()), keepdim)", kernel)
        self.assertRegex(kernel, r'\.Attr\("dim", dim\)\s+\.Attr\("keepdim", keepdim\)')
        self.assertIn('.attrs({"dim:ints", "keepdim:bool"})', changed["simulator/ops/reduction/weighted_sum.cpp"])
        self.assertIn("npu_weighted_sum", load_entries(self.root / COPIED[0]).summary()["custom"])

    def test_ir_operator_that_the_device_has(self):
        changed = self.made("npu_root", "--ir=Sqrt", "--reference=self.sqrt()")
        self.assertFalse([name for name in changed if name.startswith("simulator")])

    def test_upstream_operators(self):
        """Each form of an operator without an entry becomes one: the entries are taken out of the copy first."""
        for name in ("special_airy_ai", "roll"):
            for path in (self.root / COPIED[0]).rglob("*.yaml"):
                lines = path.read_text().split("\n")
                kept = [
                    line
                    for line in lines
                    if f"{name}," not in line
                    and f"[{name}" not in line
                    and f"{name}:" not in line
                    and line.strip() != f"- {name}"
                ]
                path.write_text("\n".join(kept))
            changed = self.made(name, f"--ir={name.title().replace('_', '')}ForTest")
            self.assertIn("SIM_ATEN(", next(text for file, text in changed.items() if "simulator/ops" in file))
            summary = load_entries(self.root / COPIED[0]).summary()
            self.assertIn(name, summary["ir_ops"])

    def test_same_again(self):
        self.made(*SOFTER_CLIP)
        self.refused(r"npu_softer_clip exists already: elementwise/npu_native_functions.yaml:\d+", *SOFTER_CLIP)

    def test_refused(self):
        schema = "--schema=(Tensor self) -> Tensor"
        cases = [
            (r"exp(\.out)? has a kernel already: elementwise/npu_native_functions.yaml:\d+", "exp"),
            (r"no operator special_airy; did you mean .*special_airy_ai", "special_airy"),
            (r"several overloads, name one of them: add.Tensor, add.Scalar", "add"),
            (r"needs no kernel: upstream composes it", "max_pool2d"),
            (r"'No Name' is not an operator's name", "No Name"),
            (r"npu_format_cast exists already", "npu_format_cast"),
            (r"the simulated device has no operator Cube: say with --compute", "npu_cube", "--reference=self ** 3"),
            (r"say with --reference what is right", "npu_cube", "--ir=Sqrt"),
            (r"has an operator Sqrt already", "npu_cube", "--ir=Sqrt", "--compute=f(y)", "--reference=self"),
            (r"--ir cube: an IR operator's type", "npu_cube", "--ir=cube", schema),
            (r"is not a Python expression", "npu_cube", "--ir=Sqrt", "--reference=self **"),
            (r"--schema .* is not one such as", "npu_cube", "--schema=(Tenser self) -> Tensor"),
            (r"takes no tensor", "npu_cube", "--schema=(int n) -> Tensor"),
            (r"return one new tensor", "npu_cube", "--schema=(Tensor self) -> (Tensor, Tensor)"),
            (r"beyond this tool", "npu_cube", "--schema=(Tensor self, str mode) -> Tensor"),
            (r"--schema is for operators of the fork's own", "exp", schema),
            (
                r"--family custom: the families are activation, ",
                "npu_root",
                "--ir=Sqrt",
                "--reference=self",
                "--family=custom",
            ),
            (r"--family ../x: the families are ", "npu_root", "--ir=Sqrt", "--reference=self", "--family=../x"),
            (r"no operator nope\. An", "nope"),
        ]
        made = ("npu_cube", "--ir=Cube", "--reference=self ** 3")
        compute = "--compute=at::pow_out(y, x, 3)"
        cases += [
            (r"two arguments are called self", *made, compute, "--schema=(Tensor self, Tensor self) -> Tensor"),
            (r"cannot be called class, a keyword", *made, compute, "--schema=(Tensor self, int class) -> Tensor"),
            (r"call the argument result otherwise", *made, compute, "--schema=(Tensor self, Tensor result) -> Tensor"),
            (r"call the argument y otherwise", *made, compute, "--schema=(Tensor self, float y) -> Tensor"),
            *((r"is not one expression of C\+\+", *made, f"--compute={c}") for c in ("f(", '"', "}", "*/ x", "y // x")),
            (r"--backward '' is not one expression", *made, compute, "--backward=self="),
            (r"no tensor is called weight, there are self", *made, compute, "--backward=weight=grad"),
        ]
        for reason, *arguments in cases:
            with self.subTest(arguments):
                self.refused(reason, *arguments)

    def test_a_write_that_fails_leaves_nothing(self):
        before = self.texts()
        written = []

        def full(path, *rest, write=Path.write_text):
            written.append(path)
            if len(written) == 3:
                raise OSError(28, "No space left on device")
            return write(path, *rest)

        with mock.patch.object(Path, "write_text", full):
            status, out, err = self.run_tool(*SOFTER_CLIP)
        self.assertEqual((status, out), (1, ""))
        self.assertRegex(err, "nothing written: .*No space left")
        self.assertEqual(self.texts(), before)

    def test_dry_run(self):
        before = self.texts()
        status, out, _ = self.run_tool(*SOFTER_CLIP, "--dry-run")
        self.assertEqual(status, 0)
        self.assertIn("+SIM_OP(SofterClip)", out)
        self.assertEqual(self.texts(), before)


if __name__ == "__main__":
    unittest.main()
