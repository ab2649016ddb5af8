# The command: options, the result's tree, log, spreadsheet, exit status.
import json
import os
import stat
import sys
import unittest
from unittest import mock

from transplant_case import TransplantCase, convert, tool

CUDA = "import torch\nx = torch.zeros(2).cuda()  # moves\n"
NPU = "import torch\nimport torch.npu\nx = torch.zeros(2).npu()  # moves\n"


class TestCommand(TransplantCase):
    def tree(self, folder):
        found = []
        for where, _, files in os.walk(folder):
            found += [os.path.relpath(os.path.join(where, name), folder) for name in files]
        return sorted(found)

    def test_help_names_the_options(self):
        done = self.run_tool("-h")
        self.assertEqual(done.returncode, 0)
        for option in (
            "--input",
            "--output",
            "--rule",
            "--help",
            "--version",
            "--main",
            "--check",
            "--json",
            "--force",
        ):
            self.assertIn(option, done.stdout)

    def test_missing_options_are_refused(self):
        self.assertEqual(self.run_tool("-o", "x").returncode, 2)
        done = self.run_tool("-i", self.write("a.py", CUDA))
        self.assertEqual(done.returncode, 2)
        self.assertIn("-o", done.stderr)
        done = self.run_tool("-i", self.path("none"), "-o", self.path("out"))
        self.assertEqual((done.returncode, "does not exist" in done.stderr), (2, True))

    def test_folder_keeps_its_tree(self):
        self.write("proj/a.py", CUDA)
        self.write("proj/pkg/b.py", "x = 1\n")
        self.write("proj/pkg/data.bin", b"\0cuda\xff")
        self.write("proj/cfg.yaml", "device: cuda\n")
        run = self.write("proj/run.sh", "#!/bin/sh\nCUDA_VISIBLE_DEVICES=0 python a.py\n")
        os.chmod(run, 0o755)
        before = {name: self.read("proj", name) for name in ("a.py", "cfg.yaml")}
        done = self.run_tool("-i", self.path("proj"), "-o", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.path("out", "proj_msft")
        extra = ["msFmkTranspltlog.txt", "unsupported_op.xlsx"]
        self.assertEqual(self.tree(result), sorted(self.tree(self.path("proj")) + extra))
        self.assertEqual(self.read("out", "proj_msft", "a.py"), NPU)
        with open(os.path.join(result, "pkg", "data.bin"), "rb") as file:
            self.assertEqual(file.read(), b"\0cuda\xff")
        self.assertTrue(os.stat(os.path.join(result, "run.sh")).st_mode & stat.S_IXUSR)
        self.assertEqual(before, {name: self.read("proj", name) for name in before})
        log = self.read("out", "proj_msft", "msFmkTranspltlog.txt")
        self.assertIn("a.py:2: [device move] torch.zeros(2).cuda() -> torch.zeros(2).npu()", log)
        self.assertIn("run.sh:2: [hint: shell] CUDA_VISIBLE_DEVICES is ASCEND_RT_VISIBLE_DEVICES on npu", log)

    def test_single_file_and_spreadsheet(self):
        from openpyxl import load_workbook

        text = "import torch\nfrom torch.cuda import nvtx\n\n"
        text += "nvtx.range_push('a')\ntorch.cuda.caching_allocator_enable(3)\n"
        source = self.write("train.py", text)
        self.assertEqual(self.run_tool("-i", source, "-o", self.path("out")).returncode, 0)
        self.assertEqual(self.read("out", "train_msft", "train.py"), text)
        sheet = load_workbook(self.path("out", "train_msft", "unsupported_op.xlsx")).active
        rows = [tuple(cell.value for cell in row) for row in sheet.iter_rows()]
        self.assertEqual(rows[0], ("File", "Line", "API", "Support", "Hint"))
        self.assertEqual(
            [row[1:3] for row in rows[1:]],
            [(2, "torch.cuda.nvtx"), (4, "torch.cuda.nvtx"), (5, "torch.cuda.caching_allocator_enable")],
        )
        self.assertTrue(all(row[0] == "train.py" and row[4] for row in rows[1:]))

    def test_check_changes_nothing_and_prints_a_diff(self):
        source = self.write("a.py", CUDA)
        done = self.run_tool("-i", source, "--check")
        self.assertEqual(done.returncode, 4)
        self.assertIn("--- a/a.py\n+++ b/a.py\n", done.stdout)
        self.assertIn("+x = torch.zeros(2).npu()  # moves\n", done.stdout)
        self.assertEqual(self.tree(self.folder), ["a.py"])
        self.assertEqual(self.run_tool("-i", self.write("b.py", NPU), "--check").returncode, 0)

    def test_json(self):
        source = self.write("a.py", CUDA)
        done = self.run_tool("-i", source, "-o", self.path("out"), "--json")
        content = json.loads(done.stdout)
        self.assertEqual(content["summary"]["converted"], 1)
        change = content["files"][0]["changes"][1]
        self.assertEqual((change["line"], change["rule"]), (2, "device move"))
        content = json.loads(self.run_tool("-i", source, "--check", "--json").stdout)
        self.assertIn("+x = torch.zeros(2).npu()", content["diff"])

    def test_result_is_not_overwritten_without_force(self):
        source = self.write("a.py", CUDA)
        self.write("out/a_msft/a.py", "mine\n")
        done = self.run_tool("-i", source, "-o", self.path("out"))
        self.assertEqual((done.returncode, "--force" in done.stderr), (2, True))
        self.assertEqual(self.read("out", "a_msft", "a.py"), "mine\n")
        self.assertEqual(self.run_tool("-i", source, "-o", self.path("out"), "--force").returncode, 0)
        self.assertEqual(self.read("out", "a_msft", "a.py"), NPU)

    def test_second_run_is_a_no_op(self):
        self.write("proj/a.py", CUDA)
        self.run_tool("-i", self.path("proj"), "-o", self.path("out"))
        done = self.run_tool("-i", self.path("out", "proj_msft"), "--check")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_script_that_names_npu_is_left_alone(self):
        text = "import torch\nd = 'npu' if hasattr(torch, 'npu') else 'cuda:0'\n"
        new, report = convert(text)
        self.assertEqual((new, report.status), (text, "ported"))
        self.assertIn("line 2", report.reason)
        new, report = convert("# npu is for input\nx.cuda()  # npu\n")
        self.assertEqual((new, report.status), ("# npu is for input\nx.npu()  # npu\n", "converted"))

    def test_versions(self):
        text = "import torch\ntorch.cuda.host_memory_stats()\n"
        self.assertIn("torch.npu.host_memory_stats()", convert(text)[0])
        new, report = convert(text, version="1.5")
        self.assertEqual(new, text)
        self.assertIn("from API version 2.13 on", report.unsupported[0].hint)
        self.assertEqual(self.run_tool("-i", self.write("a.py", CUDA), "--check", "-v", "9.9").returncode, 2)

    def test_operator_support_list(self):
        listed = self.write(
            "operators.md", "| op | support |\n| --- | --- |\n| `aten::linalg_qr` | missing |\n| add | native |\n"
        )
        source = self.write("a.py", "import torch\ny = torch.linalg.qr(x)\nz = torch.add(x, x)\n")
        done = self.run_tool("-i", source, "--check", "--json", "--operators", listed)
        uses = json.loads(done.stdout)["files"][0]["unsupported"]
        self.assertEqual(
            [(use["line"], use["api"], use["support"]) for use in uses], [(2, "torch.linalg.qr", "missing")]
        )
        self.assertEqual(self.run_tool("-i", source, "--check", "--operators", self.path("no")).returncode, 2)

    def test_check_of_scripts_without_suffix(self):
        self.write("proj/train", f"#!/usr/bin/env python\n{CUDA}")
        self.write("proj/page.py", f"import torch\n\x0c\n{CUDA}")
        done = self.run_tool("-i", self.path("proj"), "--check")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("+++ b/train\n", done.stdout)
        self.assertNotIn("No newline", done.stdout)  # a form feed ends no line
        done = self.run_tool("-i", self.write("train.txt", CUDA), "--check")
        self.assertEqual((done.returncode, "+++ b/train.txt" in done.stdout), (4, True))

    def test_broken_package_says_how_to_get_it(self):
        for package in ("libcst", "openpyxl"):
            self.write(f"{package}/{package}/__init__.py", "raise ImportError('no shared object')\n")
            with mock.patch.dict(os.environ, PYTHONPATH=self.path(package)):
                done = self.run_tool("-i", self.write("a.py", CUDA), "--check")
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            wanted = f"ms_fmk_transplt needs {package}: pip install torch[npu-tools] (no shared object)\n"
            self.assertEqual(done.stderr, wanted)

    def test_missing_package_says_how_to_get_it(self):
        # An interpreter that finds no site packages has neither libcst nor openpyxl.
        import subprocess

        command = [sys.executable, "-I", "-S", self.script(), "-i", self.write("a.py", CUDA), "--check"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("pip install torch[npu-tools]", done.stderr)

    def script(self):
        from transplant_case import SCRIPT

        return SCRIPT


class TestDistributed(TransplantCase):
    MAIN = (
        "import torch\nfrom torch.utils.data import DataLoader\n\n\ndef main(data):\n"
        "    net = torch.nn.Linear(2, 2).cuda()\n    loader = DataLoader(data, shuffle=True)\n    return net, loader\n"
    )

    def test_main_file_gets_devices_group_sampler_and_wrapper(self):
        self.write("proj/main.py", self.MAIN)
        self.write("proj/other.py", "net = x.cuda()\n")
        done = self.run_tool(
            "distributed", "-m", "main.py", "-t", "net", "-i", self.path("proj"), "-o", self.path("out")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        new = self.read("out", "proj_msft", "main.py")
        for text in (
            'NPU_DEVICE_MAP = npu_process_device_map(os.environ.get("NPU_DEVICE_LIST", "0,1,2,3,4,5,6,7"))',
            'torch.distributed.init_process_group(backend="hccl")',
            "    if torch.distributed.is_initialized():\n        net = torch.nn.parallel.DistributedDataParallel(net,",
            "DataLoader(data, sampler=npu_sampler(data))",
        ):
            self.assertIn(text, new)
        compile(new, "main.py", "exec")
        self.assertEqual(self.read("out", "proj_msft", "other.py"), "net = x.npu()\n")
        launch = self.read("out", "proj_msft", "run_distributed_npu.sh")
        self.assertIn("torchrun", launch)
        self.assertIn("NPU_DEVICE_LIST", launch)
        space = {"os": os}
        start = new.index("def npu_process_device_map")
        exec(new[start : new.index("def npu_sampler")], space)
        self.assertEqual(space["npu_process_device_map"]("3,1"), {0: 1, 1: 3})

    def test_a_script_with_its_own_group_gets_no_second_one(self):
        text = self.MAIN.replace("def main", "torch.distributed.init_process_group('nccl')\ndef main")
        source = self.write("main.py", text)
        self.assertEqual(self.run_tool("-m", source, "-i", source, "-o", self.path("out")).returncode, 0)
        new = self.read("out", "main_msft", "main.py")
        self.assertEqual(new.count("init_process_group"), 1)
        self.assertIn("'hccl'", new)

    def test_main_file_must_exist(self):
        self.write("proj/main.py", self.MAIN)
        for main in ("none.py", "../x.py"):
            done = self.run_tool("-m", main, "-i", self.path("proj"), "-o", self.path("out"))
            self.assertEqual(done.returncode, 2)
        done = self.run_tool("distributed", "-i", self.path("proj"), "-o", self.path("out"))
        self.assertIn("-m FILE", done.stderr)

    def test_unknown_model_variable_is_a_hint(self):
        converter = tool("convert").Converter(tool("unit").Options(model="nothing"))
        _, report = converter.convert(self.MAIN.encode(), "main.py", is_main=True)
        self.assertTrue(any("-t" in hint.text for hint in report.hints))


if __name__ == "__main__":
    unittest.main()
