"""torch.compile(backend="npu"): pointwise operators write over inputs that die, and over nothing else."""

import torch.nn.functional as F
from graph_case import TestCase, run_tests

import torch
from torch import nn


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="npu", fullgraph=True)


def peak(function, *args) -> int:
    """Bytes that a call needs at most besides what is there before it."""
    function(*args)
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    result = function(*args)
    torch.npu.synchronize()
    del result
    return torch.npu.max_memory_allocated() - before


class TestCompileInPlace(TestCase):
    def check(self, function, *args):
        """The compiled function gives what eager gives, twice, and leaves its arguments alone."""
        run = compiled(function)
        for _ in range(2):
            own, theirs = ([a.detach().clone() for a in args] for _ in range(2))
            expected, found = function(*own), run(*theirs)
            self.assertEqual(found, expected, rtol=0, atol=0)
            self.assertEqual(theirs, own, rtol=0, atol=0)

    def gradients(self, net, x):
        x = x.detach().clone().requires_grad_()
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return [loss.detach(), x.grad, *(p.grad.clone() for p in net.parameters())]

    def test_an_activation_needs_no_memory(self):
        x, w = torch.randn(256, 256, device="npu"), torch.randn(256, 256, device="npu")
        size = x.numel() * x.itemsize
        with torch.no_grad():
            self.assertGreaterEqual(peak(lambda x, w: F.relu(x @ w), x, w), 2 * size)
            self.assertLess(peak(compiled(lambda x, w: F.relu(x @ w)), x, w), 2 * size)

    def test_what_is_not_the_graphs_own_stays(self):
        x, y = torch.randn(64, 32, device="npu"), torch.randn(64, 32, device="npu")
        self.check(lambda x: F.relu(x), x)
        self.check(lambda x, y: (x.view(32, 64).tanh(), x + y), x, y)
        self.check(lambda x: F.gelu(x.t().contiguous()), x[:32])

    def test_what_is_read_later_stays(self):
        x, w = torch.randn(32, 32, device="npu"), torch.randn(32, 32, device="npu")
        self.check(lambda x, w: (lambda h: (F.relu(h), h))(x @ w), x, w)
        self.check(lambda x, w: (lambda h: F.relu(h) @ h)(x @ w), x, w)
        # By a view of it, the view's own view, and parts.
        self.check(lambda x, w: (lambda h: F.relu(h) @ h.t())(x @ w), x, w)
        self.check(lambda x, w: (lambda h: F.relu(h.view(64, 16)).view(32, 32) @ h)(x @ w), x, w)
        self.check(lambda x, w: (lambda a, b: F.relu(a) @ b.t() + b @ a.t())(*(x @ w).chunk(2, 1)), x, w)
        self.check(lambda x, w: (lambda a, b: F.relu(a) @ b.t())(*torch.unsafe_chunk(x @ w, 2)), x, w)
        self.check(lambda x, w: (lambda h: (F.relu(h[:16]), h.sum(0)))(x @ w), x, w)

    def test_shapes_and_dtypes_that_do_not_fit(self):
        x, w = torch.randn(32, 32, device="npu"), torch.randn(32, 32, device="npu")
        self.check(lambda x, w: (x @ w).sum(0, keepdim=True) + x, x, w)
        self.check(lambda x, w: (x @ w).half() + w, x, w)
        self.check(lambda x, w: (x @ w).gt(0), x, w)
        self.check(lambda x, w: torch.add((x @ w).sum(1, keepdim=True).expand(32, 32), w), x, w)
        self.check(lambda x, w: F.relu((x @ w).t()), x, w)
        self.check(lambda x, w: (lambda h: h * h)(x @ w), x, w)
        self.check(lambda x, w: torch.where(x > 0, x @ w, w @ x), x, w)

    def test_an_input_that_is_changed(self):
        x, w = torch.randn(32, 32, device="npu"), torch.randn(32, 32, device="npu")

        def function(x, w):
            h = x @ w
            x.copy_(F.relu(h))
            return F.relu(h @ w)

        self.check(function, x, w)

    def test_training(self):
        nets = {
            "perceptron": (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU()), (16, 32)),
            "activations": (nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.SiLU()), (16, 32)),
            "images": (
                nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3), nn.ReLU()),
                (2, 3, 12, 12),
            ),
            "leaky": (nn.Sequential(nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.ELU()), (16, 32)),
        }
        for name, (net, shape) in nets.items():
            with self.subTest(name):
                net = net.npu()
                state = {key: value.clone() for key, value in net.state_dict().items()}
                x = torch.randn(shape, device="npu")
                expected = self.gradients(net, x)
                net.load_state_dict(state)
                run = compiled(net)
                for _ in range(2):
                    found = self.gradients(run, x)
                    self.assertEqual(found, expected, rtol=0, atol=0)

    def test_channels_last(self):
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.SiLU()).npu()
        net = net.to(memory_format=torch.channels_last)
        x = torch.randn(2, 3, 12, 12, device="npu").to(memory_format=torch.channels_last)
        with torch.no_grad():
            expected, found = net(x), compiled(net)(x)
        self.assertEqual(found, expected, rtol=0, atol=0)
        self.assertEqual(found.stride(), expected.stride())


class TestForms(TestCase):
    def test_each_form_of_a_backward_gives_the_same_over_its_input(self):
        from torch.npu import _compile_in_place

        between = {"elu_backward": (1.0, 1.0, 1.0, False)}
        behind = {
            "threshold_backward": (0,),
            "hardtanh_backward": (-1, 1),
            "leaky_relu_backward": (0.1, False),
            "softplus_backward": (1.0, 20.0),
        }
        for target in _compile_in_place._BACKWARD:
            found = _compile_in_place._out(target)
            if found is None:
                continue
            overload, name = found
            form = target._schema.name.removeprefix("aten::")
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                with self.subTest(str(target), dtype=dtype):
                    tensors = [torch.randn(40, 30, device="npu").to(dtype) for _ in range(2)]

                    def arguments(grad, x, form=form):
                        return grad, *between.get(form, ()), x, *behind.get(form, ())

                    expected = target(*arguments(*tensors))
                    for over in range(2):
                        pair = [t.clone() for t in tensors]
                        overload(*arguments(*pair), **{name: pair[over]})
                        self.assertEqual(pair[over], expected, rtol=0, atol=0)


if __name__ == "__main__":
    run_tests()
