"""The operator table and its generator: what it writes, and how it reports wrong entries."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "aten/src/ATen/native/npu"
sys.path.insert(0, str(ROOT / "tools/codegen"))

import gen_npu_kernels  # noqa: E402


class Result:
    """What a run of the generator gave: its exit status and what it said."""

    def __init__(self, source, out):
        # In this process: upstream's schemas are then parsed once.
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.returncode = gen_npu_kernels.main(["--source", str(source), "--output-dir", str(out)])
        self.stderr = said.getvalue()


def generate(source, out):
    return Result(source, out)


class CodegenTest(unittest.TestCase):
    def table(self, text, kernel=""):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        source = Path(folder.name) / "npu"
        source.mkdir()
        (source / "npu_native_functions.yaml").write_text(text)
        (source / "SomeKernel.cpp").write_text(kernel)
        return generate(source, Path(folder.name) / "out"), Path(folder.name) / "out"

    def fails(self, text, line, reason, kernel=""):
        result, _ = self.table(text, kernel)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(f"npu_native_functions.yaml:{line}:", result.stderr)
        self.assertIn(reason, result.stderr)

    def test_one_entry_makes_the_group(self):
        result, out = self.table("ir_ops:\n- {func: add.Tensor, ir: Add, inputs: [self, other], fast: [float]}\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        text = "".join(p.read_text() for p in out.glob("GeneratedKernels_*.cpp"))
        for name in ("add.Tensor", "add_.Tensor", "add.out"):
            self.assertIn(f'm.impl("{name}"', text)
        self.assertIn("at::meta::structured_add_Tensor", text)
        self.assertIn("// add.Tensor -> Add   (npu_native_functions.yaml)", text)
        operators = json.loads((out / "npu_operators.json").read_text())
        self.assertEqual(operators["ir_ops"]["add.out"]["ir"], ["Add"])
        self.assertEqual(operators["ir_ops"]["add.out"]["where"], "npu_native_functions.yaml:2")

    def test_kernels_are_declared_and_registered(self):
        result, out = self.table("kernels:\n  flip: flip\n", "Tensor flip(const Tensor& self, IntArrayRef dims) {}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(
            "at::Tensor flip(const at::Tensor & self, at::IntArrayRef dims);",
            (out / "NPUNativeFunctions.h").read_text(),
        )
        self.assertIn('m.impl("flip"', (out / "RegisterNPU.cpp").read_text())

    def test_second_run_touches_nothing(self):
        text = "ir_ops:\n- {func: exp, ir: Exp}\n"
        result, out = self.table(text)
        self.assertEqual(result.returncode, 0, result.stderr)
        before = {p: p.stat().st_mtime_ns for p in out.iterdir()}
        self.assertEqual(generate(out.parent / "npu", out).returncode, 0)
        self.assertEqual(before, {p: p.stat().st_mtime_ns for p in out.iterdir()})

    def test_wrong_entries_name_their_line(self):
        self.fails("ir_ops:\n- {func: exp, ir: Exp}\n- {func: expp, ir: Exp}\n", 3, "no overload `expp`")
        self.fails("ir_ops:\n- func: exp\n  ir: Exp\n  input: [self]\n", 4, "unknown key `input`")
        self.fails("ir_ops:\n- func: exp\n  ir: Exp\n  inputs: [slef]\n", 4, "`slef` is no argument")
        self.fails(
            "ir_ops:\n- {func: exp, ir: Exp}\n- {func: exp, ir: Exp}\n",
            3,
            "already has a kernel, from npu_native_functions.yaml:2",
        )
        self.fails("ir_ops:\n- {func: abs, ir: Abs}\n", 2, "is not structured upstream")
        self.fails("ir_ops:\n- {func: exp, ir: Exp, dtypes: [floaty]}\n", 2, "unknown dtype class `floaty`")
        self.fails("ir_ops:\n- {func: exp, ir: Exp, output: unnary}\n", 2, "unknown output rule `unnary`")
        self.fails(
            "ir_ops:\n- func: exp\n  ir:\n  - {type: A, when: x}\n", 3, "every case of `ir` but the last needs `when`"
        )
        self.fails("ir_ops:\n- {func: equal, ir: TensorEqual}\n", 2, "no out= variant")
        self.fails("kernels:\n  flip: flipp\n", 2, "defines a function `flipp`")
        self.fails("kernels:\n  flip: flip\n  flip: flip\n", 3, "listed twice", "flip(")
        self.fails("composite: []\n", 1, "unknown section `composite`")
        self.fails("ir_ops:\n- {func: exp, ir: Exp\n", 3, "not YAML")

    def test_the_table_of_the_project(self):
        with tempfile.TemporaryDirectory() as folder:
            result = generate(SOURCE, folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            operators = json.loads((Path(folder) / "npu_operators.json").read_text())
        self.assertGreater(len(operators["ir_ops"]), 300)
        self.assertGreater(len(operators["kernels"]), 100)

    def test_operators_with_operands_of_their_own(self):
        text = (
            "aten_ops:\n- {funcs: [cholesky, cholesky.out], ir: LinalgCholesky, dtypes: [float, complex]}\n"
            "- {funcs: [_dirichlet_grad], ir: DirichletGrad, like: [x]}\n"
            "- {funcs: [ormqr.out], ir: Ormqr, exact: true}\n"
            "outs:\n- geqrf.a\n- {func: histogram.bin_ct_out, exact: true}\n- isin.Scalar_Tensor_out\n"
        )
        result, out = self.table(text)
        self.assertEqual(result.returncode, 0, result.stderr)
        written = (out / "GeneratedAten.cpp").read_text()
        self.assertIn(
            '{.overload = "cholesky.out", .ir = "LinalgCholesky", .dtypes = kDtypeFloat | kDtypeComplex, '
            '.rule = nullptr, .functional = "cholesky"}',
            written,
        )
        self.assertIn('OutputSpecs{a.like("x")}', written)
        # Structured operators refuse an out= tensor of another dtype, others cast.
        self.assertIn(
            '.ir = "Ormqr", .dtypes = kDtypeAny, .rule = nullptr, .functional = "ormqr", .exact = true}', written
        )
        self.assertIn('register_give(m, "histogram.bin_ct_out", "histogram.bin_ct", true)', written)
        self.assertIn('register_give(m, "geqrf.a", "geqrf", false)', written)
        self.assertIn('register_give(m, "isin.Scalar_Tensor_out", "isin.Scalar_Tensor", true)', written)
        operators = json.loads((out / "npu_operators.json").read_text())
        self.assertEqual(operators["ir_ops"]["cholesky"]["ir"], ["LinalgCholesky"])
        self.assertEqual(operators["kernels"]["geqrf.a"]["kernel"], "geqrf")

    def test_results_in_the_order_of_the_ir_operator(self):
        result, out = self.table("ir_ops:\n- {func: topk, ir: T, inputs: [self], outputs: [1, 0], result: asis}\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        generated = "".join(p.read_text() for p in out.glob("GeneratedKernels_*.cpp"))
        self.assertRegex(generated, r"\.Output\(indices\)\s+\.Output\(values\)|\.Output\(\w+1\)\s+\.Output\(\w+0\)")
        self.fails("ir_ops:\n- func: topk\n  ir: T\n  outputs: [1, 2]\n", 4, "is an order of the 2 results")

    def test_operands_of_one_device(self):
        """Overloads that upstream's generated kernels check are checked, TensorIterator's are not."""
        text = (
            "ir_ops:\n- {func: mm, ir: MatMul}\n- {func: add.Tensor, ir: Add, inputs: [self, other]}\n"
            "kernels:\n  dot: product\n  flip: turned\n  _copy_from: copied\n"
            "custom:\n- {func: 'npu_far(Tensor(a!) self, Tensor[] others) -> Tensor(a!)', kernel: far}\n"
        )
        kernel = "product( turned( copied( far("
        result, out = self.table(text, kernel)
        self.assertEqual(result.returncode, 0, result.stderr)
        generated = "".join(p.read_text() for p in out.glob("GeneratedKernels_*.cpp"))
        self.assertIn('SameDevice("mm.out").written(out).read(self).read(mat2);', generated)
        self.assertNotIn('SameDevice("add', generated)
        registered = (out / "RegisterNPU.cpp").read_text()
        self.assertIn('SameDevice("dot").read(self).read(tensor);\n  return npu::product(self, tensor);', registered)
        self.assertIn(
            'm.impl("dot", static_cast<at::Tensor (*)(const at::Tensor &, const at::Tensor &)>(checked::dot))',
            registered,
        )
        self.assertEqual(registered.count("SameDevice("), 1)
        own = (out / "RegisterNPUCustom.cpp").read_text()
        self.assertIn('SameDevice("npu_far").written(self).read(others);', own)

    def test_a_statement_where_nothing_is_issued(self):
        result, out = self.table("ir_ops:\n- {func: exp, ir: Exp, empty: look(self)}\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        generated = "".join(p.read_text() for p in out.glob("GeneratedKernels_*.cpp"))
        self.assertIn("if (result.numel() == 0) {\n    look(self);\n    return;\n  }", generated)
        self.fails(
            "ir_ops:\n- func: topk\n  ir: TopK\n  empty: look(self)\n", 4, "`empty` needs an operator with one result"
        )

    def test_checks_come_first(self):
        """Statements of `check` and dtypes of `refused` precede what an entry issues, for each way of serving one."""
        result, out = self.table(
            """
