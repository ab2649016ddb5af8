"""What the tests of the operators composed in Python share: a call with its reference, and its checks."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase as _TestCase, run_in_process, run_tests  # noqa: F401
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map, tree_map_only

import torch
from torch.npu import operators


@dataclass
class Call:
    """One call of an operator. Tensors are made on the CPU; ``reference`` takes the same arguments in float64."""

    name: str
    args: tuple
    kwargs: dict = field(default_factory=dict)
    # Written from the definition with torch or NumPy, not from the operator's own steps; None: another oracle.
    reference: Callable | None = None
    # atol and rtol against the reference, for results of 32 bits and of 16.
    tolerance: tuple[float, float] = (1e-5, 2e-2)
    # What the operator writes into, of its arguments; compared behind its results.
    written: Callable = lambda *args, **kwargs: ()
    # Whether fake tensors tell the shapes of the results; False where these depend on the values of tensors.
    fake: bool = True

    @property
    def overload(self) -> torch._ops.OpOverload:
        packet, _, overload = self.name.partition(".")
        return getattr(getattr(torch.ops.npu, packet), overload or "default")


def to_npu(tree):
    return tree_map_only(torch.Tensor, lambda t: t.clone().npu(), tree)


def widened(tree):
    return tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t.clone(), tree)


def comparable(result):
    """Numbers of eight bits as their bytes, which is what assertEqual takes."""
    floating = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
    return tree_map_only(torch.Tensor, lambda t: t.view(torch.uint8) if t.dtype in floating else t, result)


def packed(numbers):
    """Numbers of four bits, eight in an int32, the first in the lowest bits."""
    rows = numbers.reshape(-1, numbers.shape[-1]).tolist()
    words = [
        [sum((int(v) & 15) << 4 * i for i, v in enumerate(row[j : j + 8])) for j in range(0, len(row), 8)]
        for row in rows
    ]
    return torch.tensor(words).to(torch.int32).view(*numbers.shape[:-1], -1)


def described(result):
    return tree_map_only(torch.Tensor, lambda t: (tuple(t.shape), t.dtype, t.device.type), result)


class LlmOpsTestCase(_TestCase):
    def check_call(self, call: Call) -> None:
        """The call on npu against its reference, what it writes included, and its fake form against the real one."""
        packet, _, overload = call.name.partition(".")
        run = getattr(torch.ops.npu, packet) if not overload else call.overload
        args, kwargs = to_npu((call.args, call.kwargs))
        result = run(*args, **kwargs)
        if call.reference is not None:
            wide_args, wide_kwargs = widened((call.args, call.kwargs))
            expected = call.reference(*wide_args, **wide_kwargs)
            results = result if isinstance(result, (tuple, list)) else () if result is None else (result,)
            self.check_close(call, (*results, *call.written(*args, **kwargs)), expected)
        if call.fake:
            plain = to_npu((call.args, call.kwargs))
            with FakeTensorMode() as mode:
                fake_args, fake_kwargs = tree_map_only(torch.Tensor, mode.from_tensor, plain)
                fake = run(*fake_args, **fake_kwargs)
            self.assertEqual(tree_map(str, described(fake)), tree_map(str, described(result)), call.name)

    def check_close(self, call: Call, result, expected) -> None:
        results = result if isinstance(result, (tuple, list)) else (result,)
        expected = expected if isinstance(expected, (tuple, list)) else (expected,)
        self.assertEqual(len(results), len(expected), call.name)
        for at, (got, want) in enumerate(zip(results, expected, strict=True)):
            # None: what this result holds is not determined.
            if want is None:
                continue
            tolerance = call.tolerance[got.dtype in (torch.float16, torch.bfloat16)]
            self.assertEqual(tuple(got.shape), tuple(want.shape), f"{call.name}: shape of result {at}")
            self.assertEqual(
                got.cpu().double(), want.double(), atol=tolerance, rtol=tolerance, msg=f"{call.name}: result {at}"
            )

    def check_compiled(self, call: Call) -> None:
        """The call compiles without a graph break, and gives what it gives plainly."""
        torch._dynamo.reset()
        args, kwargs = to_npu((call.args, call.kwargs))
        plain = call.overload(*args, **kwargs)
        compiled_args, compiled_kwargs = to_npu((call.args, call.kwargs))
        compiled = torch.compile(lambda *a, **k: call.overload(*a, **k), backend="aot_eager", fullgraph=True)
        result = compiled(*compiled_args, **compiled_kwargs)
        # The operands lie elsewhere, and a product's last bit may depend on the alignment: one of bfloat16 is allowed.
        self.assertEqual(comparable(result), comparable(plain), msg=call.name, atol=1e-6, rtol=2**-8)
        self.assertEqual(comparable(compiled_args), comparable(args), msg=f"{call.name}: what it writes")

    def check_calls(self, family: str, calls: list[Call]) -> None:
        """The calls of a family, plainly and compiled; every operator of the family has one."""
        self.check_family(family, calls)
        for call in calls:
            with self.subTest(name=call.name, given=call.kwargs):
                self.check_call(call)
                self.check_compiled(call)

    def check_family(self, family: str, calls: list[Call]) -> None:
        """Every operator of a family of torch.npu.operators has a call."""
        self.assertEqual(sorted({c.name.partition(".")[0] for c in calls}), sorted(operators.FAMILIES[family]))
