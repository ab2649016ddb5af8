"""Two ranks that profile themselves at once, and profiles that are begun often or grow long."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from common_utils import TestCase, run_tests  # noqa: E402
from prof_scripts import ACTIVITIES, small_step  # noqa: E402
from torch.profiler import profile  # noqa: E402

import torch  # noqa: E402

RANK = """
import os, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
x = torch.full((1 << 16,), float(rank + 1), device="npu")
dist.all_reduce(x)
handler = tensorboard_trace_handler(".", worker_name=f"rank{rank}")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU], on_trace_ready=handler):
    for _ in range(3):
        y = x * 2
        dist.all_reduce(y)
    torch.npu.synchronize()
assert y[0].item() == 12.0, y[0]
dist.destroy_process_group()
"""


def events_of(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


class TestProcesses(TestCase):
    def test_each_rank_has_a_trace_of_its_own(self):
        with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            probe.close()
            common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
            environment = os.environ | common | {"ASCEND_SIM_DEVICE_COUNT": "2", "ASCEND_SIM_THREADS": "1"}
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", RANK],
                    cwd=folder,
                    env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(2)
            ]
            outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], "\n".join(outputs))
            traces = [next(Path(folder).glob(f"rank{rank}.*.json")) for rank in range(2)]
            for trace in traces:
                kernels = [e["name"] for e in events_of(trace) if e.get("cat") == "kernel"]
                self.assertEqual(sum("AllReduce" in name for name in kernels), 3, kernels)
                self.assertEqual(sum("Mul" in name for name in kernels), 3, kernels)


class TestOftenAndLong(TestCase):
    def test_profiles_one_after_another(self):
        counts = []
        for _ in range(20):
            with profile(activities=ACTIVITIES) as prof:
                small_step()
            counts.append({row.key: row.count for row in prof.key_averages()}["aten::mm"])
        self.assertEqual(counts, [3] * 20)

    def test_a_hundred_thousand_events(self):
        x = torch.ones(4, device="npu")
        with profile(activities=ACTIVITIES) as prof:
            for _ in range(50_000):
                x.add_(0)
            torch.npu.synchronize()
        row = next(r for r in prof.key_averages() if r.key == "aten::add_")
        self.assertEqual(row.count, 50_000)
        self.assertGreater(row.device_time_total, 0)


if __name__ == "__main__":
    run_tests()