ir_ops:
- {func: mm, ir: MatMul, inputs: [self, mat2], check: [one(self), two(result)], dtypes: [int, float], fast: []}
- {func: add.Tensor, ir: Add, inputs: [self, other], fast: [int]}
aten_ops:
- {funcs: [cholesky, cholesky.out], ir: Cholesky, check: look}
- {funcs: [ormqr], ir: Ormqr, check: look}
kernels: {abs: kernel, cat: kernel}
refused:
- dtypes: [uint16, complex32]
  funcs: [mm, add.Tensor, cholesky, abs, cat]
""",
            "void look(a); Tensor kernel(a);",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        text = "".join(p.read_text() for p in out.glob("*.cpp"))
        refused = "dtype_mask(at::ScalarType::UInt16, at::ScalarType::ComplexHalf)"
        less = f"~refused_here({refused})"
        begin = '.ir = "Cholesky", .dtypes = kDtypeAny, .rule = nullptr'
        for line in (
            # The result's dtype says nothing of operands that are not cast.
            f'  check_dtype(self.scalar_type(), (kDtypeInt | kDtypeFloat) & {less}, "mm");\n  one(self);\n'
            "  two(result);\n  if (",
            f"if (fast_operands(kDtypeInt & {less}, self, other)",
            f'{{.overload = "cholesky", {begin}, .check = look, .refused = {refused}}}',
            f'{{.overload = "cholesky.out", {begin}, .functional = "cholesky", .check = look}}',
            '.ir = "Ormqr", .dtypes = kDtypeAny, .rule = nullptr, .check = look}',
            f'check_dtype(self.scalar_type(), kDtypeAny & {less}, "abs");\n  return npu::kernel(self);',
            f'for (const at::Tensor& t : tensors) check_dtype(t.scalar_type(), kDtypeAny & {less}, "cat");',
        ):
            self.assertIn(line, text)

    def test_computed_in_a_wider_dtype(self):
        result, out = self.table(
            "ir_ops:\n- {func: mul.Tensor, ir: Mul, fast: [float], wide: [float16, complex32]}\n"
            "aten_ops:\n- {funcs: [cholesky], ir: Cholesky, wide: [bfloat16]}\n"
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        text = "".join(p.read_text() for p in out.glob("*.cpp"))
        wide = "dtype_mask(at::ScalarType::Half, at::ScalarType::ComplexHalf)"
        self.assertIn(f"  compute = widened(compute, {wide});", text)
        # The short way computes in the operands' own dtype.
        self.assertIn(f"fast_operands((kDtypeFloat) & ~{wide}, self, other)", text)
        self.assertIn(".rule = nullptr, .wide = dtype_mask(at::ScalarType::BFloat16)}", text)
        self.fails("ir_ops:\n- {func: mul.Tensor, ir: Mul, wide: [float64]}\n", 2, "`wide` cannot name `float64`")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, wide: [half]}\n", 2, "`wide` cannot name `half`")
        self.fails("ir_ops:\n- {func: mm, ir: MatMul, wide: [float16]}\n", 2, "needs a dtype that is computed in")

    def test_wrong_refusals(self):
        table = "kernels: {abs: kernel}\nrefused:\n- {dtypes: [%s], funcs: [%s]}\n"
        self.fails(table % ("half", "abs"), 3, "unknown dtype `half`", "kernel(")
        self.fails(table % ("bool", "neg"), 3, "`neg` has no kernel that could refuse a dtype", "kernel(")
        self.fails(table % ("bool", "abs]}\n- {dtypes: [int8], funcs: [abs"), 4, "`abs` is listed twice", "kernel(")
        self.fails("refused: [abs]\n", 1, "needs `dtypes` and `funcs`")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, check: look}\n", 2, "defines a check `look`")

    def test_wrong_entries_of_these(self):
        self.fails("aten_ops:\n- {funcs: [cholesky]}\n", 2, "needs `funcs` and `ir`")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, dtype: [float]}\n", 2, "unknown key `dtype`")
        self.fails("aten_ops:\n- {funcs: [choleski], ir: C}\n", 2, "no overload `choleski`")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, like: [x]}\n", 2, "`x` is no argument")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, rule: nobody}\n", 2, "defines a rule `nobody`")
        self.fails("aten_ops:\n- {funcs: [cholesky], ir: C, dtypes: [half]}\n", 2, "unknown dtype class `half`")
        self.fails("outs:\n- geqrf\n", 1, "has no out= arguments")

    def test_names_that_begin_with_underscores(self):
        result, out = self.table("kernels:\n  __lshift__.Scalar: shift\n", "Tensor shift(int);")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"__lshift__.Scalar"', (out / "RegisterNPU.cpp").read_text())


if __name__ == "__main__":
    unittest.main()
