# Trouble with one file is that file's report; the rest goes on, sources stay, the exit status tells.
import json
import os
import subprocess
import sys
import time
import unittest
from unittest import mock

from transplant_case import SCRIPT, TransplantCase, convert, tool

CUDA = "x = y.cuda()\n"
NPU = "x = y.npu()\n"


class TestTexts(unittest.TestCase):
    def failed(self, text, *words):
        new, report = convert(text)
        self.assertEqual((new, report.status), (text, "failed"))
        for word in words:
            self.assertIn(word, report.reason)

    def test_python_2(self):
        self.failed("import torch\nprint 'cuda'\nx = y.cuda()\n", "Python 2", "line 2")
        self.failed("try:\n    x.cuda()\nexcept ValueError, e:\n    pass\n", "Python 2", "line 3")

    def test_syntax_error(self):
        self.failed("x = cuda(\n", "syntax error", "line 1")
        self.failed("x.cuda()\ntrain(model, async=True)\n", "async")

    def test_bytes(self):
        self.failed(b"x = y.cuda()  # \xff\xfe\n", "decoded")
        self.failed(b"# -*- coding: nonsense -*-\ncuda\n", "decoded")
        self.failed(b"cuda = 1\0\n", "null bytes")
        self.failed(b"\xff\xfec\0u\0d\0a\0", "decoded")

    def test_encodings_survive(self):
        for encoding in ("latin-1", "cp1252", "gbk", "utf-8"):
            text = f"# -*- coding: {encoding} -*-\nname = 'ü' if 0 else '\u00d7'\nx = y.cuda()\n"
            try:
                raw = text.encode(encoding)
            except UnicodeEncodeError:
                raw = text.replace("ü", "中").encode(encoding)
            new, report = convert(raw)
            self.assertEqual(report.status, "converted", encoding)
            self.assertEqual(new, raw.replace(b"cuda()", b"npu()"))

    def test_byte_order_mark_and_line_endings(self):
        for raw in (
            b"\xef\xbb\xbfx = y.cuda()\r\n",
            b"x = y.cuda()\r\nz = 1\n",
            b"x = y.cuda()",
            b"a = 1\n\x0c\nx = y.cuda()\n",
            b"# old Mac\rx = y.cuda()\r",
            b"x = y.cuda()\r\nz = 1\nw = 2\r",
            b"x = y.cuda()\n  \n\t\n",
        ):
            self.assertEqual(convert(raw)[0], raw.replace(b"cuda", b"npu"))

    def test_text_that_libcst_would_change_is_left_alone(self):
        self.failed(b"\x0cx = y.cuda()\n", "exactly")

    def test_deep_nesting(self):
        self.failed("cuda = " + "(" * 1000 + "1" + ")" * 1000 + "\n", "deep")
        self.failed("cuda = x" + ".a()" * 20000 + "\n", "deep")
        self.failed("cuda = " + "-" * 50000 + "1\n", "deep")
        text = "cuda = 1\nif a == 0:\n    x.cuda()\n" + "".join(f"elif a == {i}:\n    pass\n" for i in range(600))
        self.assertIn("x.npu()", convert(text)[0])

    def test_many_changes_in_one_line(self):
        began = time.monotonic()
        new, report = convert("x = [" + "torch.cuda.is_available(), " * 5000 + "]\n")
        self.assertEqual((new.count("torch.npu"), len(report.changes)), (5000, 5000))
        self.assertLess(time.monotonic() - began, 60)

    def test_fast_path_does_not_parse(self):
        with mock.patch.object(tool("convert"), "Source", side_effect=AssertionError("parsed")):
            for text in ("x = 1\n", "this is not Python (\n", "import torch\nx = torch.zeros(2).to(d)\n"):
                new, report = convert(text)
                self.assertEqual((new, report.status), (text, "unchanged"))

    def test_speed(self):
        body = "".join(
            f"def f{i}(x, y):\n    # a comment\n    z = x.cuda() + y[{i}] * 2\n    return z\n" for i in range(500)
        )
        began = time.perf_counter()
        _, report = convert(body)
        self.assertEqual(len(report.changes), 500)
        print(f"\n{report.lines / (time.perf_counter() - began):,.0f} lines/s with a change in every fourth line")


