"""make_graphed_callables and torch.compile(backend="npugraphs"): training with them is training without."""

import copy

import torch._dynamo
from graph_case import DEVICE, Net, TestCase, batches, run_tests

import torch
from torch import nn


def train(model, data, lr=0.1, call=None):
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    losses = []
    for x, target in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy((model if call is None else call)(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class TestGraphedCallables(TestCase):
    def pair(self, dropout=0.0):
        torch.manual_seed(0)
        first = Net(dropout).to(DEVICE)
        return first, copy.deepcopy(first)

    def equal(self, first, second):
        for a, b in zip(
            [*first.parameters(), *first.buffers()], [*second.parameters(), *second.buffers()], strict=True
        ):
            self.assertTrue(torch.equal(a, b))

    def test_training(self):
        for dropout in (0.0, 0.3):
            graphed, plain = self.pair(dropout)
            state = copy.deepcopy(graphed.state_dict())
            data = batches(8)
            graphed = torch.npu.make_graphed_callables(graphed, (data[0][0].clone(),))
            graphed.load_state_dict(state)  # the warm-up has run the normalisation
            torch.manual_seed(3)
            losses = train(graphed, data)
            torch.manual_seed(3)
            self.assertEqual(losses, train(plain, data))
            self.equal(graphed, plain)

    def test_evaluation_runs_as_before(self):
        graphed, plain = self.pair()
        data = batches(2)
        graphed = torch.npu.make_graphed_callables(graphed, (data[0][0].clone(),))
        graphed.load_state_dict(plain.state_dict())
        graphed.eval()
        plain.eval()
        self.assertTrue(torch.equal(graphed(data[1][0]), plain(data[1][0])))
        self.assertTrue(torch.equal(graphed(data[1][0][:2]), plain(data[1][0][:2])))

    def test_parts_of_a_network(self):
        torch.manual_seed(0)
        parts = [nn.Sequential(nn.Linear(8, 16), nn.ReLU()).to(DEVICE), nn.Linear(16, 10).to(DEVICE)]
        plain = copy.deepcopy(nn.Sequential(*parts))
        samples = ((torch.randn(4, 8, device=DEVICE),), (torch.randn(4, 16, device=DEVICE, requires_grad=True),))
        graphed = torch.npu.make_graphed_callables(tuple(parts), samples)
        model = nn.Sequential(*graphed)
        data = [(torch.randn(4, 8).to(DEVICE), torch.randint(10, (4,)).to(DEVICE)) for _ in range(5)]
        self.assertEqual(train(model, data), train(plain, data))
        self.equal(model, plain)

    def test_functions_and_gradients_of_inputs(self):
        def function(a, b):
            return (a * b).sin(), a + b

        sample = tuple(torch.randn(5, device=DEVICE, requires_grad=True) for _ in range(2))
        graphed = torch.npu.make_graphed_callables(function, sample)
        for _ in range(3):
            inputs = [torch.randn(5, device=DEVICE, requires_grad=True) for _ in range(2)]
            twins = [x.detach().clone().requires_grad_() for x in inputs]
            for call, xs in ((graphed, inputs), (function, twins)):
                outputs = call(*xs)
                (outputs[0].sum() + (outputs[1] * 2).sum()).backward()
            for x, t in zip(inputs, twins, strict=True):
                self.assertTrue(torch.equal(x.grad, t.grad))

    def test_refusals(self):
        model = nn.Linear(4, 4).to(DEVICE)
        x = torch.randn(2, 4, device=DEVICE)
        with (
            torch.autocast("npu", dtype=torch.float16),
            self.assertRaisesRegex(RuntimeError, "cache_enabled=False"),
        ):
            torch.npu.make_graphed_callables(model, (x,))
        with self.assertRaisesRegex(AssertionError, "only Tensors"):
            torch.npu.make_graphed_callables(lambda a, b: a, (x, 3))
        model.register_forward_hook(lambda *a: None)
        with self.assertRaisesRegex(AssertionError, "hooks"):
            torch.npu.make_graphed_callables(model, (x,))


class TestBackend(TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(0)

    def test_inference(self):
        model = Net().to(DEVICE).eval()
        compiled = torch.compile(model, backend="npugraphs")
        with torch.no_grad():
            for x, _ in batches(5):
                self.assertTrue(torch.equal(compiled(x), model(x)))

    def test_results_stay(self):
        compiled = torch.compile(lambda x: x * 2 + 1, backend="npugraphs")
        inputs = [torch.full((4,), float(i), device=DEVICE) for i in range(6)]
        results = [compiled(x) for x in inputs]
        self.assertEqual([r[0].item() for r in results], [2 * i + 1 for i in range(6)])

    def test_training(self):
        for dropout in (0.0, 0.4):
            model = Net(dropout).to(DEVICE)
            twin = copy.deepcopy(model)
            compiled = torch.compile(model, backend="npugraphs")
            data = batches(8)
            losses = train(model, data, call=compiled)
            eager = train(twin, data, call=torch.compile(twin, backend="aot_eager"))
            if not dropout:
                self.assertEqual(losses, eager)
            torch._dynamo.reset()

    def test_two_passes_before_one_backward(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(DEVICE)
        twin = copy.deepcopy(model)
        compiled = torch.compile(model, backend="npugraphs")
        for _ in range(5):
            a, b = torch.randn(2, 3, 4).to(DEVICE)
            (compiled(a).sum() + compiled(b).pow(2).sum()).backward()
            (twin(a).sum() + twin(b).pow(2).sum()).backward()
            for p, t in zip(model.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(p.grad, t.grad)

    def test_mutated_inputs(self):
        def function(x, y):
            x.add_(y)
            return x * 2

        compiled = torch.compile(function, backend="npugraphs")
        for i in range(5):
            x, y = torch.full((4,), float(i), device=DEVICE), torch.ones(4, device=DEVICE)
            self.assertEqual(compiled(x, y).tolist(), [2.0 * (i + 1)] * 4)
            self.assertEqual(x.tolist(), [i + 1.0] * 4)

    def test_what_cannot_be_captured_runs_eagerly(self):
        compiled = torch.compile(lambda x: x.sum().item() + x, backend="npugraphs")
        for i in range(4):
            x = torch.full((4,), float(i), device=DEVICE)
            self.assertEqual(compiled(x).tolist(), [5.0 * i] * 4)

    def test_shapes_that_change(self):
        compiled = torch.compile(lambda x: x.softmax(-1) * 2, backend="npugraphs")
        for n in (4, 5, 6, 4, 5, 6, 4):
            x = torch.randn(n, n).to(DEVICE)
            self.assertTrue(torch.equal(compiled(x), x.softmax(-1) * 2))


if __name__ == "__main__":
    run_tests()
