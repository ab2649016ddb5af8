"""torch.compile(backend="npu"): copies that only a functional graph needs are not made, all others are."""

import copy

import torch.nn.functional as F
from graph_case import TestCase, run_tests

import torch
from torch import nn


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="npu", fullgraph=True)


def launched() -> int:
    torch.npu.synchronize()
    return torch._C._npu_simulatorCounters(0)["ops_launched"]


def launches(function, *args) -> int:
    function(*args)
    before = launched()
    function(*args)
    return launched() - before


def norms(**settings) -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, **settings), nn.ReLU()]
    layers += [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, **settings), nn.ReLU6()]
    return nn.Sequential(*layers).npu()


def step(net: nn.Module, xs) -> list[torch.Tensor]:
    """Gradients of one loss of the net's results for several batches."""
    net.zero_grad()
    sum(net(x).square().sum() for x in xs).backward()
    return [p.grad.clone() for p in net.parameters()]


class TestStatistics(TestCase):
    def check(self, net, batches: int = 1):
        other = copy.deepcopy(net)
        run = compiled(other)
        for _ in range(3):
            xs = [torch.randn(2, 3, 10, 10, device="npu") for _ in range(batches)]
            self.assertEqual(step(run, xs), step(net, xs), rtol=0, atol=0)
            self.assertEqual(dict(other.named_buffers()), dict(net.named_buffers()), rtol=0, atol=0)

    def test_training(self):
        for settings in ({}, {"track_running_stats": False}, {"affine": False}, {"momentum": 0.5}):
            with self.subTest(settings):
                self.check(norms(**settings))

    def test_two_batches_before_the_gradient(self):
        self.check(norms(), batches=2)

    def test_one_norm_twice(self):
        norm = nn.BatchNorm2d(3).npu()
        self.check(nn.Sequential(norm, nn.ReLU(), norm))

    def test_frozen(self):
        net = norms()
        net[1].eval()
        self.check(net)

    def test_only_statistics_are_wanted(self):
        norm = nn.BatchNorm2d(3).npu()
        other = copy.deepcopy(norm)

        def function(x):
            other(x)
            return x * 2

        x = torch.randn(2, 3, 4, 4, device="npu")
        norm(x)
        compiled(function)(x)
        self.assertEqual(dict(other.named_buffers()), dict(norm.named_buffers()), rtol=0, atol=0)

    def test_statistics_that_are_read(self):
        norm = nn.BatchNorm2d(3).npu()
        other = copy.deepcopy(norm)
        x = torch.randn(2, 3, 4, 4, device="npu")

        def function(norm, x):
            before = norm.running_mean + 1
            y = norm(x)
            return y, before, norm.running_mean * 2, norm.num_batches_tracked + 0

        run = compiled(function)
        for _ in range(2):
            self.assertEqual(run(other, x), function(norm, x), rtol=0, atol=0)
            self.assertEqual(dict(other.named_buffers()), dict(norm.named_buffers()), rtol=0, atol=0)

    def test_no_more_launches_than_eager(self):
        net = norms()
        x = [torch.randn(2, 3, 10, 10, device="npu")]
        eager = launches(step, net, x)
        self.assertLessEqual(launches(step, compiled(copy.deepcopy(net)), x), eager)


class TestClones(TestCase):
    def check(self, function, *args):
        run = compiled(function)
        for _ in range(2):
            own, theirs = ([a.clone() for a in args] for _ in range(2))
            expected, found = function(*own), run(*theirs)
            self.assertEqual(found, expected, rtol=0, atol=0)
            self.assertEqual(theirs, own, rtol=0, atol=0)
            results = [*found] if isinstance(found, tuple) else [found]
            places = [t.data_ptr() for t in (*results, *theirs)]
            self.assertEqual(len(set(places)), len(places))

    def test_copies_that_are_seen_are_made(self):
        x, w = torch.randn(16, 16, device="npu"), torch.randn(16, 16, device="npu")
        self.check(lambda x: x.clone(), x)
        self.check(lambda x, w: (lambda h: (h, h.clone()))(x @ w), x, w)
        self.check(lambda x, w: (lambda h: (h.view(-1), h.clone().view(4, 64)))(x @ w), x, w)
        self.check(lambda x, w: (lambda h: (h.clone(), h.clone() + 1))(x @ w), x, w)
        self.check(lambda x: x.t().clone(), x)

    def test_a_copy_of_what_changes(self):
        x = torch.randn(16, 16, device="npu")

        def function(x):
            before = x.clone()
            x.mul_(2)
            return before @ x

        def twice(x):
            before = x.clone()
            x.add_(1)
            x.mul_(x)
            return before, before + x

        self.check(function, x)
        self.check(twice, x)

    def test_others_are_not(self):
        x, w = torch.randn(16, 16, device="npu"), torch.randn(16, 16, device="npu")
        with torch.no_grad():
            plain = launches(compiled(lambda x, w: (x @ w) @ w), x, w)
            self.assertEqual(launches(compiled(lambda x, w: (x @ w).clone() @ w), x, w), plain)
            self.assertEqual(launches(compiled(lambda x, w: F.dropout(x @ w, 0.0) @ w), x, w), plain)

    def test_an_input_is_updated_where_it_is(self):
        x, w = torch.randn(16, 16, device="npu"), torch.randn(16, 16, device="npu")

        def function(x, w):
            x.add_(w)
            return w @ w

        self.check(function, x, w)
        self.assertEqual(launches(compiled(function), x, w), launches(function, x, w))


if __name__ == "__main__":
    run_tests()
