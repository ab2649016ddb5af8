"""torch.npu's graph mode: operators are gathered, and what comes out is what eager mode gives, bit by bit."""

import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

from fused_case import FLOATS, FusedCase, values
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db

import torch
from torch import nn
from torch.utils import _pytree as pytree

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
SAMPLE_OF_OPERATORS = 25


def counts():
    return torch._C._npu_graphCounts()


class LazyCase(FusedCase):
    def setUp(self):
        torch.manual_seed(0)

    def tearDown(self):
        torch.npu.disable_graph_mode()

    def both(self, function):
        """The results in eager mode and in graph mode, compared."""
        expected = function()
        torch.npu.enable_graph_mode()
        try:
            actual = function()
            torch.npu.launch_graph()
        finally:
            torch.npu.disable_graph_mode()
        flat = [pytree.tree_leaves(results) for results in (actual, expected)]
        for a, e in zip(*flat, strict=True):
            if isinstance(e, torch.Tensor):
                self.assert_same(a, e)
            else:
                self.assertEqual(a, e)

    def graph_of(self, function):
        """The results of one graph, and what became of its operators."""
        function()  # memory that is new to the process sends what is there
        torch.npu.synchronize()
        torch.npu.enable_graph_mode()
        before = counts()
        results = function()
        torch.npu.launch_graph()
        after = counts()
        torch.npu.disable_graph_mode()
        for a, e in zip(results, function(), strict=True):
            self.assert_same(a, e)
        return {name: after[name] - before[name] for name in after}


