"""torch.use_deterministic_algorithms: new memory is filled, what has no deterministic form says so at the call."""

from common_utils import TestCase, run_tests

import torch
from torch import nn


class TestDeterministic(TestCase):
    def setUp(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)

    def test_new_memory_is_filled(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            for x in (
                torch.empty(5, device="npu", dtype=dtype),
                torch.empty_strided((2, 3), (1, 2), device="npu", dtype=dtype),
                torch.empty_like(torch.ones(3, device="npu", dtype=dtype)),
                torch.ones(2, device="npu", dtype=dtype).resize_(6)[2:],
            ):
                self.assertTrue(x.isnan().all().item(), dtype)
        for dtype in (torch.int64, torch.uint8, torch.int32):
            self.assertTrue((torch.empty(5, device="npu", dtype=dtype) == torch.iinfo(dtype).max).all().item())
        self.assertEqual(torch.ones(2, device="npu").resize_(6)[:2].tolist(), [1.0, 1.0])
        torch.utils.deterministic.fill_uninitialized_memory = False
        try:
            torch.empty(5, device="npu")
        finally:
            torch.utils.deterministic.fill_uninitialized_memory = True

    def test_what_is_not_deterministic_is_refused_at_the_call(self):
        x, index = torch.ones(1, 1, 2, 2, device="npu"), torch.tensor([[[[0, 1], [2, 3]]]], device="npu")
        refused = {
            "max_unpooling2d_forward_out": lambda: nn.functional.max_unpool2d(x, index, 2),
            "max_unpooling3d_forward_out": lambda: nn.functional.max_unpool3d(x[None], index[None], 1),
            "put_": lambda: x.put_(index.flatten(), x),
        }
        for name, call in refused.items():
            with self.assertRaisesRegex(RuntimeError, f"{name} does not have a deterministic implementation"):
                call()
        torch.npu.synchronize()

    def test_accumulation_is_allowed(self):
        index, ones = torch.tensor([1, 1], device="npu"), torch.ones(2, device="npu")
        for call in (
            lambda t: t.index_add_(0, index, ones),
            lambda t: t.scatter_add_(0, index, ones),
            lambda t: t.put_(index, ones, accumulate=True),
            lambda t: t.index_put_((index,), ones, accumulate=True),
        ):
            self.assertEqual(call(torch.zeros(3, device="npu")).tolist(), [0.0, 2.0, 0.0])


if __name__ == "__main__":
    run_tests()
