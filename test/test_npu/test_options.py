"""Options and switches with an effect: one test for each row of the table in docs/mixed_precision.md, then the compile
cache on disk under attack."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import torch.nn.functional as F
from acl_library import Library
from common_utils import hf32_switches

import torch

PRELUDE = """
import os, sys, torch
def add(*shape):
    x = torch.ones(shape or (3,), device="npu")
    return x + x
def compiled():
    torch.npu.synchronize()
    return torch._C._npu_simulatorCounters(0)["ops_compiled"]
"""


def launch(body: str, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env=os.environ | {"ASCEND_GLOBAL_LOG_LEVEL": "1", "ASCEND_SLOG_PRINT_TO_STDOUT": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class OptionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_python(self, body: str, **variables: str) -> str:
        """The standard output, log lines included."""
        process = launch(body, ASCEND_PROCESS_LOG_PATH=str(self.folder / "log"), **variables)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + err)
        return out

    @staticmethod
    def answers(out: str) -> list[str]:
        return [line for line in out.splitlines() if not line.startswith("[")]


def rounding(kind: str = "mm") -> int:
    """How many bits of the operands' fraction a product of fp32 keeps: 23, 11 (HF32) or 10 (fp16)."""
    ones = torch.ones(1, 1, 1, 1, device="npu")
    for bits in (23, 11, 10):
        x = torch.full((1, 1, 1, 1), 1 + 2.0**-bits, device="npu")
        product = {
            "mm": lambda x=x: x[0, 0] @ ones[0, 0],
            "bmm": lambda x=x: torch.bmm(x[0], ones[0]),
            "conv": lambda x=x: F.conv2d(x, ones),
        }[kind]()
        if product.item() == x.item():
            return bits
    return 0


