# The API table: complete for this torch, true for this torch.npu, printed in docs/porting.md.
import importlib
import os
import unittest

from transplant_case import ROOT, convert, tool

table = tool("api_table")


def exists(name):
    """Whether a dotted name below torch can be had, modules included."""
    import torch

    try:
        importlib.import_module(name)
    except ImportError:
        found = torch
        for part in name.split(".")[1:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
    return True


class TestTable(unittest.TestCase):
    def test_rows_are_well_formed(self):
        names = [(row.kind, row.cuda) for row in table.ROWS]
        self.assertEqual(len(names), len(set(names)))
        for row in table.ROWS:
            self.assertIn(row.kind, table.KINDS)
            self.assertTrue(row.remark, row.cuda)
            self.assertTrue(row.since == "-" or row.since in table.VERSIONS, row)
            self.assertEqual(row.npu is None, row.since == "-", row)

    def test_the_guides_tables_are_in_it(self):
        first = {row.cuda for row in table.ROWS if "table" in row.section}
        guide = "is_available current_device device_count set_device synchronize device Stream stream current_stream"
        guide += " default_stream Event BoolTensor FloatTensor IntTensor LongTensor HalfTensor"
        self.assertLessEqual({f"torch.cuda.{name}" for name in guide.split()}, first)
        self.assertLessEqual({"Tensor.is_cuda", "Tensor.cuda", "cuda:0"}, first)

    def test_every_public_name_of_torch_cuda(self):
        import torch

        missing = [name for name in torch.cuda.__all__ if table.find(f"torch.cuda.{name}") is None]
        self.assertEqual(missing, [])

    def test_counterparts_exist(self):
        import torch

        if not hasattr(torch, "npu"):
            self.skipTest("this torch has no npu")
        rows = [row for row in table.NAMES.values() if row.npu and row.npu.startswith("torch.")]
        missing = {row.npu for row in rows if not exists(row.npu)}
        self.assertEqual(missing, set())

    def test_names_without_counterpart_have_none(self):
        import torch

        if not hasattr(torch, "npu"):
            self.skipTest("this torch has no npu")
        rows = [row for row in table.NAMES.values() if row.npu is None and row.cuda.startswith("torch.cuda.")]
        wrong = [row.cuda for row in rows if exists(row.cuda.replace(".cuda.", ".npu."))]
        # torch.npu has these names for scripts of today's plug-in: its profiler, what refuses with a reason, None.
        refused = {f"torch.cuda.{name}" for name in importlib.import_module("torch.npu._refused").members("torch.npu")}
        others = {"torch.cuda.profiler", "torch.cuda.graphs", "torch.cuda.current_blas_handle"}
        self.assertEqual(set(wrong) - refused - others, set())

    def test_every_name_with_a_counterpart_is_rewritten(self):
        for row in table.NAMES.values():
            if row.npu is None or row.kept or row.is_module or not row.cuda.startswith("torch."):
                continue
            new, report = convert(f"import torch\nx = {row.cuda}\n")
            self.assertEqual(new, f"import torch\nimport torch.npu\nx = {row.npu}\n")
            self.assertEqual(report.unsupported, [])

    def test_every_name_without_is_reported(self):
        for row in table.NAMES.values():
            if row.npu is None:
                new, report = convert(f"import {row.cuda.split('.')[0]}\nx = {row.cuda}\n")
                self.assertNotIn("npu", new)
                self.assertIn(row.cuda, [use.api for use in report.unsupported])

    def test_packages_are_reported(self):
        for name in table.PACKAGES:
            _, report = convert(f"import {name} as m\n")
            self.assertEqual([use.api for use in report.unsupported], [name])

    def test_docs_hold_the_table(self):
        with open(os.path.join(ROOT, "docs", "porting.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(table.markdown(), text, "run: python tools/ms_fmk_transplt/update_docs.py")


if __name__ == "__main__":
    unittest.main()
