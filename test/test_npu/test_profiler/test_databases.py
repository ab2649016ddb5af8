"""What result folders hold beside tables: SQLite databases, the files of collectives, traces by the format's rules."""

import collections
import csv
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import several_devices  # noqa: E402, F401
import torch_npu  # noqa: E402
from common_utils import TestCase, run_tests  # noqa: E402
from prof_scripts import ACTIVITIES, small_step  # noqa: E402
from torch.profiler import profile  # noqa: E402

import torch  # noqa: E402
from torch.npu._profile import communication, database, events, msprof  # noqa: E402

profiler = torch_npu.profiler


class TestDatabase(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = Path(tempfile.mkdtemp())
        config = profiler._ExperimentalConfig(export_type=["text", "db"])
        with profiler.profile(
            schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
            on_trace_ready=profiler.tensorboard_trace_handler(str(cls.folder)),
            experimental_config=config,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
        ) as prof:
            for _ in range(3):
                small_step()
                torch.npu.synchronize()
                prof.step()
        (cls.output,) = cls.folder.glob("*/ASCEND_PROFILER_OUTPUT")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)
        super().tearDownClass()

    def ask(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.output / "ascend_pytorch_profiler.db")) as connection:
            return connection.execute(query).fetchall()

    def csv(self, name: str) -> list[dict[str, str]]:
        with open(self.output / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_tables_have_the_documented_columns(self):
        for name, columns in database.TABLES.items():
            self.assertEqual(tuple(row[1] for row in self.ask(f"PRAGMA table_info({name})")), columns)

    def test_tasks_are_those_of_the_tables(self):
        rows = self.ask(
            "SELECT value, SUM(endNs - startNs), COUNT(*) FROM COMPUTE_TASK_INFO JOIN TASK USING (globalTaskId) "
            "JOIN STRING_IDS ON STRING_IDS.id = COMPUTE_TASK_INFO.opType GROUP BY value"
        )
        expected = {
            row["OP Type"]: (float(row["Total Time(us)"]), int(row["Count"])) for row in self.csv("op_statistic.csv")
        }
        self.assertEqual({name for name, _, _ in rows}, set(expected))
        for name, spent, count in rows:
            self.assertEqual(count, expected[name][1])
            self.assertAlmostEqual(spent / 1000, expected[name][0], delta=0.01 * count)

    def test_operators_are_connected_with_their_tasks(self):
        rows = self.ask(
            "SELECT api.value, kernel.value FROM PYTORCH_API p JOIN CONNECTION_IDS c ON c.id = p.connectionId "
            "JOIN TASK t ON t.connectionId = c.connectionId JOIN COMPUTE_TASK_INFO i USING (globalTaskId) "
            "JOIN STRING_IDS api ON api.id = p.name JOIN STRING_IDS kernel ON kernel.id = i.name"
        )
        self.assertEqual(sum(api == "aten::mm" and "MatMul" in kernel for api, kernel in rows), 6)
        calls = self.ask("SELECT COUNT(*) FROM CANN_API JOIN TASK USING (connectionId)")
        self.assertEqual(calls, self.ask("SELECT COUNT(*) FROM TASK"))

    def test_every_text_is_there(self):
        for table, column in (("PYTORCH_API", "name"), ("PYTORCH_CALLCHAINS", "stack"), ("TASK", "taskType")):
            rows = self.ask(
                f"SELECT COUNT(*) FROM {table} LEFT JOIN STRING_IDS s ON s.id = {column} WHERE s.id IS NULL"
            )
            self.assertEqual(rows, [(0,)])

    def test_call_chains_name_the_script(self):
        rows = self.ask(
            "SELECT s.value FROM PYTORCH_API p JOIN PYTORCH_CALLCHAINS c ON c.id = p.callchainId "
            "JOIN STRING_IDS s ON s.id = c.stack JOIN STRING_IDS n ON n.id = p.name WHERE n.value = 'aten::matmul'"
        )
        self.assertEqual(len(rows), 2)
        self.assertTrue(all("prof_scripts.py:" in stack and "small_step" in stack for (stack,) in rows), rows)

    def test_steps_and_memory(self):
        self.assertEqual([row[0] for row in self.ask("SELECT id FROM STEP_TIME")], [1, 2])
        blocks = self.ask("SELECT size, duration FROM OP_MEMORY WHERE releaseTime IS NOT NULL")
        expected = [row for row in self.csv("operator_memory.csv") if row["Release Time(us)"]]
        self.assertEqual(len(blocks), len(expected))
        for (size, lived), row in zip(blocks, expected, strict=True):
            self.assertAlmostEqual(size / 1024, float(row["Size(KB)"]), delta=0.001)
            self.assertAlmostEqual(lived / 1000, float(row["Duration(us)"]), delta=0.002)

    def test_either_kind_later(self):
        shutil.rmtree(self.output)
        place = str(self.folder)
        with self.assertRaisesRegex(ValueError, "no export type 'xml'"):
            profiler.profiler.analyse(place, export_type="xml")
        profiler.profiler.analyse(place, export_type="db")
        self.assertEqual([path.name for path in self.output.iterdir()], ["ascend_pytorch_profiler.db"])
        profiler.profiler.analyse(place)
        self.assertTrue((self.output / "kernel_details.csv").is_file())

    def test_what_cannot_be_written_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "profile.db")
            place.mkdir()
            with self.assertRaises(OSError):
                database.write(place, events.Profile("none"))
            with self.assertRaisesRegex(OSError, "cannot be written"):
                database.write(Path(folder, "none", "profile.db"), events.Profile("none"))
            self.assertEqual(os.listdir(folder), ["profile.db"])


