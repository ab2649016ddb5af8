"""python -m torch.npu.onnx.check: what CANN documents of a file's nodes, and the table that says so."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase, run_tests
from onnx_case import needs_onnx

import torch
import torch.npu.onnx
from torch.npu.onnx import check as checker


def model(nodes, inputs, opset=11, initializers=(), outputs=("y",), domains=(), functions=()):
    import onnx
    from onnx import TensorProto, helper

    given = [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape) for name, (kind, shape) in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", given, made, list(initializers))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    proto = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    proto.ir_version = 8
    return onnx.ModelProto.FromString(proto.SerializeToString())


def node(operator, inputs, outputs=("y",), **attributes):
    from onnx import helper

    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


@needs_onnx
class TestVerdicts(TestCase):
    def one(self, *args, **options):
        """The report of a model's only node."""
        (report,) = checker.check(model(*args, **options))
        return report

    def test_documented(self):
        report = self.one([node("Relu", ["x"])], {"x": ("FLOAT", [1, 3, 8, 8])})
        self.assertEqual((report.verdict, report.reasons, report.operator), ("documented", [], "Relu"))
        self.assertIn("CANN", report.source)

    def test_no_such_operator(self):
        report = self.one([node("Gelu", ["x"])], {"x": ("FLOAT", [2, 3])}, opset=20)
        self.assertEqual((report.verdict, report.reasons), ("undocumented", ["no such operator is documented"]))

    def test_opsets(self):
        # A page of CANN 9: it says what it has.
        report = self.one([node("Relu", ["x"])], {"x": ("FLOAT", [2])}, opset=20)
        self.assertEqual((report.verdict, report.reasons), ("undocumented", ["opset 20, documented: 8-18"]))
        # The list of CANN 5, which speaks of no later opset.
        report = self.one([node("Ceil", ["x"])], {"x": ("FLOAT", [2])}, opset=18)
        self.assertEqual((report.verdict, report.reasons), ("unknown", ["opset 18, documented: 8-13"]))
        report = self.one([node("Unsqueeze", ["x", "axes"])], {"x": ("FLOAT", [2]), "axes": ("INT64", [1])}, opset=13)
        self.assertEqual(report.verdict, "undocumented")
        self.assertEqual(checker.opsets("8-10, 12"), {8, 9, 10, 12})
        self.assertEqual(checker.opsets(16), {16})

    def test_types(self):
        report = self.one([node("Relu", ["x"])], {"x": ("DOUBLE", [2])})
        self.assertEqual(report.verdict, "undocumented")
        self.assertIn("input 0 is double", report.reasons[0])
        # float where float16 is documented: ATC's precision mode decides.
        inputs = {"x": ("FLOAT", [2, 3]), "w": ("FLOAT", [3, 4])}
        report = self.one([node("MatMul", ["x", "w"])], inputs)
        self.assertEqual(report.verdict, "unknown")
        self.assertIn("precision_mode", report.reasons[0])
        inputs = {"a": ("FLOAT", [2]), "b": ("FLOAT", [2]), "c": ("DOUBLE", [2])}
        report = self.one([node("Max", ["a", "b", "c"])], inputs, opset=13)
        self.assertIn("input 2 is double", "; ".join(report.reasons))

    def test_shapes(self):
        report = self.one([node("Slice", ["x", "s", "e"])],
                          {"x": ("FLOAT", [9]), "s": ("INT64", [1]), "e": ("INT64", [1])})  # fmt: skip
        self.assertIn("1 dimensions, documented: 2 to 8", report.reasons[0])
        report = self.one([node("GlobalMaxPool", ["x"])], {"x": ("FLOAT", [1] * 9)})
        self.assertIn("9 dimensions", report.reasons[0])
        wide = {"x": ("FLOAT", [1, 1, 8, 5000])}
        report = self.one([node("MaxPool", ["x"], kernel_shape=[2, 2])], wide)
        self.assertIn("5000 along axis -1, documented: 1 to 4096", report.reasons[0])

    def test_attributes(self):
        inputs = {"x": ("FLOAT16", [1, 4, 8, 8]), "w": ("FLOAT16", [4, 2, 3, 3])}
        report = self.one([node("Conv", ["x", "w"], kernel_shape=[3, 3], group=2, strides=[64, 1])], inputs)
        self.assertEqual(report.verdict, "undocumented")
        self.assertEqual(sorted(report.reasons), ["group = 2, documented: [1]", "strides has 64, documented: 1 to 63"])
        pool = {"x": ("FLOAT16", [1, 4, 8, 8])}
        report = self.one([node("AveragePool", ["x"], kernel_shape=[2, 2], count_include_pad=1)], pool)
        self.assertEqual(report.reasons, ["count_include_pad is not supported"])
        report = self.one([node("AveragePool", ["x"], kernel_shape=[2, 2], count_include_pad=0)], pool)
        self.assertEqual(report.verdict, "documented")

    def test_constants(self):
        import numpy as np
        from onnx import numpy_helper

        shape = numpy_helper.from_array(np.array([2, 3], dtype=np.int64), "shape")
        inputs = {"x": ("FLOAT", [1, 3])}
        report = self.one([node("Expand", ["x", "shape"])], inputs, initializers=[shape])
        self.assertEqual(report.verdict, "documented")
        report = self.one([node("Expand", ["x", "shape"])], inputs | {"shape": ("INT64", [2])})
        self.assertIn("input 1 is computed", report.reasons[0])

    def test_domains(self):
        inputs = {"x": ("FLOAT", [2, 3]), "g": ("FLOAT", [3])}
        nodes = [node("NPURmsNorm", ["x", "g"], ["y", "r"], domain="npu", epsilon=1e-6)]
        self.assertEqual(self.one(nodes, inputs, domains=["npu"]).verdict, "documented")
        nodes = [node("NPUNothing", ["x"], domain="npu")]
        self.assertEqual(self.one(nodes, inputs, domains=["npu"]).verdict, "undocumented")
        nodes = [node("FusedGelu", ["x"], domain="com.microsoft")]
        report = self.one(nodes, inputs, domains=["com.microsoft"])
        self.assertIn("com.microsoft", report.reasons[0])

    def test_branches_and_functions(self):
        from onnx import TensorProto, helper

        def branch(operator):
            result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])
            return helper.make_graph([node(operator, ["x"], ["z"])], operator, [], [result])

        both = node("If", ["c"], then_branch=branch("Relu"), else_branch=branch("Softsign"))
        reports = checker.check(model([both], {"c": ("BOOL", []), "x": ("FLOAT", [2])}))
        self.assertEqual(sorted(report.operator for report in reports), ["If", "Relu", "Softsign"])
        function = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
                                        [helper.make_opsetid("", 11)])  # fmt: skip
        call = node("Twice", ["x"], domain="own")
        reports = checker.check(model([call], {"x": ("FLOAT", [2])}, domains=["own"], functions=[function]))
        self.assertEqual([report.operator for report in reports], ["own::Twice", "Add"])
        self.assertEqual(reports[0].verdict, "unknown")


