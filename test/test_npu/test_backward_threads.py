"""Which thread runs a backward pass: the caller's while one device is open, a device's own with several."""

import threading

from common_utils import TestCase, run_in_process, run_tests

import torch

SEVERAL = """
import threading, torch
def threads(device):
    seen = []
    x = torch.ones(2, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: seen.append(threading.get_ident() == here))
    y.sum().backward()
    return seen
here = threading.get_ident()
print(threads("npu:0"), threads("npu:1"), threads("npu:0"), torch.autograd.is_multithreading_enabled())
"""


class Remembers(torch.autograd.Function):
    """The identity; notes what the thread of its backward sees."""

    seen: list[tuple] = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        Remembers.seen.append((threading.get_ident(), torch.npu.current_device(), torch.npu.current_stream()))
        return grad.clone()


def is_one_open():
    """Whether this process uses one device; files that run before in the same process may have opened more."""
    torch.npu.synchronize()
    return sum(torch._C._npu_hasPrimaryContext(index) for index in range(torch.npu.device_count())) == 1


class BackwardTest(TestCase):
    def setUp(self):
        super().setUp()
        Remembers.seen = []

    def leaf(self):
        return torch.ones(3, device="npu", requires_grad=True)

    def test_the_callers_thread(self):
        here = threading.get_ident()
        for run in (
            lambda y, x: y.sum().backward(),
            lambda y, x: torch.autograd.grad(y.sum(), x),
            lambda y, x: torch.autograd.backward(y, torch.ones_like(y)),
        ):
            x = self.leaf()
            run(Remembers.apply(x), x)
        self.assertEqual([thread == here for thread, _, _ in Remembers.seen], [is_one_open()] * 3)
        self.assertTrue(torch.autograd.is_multithreading_enabled())

    def test_the_state_survives_an_error(self):
        x = self.leaf()
        y = x * 2
        y.register_hook(lambda grad: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            y.sum().backward()
        self.assertTrue(torch.autograd.is_multithreading_enabled())
        (x * 2).sum().backward()
        self.assertEqual(x.grad.cpu(), torch.full((3,), 2.0))

    def test_a_callers_choice_stays(self):
        with torch.autograd.set_multithreading_enabled(False):
            Remembers.apply(self.leaf()).sum().backward()
            self.assertFalse(torch.autograd.is_multithreading_enabled())

    def test_streams_of_the_forward(self):
        stream = torch.npu.Stream()
        x = self.leaf()
        with torch.npu.stream(stream):
            y = Remembers.apply(x)
            total = y.sum()
        before = torch.npu.current_stream()
        total.backward()
        self.assertEqual([seen for _, _, seen in Remembers.seen], [stream])
        self.assertEqual(torch.npu.current_stream(), before)

    def test_inside_of_another(self):
        x = self.leaf()

        class Again(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                with torch.enable_grad():
                    inner = x.detach().requires_grad_()
                    Remembers.apply(inner * 3).sum().backward()
                return inner.grad * grad

        h = x
        for _ in range(80):  # deeper than the engine nests in one thread
            h = Again.apply(h) / 3
        h.sum().backward()
        self.assertEqual(x.grad.cpu(), torch.ones(3))
        self.assertEqual(len(Remembers.seen), 80)

    def test_two_callers_at_once(self):
        results = {}

        def work(number):
            x = torch.full((64, 64), float(number), device="npu", requires_grad=True)
            for _ in range(20):
                x.grad = None
                Remembers.apply(x @ x).sum().backward()
            results[number] = x.grad.cpu()

        callers = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        for number in (1, 2):
            self.assertEqual(results[number], torch.full((64, 64), 128.0 * number))
        if is_one_open():
            self.assertEqual({thread for thread, _, _ in Remembers.seen}, {caller.ident for caller in callers})


class SeveralDevicesTest(TestCase):
    def test_devices_have_threads(self):
        done = run_in_process(SEVERAL, ASCEND_SIM_DEVICE_COUNT="2")
        self.assertEqual(done.stdout, "[True] [False] [False] True\n", done.stderr)


if __name__ == "__main__":
    run_tests()
