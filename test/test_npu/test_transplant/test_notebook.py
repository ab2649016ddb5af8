# Notebooks: cells form one module, IPython's own lines stay, the JSON keeps its style.
import json
import unittest

from transplant_case import TransplantCase, tool


def cell(*lines, kind="code"):
    return {"cell_type": kind, "metadata": {}, "source": [line + "\n" for line in lines[:-1]] + [lines[-1]]}


class TestNotebook(TransplantCase):
    def convert(self, *cells, **style):
        content = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        raw = (json.dumps(content, **({"indent": 1, "ensure_ascii": False} | style)) + "\n").encode()
        converter = tool("convert").Converter(tool("unit").Options())
        new, report = tool("notebook").convert(converter, raw, "a.ipynb")
        return raw.decode(), new.decode(), report

    def sources(self, text):
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]

    def test_import_of_an_earlier_cell_counts(self):
        _, new, report = self.convert(
            cell("import torch.cuda as tc", "x = 1"), cell("tc.synchronize()"), cell("y = x.cuda()")
        )
        self.assertEqual(self.sources(new), ["import torch.npu as tc\nx = 1", "tc.synchronize()", "y = x.npu()"])
        self.assertEqual(report.status, "converted")

    def test_import_is_added_in_its_cell(self):
        _, new, _ = self.convert(cell("import torch"), cell("x = torch.zeros(2).cuda()"))
        self.assertEqual(self.sources(new), ["import torch\nimport torch.npu", "x = torch.zeros(2).npu()"])

    def test_magics_shell_and_help_stay(self):
        lines = (
            "%matplotlib inline",
            "!nvidia-smi cuda",
            "files = !ls /cuda ü",
            "torch.cuda?",
            "d = torch.device('cuda')",
        )
        _, new, _ = self.convert(cell(*lines))
        self.assertEqual(self.sources(new)[0], "\n".join(lines[:-1] + ("d = torch.device('npu')",)))
        _, new, _ = self.convert(
            cell("%%time", "x.cuda()"), cell("%%bash", "echo cuda:0; if"), cell("if a:", "    %timeit x.cuda()")
        )
        self.assertEqual(
            self.sources(new), ["%%time\nx.npu()", "%%bash\necho cuda:0; if", "if a:\n    %timeit x.cuda()"]
        )

    def test_text_cells_outputs_and_style_stay(self):
        text = cell("# uses cuda:0", kind="markdown")
        for style in (
            {"indent": 1},
            {"indent": 2},
            {"indent": None},
            {"indent": None, "separators": (",", ":")},
            {"ensure_ascii": True},
        ):
            old, new, _ = self.convert(text, cell("größe = x.cuda()"), **style)
            self.assertEqual(new, old.replace("x.cuda()", "x.npu()"))

    def test_source_as_one_string(self):
        code = {"cell_type": "code", "metadata": {}, "source": "x.cuda()\ny = 1"}
        _, new, _ = self.convert(code)
        self.assertEqual(json.loads(new)["cells"][0]["source"], "x.npu()\ny = 1")

    def test_broken_notebooks_are_reported(self):
        converter = tool("convert").Converter(tool("unit").Options())
        for raw in (
            b"cuda",
            b'{"cells": 3, "a": "cuda"}',
            b'{"nothing": "cuda"}',
            b"\xff cuda",
            b'{"cells": ["cuda"]}',
            b'{"cells": [{"cell_type": "code", "source": null}], "a": "cuda"}',
            b'["cuda"]',
            b'{"cuda": ' + b"[" * 100000,
        ):
            new, report = tool("notebook").convert(converter, raw, "a.ipynb")
            self.assertEqual((new, report.status), (raw, "failed"))
        _, _, report = self.convert(cell("x.cuda( ="))
        self.assertEqual(report.status, "failed")

    def test_second_run_changes_nothing(self):
        _, new, _ = self.convert(cell("import torch"), cell("x = torch.zeros(2).cuda()"))
        converter = tool("convert").Converter(tool("unit").Options())
        again, report = tool("notebook").convert(converter, new.encode(), "a.ipynb")
        self.assertEqual((again.decode(), report.status), (new, "unchanged"))


if __name__ == "__main__":
    unittest.main()
