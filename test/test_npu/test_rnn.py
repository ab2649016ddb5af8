"""Recurrent networks on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import copy
import unittest

import torch.utils.flop_counter
from nn_checks import check, randn, relative_error

import torch


class TestRecurrent(unittest.TestCase):
    def test_networks(self):
        kinds = {
            "lstm": torch.nn.LSTM(5, 6, 2, batch_first=True),
            "no bias": torch.nn.LSTM(5, 6, bias=False),
            "both ways": torch.nn.LSTM(5, 6, bidirectional=True),
            "projected": torch.nn.LSTM(5, 6, proj_size=3),
            "gru": torch.nn.GRU(5, 6, 2),
            "gru no bias": torch.nn.GRU(5, 6, bias=False),
            "rnn": torch.nn.RNN(5, 6),
        }
        for name, module in kinds.items():
            with self.subTest(name):
                results = []
                for device, dtype in (("cpu", torch.float64), ("npu", torch.float32)):
                    net = copy.deepcopy(module).to(device, dtype)
                    x = randn(3, 4, 5).detach().to(device, dtype).requires_grad_()
                    out, state = net(x)
                    state = state if isinstance(state, tuple) else (state,)
                    (out.square().sum() + sum(s.sum() for s in state)).backward()
                    results.append([out, *state, x.grad, *(p.grad for p in net.parameters())])
                for want, got in zip(*results, strict=True):
                    self.assertLess(relative_error(got, want), 1e-5)

    def test_cells(self):
        for kind, parts in ((torch.nn.LSTMCell, 4), (torch.nn.GRUCell, 3)):
            cell = kind(5, 6)

            def step(x, w_ih, w_hh, b_ih, b_hh):
                hx = torch.zeros(x.shape[0], 6, device=x.device, dtype=x.dtype)
                parameters = dict(
                    zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (w_ih, w_hh, b_ih, b_hh), strict=True)
                )
                state = (hx, hx) if kind is torch.nn.LSTMCell else hx
                return torch.func.functional_call(cell, parameters, (x, state))

            check(
                self,
                step,
                [randn(3, 5), randn(6 * parts, 5), randn(6 * parts, 6), randn(6 * parts), randn(6 * parts, seed=1)],
                tolerance=1e-5,
            )


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class TestSequences(unittest.TestCase):
    def agree(self, module, call, dtype=torch.float32):
        """Compare what ``call(net, device, dtype)`` returns and the parameters' gradients; nothing may fall back."""
        results, fallbacks = [], dict(torch.npu.fallback_stats())
        for device, as_dtype in (("cpu", torch.float64), ("npu", dtype)):
            net = copy.deepcopy(module).to(dtype).to(device, as_dtype)
            tensors = call(net, device, as_dtype)
            results.append([*tensors, *(p.grad for p in net.parameters())])
        for i, (want, got) in enumerate(zip(*results, strict=True)):
            self.assertEqual(got.shape, want.shape)
            self.assertLess(relative_error(got, want), TOLERANCE[dtype], f"tensor {i}")
        self.assertEqual(dict(torch.npu.fallback_stats()), fallbacks, "operators that ran on the CPU")

    def test_options_and_dtypes(self):
        def call(net, device, dtype):
            x = randn(3, 4, 5).detach().half().to(device, dtype).requires_grad_()
            out, state = net(x)
            state = state if isinstance(state, tuple) else (state,)
            (out.square().sum() + sum(s.sum() for s in state)).backward()
            return [out, *state, x.grad]

        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            for options in (
                {"num_layers": 2, "dropout": 0.0, "bidirectional": True, "batch_first": True},
                {"num_layers": 2, "bias": False},
                {"nonlinearity": "relu"},
            ):
                if "nonlinearity" in options and kind is not torch.nn.RNN:
                    continue
                for dtype in TOLERANCE:
                    with self.subTest(kind=kind.__name__, dtype=dtype, **options):
                        torch.manual_seed(3)
                        self.agree(kind(5, 6, **options), call, dtype)

    def test_packed_sequences(self):
        def call(net, device, dtype):
            x = randn(3, 5, 4).detach().to(device, dtype).requires_grad_()
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3], batch_first=True, enforce_sorted=False)
            count = 2 if isinstance(net, torch.nn.LSTM) else 1
            layers = 2 * (2 if net.bidirectional else 1)
            initial = [randn(layers, 3, 6, seed=i).detach().to(device, dtype).requires_grad_() for i in range(count)]
            out, state = net(packed, tuple(initial) if count == 2 else initial[0])
            padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
            self.assertEqual(lengths.tolist(), [2, 5, 3])
            state = state if isinstance(state, tuple) else (state,)
            (padded.square().sum() + sum(s.sum() for s in state)).backward()
            return [padded, *state, x.grad, *(h.grad for h in initial)]

        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            for both_ways in (False, True):
                with self.subTest(kind=kind.__name__, bidirectional=both_ways):
                    self.agree(kind(4, 6, 2, batch_first=True, bidirectional=both_ways), call)

    def test_cells_without_biases_or_some_gradients(self):
        for kind in (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell):
            states = 2 if kind is torch.nn.LSTMCell else 1
            for bias in (True, False):
                for used in range(states):  # the loss sees one of the states, so the other's gradient is undefined

                    def call(net, device, dtype):
                        x = randn(3, 5).detach().to(device, dtype).requires_grad_()
                        state = [randn(3, 6, seed=i).detach().to(device, dtype).requires_grad_() for i in range(states)]
                        out = net(x, tuple(state) if states == 2 else state[0])
                        out = out if states == 2 else (out,)
                        out[used].square().sum().backward()
                        return [*out, x.grad, *(s.grad for s in state)]

                    with self.subTest(kind=kind.__name__, bias=bias, used=used):
                        self.agree(kind(5, 6, bias), call)

    def test_second_derivative(self):
        def call(net, device, dtype):
            x = randn(2, 3, 5).detach().to(device, dtype).requires_grad_()
            (first,) = torch.autograd.grad(net(x)[0].square().sum(), x, create_graph=True)
            first.square().sum().backward()
            return [first, x.grad]

        for kind in (torch.nn.LSTM, torch.nn.GRU):
            with self.subTest(kind.__name__):
                self.agree(kind(5, 4), call)

    def test_second_derivative_of_packed_sequences(self):
        def call(net, device, dtype):
            x = randn(3, 4, 5).detach().to(device, dtype).requires_grad_()
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 3, 1], batch_first=True)
            out, _ = net(packed)
            (first,) = torch.autograd.grad(out.data.square().sum(), x, create_graph=True)
            first.square().sum().backward()
            return [first, x.grad]

        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            with self.subTest(kind.__name__):
                self.agree(kind(5, 4, 2, bidirectional=True), call)

    def test_a_loss_of_some_results(self):
        def call(which):
            def run(net, device, dtype):
                x = randn(3, 4, 5).detach().to(device, dtype)  # needs no gradient
                out, state = net(x)
                results = [out, *(state if isinstance(state, tuple) else (state,))]
                results[which].square().sum().backward()
                return results

            return run

        for kind, count in ((torch.nn.LSTM, 3), (torch.nn.GRU, 2), (torch.nn.RNN, 2)):
            for which in range(count):
                with self.subTest(kind=kind.__name__, which=which):
                    self.agree(kind(5, 6, bidirectional=True), call(which))

    def test_saturated_and_non_finite(self):
        special = [0.0, -0.0, 1e-30, -1e-5, 0.6, -0.65, 8.9, -9.1, 50.0, -88.0, 95.0, -200.0, 3e38]
        special += [float("inf"), -float("inf"), float("nan")]
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net = kind(1, 3)
            with torch.no_grad():
                for p in net.parameters():
                    p.copy_(torch.ones_like(p) if p.dim() == 2 and p.shape[1] == 1 else torch.zeros_like(p))
                x = torch.tensor(special).view(1, -1, 1)
                torch.testing.assert_close(
                    net.npu()(x.npu())[0].cpu(), net.cpu()(x)[0], rtol=2e-6, atol=1e-37, equal_nan=True
                )

    def test_errors_are_no_larger_than_the_cpus(self):
        torch.manual_seed(1)
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net, x = kind(40, 50), torch.randn(30, 20, 40)
            results = {}
            for name, device, dtype in (("exact", "cpu", torch.float64), ("cpu", "cpu", None), ("npu", "npu", None)):
                copied = copy.deepcopy(net).to(device, dtype)
                out = copied(x.to(device, dtype))[0]
                out.square().sum().backward()
                results[name] = [out.detach(), *(p.grad for p in copied.parameters())]
            for exact, cpu, npu in zip(*results.values(), strict=True):
                self.assertLess(relative_error(npu, exact), 1.5 * relative_error(cpu, exact) + 1e-7)

    def test_ways_that_upstream_composes(self):
        """Forward mode, function transforms and modes of dispatch see the operators that a layer is made of."""
        x, t = torch.randn(5, 2, 4), torch.randn(5, 2, 4)
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net = kind(4, 3).requires_grad_(False)
            with self.subTest(kind.__name__):
                want = torch.func.grad(lambda v: net(v)[0].square().sum())(x)
                got = torch.func.grad(lambda v: net(v)[0].square().sum())(x.npu()) if net.npu() else None
                torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
                with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
                    net(x.npu())
                self.assertGreater(counter.get_total_flops(), 0)
        net = torch.nn.RNN(4, 3)  # upstream has no forward mode of the other two's cells
        want = torch.func.jvp(lambda v: net(v)[0], (x,), (t,))
        net.npu()
        got = torch.func.jvp(lambda v: net(v)[0], (x.npu(),), (t.npu(),))
        torch.testing.assert_close(got[1].cpu(), want[1], rtol=1e-4, atol=1e-5)

    def test_dropout_between_layers(self):
        net = torch.nn.GRU(4, 200, 2, dropout=0.5).npu()
        x = torch.randn(3, 2, 4).npu()
        self.assertFalse(torch.equal(net(x)[0], net(x)[0]))
        net.eval()
        torch.testing.assert_close(net(x)[0], net(x)[0], rtol=0, atol=0)

    def test_autocast(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            net, x = kind(8, 6, 2), torch.randn(3, 4, 8)
            want = net(x)[0]
            net.npu()
            with torch.autocast("npu", torch.bfloat16):
                got = net(x.npu())[0]
            self.assertIs(got.dtype, torch.bfloat16)
            got.float().sum().backward()
            self.assertTrue(all(p.grad.dtype is torch.float32 for p in net.parameters()))
            torch.testing.assert_close(got.float().cpu(), want, rtol=0.05, atol=0.05)


if __name__ == "__main__":
    unittest.main()
