"""torch.max on npu against the CPU, with the TestCase of torch.testing as tests of the 1.5 era import it."""

import numpy as np
from torch.testing._internal.common_utils import TestCase, run_tests

import torch

torch.npu.set_device("npu:0")


class TestMax(TestCase):
    def cpu_op_exec(self, input1):
        output = torch.max(input1)
        return output.numpy()

    def npu_op_exec(self, input1):
        output = torch.max(input1.to("npu"))
        return output.to("cpu").numpy()

    def test_max(self):
        for dtype in (np.float32, np.float16, np.int64):
            input1 = torch.from_numpy(np.random.uniform(-100, 100, (5, 7, 3)).astype(dtype))
            self.assertEqual(self.cpu_op_exec(input1), self.npu_op_exec(input1), prec=1e-4)

    def test_prec(self):
        x = torch.randn(4, 3)
        self.assertEqual(x, x.npu(), prec=1e-4)
        self.assertEqual(x + 1e-5, x.npu(), 1e-4)
        for arguments in ((), ("what differs",)):
            with self.assertRaises(AssertionError):
                self.assertEqual(x + 1e-3, x.npu(), *arguments, prec=1e-4)


if __name__ == "__main__":
    run_tests()
