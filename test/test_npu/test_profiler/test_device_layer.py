"""torch.npu.profile, its result folders, msprof, marks, and the OP_INFO script."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import several_devices  # noqa: E402, F401
from common_utils import TestCase, run_tests  # noqa: E402
from prof_scripts import small_step  # noqa: E402

import torch  # noqa: E402
from torch.npu._profile import device, events, msprof, tables  # noqa: E402


class FolderTest(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def profiled(self, step=small_step, **arguments) -> Path:
        """A folder PROF_* of one step."""
        step()
        with torch.npu.profile(str(self.folder), **arguments) as prof:
            step()
        return Path(prof.result_path)

    def rows(self, path: Path) -> list[dict[str, str]]:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def run_script(self, text: str, **environment) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            cwd=self.folder,
            env=dict(os.environ, **environment),
            capture_output=True,
            text=True,
            timeout=120,
        )


class TestProfile(FolderTest):
    def test_a_folder_is_made_and_exported(self):
        folder = self.profiled()
        self.assertTrue(folder.name.startswith("PROF_"))
        self.assertTrue((folder / "device_0").is_dir() and (folder / "host").is_dir())
        self.assertEqual(msprof.main(["--export=on", f"--output={self.folder}"]), 0)
        trace = json.loads((folder / "timeline" / "msprof.json").read_text())["traceEvents"]
        self.assertTrue(any(event["ph"] == "X" and "MatMul" in event["name"] for event in trace))
        summary = self.rows(folder / "summary" / "op_summary.csv")
        self.assertEqual(sum("MatMul" in row["OP Type"] for row in summary), 3)
        statistic = self.rows(folder / "summary" / "op_statistic.csv")
        self.assertAlmostEqual(sum(float(row["Ratio(%)"]) for row in statistic), 100, delta=0.1)
        for row in self.rows(folder / "summary" / "task_time.csv"):
            # The absolute times have more digits than a float: they are compared as text is read, in nanoseconds.
            start, stop = (int(row[f"task_{end}(us)"].replace(".", "")) for end in ("start", "stop"))
            self.assertEqual(stop - start, round(float(row["task_time(us)"]) * 1000))

    def test_positional_path_and_default(self):
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with torch.npu.profile() as prof:
                small_step()
        finally:
            os.chdir(before)
        self.assertTrue((self.folder / prof.result_path).is_dir())

    def test_rows_of_the_time_line_in_order(self):
        folder = self.profiled(use_e2e_profiler=True)
        trace = msprof.timeline(events.read_folder(folder))["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in trace if e["ph"] == "M" and e["name"] == "process_name"}
        order = sorted((e["args"]["sort_index"], e["pid"]) for e in trace if e.get("name") == "process_sort_index")
        self.assertEqual([names[pid] for _, pid in order], ["MsprofTx", "AscendCL", "Task Scheduler", "AI CPU"])
        top = [e["name"] for e in trace if e["ph"] == "X" and names[e["pid"]] == "MsprofTx"]
        self.assertIn("aten::mm", top)

    def test_end_to_end_joins_framework_and_device(self):
        profile = events.read_folder(self.profiled(use_e2e_profiler=True))
        products = [task for task in profile.tasks if "MatMul" in task.name]
        self.assertEqual([task.op.name for task in products], ["aten::mm"] * 3)
        for task in products:
            self.assertGreaterEqual(task.start, task.op.start)

    def test_emit_msprof_makes_ranges_of_a_part(self):
        x = torch.ones(8, 8).npu()
        emit = torch.autograd.profiler.emit_msprof()
        with torch.npu.profile(str(self.folder)) as prof:
            x @ x
            with emit:
                x.relu()
                with self.assertRaisesRegex(RuntimeError, "not reentrant"), emit:
                    pass
            with torch.npu.emit_msprof(enabled=False):
                x @ x
        names = {op.name for op in events.read_folder(Path(prof.result_path)).ops}
        self.assertIn("aten::relu", names)
        self.assertNotIn("aten::matmul", names)

    def test_without_end_to_end_there_are_no_framework_ranges(self):
        self.assertFalse(events.read_folder(self.profiled()).ops)

    def test_each_switch_removes_its_data(self):
        def kinds(**switches) -> tuple[bool, bool]:
            config = torch.npu.profileConfig(**switches)
            step = small_step
            step()
            with torch.npu.profile(str(self.folder), config=config) as prof:
                step()
            profile = events.read_folder(Path(prof.result_path))
            return bool(profile.calls), any(task.kind == "op" for task in profile.tasks)

        self.assertEqual(kinds(), (True, True))
        self.assertEqual(kinds(ACL_PROF_ACL_API=False), (False, True))
        with self.assertRaisesRegex(RuntimeError, "no work reached an NPU"):
            kinds(ACL_PROF_TASK_TIME=False, ACL_PROF_AICPU=False)

    def test_iterations(self):
        w = torch.ones(4, device="npu", requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)

        def steps():
            for _ in range(3):
                (w * w).sum().backward()
                optimizer.step()

        profile = events.read_folder(self.profiled(steps))
        self.assertEqual(len(profile.steps), 3)
        rows = tables.step_trace(profile)
        self.assertEqual([row[1] for row in rows], ["0", "1", "2"])
        config = torch.npu.profileConfig(ACL_PROF_TRAINING_TRACE=False)
        self.assertFalse(events.read_folder(self.profiled(steps, config=config)).steps)

    def test_metrics_have_the_guides_columns_and_no_invented_numbers(self):
        for metrics, columns in device.METRIC_COLUMNS.items():
            config = torch.npu.profileConfig(aiCoreMetricsType=metrics)
            folder = self.profiled(config=config)
            msprof.export(folder)
            rows = self.rows(folder / "summary" / "op_summary.csv")
            self.assertEqual(list(rows[0])[len(tables.SUMMARY_COLUMNS) :], list(columns))
            for column in columns:
                self.assertEqual({row[column] for row in rows}, {"N/A"})

    def test_bits_and_values_are_the_guides(self):
        self.assertEqual(torch.npu.profileConfig().data, 0x7F)
        self.assertEqual(torch.npu.profileConfig(ACL_PROF_AICPU=False).data, 0x7F & ~0x0008)
        self.assertEqual(torch.npu.profileConfig().metrics, 0)
        with self.assertRaisesRegex(ValueError, "no AI Core metrics 9"):
            torch.npu.profileConfig(aiCoreMetricsType=9)

    def test_a_missing_folder_is_named(self):
        with (
            self.assertRaisesRegex(FileNotFoundError, "/does/not/exist.*make it"),
            torch.npu.profile("/does/not/exist"),
        ):
            self.fail("it began")

    def test_work_on_the_cpu_alone_is_told(self):
        wanted = self.assertRaisesRegex(RuntimeError, "Move the model, the inputs and the targets")
        with wanted, torch.npu.profile(str(self.folder)):
            small_step("cpu")

    def test_a_wrong_config_is_told(self):
        with self.assertRaisesRegex(TypeError, "profileConfig, not dict"):
            torch.npu.profile(str(self.folder), config={})

    def test_two_at_once_are_refused_and_the_first_goes_on(self):
        with torch.npu.profile(str(self.folder)) as prof:
            refused = self.assertRaisesRegex(RuntimeError, "aclprofInit was called before")
            with refused, torch.npu.profile(str(self.folder)):
                self.fail("it began")
            small_step()
        self.assertTrue(events.read_folder(Path(prof.result_path)).tasks)

    def test_an_exception_inside_ends_the_profile(self):
        with self.assertRaisesRegex(ValueError, "on purpose"), torch.npu.profile(str(self.folder)):
            small_step()
            raise ValueError("on purpose")
        self.profiled()

    def test_beside_torch_profiler(self):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.NPU]) as prof:
            folder = self.profiled()
        self.assertEqual(sum("MatMul" in task.name for task in events.read_folder(folder).tasks), 3)
        self.assertTrue(any("MatMul" in row.key for row in prof.key_averages()))

    def test_sums_agree_with_the_wall_clock(self):
        x = torch.ones(700, 700).npu()
        (x @ x).sum().item()
        with torch.npu.profile(str(self.folder)) as prof:
            start = time.perf_counter()
            for _ in range(20):
                x @ x
            torch.npu.synchronize()
            wall = time.perf_counter() - start
        busy = sum(task.duration for task in events.read_folder(Path(prof.result_path)).tasks) / 1e6
        self.assertLess(busy, 1.05 * wall)
        self.assertGreater(busy, 0.8 * wall)

    def test_a_process_that_dies_leaves_what_it_did(self):
        done = self.run_script(
            """
            import os, time, torch
            torch.npu.profile(".").__enter__()
            x = torch.ones(64, 64).npu()
            for _ in range(50): x @ x
            torch.npu.synchronize()
            time.sleep(0.3)
            os.kill(os.getpid(), 9)
            """
        )
        self.assertEqual(done.returncode, -signal.SIGKILL)
        (folder,) = self.folder.glob("PROF_*")
        self.assertEqual(sum("MatMul" in task.name for task in events.read_folder(folder).tasks), 50)
        self.assertEqual(msprof.main(["--export=on", f"--output={self.folder}"]), 0)

    def test_a_full_disk_is_told_and_work_goes_on(self):
        done = self.run_script(
            """
            import resource, signal, torch
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            x = torch.ones(4).npu()
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
            try:
                with torch.npu.profile("."):
                    for _ in range(5000): x = x + 1
                    torch.npu.synchronize()
            except RuntimeError as error:
                print(error)
            print(x.sum().item())
            """
        )
        self.assertIn("are not complete", done.stdout, done.stderr)
        self.assertIn("File too large", done.stdout)
        self.assertIn("20004.0", done.stdout)

    def test_a_fork_while_profiling(self):
        done = self.run_script(
            """
            import os, torch
            with torch.npu.profile("."):
                x = torch.ones(4).npu()
                child = os.fork()
                if child == 0: os._exit(7)
                print(os.waitpid(child, 0)[1] >> 8)
                x + 1
            """
        )
        self.assertEqual(done.stdout.strip(), "7", done.stderr)


class TestMarks(FolderTest):
    def test_ranges_marks_and_their_work(self):
        mstx = torch.npu.mstx

        def step():
            x = torch.ones(8, 8).npu()
            with mstx.mstx_range("outer"):
                mstx.mark("here")
                self.assertEqual(mstx.range_push("inner"), 1)
                x @ x
                self.assertEqual(mstx.range_pop(), 1)
            number = mstx.range_start("apart", domain="mine")
            mstx.range_end(number)

        profile = events.read_folder(self.profiled(step))
        ops = {op.name: op for op in profile.ops}
        self.assertIs(ops["inner"].parent, ops["outer"])
        self.assertIn("mine: apart", ops)
        self.assertIn("here", [text for _, text in profile.marks])
        (product,) = (task for task in profile.tasks if "MatMul" in task.name)
        self.assertEqual(product.op.name, "inner")

    def test_decorator(self):
        @torch.npu.mstx.annotate()
        def named():
            torch.ones(2).npu() + 1

        self.assertIn("named", [op.name for op in events.read_folder(self.profiled(named)).ops])

    def test_what_is_not_open_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "no range is open"):
            torch.npu.mstx.range_pop()
        with self.assertRaisesRegex(RuntimeError, "range 999 is not open"):
            torch.npu.mstx.range_end(999)
        with self.assertRaisesRegex(ValueError, "not empty"):
            torch.npu.mstx.mark("")

    def test_nothing_is_lost_of_a_long_message(self):
        torch.npu.mstx.mark("x" * 1000)  # cut to what CANN takes, no error


class TestMsprof(FolderTest):
    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "torch.npu._profile.msprof", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=180)

    def test_application(self):
        (self.folder / "script.py").write_text(
            "import sys, torch\nassert sys.argv == ['script.py', 'argument']\ntorch.ones(2).npu() + 1\n"
        )
        done = self.run_tool(f"--application={sys.executable} script.py argument", "--output=.")
        self.assertEqual(done.returncode, 0, done.stderr)
        (folder,) = self.folder.glob("PROF_*")
        self.assertTrue((folder / "summary" / "op_summary.csv").is_file())

    def test_errors(self):
        for arguments, words in (
            (["--export=on", "--output=missing"], "no folder 'missing'"),
            (["--export=on", "--output=."], "holds no folder PROF_"),
            (["--output=."], "--export=on"),
            (["--application=ls", "--output=."], "takes 'python SCRIPT"),
        ):
            done = self.run_tool(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


class TestOpInfo(FolderTest):
    TOOL = ROOT / "tools" / "get_ascend_op_info.py"

    def run_tool(self, folder: Path) -> subprocess.CompletedProcess:
        command = [sys.executable, str(self.TOOL), "--host_log_folder", str(folder)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def test_summary(self):
        logs = self.folder / "logs"
        logs.mkdir()
        line = "[INFO] ASCENDCL(1,python):2026 [op.cpp:1] 1 aclopCompile::aclOp OpType: Add, x=1,y=2]\n"
        (logs / "a.log").write_text(
            line + "[INFO] ASCENDCL other\n[ERROR] ASCENDCL aclopCompile::aclOp OpType: No, x]\n"
        )
        (logs / "b.log").write_text(line + line.replace("Add, x=1,y=2", "TransData, a"))
        (logs / "c.log.out").write_text(line.replace("Add", "Never"))
        (logs / "d.txt").write_text(line.replace("Add", "Never"))
        done = self.run_tool(logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = (self.folder / "ascend_op_info_summary.txt").read_text()
        self.assertEqual(summary, "Add x=1,y=2\nTransData a\n")
        self.assertIn("TransData: 1 operators", done.stdout)

    def test_logs_of_this_device(self):
        done = self.run_script(
            "import torch\nx = torch.ones(2, 3).npu()\n(x + x).half()",
            ASCEND_GLOBAL_LOG_LEVEL="1",
            ASCEND_PROCESS_LOG_PATH=str(self.folder / "log"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        logs = next(iter(sorted(path.parent for path in (self.folder / "log").rglob("*.log"))))
        done = self.run_tool(logs)
        self.assertIn("Cast: 1 operators", done.stdout)

    def test_missing_folder(self):
        done = self.run_tool(self.folder / "missing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("missing", done.stderr)


if __name__ == "__main__":
    run_tests()