class TestTable(OptionsTest):
    def setUp(self):
        super().setUp()
        self.enterContext(hf32_switches())

    def tearDown(self):
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_precision"})
        torch.npu.set_option({"ACL_PRECISION_MODE": "must_keep_origin_dtype"})

    def test_select_impl_mode_and_type_list(self):
        out = self.run_python(
            """
            def bits(a):
                return 23 if (a(1 + 2.0**-23) != 1) else 11
            one = torch.ones(1, 1, device="npu")
            mm = lambda v: (torch.full((1, 1), v, device="npu") @ one).item()
            bmm = lambda v: torch.bmm(torch.full((1, 1, 1), v, device="npu"), one[None]).item()
            print(bits(mm), bits(bmm))
            torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_performance"})
            print(bits(mm), bits(bmm))
            torch.npu.set_option({"ACL_OPTYPELIST_FOR_IMPLMODE": "BatchMatMul"})
            print(bits(mm), bits(bmm))
            torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_precision"})
            print(bits(mm), bits(bmm))
            """
        )
        self.assertEqual(self.answers(out), ["23 23", "11 11", "23 11", "23 23"])

    def test_allow_hf32(self):
        torch.npu.matmul.allow_hf32 = True
        self.assertEqual((rounding("mm"), rounding("bmm"), rounding("conv")), (11, 11, 23))
        torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32 = False, True
        self.assertEqual((rounding("mm"), rounding("bmm"), rounding("conv")), (23, 23, 11))

    def test_precision_mode(self):
        text = ctypes.create_string_buffer(64)
        torch.ones(1, device="npu")
        library = Library()
        library.check(library.aclGetCompileopt(0, text, 64))
        self.assertEqual(text.value, b"must_keep_origin_dtype")
        self.assertEqual(rounding("mm"), 23)
        for mode in ("force_fp16", "allow_mix_precision", "allow_fp32_to_fp16"):
            torch.npu.set_option({"ACL_PRECISION_MODE": mode})
            self.assertEqual((rounding("mm"), rounding("conv")), (10, 10), mode)
        x = torch.full((2, 2), 1e5, device="npu")
        self.assertEqual((x @ x).max().item(), float("inf"))
        self.assertEqual((x + x).max().item(), 2e5)
        torch.npu.set_option({"ACL_PRECISION_MODE": "must_keep_origin_dtype"})
        self.assertEqual(rounding("mm"), 23)

    def test_debug_level_and_directory(self):
        files = {
            0: set(),
            1: {".o", ".json", ".cce", "_loc.json"},
            2: {".o", ".json", ".cce", "_loc.json"},
            3: {".o", ".json"},
            4: {".o", ".json", ".cce", "_compute.json"},
        }
        for level in files:
            (self.folder / f"level{level}").mkdir()
        self.run_python(
            f"""
            os.chdir({str(self.folder)!r})
            torch.npu.set_option({{"ACL_OP_DEBUG_LEVEL": 3}})
            add(9)
            for level in range(5):
                torch.npu.set_option({{"ACL_OP_DEBUG_LEVEL": level, "ACL_DEBUG_DIR": f"level{{level}}"}})
                add(level + 1)
            """
        )
        for level, endings in files.items():
            with self.subTest(level=level):
                found = list(self.folder.glob(f"level{level}/kernel_meta/te_add_*"))
                stem = min((path.name.split(".")[0] for path in found), key=len, default="")
                self.assertEqual({path.name.removeprefix(stem) for path in found}, endings)
                if level:
                    text = (self.folder / f"level{level}" / "kernel_meta" / f"{stem}.json").read_text()
                    self.assertIn("Add, Input: {", text)
                    self.assertEqual("-O0 -g" in text, level == 2)
        # Without a directory, where the process runs.
        self.assertTrue(list(self.folder.glob("kernel_meta/te_add_*.o")))

    def test_compiler_cache(self):
        body = f"""
        torch.npu.set_option({{"ACL_OP_COMPILER_CACHE_MODE": "%s", "ACL_OP_COMPILER_CACHE_DIR": {str(self.folder)!r}}})
        before = compiled()
        add(), add(2, 2)
        print(compiled() - before)
        """
        found = "LoadOp: found in the compile cache on disk, opType = Add"
        first = self.run_python(body % "enable")
        self.assertGreater(int(self.answers(first)[0]), 1)
        self.assertNotIn(found, first)
        records = set(self.folder.glob("kernel_cache/*/te_add_*.json"))
        self.assertEqual(len(records), 2)
        second = self.run_python(body % "enable")
        self.assertEqual(self.answers(second), ["0"])
        self.assertEqual(second.count(found), 2)
        self.assertNotIn("aclOp OpType: Add", second)
        stale = self.folder / "kernel_cache" / "Ascend910B_sim" / "te_sub_0123456789abcdef.json"
        stale.write_text("")
        forced = self.run_python(body % "force")
        self.assertEqual(self.answers(forced), self.answers(first))
        self.assertFalse(stale.exists())
        self.assertEqual(set(self.folder.glob("kernel_cache/*/te_add_*.json")), records)
        self.assertEqual(self.answers(self.run_python(body % "disable")), self.answers(first))
        # With a debug level the cache is left alone.
        level = f"torch.npu.set_option({{'ACL_OP_DEBUG_LEVEL': 3, 'ACL_DEBUG_DIR': {str(self.folder)!r}}})"
        debugged = self.run_python(level + textwrap.dedent(body % "enable"))
        self.assertEqual(self.answers(debugged), self.answers(first))

    def test_jit_compile_and_fuzzy_steps(self):
        body = """
        torch.npu.set_compile_mode(jit_compile=True)
        add(3), add(4), add(5)
        torch.npu.set_compile_mode(jit_compile=False)
        add(3, 3), add(4, 4), add(5, 5)
        torch.npu.set_compile_mode(jit_compile=True)
        torch.npu.global_step_inc()
        add(3, 3, 3), add(4, 4, 4), add(5, 5, 5)
        """
        for variables, counts in (
            ({}, (3, 2)),
            ({"DYNAMIC_COMPILE_ENABLE": "1"}, (0, 3)),
            ({"DYNAMIC_OP": "ADD#MUL"}, (0, 3)),
        ):
            with self.subTest(**variables):
                out = self.run_python(body, **variables)
                line = "To compile op, opType = Add, mode = "
                self.assertEqual((out.count(line + "exact"), out.count(line + "fuzzy")), counts)

    def test_copies_are_one_operator_whatever_the_switches_say(self):
        body = """
        x = torch.arange(24.0, device="npu").reshape(2, 3, 4)
        views = {"transpose": lambda: x.transpose(0, 2), "narrow": lambda: x[:, 1:, ::2],
                 "combined": lambda: x.transpose(0, 1)[1:].permute(2, 1, 0), "expand": lambda: x[:1].expand(5, 3, 4)}
        for name, view in views.items():
            torch.npu.synchronize()
            before = torch._C._npu_simulatorCounters(0)["ops_launched"]
            copy = view().contiguous()
            torch.npu.synchronize()
            print(name, torch._C._npu_simulatorCounters(0)["ops_launched"] - before, copy.sum().item())
        """
        seen = {
            tuple(self.answers(self.run_python(body, PTCOPY_ENABLE=value, COMBINED_ENABLE=value)))
            for value in ("0", "1")
        }
        self.assertEqual(len(seen), 1, seen)
        for line in seen.pop():
            self.assertEqual(line.split()[1], "1", line)

    def test_products_are_plain_whatever_switch_mm_output_says(self):
        body = """
        x = torch.ones(32, 32, device="npu")
        print(torch.get_npu_format(x @ x), torch.get_npu_format(x.npu_format_cast(29) @ x), (x @ x).sum().item())
        """
        for value in ("0", "1"):
            out = self.run_python(body, SWITCH_MM_OUTPUT_ENABLE=value)
            self.assertEqual(self.answers(out), ["2 2 32768.0"])

    def test_cast_weight(self):
        def formats():
            net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(5, 6)).npu()
            return [torch.get_npu_format(net[0].weight), torch.get_npu_format(net[1].weight)]

        plain = formats()
        torch.npu.config.allow_internal_format = True
        try:
            self.assertEqual(formats(), [4, 29])
        finally:
            torch.npu.config.allow_internal_format = False
        self.assertEqual(formats(), plain)

    def test_options_set_before_the_device_opens_count(self):
        out = self.run_python(
            f"""
            torch.npu.set_option({{"ACL_OP_DEBUG_LEVEL": 3, "ACL_DEBUG_DIR": {str(self.folder)!r}}})
            torch.npu.matmul.allow_hf32 = True
            x = torch.full((1, 1), 1 + 2.0**-20).npu()
            print((x @ torch.ones(1, 1).npu()).item())
            """
        )
        self.assertEqual(self.answers(out), ["1.0"])
        self.assertTrue(list(self.folder.glob("kernel_meta/te_matmulv2_*.json")))

    def test_what_was_queued_before_an_option_keeps_its_numbers(self):
        out = self.run_python(
            """
            x, one = torch.full((1, 1), 1 + 2.0**-20, device="npu"), torch.ones(1, 1, device="npu")
            results = []
            for _ in range(20):
                for allow in (False, True):
                    torch.npu.matmul.allow_hf32 = allow
                    results += [x @ one for _ in range(20)]
            got = torch.cat(results).reshape(20, 2, 20).ne(1).cpu()
            print(got[:, 0].all().item(), got[:, 1].any().item())
            """,
            TASK_QUEUE_ENABLE="2",
        )
        self.assertEqual(self.answers(out), ["True False"])


