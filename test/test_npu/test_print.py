"""repr and str of npu tensors of every kind."""

from common_utils import TestCase, run_tests

import torch


class TestPrint(TestCase):
    def check(self, value: torch.Tensor) -> None:
        text = repr(value.to("npu"))
        self.assertIn("device='npu:0'", text)
        # Apart from where it is, and from what autograd did to move it, the text is that of the CPU tensor.
        self.assertEqual(_bare(text), _bare(repr(value)))

    def test_dtypes(self):
        for dtype in (
            torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
            torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
        ):  # fmt: skip
            with self.subTest(dtype=dtype):
                self.check(torch.tensor([0, 1, 2]).to(dtype))

    def test_shapes(self):
        for value in (
            torch.tensor(3.5),
            torch.empty(0),
            torch.empty(2, 0, 3),
            torch.arange(24.0).reshape(2, 3, 4),
            torch.arange(5000.0),
            torch.zeros(40, 50),
        ):
            with self.subTest(shape=tuple(value.shape)):
                self.check(value)

    def test_values(self):
        self.check(torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-12, 1e12]))
        self.check(torch.tensor([1e-3, 123456.0]))
        self.check(torch.tensor([complex(1, -2), complex(float("nan"), 3)]))

    def test_views_and_gradients(self):
        self.check(torch.arange(24.0).reshape(4, 6).t()[1:, ::2])
        leaf = torch.ones(2, device="npu", requires_grad=True)
        self.assertIn("requires_grad=True", repr(leaf))
        self.assertIn("grad_fn=<MulBackward0>", repr(leaf * 2))
        self.assertIn("device='npu:0'", repr(torch.nn.Parameter(leaf.detach())))

    def test_other_device_and_format(self):
        self.assertIn("device='npu:1'", str(torch.ones(2, device="npu:1")))
        self.assertEqual(f"{torch.tensor(2.5, device='npu'):.3f}", "2.500")
        self.assertEqual(repr(torch.ones(1, device="npu").tolist()), "[1.0]")

    def test_printing_does_not_fall_back(self):
        before = torch.npu.fallback_stats()
        repr(torch.randn(30, 40, device="npu"))
        self.assertEqual(torch.npu.fallback_stats(), before)


def _bare(text: str) -> str:
    return "".join(text.replace("device='npu:0'", "").replace(",", "").split())


if __name__ == "__main__":
    run_tests()