class TestTrees(TransplantCase):
    def convert_tree(self, *args):
        done = self.run_tool("-i", self.path("proj"), "-o", self.path("out"), "--json", *args)
        return done.returncode, json.loads(done.stdout)

    def statuses(self, content):
        return {file["path"]: file["status"] for file in content["files"]}

    def test_bad_files_do_not_stop_the_rest(self):
        self.write("proj/a.py", "print 'cuda'\n")
        self.write("proj/b.py", CUDA)
        self.write("proj/c.py", b"cuda \xff\n")
        self.write("proj/d.ipynb", "{cuda")
        code, content = self.convert_tree()
        self.assertEqual(code, 1)
        self.assertEqual(
            self.statuses(content), {"a.py": "failed", "b.py": "converted", "c.py": "failed", "d.ipynb": "failed"}
        )
        self.assertEqual(self.read("out", "proj_msft", "b.py"), NPU)
        self.assertEqual(self.read("out", "proj_msft", "a.py"), "print 'cuda'\n")
        log = self.read("out", "proj_msft", "msFmkTranspltlog.txt")
        self.assertIn("a.py: [failed] line 1: Python 2 source", log)

    def test_links(self):
        self.write("proj/real/a.py", CUDA)
        os.symlink("..", self.path("proj", "real", "loop"))
        os.symlink("real", self.path("proj", "alias"))
        os.symlink("nowhere", self.path("proj", "dangling.py"))
        os.symlink("real/a.py", self.path("proj", "link.py"))
        os.symlink("itself.py", self.path("proj", "itself.py"))
        os.mkfifo(self.path("proj", "pipe.py"))
        code, content = self.convert_tree()
        self.assertEqual(code, 0)
        statuses = self.statuses(content)
        self.assertEqual(statuses["real/a.py"], "converted")
        self.assertEqual(statuses["link.py"], "converted")
        self.assertEqual(statuses["alias/a.py"], "converted")
        self.assertEqual(
            {statuses[n] for n in ("real/loop", "alias/loop", "dangling.py", "pipe.py", "itself.py")}, {"skipped"}
        )
        self.assertEqual(self.read("proj", "real", "a.py"), CUDA)

    def test_output_inside_the_input(self):
        self.write("proj/a.py", CUDA)
        for _ in range(2):
            done = self.run_tool("-i", self.path("proj"), "-o", self.path("proj", "out"), "--force")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.read("proj", "out", "proj_msft", "a.py"), NPU)
        self.assertFalse(os.path.exists(self.path("proj", "out", "proj_msft", "out", "proj_msft")))
        self.assertEqual(self.read("proj", "a.py"), CUDA)

    def test_output_beside_the_input_and_links_to_sources(self):
        self.write("proj/a.py", CUDA)
        os.makedirs(self.path("out", "proj_msft"))
        os.symlink(self.path("proj", "a.py"), self.path("out", "proj_msft", "a.py"))
        self.assertEqual(self.convert_tree("--force")[0], 0)
        self.assertEqual(self.read("proj", "a.py"), CUDA)
        self.assertEqual(self.read("out", "proj_msft", "a.py"), NPU)

    def test_unreadable_and_unwritable(self):
        self.write("proj/a.py", CUDA)
        self.write("proj/b.py", CUDA)
        project = tool("project")
        real_open = open

        def refusing(path, *args, **kwargs):
            if os.fspath(path).endswith("proj/a.py"):
                raise PermissionError(13, "Permission denied")
            return real_open(path, *args, **kwargs)

        converter = tool("convert").Converter(tool("unit").Options())
        with mock.patch.object(project, "open", refusing, create=True):
            result = project.Project(converter, self.path("proj"), self.path("out")).run()
        self.assertEqual([report.status for report in result.reports], ["failed", "converted"])
        self.assertIn("Permission denied", result.reports[0].reason)

    def test_names_that_are_no_text(self):
        names = [b"a\xff.py", b"line\nfeed.py", "\u00e9\u4e2d.py".encode()]
        for name in names:
            self.write("proj/" + os.fsdecode(name), "import triton\n" + CUDA)
        self.write("proj/bad\udcff.py", "print 'cuda'\n")
        for check in ((), ("--check",)):
            command = ("-i", self.path("proj"), "-o", self.path("out"), *check)
            with mock.patch.dict(os.environ, PYTHONIOENCODING="ascii"):
                done = self.run_tool(*command)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(r"failed: bad\udcff.py", done.stdout + done.stderr)
        log = self.read("out", "proj_msft", "msFmkTranspltlog.txt")
        for name in (r"a\udcff.py", r"line\nfeed.py", "\u00e9\u4e2d.py"):
            self.assertIn(f"{name}:2: [device move] y.cuda()", log)
        for name in names:
            self.assertEqual(self.read("out", "proj_msft", os.fsdecode(name)), "import triton\n" + NPU)

    def test_a_full_disk_leaves_no_half_files(self):
        self.write("proj/a.py", CUDA)
        self.write("proj/big.py", CUDA + "# " + "x" * 5000 + "\n")
        self.write("proj/data.bin", b"x" * 5000)
        limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); "
        limit += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        command = [sys.executable, "-c", limit, SCRIPT, "-i", self.path("proj"), "-o", self.path("out")]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        for name in ("big.py", "data.bin", "unsupported_op.xlsx"):
            self.assertIn(f"failed: {name}: cannot be written: File too large", done.stdout)
        self.assertEqual(sorted(os.listdir(self.path("out", "proj_msft"))), ["a.py", "msFmkTranspltlog.txt"])

    def test_output_that_cannot_be_made(self):
        self.write("proj/a.py", CUDA)
        self.write("file", "")
        done = self.run_tool("-i", self.path("proj"), "-o", self.path("file"))
        self.assertEqual((done.returncode, "cannot make" in done.stderr), (2, True))
        self.write("out/proj_msft", "")
        done = self.run_tool("-i", self.path("proj"), "-o", self.path("out"), "--force")
        self.assertEqual((done.returncode, "not a folder" in done.stderr), (2, True))

    def test_a_defect_of_the_tool_is_that_files_report(self):
        self.write("proj/a.py", CUDA)
        self.write("proj/b.py", "z = 1\n")
        converter = tool("convert").Converter(tool("unit").Options())
        converter.rewrite = mock.Mock(side_effect=KeyError("boom"))
        result = tool("project").Project(converter, self.path("proj"), self.path("out")).run()
        self.assertEqual([report.status for report in result.reports], ["failed", "unchanged"])
        self.assertIn("internal error: KeyError", result.reports[0].reason)
        self.assertEqual(self.read("out", "proj_msft", "a.py"), CUDA)

    def test_large_tree(self):
        for i in range(1500):
            self.write(f"proj/d{i % 50}/f{i}.py", CUDA if i % 10 == 0 else "x = 1\n")
        code, content = self.convert_tree()
        self.assertEqual((code, content["summary"]["files"], content["summary"]["converted"]), (0, 1500, 150))


if __name__ == "__main__":
    unittest.main()