class LazyGraphTest(LazyCase):
    def test_chains_are_fused_and_dead_results_dropped(self):
        x = values(100, 30)
        torch.npu.synchronize()
        torch.npu.enable_graph_mode()
        before = counts()
        y = ((x + 1) * 2).relu()
        (y * 3).exp()  # nobody needs it
        torch.npu.launch_graph()
        after = counts()
        change = {name: after[name] - before[name] for name in after}
        self.assertEqual(change, {"graphs": 1, "gathered": 5, "sent": 1, "fused": 3, "dropped": 2, "redundant": 0})
        self.assert_same(y, ((x + 1) * 2).relu())

    def test_values_are_there_when_asked_for(self):
        torch.npu.enable_graph_mode()
        x = torch.ones(4, 5, device="npu")
        self.assertEqual((x + 1).sum().item(), 40)
        self.assertEqual((x * 3).cpu().tolist(), [[3.0] * 5] * 4)
        self.assertTrue(torch.equal(x * 2, x + x))
        self.assertIn("2.", repr(x + 1))

    def test_in_place_and_views(self):
        def function():
            x = values(20, 30)
            view = x[5:10]
            y = x * 2
            view.add_(1)
            z = x * 2
            x.mul_(y)
            w = x[:, ::2] + 1
            x[3] = 7
            x.t().sub_(3)
            return x, y, z, w, view

        self.both(function)

    def test_memory_that_is_used_again(self):
        def function():
            x = values(64, 64).nan_to_num(0, 1, -1)
            for i in range(40):
                a = x * 1.01 + i
                b = (a @ x).tanh()
                x = torch.where(b > 0, a.sigmoid(), b - 0.5)
            return x

        self.both(function)

    def test_dtypes_that_share_memory(self):
        def function():
            x = values(1000)
            halves = x.half()
            bits = x.view(torch.int32) + 1
            y = (x + 1).view(torch.int32)
            y.add_(1)
            return halves * 2, bits * 3, y.view(torch.float32) * 2

        self.both(function)

    def test_training(self):
        net = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)))).npu()
        start = {name: value.clone() for name, value in net.state_dict().items()}
        batches = [torch.randn(16, 32).npu() for _ in range(4)]

        def function():
            net.load_state_dict(start)
            optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
            losses = []
            for batch in batches:
                optimizer.zero_grad()
                loss = F.mse_loss(net(batch).tanh(), batch.sigmoid())
                loss.backward()
                optimizer.step()
                losses.append(loss)
            return losses, [p.detach().clone() for p in net.parameters()]

        self.both(function)

    def test_streams_and_events_keep_their_order(self):
        side = torch.npu.Stream()

        def function():
            x = values(300, 300)
            y = x * 2 + 1
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                z = y * 3 - x
                event = side.record_event()
            torch.npu.current_stream().wait_event(event)
            w = (z + y).relu()
            w.record_stream(side)
            return y, z, w

        self.both(function)

    def test_threads_at_once(self):
        torch.npu.enable_graph_mode()
        failures = []

        def work(seed):
            x = values(50, 50, seed=seed)
            for _ in range(30):
                y = (x * 2 - 1).relu() + seed
                expected = (x.cpu() * 2 - 1).relu() + seed
                if not torch.equal(y.cpu().nan_to_num(), expected.nan_to_num()):
                    failures.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_an_operator_that_fails_is_named_and_the_others_run(self):
        x = values(10, 10)
        torch.npu.enable_graph_mode()
        index = torch.tensor([50], device="npu")
        y = (x + 1) * 2
        kept = x.index_select(0, index)
        with self.assertRaisesRegex(RuntimeError, "index"):
            torch.npu.launch_graph()
        del kept
        self.assert_same(y, (x + 1) * 2)

    def test_empty_cache_and_little_memory(self):
        torch.npu.enable_graph_mode()
        x = values(1000, 1000)
        y = (x + 1) * 2
        torch.npu.empty_cache()
        z = y - x
        del y
        torch.npu.empty_cache()
        torch.npu.disable_graph_mode()
        self.assert_same(z, (x + 1) * 2 - x)

    def test_misuse(self):
        with self.assertRaisesRegex(RuntimeError, "graph mode is off"):
            torch.npu.launch_graph()
        with self.assertRaisesRegex(TypeError, "verbose is a bool"):
            torch.npu.enable_graph_mode(verbose=1)

    def test_verbose_logs_what_became_of_graphs(self):
        torch.npu.enable_graph_mode(verbose=True)
        (torch.ones(3, device="npu") + 1).relu_()
        with self.assertLogs("torch.npu.options", "WARNING") as logs:
            torch.npu.launch_graph()
        self.assertIn("gathered", logs.output[0])
        torch.npu.enable_graph_mode()

    def test_constants_are_folded(self):
        x, bools = values(30, 50), values(30, 50) > 0

        def number(x):
            y = (x + 1).relu()
            limit = torch.full((), 0.3, dtype=x.dtype, device="npu")
            return (torch.where(y > limit, y, limit) * limit,)

        for dtype in FLOATS:
            other = values(30, 50, dtype=dtype)
            change = self.graph_of(lambda other=other: number(other))
            self.assertEqual((change["sent"], change["fused"], change["dropped"]), (1, 5, 1))

        def whole():
            zeros, ones = torch.zeros(30, 50, device="npu"), torch.ones(30, 50, device="npu")
            return x * ones + zeros, torch.where(bools, zeros, x).pow(ones * 2), torch.full_like(x, 3).to(torch.int64)

        change = self.graph_of(whole)
        self.assertEqual((change["graphs"], change["sent"]), (1, 1))

        def written_again():
            t = torch.zeros(30, 50, device="npu")
            a = x + t
            t.add_(x)
            b = x + t
            t.zero_()
            t[3:5].fill_(2)
            return a, b, x + t, t

        self.graph_of(written_again)

        def of_no_dimension():
            one = torch.ones((), device="npu")
            return one + 1, x * one, one

        self.graph_of(of_no_dimension)

    def test_casts_that_cancel(self):
        for narrow, wide in (
            (torch.float16, torch.float32),
            (torch.bfloat16, torch.float32),
            (torch.int32, torch.int64),
        ):
            x = values(40, 50).mul(100).nan_to_num(0, 1, -1).to(narrow)
            change = self.graph_of(lambda x=x, narrow=narrow, wide=wide: ((x + x).to(wide).to(narrow) * 2,))
            self.assertEqual((change["sent"], change["fused"], change["redundant"]), (1, 2, 1), narrow)
        x = values(40, 50)
        change = self.graph_of(lambda: ((x + x).half().float() * 2,))  # which rounds
        self.assertEqual((change["sent"], change["fused"]), (1, 4))

    def test_what_lies_between_waits(self):
        x, y = values(40, 50), values(40, 50, seed=1)

        def function():
            a = x + y
            b = a.sum(0)
            c = a * 2
            d = c.sum(1)
            e = (c - x).relu()
            return b, d, e

        change = self.graph_of(function)
        self.assertEqual((change["sent"], change["fused"]), (3, 4))

        def dependent():
            a = (x + y).mul_(3)
            b = a.sum(0)
            a.add_(1)  # what the sum has read
            c = a * b
            b.mul_(2)
            return a, b, c

        self.graph_of(dependent)

    def test_memory_of_another_size_is_used_again(self):
        def function():
            x = values(64, 64)
            kept = []
            for i in range(12):
                mask = (x > 0) & (x < 1)
                kept.append(torch.where(mask, x, x * 0.5).sum(0))
                del mask
                kept.append((x + i).sum(1, keepdim=True) * 2)
            return kept

        self.both(function)

    def test_random_programs(self):
        """Random chains of operators in place, out of place, on views, with tensors dropped at random."""
        steps = (
            lambda t, u: t + u,
            lambda t, u: t * 0.5 - 1,
            lambda t, u: t.relu(),
            lambda t, u: t.add_(u.clone()),
            lambda t, u: t.mul_(0.9),
            lambda t, u: t.tanh_(),
            lambda t, u: t.reshape(-1).view(t.shape),
            lambda t, u: torch.where(t > u, t, u),
            lambda t, u: t.clone(),
            lambda t, u: t.half().float(),
            lambda t, u: (t @ u) * 0.01,
            lambda t, u: t.t().contiguous(),
            lambda t, u: t.t(),
            lambda t, u: t.softmax(0),
            lambda t, u: torch.zeros_like(t),
            lambda t, u: torch.full((24, 24), 1.5, device="npu") + u,
            lambda t, u: t * torch.full((), 0.75, device="npu"),
            lambda t, u: t.zero_(),
            lambda t, u: (t.sum(0, keepdim=True) * 0.1 + u).clamp(-2, 2),
            lambda t, u: t + t.half().float().half().float().mean(1, keepdim=True),
            lambda t, u: torch.where((t > 0) & (u < 1), t, torch.zeros((), device="npu")),
        )
        for seed in range(200 if SLOW else 20):

            def function(seed=seed):
                chance = random.Random(seed)
                tensors = [values(24, 24, seed=seed + i).nan_to_num(0, 1, -1) for i in range(3)]
                for _ in range(chance.randrange(5, 60)):
                    t, u = chance.choice(tensors), chance.choice(tensors)
                    result = chance.choice(steps)(t, u)
                    if chance.random() < 0.3 and len(tensors) > 2:
                        tensors.pop(chance.randrange(len(tensors)))
                    tensors.append(result)
                    if chance.random() < 0.1:
                        tensors[0][3:9].add_(1)
                return tensors

            with self.subTest(seed=seed):
                self.both(function)


