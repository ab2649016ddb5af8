"""Recurrent networks on npu against fp64 on the CPU."""

# ruff: noqa: B023 - functions made in a loop are called in the same round

import copy
import unittest

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


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2}


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
            ):
                for dtype in TOLERANCE:
                    with self.subTest(kind=kind.__name__, dtype=dtype, **options):
                        torch.manual_seed(3)
                        self.agree(kind(5, 6, **options), call, dtype)

    def test_packed_sequences(self):
        def call(net, device, dtype):
            x = randn(3, 5, 4).detach().to(device, dtype).requires_grad_()
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3], batch_first=True, enforce_sorted=False)
            out, state = net(packed)
            padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
            self.assertEqual(lengths.tolist(), [2, 5, 3])
            state = state if isinstance(state, tuple) else (state,)
            (padded.square().sum() + sum(s.sum() for s in state)).backward()
            return [padded, *state, x.grad]

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


if __name__ == "__main__":
    unittest.main()
