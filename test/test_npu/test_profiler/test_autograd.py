"""torch.autograd.profiler with device time on npu, in the fork's spelling and in upstream's."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase, run_tests
from torch.autograd.profiler import profile

import torch

# The guide's table 8.
COLUMNS = (
    "Name",
    "Self CPU %",
    "Self CPU",
    "CPU total %",
    "CPU total",
    "CPU time avg",
    "Self NPU %",
    "Self NPU",
    "NPU total",
    "NPU time avg",
    "# of Calls",
)


def header(table: str) -> list[str]:
    """The titles of a table's columns."""
    return re.split(r"\s{2,}", table.splitlines()[1].strip())


def step(device: str) -> None:
    x = torch.randn(64, 64, device=device, requires_grad=True)
    (x @ x).relu().sum().backward()


class TestProfiler(TestCase):
    def rows(self, prof) -> dict:
        return {row.key: row for row in prof.key_averages()}

    def test_sorted_by_device_time(self):
        with profile(use_npu=True) as prof:
            x = torch.randn(300, 300, device="npu")
            (x + x) @ x
        averages = prof.key_averages()
        times = [event.device_time_total for event in averages]
        self.assertGreater(max(times), 0)
        longest = averages[times.index(max(times))].key
        for name in ("npu_time_total", "cuda_time_total", "device_time_total"):
            self.assertEqual(averages.table(sort_by=name, row_limit=1, header="").count(longest), 1)

    def test_use_npu_reports_device_time(self):
        with profile(use_npu=True) as prof:
            step("npu")
        rows = self.rows(prof)
        self.assertEqual(rows["aten::mm"].count, 3)
        self.assertGreater(rows["aten::mm"].self_device_time_total, 0)
        table = prof.key_averages().table(sort_by="self_cpu_time_total")
        for column in ("Self CPU %", "CPU total", "Self NPU", "NPU total", "# of Calls"):
            self.assertIn(column, table)

    def test_upstream_spelling_is_the_same(self):
        with profile(use_device="npu") as prof:
            step("npu")
        self.assertGreater(self.rows(prof)["aten::mm"].self_device_time_total, 0)

    def test_shapes_and_memory(self):
        with profile(use_npu=True, record_shapes=True, profile_memory=True) as prof:
            step("npu")
        table = prof.key_averages(group_by_input_shape=True).table()
        self.assertIn("Input Shapes", table)
        self.assertIn("NPU Mem", table)
        self.assertIn("[[64, 64], [64, 64]]", table)

    def test_children_never_exceed_their_parent(self):
        with profile(use_npu=True) as prof, torch.autograd.profiler.record_function("outer"):
            step("npu")
        # A task's time stands in its operator's row and in one of its own, as on CUDA, and gradients are computed by
        # another thread: the operators of this one are outer's children.
        cpu = [event for event in prof.function_events if event.device_type == torch.autograd.DeviceType.CPU]
        (parent,) = (event for event in cpu if event.name == "outer")
        own = sum(event.self_device_time_total for event in cpu if event.thread == parent.thread)
        outer = self.rows(prof)["outer"].device_time_total
        self.assertGreater(outer, 0)
        self.assertLess(abs(own - outer), 1e-3 * outer)

    def test_trace_is_chrome_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            with profile(use_npu=True) as prof:
                step("npu")
            prof.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                trace = json.load(file)
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        self.assertTrue(any(event.get("name") == "aten::mm" for event in events))

    def test_columns_are_the_guides(self):
        with profile(use_npu=True) as prof:
            step("npu")
        self.assertEqual(header(str(prof)), list(COLUMNS))
        self.assertEqual(header(prof.key_averages().table()), list(COLUMNS))

    def test_memory_and_shape_columns_come_with_their_switches(self):
        with profile(use_npu=True, record_shapes=True, profile_memory=True) as prof:
            step("npu")
        wanted = [*COLUMNS[:-1], "CPU Mem", "Self CPU Mem", "NPU Mem", "Self NPU Mem", COLUMNS[-1], "Input Shapes"]
        self.assertEqual(header(prof.key_averages(group_by_input_shape=True).table()), wanted)

    def test_share_of_device_time_is_in_its_column(self):
        with profile(use_npu=True) as prof:
            step("npu")
        table = prof.key_averages().table(sort_by="self_npu_time_total").splitlines()
        first = re.split(r"\s{2,}", table[3].strip())
        self.assertRegex(first[6], r"^[0-9.]+%$")
        self.assertRegex(first[7], r"^[0-9.]+(us|ms|s)$")

    def test_simple_leaves_operators_that_do_not_overlap(self):
        with profile(use_npu=True, use_npu_simple=True) as prof:
            step("npu")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            prof.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        rows = {}
        for event in events:
            if event.get("cat") == "cpu_op":
                rows.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
        self.assertTrue(rows)
        for row in rows.values():
            row.sort()
            for (_, end), (start, _) in zip(row, row[1:], strict=False):
                self.assertGreaterEqual(start, end - 0.002)
        self.assertTrue(any(event.get("cat") == "kernel" for event in events))

    def test_a_device_that_tells_nothing_is_measured_by_events(self):
        # What a card's profile looks like until its records can be read.
        tells_nothing = unittest.mock.patch.object(torch.npu._profile, "records_activities", lambda: False)
        with tells_nothing, profile(use_npu=True) as prof:
            step("npu")
        rows = self.rows(prof)
        self.assertEqual(rows["aten::mm"].count, 3)
        self.assertGreater(rows["aten::mm"].device_time_total, 0)
        self.assertNotIn("MatMul", rows)

    def test_two_devices_at_once_are_refused(self):
        with self.assertRaisesRegex(ValueError, "use_npu=True"):
            profile(use_npu=True, use_device="cuda")

    def test_disabled_profile_does_nothing(self):
        with profile(False, use_npu=True) as prof:
            step("npu")
        self.assertIsNone(prof)

    def test_profiling_npu1_opens_no_other_device(self):
        script = (
            "import torch\n"
            "torch.npu.set_device(1)\n"
            "with torch.autograd.profiler.profile(use_npu=True) as prof:\n"
            "    torch.ones(4, device='npu').add(1)\n"
            "assert any(row.key == 'aten::add' for row in prof.key_averages())\n"
            "print(torch._C._npu_hasPrimaryContext(0), torch._C._npu_hasPrimaryContext(1))\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("False True", done.stdout)


if __name__ == "__main__":
    run_tests()
