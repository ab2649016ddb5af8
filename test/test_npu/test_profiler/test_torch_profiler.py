"""torch.profiler with the npu's activities: correlation, time, threads, streams, schedules, failures."""

import collections
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import several_devices  # noqa: E402, F401
from common_utils import TestCase, run_tests  # noqa: E402
from prof_scripts import ACTIVITIES, small_step  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function, schedule  # noqa: E402

import torch  # noqa: E402


def exported(prof) -> list[dict]:
    """The events of a profile's trace file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        prof.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]


def in_process(script: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a script in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command, env = [sys.executable, "-c", script], os.environ | environment
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


class TestActivities(TestCase):
    def test_npu_is_an_activity(self):
        self.assertEqual(ProfilerActivity.NPU, ProfilerActivity.PrivateUse1)
        self.assertIn(ProfilerActivity.NPU, torch.profiler.supported_activities())

    def test_device_events_belong_to_the_operators_that_launched_them(self):
        with profile(activities=ACTIVITIES) as prof:
            small_step()
        averages = {row.key: row for row in prof.key_averages()}
        self.assertEqual(averages["aten::mm"].count, 3)
        self.assertGreater(averages["aten::mm"].device_time_total, 0)
        events = exported(prof)
        ops = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
        kernels = [e for e in events if e.get("cat") == "kernel"]
        products = [e for e in kernels if "MatMul" in e["name"]]
        self.assertEqual(len(products), 3)
        for kernel in products:
            self.assertEqual(ops[kernel["args"]["External id"]]["name"], "aten::mm")
        for kernel in kernels:
            op = ops[kernel["args"]["External id"]]
            self.assertGreaterEqual(kernel["ts"], op["ts"] - 1)

    def test_arrows_lead_from_the_call_to_the_device(self):
        with profile(activities=ACTIVITIES) as prof:
            small_step()
        events = exported(prof)
        starts = {e["id"] for e in events if e["ph"] == "s" and e.get("cat") == "ac2g"}
        ends = {e["id"] for e in events if e["ph"] == "f" and e.get("cat") == "ac2g"}
        kernels = [e for e in events if e.get("cat") == "kernel"]
        self.assertTrue(kernels)
        for kernel in kernels:
            self.assertIn(kernel["args"]["correlation"], starts)
            self.assertIn(kernel["args"]["correlation"], ends)

    def test_operands_of_a_kernel(self):
        x = torch.ones(6, 4).npu()
        with profile(activities=ACTIVITIES) as prof:
            x @ x.t()
        (kernel,) = (e for e in exported(prof) if e.get("cat") == "kernel" and "MatMul" in e["name"])
        self.assertTrue(kernel["args"]["Input Shapes"].startswith("6,4;"))
        self.assertEqual(kernel["args"]["Output Shapes"], "6,6")
        self.assertEqual(kernel["args"]["Task Type"], "AI_CORE")
        self.assertGreaterEqual(kernel["args"]["bytes"], (24 + 24 + 36) * 4)

    def test_copies_have_bytes(self):
        x = torch.ones(1000)
        with profile(activities=ACTIVITIES) as prof:
            x.npu().cpu()
        copies = {e["name"]: e for e in exported(prof) if e.get("cat") == "gpu_memcpy"}
        for name in ("Memcpy HtoD", "Memcpy DtoH"):
            self.assertEqual(copies[name]["args"]["bytes"], 4000)

    def test_waits_are_visible(self):
        x = torch.ones(512, 512).npu()
        with profile(activities=ACTIVITIES) as prof:
            (x @ x).sum().item()
            torch.npu.synchronize()
        names = {e["name"] for e in exported(prof) if e.get("cat") == "privateuse1_runtime"}
        self.assertTrue(names & {"aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout"}, names)
        self.assertTrue(any(name.startswith("aclrtSynchronizeDevice") for name in names), names)

    def test_table_is_sorted_by_npu_time(self):
        with profile(activities=ACTIVITIES) as prof:
            small_step()
        table = prof.key_averages().table(sort_by="npu_time_total", row_limit=5)
        self.assertIn("NPU total", table)
        self.assertIn("Self NPU time total", table)

    def test_only_the_npu(self):
        with profile(activities=[ProfilerActivity.NPU]) as prof:
            small_step()
        self.assertTrue(any("MatMul" in e["name"] for e in exported(prof) if e.get("cat") == "kernel"))

    def test_only_the_cpu_records_nothing_of_the_device(self):
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            small_step()
        self.assertFalse([e for e in exported(prof) if e.get("cat") in ("kernel", "privateuse1_runtime")])

    def test_rows_are_called_npu(self):
        with profile(activities=ACTIVITIES) as prof:
            small_step()
        events = exported(prof)
        (device,) = {e["pid"] for e in events if e.get("cat") == "kernel"}
        labels = [e["args"] for e in events if e["ph"] == "M" and e["pid"] == device]
        self.assertNotIn("GPU", json.dumps(labels))
        self.assertIn("NPU", json.dumps(labels))

    def test_two_streams_are_two_rows(self):
        other = torch.npu.Stream()
        x = torch.ones(64, 64).npu()
        torch.npu.synchronize()
        with profile(activities=ACTIVITIES) as prof:
            x @ x
            with torch.npu.stream(other):
                x @ x
            torch.npu.synchronize()
        self.assertEqual(len({e["tid"] for e in exported(prof) if e.get("cat") == "kernel"}), 2)

    def test_tasks_of_a_stream_do_not_overlap(self):
        x = torch.ones(128, 128).npu()
        with profile(activities=ACTIVITIES) as prof:
            for _ in range(200):
                x = x @ x + 1
        rows = collections.defaultdict(list)
        for event in exported(prof):
            if event.get("cat") in ("kernel", "gpu_memcpy"):
                rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        for row in rows.values():
            row.sort()
            for (_, end), (start, _) in zip(row, row[1:], strict=False):
                self.assertGreaterEqual(start, end - 0.002)

    def test_device_time_agrees_with_the_wall_clock(self):
        x = torch.ones(700, 700).npu()
        (x @ x).sum().item()
        with profile(activities=ACTIVITIES) as prof:
            start = time.perf_counter()
            for _ in range(20):
                x @ x
            torch.npu.synchronize()
            wall = time.perf_counter() - start
        busy = sum(e["dur"] for e in exported(prof) if e.get("cat") == "kernel") / 1e6
        self.assertLess(busy, 1.05 * wall)
        # The device does nothing else, so nearly all of the time is in its operators.
        self.assertGreater(busy, 0.8 * wall)

    def test_operators_have_the_line_that_called_them(self):
        def called(prof) -> dict[str, set]:
            found = collections.defaultdict(set)
            for event in exported(prof):
                if event.get("cat") == "cpu_op" and "Called at" in event["args"]:
                    found[event["name"]].add(event["args"]["Called at"])
            return found

        x = torch.ones(8, 8).npu()
        with profile(activities=ACTIVITIES, with_stack=True) as prof:
            first = inspect.currentframe().f_lineno
            x @ x
            for _ in range(2):
                x.relu()
            torch.nn.functional.softplus(
                x,
                beta=2,
            )
        here = f"{__file__}:{{}} test_operators_have_the_line_that_called_them"
        lines = called(prof)
        self.assertEqual(lines["aten::matmul"], {here.format(first + 1)})
        self.assertEqual(lines["aten::relu"], {here.format(first + 3)})
        self.assertEqual(lines["aten::softplus"], {here.format(first + 4)})
        # What an operator calls has no line of its own.
        self.assertNotIn("aten::mm", lines)
        with profile(activities=ACTIVITIES) as prof:
            x @ x
        self.assertFalse(called(prof))

    def test_execution_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "et.json")
            observer = torch.profiler.ExecutionTraceObserver().register_callback(path)
            observer.start()
            small_step()
            observer.stop()
            observer.unregister_callback()
            with open(path, encoding="utf-8") as file:
                nodes = json.load(file)["nodes"]
        products = [node for node in nodes if node["name"] == "aten::mm"]
        self.assertEqual(len(products), 3)
        for node in products:
            self.assertEqual(node["inputs"]["shapes"], [[64, 64], [64, 64]])
            self.assertEqual([value[-1] for value in node["inputs"]["values"]], ["npu:0", "npu:0"])

    def test_threads(self):
        def work() -> None:
            with record_function("in a thread"):
                x = torch.ones(32, 32).npu()
                (x @ x).sum().item()

        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        with profile(activities=ACTIVITIES, experimental_config=config) as prof:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        events = exported(prof)
        ops = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
        products = [e for e in events if e.get("cat") == "kernel" and "MatMul" in e["name"]]
        self.assertEqual(len(products), 3)
        self.assertEqual(len({ops[e["args"]["External id"]]["tid"] for e in products}), 3)

    def test_schedule(self):
        traces = []
        with profile(
            activities=ACTIVITIES,
            schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=lambda prof: traces.append(exported(prof)),
        ) as prof:
            for _ in range(8):
                small_step()
                torch.npu.synchronize()
                prof.step()
        self.assertEqual(len(traces), 2)
        for events in traces:
            products = [e for e in events if e.get("cat") == "kernel" and "MatMul" in e["name"]]
            self.assertEqual(len(products), 6)
            self.assertEqual(len({e["name"] for e in events if e["name"].startswith("ProfilerStep#")}), 2)

    def test_an_exception_inside_ends_the_profile(self):
        with self.assertRaisesRegex(RuntimeError, "on purpose"), profile(activities=ACTIVITIES) as prof:
            small_step()
            raise RuntimeError("on purpose")
        self.assertTrue(any(e.get("cat") == "kernel" for e in exported(prof)))
        with profile(activities=ACTIVITIES) as prof:
            small_step()
        self.assertEqual(sum("MatMul" in e["name"] for e in exported(prof) if e.get("cat") == "kernel"), 3)

    def test_started_and_stopped_again_and_again(self):
        for _ in range(12):
            prof = profile(activities=ACTIVITIES)
            prof.start()
            small_step()
            prof.stop()
            self.assertEqual(sum("MatMul" in e["name"] for e in exported(prof) if e.get("cat") == "kernel"), 3)

    def test_nothing_is_left_on_afterwards(self):
        with profile(activities=ACTIVITIES):
            small_step()
        small_step()
        with profile(activities=ACTIVITIES) as prof:
            pass
        self.assertFalse([e for e in exported(prof) if e.get("cat") == "kernel"])

    def test_failed_operators_raise_and_are_marked(self):
        script = (
            "import json, torch\n"
            "from torch.profiler import profile, ProfilerActivity as A\n"
            "x = torch.ones(4).npu()\n"
            "prof = profile(activities=[A.CPU, A.NPU])\n"
            "prof.start()\n"
            "x + 1\n"
            "try:\n"
            "    torch.npu.synchronize()\n"
            "except RuntimeError as error:\n"
            "    print('raised', 'Add' in str(error))\n"
            "prof.stop()\n"
            "prof.export_chrome_trace('trace.json')\n"
            "events = json.load(open('trace.json'))['traceEvents']\n"
            "print([e['name'] for e in events if e.get('args', {}).get('failed')])\n"
        )
        done = in_process(script, ASCEND_SIM_FAULT="Adds:error@1,Add:error@1")
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "raised True", done.stderr)
        self.assertIn("Add", lines[1])

    @unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "takes a minute")
    def test_many_events(self):
        x = torch.ones(4).npu()
        with profile(activities=ACTIVITIES) as prof:
            for _ in range(100_000):
                x + x
        self.assertEqual(sum(e.get("cat") == "kernel" for e in exported(prof)), 100_000)

    def test_the_queue_carries_the_operator_along(self):
        script = (
            "import json, torch\n"
            "from torch.profiler import profile, ProfilerActivity as A\n"
            "x = torch.ones(64, 64).npu()\n"
            "with profile(activities=[A.CPU, A.NPU]) as prof:\n"
            "    for _ in range(3): x @ x\n"
            "    torch.npu.synchronize()\n"
            "prof.export_chrome_trace('trace.json')\n"
            "events = json.load(open('trace.json'))['traceEvents']\n"
            "ops = {e['args']['External id']: e['name'] for e in events if e.get('cat') == 'cpu_op'}\n"
            "print([ops.get(e['args'].get('External id')) for e in events if e.get('cat') == 'kernel'])\n"
        )
        done = in_process(script, TASK_QUEUE_ENABLE="2")
        self.assertEqual(done.stdout.strip(), str(["aten::mm"] * 3), done.stderr)


if __name__ == "__main__":
    run_tests()