class TestCommunication(TestCase):
    def profile(self) -> events.Profile:
        def collective(name: str, start: float) -> events.Task:
            return events.Task(name, "hccl", 0, 3, start, start + 500, core="HCCL")

        steps = [events.HostOp(f"ProfilerStep#{n}", "range", 1, 1000.0 * n, 1000.0 * n + 999) for n in (1, 2)]
        tasks = [collective("HcclAllReduce", 1100), collective("HcclSend", 2100), collective("HcclAllReduce", 2300)]
        return events.Profile("made", tasks=tasks, ops=steps, origin=10**18)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            communication.write(Path(folder), self.profile())
            times = json.loads(Path(folder, "communication.json").read_text())
            matrix = json.loads(Path(folder, "communication_matrix.json").read_text())
        self.assertEqual(sorted(times), ["step1", "step2"])
        self.assertEqual(times["step1"]["p2p"], {})
        name, total = times["step1"]["collective"]
        self.assertEqual(name, "hcom_allReduce__0@N/A")
        self.assertEqual(total, "Total Op Info")
        info = times["step1"]["collective"][name]["Communication Time Info"]
        self.assertEqual(info, {"Start Timestamp(us)": 1e15 + 1100, "Elapse Time(ms)": 0.5})
        self.assertEqual(list(matrix["step2"]["p2p"]), ["hcom_send__1@N/A"])
        self.assertEqual(list(matrix["step2"]["collective"].values()), [{}])

    def test_none_without_collectives(self):
        with tempfile.TemporaryDirectory() as folder:
            communication.write(Path(folder), events.Profile("none"))
            self.assertEqual(os.listdir(folder), [])


class TestTraceFormat(TestCase):
    """The Trace Event Format's rules by which Perfetto reads a file; what breaks them it drops or shows wrongly."""

    def check(self, trace: dict) -> None:
        arrows = collections.defaultdict(collections.Counter)
        spans = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            phase = event["ph"]
            self.assertIn(phase, ("X", "M", "i", "s", "f"), event)
            self.assertIsInstance(event["name"], str)
            self.assertIn("pid", event)
            if phase == "M":
                self.assertIsInstance(event["args"], dict)
                continue
            self.assertIsInstance(event["ts"], (int, float))
            self.assertGreaterEqual(event["ts"], 0)
            self.assertIn("tid", event)
            if phase == "X":
                self.assertGreaterEqual(event["dur"], 0)
                spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            elif phase == "i":
                self.assertIn(event.get("s", "t"), ("g", "p", "t"))
            else:
                arrows[event["cat"], event["name"], event["id"]][phase] += 1
                if phase == "f":
                    self.assertEqual(event.get("bp"), "e", event)
        for key, ends in arrows.items():
            self.assertEqual(ends["s"], 1, key)
            self.assertGreaterEqual(ends["f"], 1, key)
        # The ends of an arrow bind to what its row shows at that time.
        for event in trace["traceEvents"]:
            if event["ph"] in ("s", "f"):
                row = spans[event["pid"], event["tid"]]
                self.assertTrue(any(begin <= event["ts"] <= end for begin, end in row), event)

    def test_trace_of_torch_profiler(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            with profile(activities=ACTIVITIES, record_shapes=True, with_stack=True) as prof:
                small_step()
            prof.export_chrome_trace(path)
            self.check(json.loads(Path(path).read_text()))

    def test_time_line_of_the_device_layer(self):
        with tempfile.TemporaryDirectory() as folder:
            with torch.npu.profile(folder, use_e2e_profiler=True) as prof:
                small_step()
                torch.npu.mstx.mark("here")
            self.check(json.loads(json.dumps(msprof.timeline(events.read_folder(Path(prof.result_path))))))


if __name__ == "__main__":
    run_tests()