@needs_onnx
class TestCommand(TestCase):
    def setUp(self):
        import onnx

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.good = os.path.join(folder.name, "good.onnx")
        self.bad = os.path.join(folder.name, "bad.onnx")
        onnx.save(model([node("Relu", ["x"])], {"x": ("FLOAT", [2])}), self.good)
        onnx.save(model([node("Relu", ["x"], ["m"]), node("Mish", ["m"])], {"x": ("FLOAT", [2])}, opset=18), self.bad)
        self.broken = os.path.join(folder.name, "broken.onnx")
        with open(self.broken, "wb") as file:
            file.write(b"\xff\xff\xffnot a model")

    def command(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = checker.main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def test_exit_codes_and_text(self):
        code, out, _ = self.command(self.good)
        self.assertEqual((code, out), (0, "1 nodes: 1 documented, 0 unknown, 0 undocumented\n"))
        code, out, _ = self.command(self.bad)
        self.assertEqual(code, 1)
        self.assertIn("undocumented  Mish  y: no such operator is documented", out)
        self.assertNotIn("Relu", out)
        self.assertIn("Relu", self.command(self.bad, "--all")[1])
        for path, words in ((self.broken, "no ONNX model"), ("nowhere.onnx", "no file")):
            code, _, err = self.command(path)
            self.assertEqual(code, 2)
            self.assertIn(words, err)

    def test_json(self):
        reports = json.loads(self.command(self.bad, "--json")[1])
        self.assertEqual([report["verdict"] for report in reports], ["documented", "undocumented"])

    def test_as_a_module(self):
        result = subprocess.run(
            [sys.executable, "-m", "torch.npu.onnx.check", self.good], capture_output=True, text=True, timeout=120
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertIn("1 documented", result.stdout)

    def test_from_python(self):
        (report,) = torch.npu.onnx.check_model(self.good)
        self.assertIsInstance(report, torch.npu.onnx.NodeReport)


class TestTable(TestCase):
    def test_each_entry_is_well_formed(self):
        table = checker.table()
        for name, entry in table["operators"].items():
            with self.subTest(operator=name):
                self.assertLessEqual(
                    set(entry), {"opset", "types", "rank", "dims", "attrs", "const", "note", "from"}, name
                )
                self.assertIn(entry["from"], table["sources"])
                stated = checker.opsets(table["sources"][entry["from"]]["opset"])
                self.assertTrue(checker.opsets(entry["opset"]) <= stated | {14}, name)
                for rule in entry.get("attrs", {}).values():
                    self.assertEqual(len(set(rule) & {"only", "range", "unsupported"}), len(rule))

    @needs_onnx
    def test_names_and_types_are_onnx_s(self):
        import onnx

        known = {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}
        kinds = {name.lower() for name, _ in onnx.TensorProto.DataType.items()}
        for name, entry in checker.table()["operators"].items():
            self.assertIn(name, known)
            for types in entry.get("types", []):
                self.assertLessEqual(set(types.split()), kinds, name)


if __name__ == "__main__":
    run_tests()
