"""set_op_timeout_ms and stress_detect, with faults of the simulated device."""

import time

from common_utils import TestCase, run_in_process, run_tests

import torch


class TestOpTimeout(TestCase):
    def test_a_hanging_operator_ends(self):
        script = """
import time, torch
x = torch.ones(4, device="npu")
torch.npu.synchronize()
torch.npu.set_op_timeout_ms(300)
begin = time.monotonic()
y = x.exp()
try:
    torch.npu.synchronize()
except torch.AcceleratorError as error:
    print("did not end within 300 ms" in str(error), time.monotonic() - begin < 20)
"""
        done = run_in_process(script, ASCEND_SIM_FAULT="Exp:hang@1")
        self.assertEqual(done.stdout, "True True\n", done.stderr)

    def test_what_is_no_timeout(self):
        for bad in (0, -1, 1.5, True, 1 << 32):
            with self.assertRaisesRegex(ValueError, "positive number of milliseconds"):
                torch.npu.set_op_timeout_ms(bad)


class TestStress(TestCase):
    def test_a_sound_device(self):
        begin = time.monotonic()
        self.assertEqual(torch.npu.stress_detect(), 0)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(torch.npu.stress_detect("memory"), 1)
        with self.assertLogs("torch.npu._health", "ERROR"):
            self.assertEqual(torch.npu.stress_detect("hccs"), 1)  # there is no process group

    def test_a_faulty_device(self):
        script = "import torch; print(torch.npu.stress_detect('aic'))"
        for fault in ("MatMulV2:scale=1.01@3", "Mul:scale=2@2"):
            with self.subTest(fault=fault):
                done = run_in_process(script, ASCEND_SIM_FAULT=fault)
                self.assertEqual(done.stdout, "2\n", done.stderr)
                self.assertIn("is wrong on npu:0", done.stderr)

    def test_links(self):
        script = """
import tempfile, torch, torch.distributed as dist
dist.init_process_group("hccl", world_size=1, rank=0, init_method=f"file://{tempfile.mkdtemp()}/meet")
print(torch.npu.stress_detect("hccs"))
dist.destroy_process_group()
"""
        self.assertEqual(run_in_process(script).stdout, "0\n")
        done = run_in_process(script, ASCEND_SIM_FAULT="HcclAllReduce:scale=3@2")
        self.assertEqual(done.stdout, "2\n", done.stderr)


if __name__ == "__main__":
    run_tests()
