"""torch_npu.profiler: the plug-in's names, its result folders and their columns."""

import csv
import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import several_devices  # noqa: E402, F401
import torch_npu  # noqa: E402
from common_utils import TestCase, run_tests  # noqa: E402
from prof_scripts import small_step  # noqa: E402

import torch  # noqa: E402

profiler = torch_npu.profiler


class TestPluginProfiler(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def profiled(self, step=small_step, **arguments) -> Path:
        """The result folder of two steps."""
        handler = profiler.tensorboard_trace_handler(str(self.folder), worker_name="me")
        with profiler.profile(
            schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1), on_trace_ready=handler, **arguments
        ) as prof:
            for _ in range(3):
                step()
                torch.npu.synchronize()
                prof.step()
        (result,) = self.folder.glob("me_*_ascend_pt")
        return result

    def rows(self, path: Path) -> list[dict[str, str]]:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def test_same_objects(self):
        self.assertIs(profiler, torch.npu.profiler)
        import torch_npu.profiler.profiler as inner

        self.assertIs(inner.profile, profiler.profile)
        self.assertTrue(issubclass(profiler.profile, torch.profiler.profile))
        self.assertIs(profiler.ProfilerAction, torch.profiler.ProfilerAction)
        self.assertEqual(profiler.ProfilerActivity.NPU, torch.profiler.ProfilerActivity.PrivateUse1)

    def test_result_folder(self):
        output = self.profiled(record_shapes=True, profile_memory=True) / "ASCEND_PROFILER_OUTPUT"
        names = {path.name for path in output.iterdir()}
        self.assertEqual(
            names,
            {
                "trace_view.json",
                "kernel_details.csv",
                "operator_details.csv",
                "op_statistic.csv",
                "api_statistic.csv",
                "step_trace_time.csv",
                "memory_record.csv",
                "operator_memory.csv",
            },
        )
        json.loads((output / "trace_view.json").read_text())
        kernels = self.rows(output / "kernel_details.csv")
        products = [row for row in kernels if "MatMul" in row["Type"]]
        self.assertEqual(len(products), 6)
        self.assertEqual(len({row["Step Id"] for row in kernels}), 2)
        self.assertEqual(products[0]["Input Data Types"].split(";")[:2], ["FLOAT", "FLOAT"])
        steps = self.rows(output / "step_trace_time.csv")
        self.assertEqual([(row["Device_id"], row["Step"]) for row in steps], [("0", "1"), ("0", "2")])
        for row in steps:
            spent = sum(
                float(task["Duration(us)"])
                for task in kernels
                if task["Step Id"] == row["Step"] and task["Accelerator Core"].startswith("AI_")
            )
            self.assertAlmostEqual(float(row["Computing"]), spent, delta=0.05 * spent + 1)
            self.assertAlmostEqual(float(row["Computing"]) + float(row["Free"]), float(row["Stage"]), delta=0.01)

    def test_columns(self):
        output = self.profiled() / "ASCEND_PROFILER_OUTPUT"

        def columns(name: str) -> str:
            return (output / name).read_text().splitlines()[0]

        self.assertEqual(
            columns("operator_details.csv"),
            "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
            "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)",
        )
        self.assertEqual(
            columns("step_trace_time.csv"),
            "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
            "Communication(Not Overlapped and Exclude Receive),Preparing",
        )
        self.assertEqual(
            columns("api_statistic.csv"), "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
        )
        self.assertTrue(columns("kernel_details.csv").startswith("Step Id,Device_id,Model ID,Task ID,Stream ID,Name,"))

    def test_operator_details_agree_with_kernels(self):
        output = self.profiled() / "ASCEND_PROFILER_OUTPUT"
        operators = self.rows(output / "operator_details.csv")
        kernels = self.rows(output / "kernel_details.csv")
        own = sum(float(row["Device Self Duration(us)"]) for row in operators)
        self.assertAlmostEqual(own, sum(float(row["Duration(us)"]) for row in kernels), delta=0.05 * own)

    def test_metrics_are_columns_without_numbers(self):
        config = profiler._ExperimentalConfig(
            profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=profiler.AiCMetrics.PipeUtilization
        )
        rows = self.rows(self.profiled(experimental_config=config) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
        self.assertEqual({row["mac_ratio"] for row in rows}, {"N/A"})

    def test_analysis_later(self):
        handler = profiler.tensorboard_trace_handler(str(self.folder), analyse_flag=False)
        with profiler.profile(on_trace_ready=handler):
            small_step()
        (result,) = self.folder.glob("*_ascend_pt")
        self.assertFalse((result / "ASCEND_PROFILER_OUTPUT").exists())
        profiler.profiler.analyse(str(self.folder))
        self.assertTrue((result / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").is_file())
        with self.assertRaisesRegex(RuntimeError, "holds no folder"):
            profiler.profiler.analyse(str(self.folder / "none"))

    def test_analysis_in_a_thread(self):
        handler = profiler.tensorboard_trace_handler(str(self.folder), async_mode=True)
        before = set(threading.enumerate())
        with profiler.profile(on_trace_ready=handler):
            small_step()
        for thread in set(threading.enumerate()) - before:
            thread.join(60)
        self.assertTrue(next(self.folder.glob("*/ASCEND_PROFILER_OUTPUT/kernel_details.csv")).is_file())

    def test_trace_id(self):
        with profiler.profile(
            on_trace_ready=profiler.tensorboard_trace_handler(str(self.folder)),
            custom_trace_id_callback=lambda: "mine",
        ) as prof:
            small_step()
        self.assertEqual(prof.get_trace_id(), "mine")
        (result,) = self.folder.glob("*_ascend_pt")
        self.assertEqual(json.loads((result / "profiler_metadata.json").read_text())["trace_id"], "mine")

    def test_settings(self):
        with self.assertWarnsRegex(UserWarning, "aic_metrics 'nonsense' is none of"):
            config = profiler._ExperimentalConfig(aic_metrics="nonsense")
        self.assertEqual(config.aic_metrics, "ACL_AICORE_NONE")
        with self.assertWarnsRegex(UserWarning, "nothing is collected for l2_cache"):
            profiler._ExperimentalConfig(l2_cache=True)
        with self.assertRaisesRegex(TypeError, "_ExperimentalConfig, not dict"):
            profiler.profile(experimental_config={})
        self.assertIn("ACL_AICORE_MEMORY_UB", profiler.supported_ai_core_metrics())

    def test_child_threads_are_refused_and_nothing_is_counted_twice(self):
        with profiler.profile(on_trace_ready=lambda prof: None):
            with self.assertRaisesRegex(RuntimeError, "profile_all_threads=True"):
                profiler.profile.enable_profiler_in_child_thread()
            profiler.profile.disable_profiler_in_child_thread()
        output = self.profiled() / "ASCEND_PROFILER_OUTPUT"
        products = [row for row in self.rows(output / "operator_details.csv") if row["Name"] == "aten::mm"]
        self.assertEqual(len(products), 6)


class TestDynamicProfile(TestCase):
    def test_a_config_file_starts_it(self):
        dp = profiler.dynamic_profile
        with tempfile.TemporaryDirectory() as folder:
            dp.init(folder)
            path = Path(folder) / "profiler_config.json"
            config = json.loads(path.read_text())
            dp.step()
            config["start_step"] = 2
            config["active"] = 1
            config["prof_dir"] = os.path.join(folder, "out")
            path.write_text(json.dumps(config))
            os.utime(path, (1, 1))
            for _ in range(5):
                small_step()
                dp.step()
            self.assertEqual(len(list(Path(folder, "out").glob("*_ascend_pt"))), 1)


if __name__ == "__main__":
    run_tests()
