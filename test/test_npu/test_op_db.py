"""Every operator of upstream's OpInfo database on npu against the CPU: values for floats, integers and complex numbers,
gradients in float64. A few samples each; what gives random numbers or refers to the CPU by its sample is left out."""

import collections
import sys
import unittest
import warnings

import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db

import torch

DEVICE = "npu:0"
SAMPLES = 5

RANDOM = (
    *("rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "exponential", "cauchy", "geometric"),
    *("empty", "rrelu", "lowrank", "fractional", "scaled_dot_product", "multi_head"),
)
# Samples that name the CPU, alias each other's memory, or need layouts that npu has none of.
UNSUITED = ("jiterator", "sparse", "nested", "partial_views", "tensor_split")
# What is known to differ, with the reason; a case here that passes is an error.
KNOWN = {
    ("forward", torch.int64): {
        f"nn.functional.conv{kind}{n}d": "the cube unit takes floating-point numbers only"
        for kind in ("", "_transpose")
        for n in (1, 2, 3)
    },
}


def left_out(op):
    name = f"{op.name}.{op.variant_test_name}"
    return any(part in name for part in (*RANDOM, *UNSUITED)) or op.name == "to"


def moved(value, device):
    return pytree.tree_map(lambda t: t.detach().to(device) if isinstance(t, torch.Tensor) else t, value)


def reason(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {next((line for line in lines if line.startswith('Reason')), lines[0])[:300]}"


@unittest.skipIf(sys.flags.optimize > 0, "the database checks itself with assert")
class OpDatabaseTest(unittest.TestCase):
    def setUp(self):
        # Fallbacks say so, and deprecated samples warn: not what this file looks at.
        catcher = warnings.catch_warnings()
        catcher.__enter__()
        warnings.simplefilter("ignore")
        self.addCleanup(catcher.__exit__, None, None, None)
        torch.manual_seed(0)

    def compare(self, actual, expected, tolerance):
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            if not isinstance(e, torch.Tensor):
                self.assertTrue(a == e or (a != a and e != e), f"{a} instead of {e}")
                continue
            self.assertEqual(a.device.type, "npu")
            self.assertEqual(a.dtype, e.dtype)
            torch.testing.assert_close(a.cpu(), e, equal_nan=True, rtol=tolerance, atol=tolerance)

    def forward(self, dtype, tolerance=1e-4):
        wrong = collections.defaultdict(list)
        for op in op_db:
            if left_out(op) or dtype not in op.supported_dtypes("cpu"):
                continue
            for number, sample in enumerate(list(op.sample_inputs("cpu", dtype))[:SAMPLES]):
                try:
                    expected = op(sample.input, *sample.args, **sample.kwargs)
                except Exception:  # a sample that this build of the CPU kernels refuses says nothing about npu
                    continue
                kwargs = {**sample.kwargs, **({"device": DEVICE} if "device" in sample.kwargs else {})}
                try:
                    actual = op(moved(sample.input, DEVICE), *moved(sample.args, DEVICE), **moved(kwargs, DEVICE))
                    torch.npu.synchronize()
                    self.compare(actual, expected, tolerance)
                except Exception as error:
                    wrong[op.name].append(f"{op.name} {op.variant_test_name} [{number}] {reason(error)}")
        self.judge(wrong, KNOWN.get(("forward", dtype), {}))

    def judge(self, wrong, known):
        """``wrong`` maps names to what went wrong with them."""
        unknown = [line for name, lines in wrong.items() if name not in known for line in lines]
        self.assertEqual(unknown, [], "\n".join(unknown))
        self.assertEqual(sorted(set(known) - set(wrong)), [], "known to differ, but right")

    def test_float32(self):
        self.forward(torch.float32)

    def test_int64(self):
        self.forward(torch.int64)

    def test_bool(self):
        self.forward(torch.bool)

    def test_complex64(self):
        self.forward(torch.complex64)

    def gradients(self, op, sample, device):
        leaves = []

        def leaf(value):
            if not isinstance(value, torch.Tensor):
                return value
            copy = value.detach().clone().to(device)
            if value.requires_grad:
                leaves.append(copy.requires_grad_())
            return copy

        tensor, args, kwargs = pytree.tree_map(leaf, (sample.input, sample.args, dict(sample.kwargs)))
        result = op(tensor, *args, **({**kwargs, "device": device} if "device" in kwargs else kwargs))
        if sample.output_process_fn_grad:
            result = sample.output_process_fn_grad(result)
        outputs = [o for o in pytree.tree_leaves(result) if isinstance(o, torch.Tensor) and o.requires_grad]
        if not outputs:
            return []
        loss = sum((o.abs() if o.is_complex() else o).sin().sum() for o in outputs)
        return torch.autograd.grad(loss, leaves, allow_unused=True)

    def test_gradients(self):
        wrong = collections.defaultdict(list)
        for op in op_db:
            if left_out(op) or not op.supports_autograd or torch.float64 not in op.supported_backward_dtypes("cpu"):
                continue
            for number, sample in enumerate(list(op.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]):
                try:
                    expected = self.gradients(op, sample, "cpu")
                except Exception:  # as above
                    continue
                try:
                    actual = self.gradients(op, sample, DEVICE)
                    torch.npu.synchronize()
                    for a, e in zip(actual, expected, strict=True):
                        if e is None:
                            self.assertTrue(a is None or not a.any())
                        else:
                            self.compare(a, e, 1e-4)
                except Exception as error:
                    wrong[op.name].append(f"{op.name} {op.variant_test_name} [{number}] {reason(error)}")
        self.judge(wrong, KNOWN.get(("gradients", torch.float64), {}))


if __name__ == "__main__":
    unittest.main()