class TestCacheOnDisk(OptionsTest):
    SHAPES = "(add(n) for n in range(1, 60))"

    def body(self, work: str, mode: str = "enable") -> str:
        return f"""
torch.npu.set_option({{"ACL_OP_COMPILER_CACHE_MODE": "{mode}", "ACL_OP_COMPILER_CACHE_DIR": {str(self.folder)!r}}})
before = compiled()
{work}
print(compiled() - before)
"""

    def compilations(self, work: str, **variables: str) -> int:
        return int(self.answers(self.run_python(self.body(work), **variables))[-1])

    @property
    def records(self):
        return sorted(self.folder.glob("kernel_cache/*/te_*.json"))

    def test_another_version_cut_off_and_foreign_records_are_written_again(self):
        damages = [
            lambda text: text,
            lambda text: text.replace('"version": "', '"version": "9'),
            lambda text: text.replace('"record": 1', '"record": 2'),
            lambda text: text[: len(text) // 2],
            lambda text: "",
            lambda text: text[:-10] + chr(ord(text[-10]) ^ 1) + text[-9:],
            lambda text: text + "\0",
            lambda text: text.replace('"type": "Add"', '"type": "Sub"'),
        ]
        work = f"""
for n in range({len(damages)}):
    start = compiled()
    assert add(2, n + 1).eq(2).all().item()
    torch.npu.synchronize()
    print(n, compiled() - start)
"""
        fresh = self.answers(self.run_python(self.body(work)))
        originals = {path: path.read_text() for path in self.records}
        adds = [path for path in originals if "te_add_" in path.name]
        self.assertEqual(len(adds), len(damages))
        for damage, path in zip(damages, adds, strict=True):
            self.assertEqual(damage(originals[path]) == originals[path], damage is damages[0])
            path.write_text(damage(originals[path]))
        again = self.answers(self.run_python(self.body(work)))
        self.assertEqual(int(again[-1]), len(damages) - 1, (fresh, again))
        self.assertEqual({path: path.read_text() for path in self.records}, originals)
        self.assertEqual(self.compilations(work), 0)

    def test_something_else_lies_there(self):
        fresh = self.compilations("add()")
        record = next(path for path in self.records if "te_add" in path.name)
        record.unlink()
        record.mkdir()
        out = self.run_python(self.body("assert add().tolist() == [2.0] * 3"))
        self.assertIn("cannot write", out)
        self.assertLess(int(self.answers(out)[-1]), fresh)

    def test_processes_share_it(self):
        body, log = self.body(f"list({self.SHAPES})"), str(self.folder / "log")
        processes = [launch(body, ASCEND_PROCESS_LOG_PATH=log) for _ in range(3)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            self.assertNotIn("cannot write", out)
        self.assertEqual(self.compilations(f"list({self.SHAPES})"), 0)
        self.assertEqual(list(self.folder.glob("kernel_cache/*/*.tmp")), [])

    def test_a_process_is_killed(self):
        endless = "n = 0\nwhile True:\n    n += 1\n    add(n)"
        process = launch(self.body(endless), ASCEND_PROCESS_LOG_PATH=str(self.folder / "log"))
        end = time.monotonic() + 60
        while len(self.records) < 5 and time.monotonic() < end:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        for path in self.records:
            self.assertTrue(path.read_text().endswith("\n}\n"), path)
        self.compilations(f"assert all(y.eq(2).all().item() for y in {self.SHAPES})")
        self.assertEqual(self.compilations(f"list({self.SHAPES})"), 0)

    def test_what_a_killed_process_left_goes_when_it_is_old(self):
        self.compilations("add()")
        folder = self.records[0].parent
        old, new, foreign = folder / "te_add_1.json.7.0.tmp", folder / "te_add_2.json.7.0.tmp", folder / "notes.tmp"
        for path in (old, new, foreign):
            path.write_text("{")
        for path in (old, foreign):
            os.utime(path, (time.time() - 7200,) * 2)
        self.compilations("add()")
        self.assertEqual((old.exists(), new.exists(), foreign.exists()), (False, True, True))

    def test_a_full_disk(self):
        limit = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
add()
torch.npu.synchronize()
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
assert all(y.eq(2).all().item() for y in {self.SHAPES})
"""
        self.assertTrue(hasattr(resource, "RLIMIT_FSIZE"))
        process = launch(self.body(limit), ASCEND_PROCESS_LOG_PATH=str(self.folder / "log"))
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(out.count("cannot write"), 1, out)
        self.assertIn("File too large", out)
        self.assertEqual(list(self.folder.glob("kernel_cache/*/*.tmp")), [])
        self.assertGreater(self.compilations(f"list({self.SHAPES})"), 0)
        self.assertEqual(self.compilations(f"list({self.SHAPES})"), 0)

    def test_the_folder_goes_away_or_cannot_be_written(self):
        gone = self.folder / "gone"
        gone.mkdir()
        out = self.run_python(
            f"""
            torch.npu.set_option({{"ACL_OP_COMPILER_CACHE_MODE": "enable", "ACL_OP_COMPILER_CACHE_DIR": {str(gone)!r}}})
            torch.npu.synchronize()
            os.rmdir({str(gone)!r})
            open({str(gone)!r}, "w").close()
            print(*add().tolist())
            """
        )
        self.assertIn("cannot write", out)
        self.assertEqual(self.answers(out), ["2.0 2.0 2.0"])

    def test_other_options_are_other_records(self):
        products = """
for allow, mode in ((False, "must_keep_origin_dtype"), (True, "must_keep_origin_dtype"), (False, "force_fp16")):
    torch.npu.matmul.allow_hf32 = allow
    torch.npu.set_option({"ACL_PRECISION_MODE": mode})
    x = torch.full((1, 1), 1 + 2.0**-20, device="npu")
    print((x @ torch.ones(1, 1, device="npu")).item())
"""
        for _ in range(2):
            values = self.answers(self.run_python(self.body(products)))[:3]
            self.assertEqual(values[1:], ["1.0", "1.0"])
            self.assertNotEqual(values[0], "1.0")
        self.assertEqual(len([path for path in self.records if "te_matmulv2" in path.name]), 3)


if __name__ == "__main__":
    unittest.main()
