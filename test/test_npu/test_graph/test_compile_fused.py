"""torch.compile(backend="npu") fuses chains of element-wise operators; numbers stay those of eager mode."""

import copy
import os
import unittest

from fused_case import FusedCase, values
from torch.nn import functional as F

import torch
from torch import nn
from torch.npu import _compile_fusion

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"


def launched() -> int:
    torch.npu.synchronize()
    return torch._C._npu_simulatorCounters(0)["ops_launched"]


class Block(nn.Module):
    """A transformer's layer: norms, attention, a gated perceptron."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 3).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class CompileFusedTest(FusedCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def same(self, function, *inputs, dynamic=None):
        compiled = torch.compile(function, backend="npu", fullgraph=True, dynamic=dynamic)
        expected = function(*inputs)
        for _ in range(2):
            self.assert_same(compiled(*inputs), expected)
        return compiled

    def test_a_chain_is_one_launch(self):
        compiled = self.same(lambda x, y: F.gelu(x * y + 1).tanh() - x, values(50, 60), values(50, 60, seed=1))
        x, y = values(50, 60), values(50, 60, seed=1)
        before = launched()
        compiled(x, y)
        self.assertEqual(launched() - before, 1)

    def test_gradients_of_a_chain(self):
        def function(x, w, b):
            return (F.silu(x * w + b) * torch.sigmoid(x)).relu().sum()

        def gradients(function):
            leaves = [values(40, 30).nan_to_num().requires_grad_(), values(30).nan_to_num().requires_grad_()]
            leaves.append(values(40, 1, seed=4).nan_to_num().requires_grad_())
            function(*leaves).backward()
            return [leaf.grad for leaf in leaves]

        compiled = torch.compile(function, backend="npu", fullgraph=True)
        for _ in range(2):
            for actual, expected in zip(gradients(compiled), gradients(function), strict=True):
                self.assert_same(actual, expected)

    def test_dynamic_shapes(self):
        def function(x, y):
            return (x.exp() + y).relu() * x.shape[0]

        compiled = torch.compile(function, backend="npu", fullgraph=True, dynamic=True)
        for n in (3, 8, 3, 100, 8):
            x, y = values(n, 20), values(20, seed=2)
            self.assert_same(compiled(x, y), function(x, y))

    def test_other_operators_stay_between_chains(self):
        def function(x, w):
            a = (x + 1).relu()
            b = (a @ w).sigmoid() * a
            return (b - b.mean(1, keepdim=True)).tanh() * 2, a.sum()

        x, w = values(20, 20).nan_to_num(0, 1, -1), values(20, 20, seed=1).nan_to_num(0, 1, -1)
        compiled = torch.compile(function, backend="npu", fullgraph=True)
        for _ in range(2):
            for actual, expected in zip(compiled(x, w), function(x, w), strict=True):
                self.assert_same(actual, expected)

    def test_results_in_place_and_inputs_that_change(self):
        def function(x, y):
            z = (x * 2 + y).relu()
            x.add_(1).mul_(y)
            return z - x

        x, y = values(30, 7), values(30, 7, seed=1)
        expected_x = x.clone()
        expected = function(expected_x, y)
        compiled = torch.compile(function, backend="npu", fullgraph=True)
        actual_x = x.clone()
        self.assert_same(compiled(actual_x, y), expected)
        self.assert_same(actual_x, expected_x)

    def test_random_numbers_come_in_eager_order(self):
        def function(x):
            a = F.dropout((x + 1) * 2, 0.5)
            b = F.dropout((x - 1) * 3, 0.3)
            return a * b + torch.rand_like(x)

        x = values(40, 40)
        compiled = torch.compile(function, backend="npu", fullgraph=True)
        for _ in range(2):
            torch.manual_seed(5)
            actual = compiled(x)
            torch.manual_seed(5)
            self.assert_same(actual, function(x))

    def test_autocast(self):
        linear = nn.Linear(20, 20).npu()

        def function(x):
            with torch.autocast("npu", torch.bfloat16):
                return F.gelu(linear(x) * 2 + 1).float() + x

        self.same(function, values(10, 20).nan_to_num(0, 1, -1))

    def test_chains_do_not_wait_for_themselves(self):
        graph = torch.fx.Graph()
        self.assertEqual(_compile_fusion._chains(graph), [])

        def function(x):
            a = x + 1
            b = a.sum(0, keepdim=True) * a  # needs all of a: a chain of its own, or none
            return (a * b).relu() - a

        self.same(function, values(12, 12).nan_to_num(0, 1, -1))

    def train(self, make, batch, loss, steps=3, optimizer=torch.optim.SGD):
        reference = make().npu()
        model = copy.deepcopy(reference)
        compiled = torch.compile(model, backend="npu")
        sides = [(reference, reference), (compiled, model)]
        optimizers = [optimizer(module.parameters(), 0.01) for _, module in sides]
        for step in range(steps):
            inputs, target = batch(step)
            losses = []
            for (net, _), opt in zip(sides, optimizers, strict=True):
                opt.zero_grad()
                value = loss(net(inputs), target)
                value.backward()
                opt.step()
                losses.append(value.item())
            self.assertAlmostEqual(losses[0], losses[1], delta=1e-5 * max(1, abs(losses[0])))
        for expected, actual in zip(reference.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=1e-5, atol=1e-6)

    def test_a_small_transformer_trains(self):
        self.train(
            lambda: nn.Sequential(Block(), Block(), nn.Linear(32, 10)),
            lambda step: (torch.randn(4, 12, 32).npu(), torch.randint(10, (4, 12)).npu()),
            lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()),
            optimizer=torch.optim.AdamW,
        )

    def test_resnet_trains(self):
        from torchvision.models import resnet18, resnet50

        make = resnet50 if SLOW else resnet18
        self.train(
            lambda: make(num_classes=10),
            lambda step: (torch.randn(4, 3, 32, 32).npu(), torch.randint(10, (4,)).npu()),
            F.cross_entropy,
        )


if __name__ == "__main__":
    unittest.main()