class GraphFilesTest(unittest.TestCase):
    def run_with(self, **variables):
        script = (
            "import torch\nx = torch.ones(4, 5, device='npu'); torch.npu.synchronize()\n"
            "torch.npu.enable_graph_mode(); y = (x + 1).relu() * 2; torch.npu.launch_graph(); print(y.sum().item())"
        )
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "DUMP_GRAPH_PATH": folder, **variables}
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {path.name: path.read_text() for path in sorted(Path(folder).iterdir())}

    def test_no_files_without_the_variable(self):
        self.assertEqual(self.run_with(), {})

    def test_before_and_after(self):
        files = self.run_with(DUMP_GE_GRAPH="2")
        before, after = (
            next(text for name, text in files.items() if name.endswith(f"{when}_passes.txt"))
            for when in ("before", "after")
        )
        self.assertRegex(before, r"%\w+ float32\[4, 5\] = Add\(%\w+ float32\[4, 5\], host float32\[\]\)")
        self.assertIn("Relu(", before)
        self.assertRegex(after, r"= FusedElementwise\(.*\)\{program=s:")

    def test_levels(self):
        names = list(self.run_with(DUMP_GE_GRAPH="3", DUMP_GRAPH_LEVEL="3"))
        self.assertTrue(names and all("after" in name for name in names), names)
        names = list(self.run_with(DUMP_GE_GRAPH="1", DUMP_GRAPH_LEVEL="4"))
        self.assertTrue(names and all("before" in name for name in names), names)


class OperatorsTest(LazyCase):
    """Upstream's database of operators: a sample of each in eager mode and in graph mode."""

    def test_operators(self):
        ops = [op for op in op_db if torch.float32 in op.dtypes]
        if not SLOW:
            ops = random.Random(int(os.environ.get("NPU_OPS_SEED", "0"))).sample(ops, SAMPLE_OF_OPERATORS)
        for op in ops:
            samples = list(op.sample_inputs("cpu", torch.float32))[: None if SLOW else 2]
            for sample in samples:
                with self.subTest(op.name):
                    self.compare(op, sample)

    def compare(self, op, sample):
        def run():
            torch.manual_seed(0)
            moved = pytree.tree_map_only(torch.Tensor, lambda t: t.npu(), (sample.input, sample.args, sample.kwargs))
            result = op(moved[0], *moved[1], **moved[2])
            return pytree.tree_map_only(torch.Tensor, lambda t: t * 1, result)

        try:
            expected = run()
        except Exception:  # refused in eager mode, too
            return
        if any(isinstance(t, torch.Tensor) and t.layout != torch.strided for t in pytree.tree_leaves(expected)):
            return
        if op.name in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"):
            return
        self.both(run)


if __name__ == "__main__":
    unittest.main()
