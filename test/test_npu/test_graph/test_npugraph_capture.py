"""Capture and replay: the numbers of a replay are those of an eager run, bit for bit."""

import copy
import gc
import json
import tempfile
from pathlib import Path

from graph_case import DEVICE, Net, TestCase, batches, captured, run_tests

import torch
from torch import nn


class TestReplay(TestCase):
    def test_nothing_runs_before_the_replay(self):
        x = torch.ones(4, device=DEVICE)
        graph = torch.npu.NPUGraph()
        self.assertFalse(torch.npu.is_current_stream_capturing())
        with torch.npu.graph(graph):
            self.assertTrue(torch.npu.is_current_stream_capturing())
            x.add_(1)
        self.assertFalse(torch.npu.is_current_stream_capturing())
        torch.npu.synchronize()
        self.assertEqual(x.tolist(), [1] * 4)
        for expected in (2, 3):
            graph.replay()
            self.assertEqual(x.tolist(), [expected] * 4)

    def test_new_inputs(self):
        a, b = torch.randn(8, 16, device=DEVICE), torch.randn(16, 4, device=DEVICE)

        def work():
            return ((a @ b + 1) * 2).softmax(-1).sum(0)

        graph, result = captured(work)
        for _ in range(5):
            a.copy_(torch.randn(8, 16))
            graph.replay()
            self.assertTrue(torch.equal(result, work()))

    def test_host_numbers_and_views_are_of_the_capture(self):
        x = torch.arange(24.0, device=DEVICE).view(4, 6)

        def work(factor=3.0):
            return (x.t()[1:5, ::2] * factor + x.new_full((4, 2), 0.5)).cumsum(0), x.flip(0)[:2].contiguous()

        graph, results = captured(work)
        x.mul_(2)
        graph.replay()
        for actual, expected in zip(results, work(), strict=True):
            self.assertTrue(torch.equal(actual, expected))

    def test_many_operands_and_host_lists(self):
        parts = [torch.randn(3, 2, device=DEVICE) for _ in range(20)]
        graph, result = captured(lambda: torch.cat(parts).index_select(0, torch.arange(50, device=DEVICE)))
        for p in parts:
            p.fill_(7)
        graph.replay()
        self.assertTrue(torch.equal(result, torch.full((50, 2), 7.0, device=DEVICE)))

    def test_pinned_copies(self):
        source, target = torch.zeros(5).pin_memory(), torch.zeros(5).pin_memory()
        x = torch.zeros(5, device=DEVICE)

        def work():
            x.copy_(source, non_blocking=True)
            x.mul_(2)
            target.copy_(x, non_blocking=True)

        graph, _ = captured(work)
        source.fill_(4)
        graph.replay()
        torch.npu.synchronize()
        self.assertEqual(target.tolist(), [8] * 5)

    def test_large_and_small_operators_together(self):
        x = torch.randn(300, 300, device=DEVICE)

        def work():
            y = x @ x
            for _ in range(20):
                y = y[:3, :3] + 1 if y.numel() < 10 else y[:3, :3]
            return y, torch.relu(x).sum()

        graph, results = captured(work)
        x.copy_(torch.randn(300, 300))
        for _ in range(3):
            graph.replay()
        for actual, expected in zip(results, work(), strict=True):
            self.assertTrue(torch.equal(actual, expected))

    def test_replay_on_another_stream_and_thread_of_streams(self):
        x = torch.zeros(1000, device=DEVICE)
        graph, _ = captured(lambda: x.add_(1), warm_up=0)
        streams = [torch.npu.Stream() for _ in range(3)]
        previous = torch.npu.current_stream()
        for i in range(30):
            stream = streams[i % 3]
            stream.wait_stream(previous)
            with torch.npu.stream(stream):
                graph.replay()
            previous = stream
        torch.npu.current_stream().wait_stream(previous)
        self.assertEqual(x[0].item(), 30)

    def test_graph_freed_while_it_replays(self):
        x = torch.randn(256, 256, device=DEVICE)

        def work():
            y = x
            for _ in range(20):
                y = torch.tanh(y @ x)
            return y

        graph, result = captured(work)
        kept = torch.empty_like(result)
        graph.replay()
        kept.copy_(result)
        del graph
        gc.collect()
        self.assertTrue(torch.equal(kept, work()))

    def test_graph_in_a_graph(self):
        x = torch.zeros(4, device=DEVICE)
        inner, _ = captured(lambda: x.add_(1), warm_up=0)

        def work(inner=inner):
            inner.replay()
            x.mul_(2)
            inner.replay()

        outer, _ = captured(work, warm_up=0)
        del inner, work
        outer.replay()
        self.assertEqual(x.tolist(), [3] * 4)

    def test_several_devices(self):
        if torch.npu.device_count() < 2:
            self.skipTest("one device")
        graphs, inputs, results = [], [], []
        for i in range(2):
            with torch.npu.device(i):
                inputs.append(torch.ones(8, device=f"npu:{i}"))
                graph, result = captured(lambda x=inputs[-1]: x.exp())
                graphs.append(graph)
                results.append(result)
        for i, x in enumerate(inputs):
            x.fill_(i)
        for graph in graphs:
            graph.replay()  # on the graph's own device
        for i, result in enumerate(results):
            self.assertTrue(torch.equal(result, torch.full((8,), float(i), device=f"npu:{i}").exp()))

    def test_capture_anew_after_reset(self):
        x = torch.ones(4, device=DEVICE)
        graph = torch.npu.NPUGraph(keep_graph=True)
        for factor in (2, 3):
            with torch.npu.graph(graph):
                y = x * factor
            graph.instantiate()
            graph.replay()
            self.assertEqual(y.tolist(), [factor] * 4)
            graph.reset()
        with self.assertRaisesRegex(RuntimeError, "without a preceding successful capture"):
            graph.replay()

    def test_accelerator_graph(self):
        x = torch.ones(4, device=DEVICE)
        graph, stream = torch.accelerator.Graph(), torch.npu.Stream()
        stream.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(stream):
            graph.capture_begin()
            y = x + 1
            graph.capture_end()
        torch.npu.current_stream().wait_stream(stream)
        x.fill_(5)
        graph.replay()
        self.assertEqual(y.tolist(), [6] * 4)

    def test_dump(self):
        x = torch.ones(4, device=DEVICE)
        graph, _ = captured(lambda: (x + 1).mul_(2))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph.json")
            graph.debug_dump(str(path))
            tasks = json.loads(path.read_text())
        self.assertEqual([t["name"] for t in tasks][:1], ["Add"])
        self.assertEqual(len({t["tid"] for t in tasks}), 1)

    def test_liveness_of_inputs(self):
        x = torch.ones(4, device=DEVICE)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, check_input_liveness=True):
            y = x + 1
        graph.replay()
        self.assertEqual(y.tolist(), [2] * 4)
        del x
        with self.assertRaisesRegex(RuntimeError, "have been freed since the capture"):
            graph.replay()


class TestStreams(TestCase):
    def test_fork_and_join(self):
        x, other = torch.randn(64, 64, device=DEVICE), torch.npu.Stream()

        def work():
            main = torch.npu.current_stream()
            captures = torch.npu.is_current_stream_capturing()
            y = x @ x
            other.wait_stream(main)
            with torch.npu.stream(other):
                self.assertEqual(torch.npu.is_current_stream_capturing(), captures)
                z = (y + 1).sum(0)
                z.record_stream(main)
            w = y * 2
            main.wait_stream(other)
            return w + z

        graph, result = captured(work)
        self.assertFalse(self.is_capturing(other))
        for _ in range(3):
            x.copy_(torch.randn(64, 64))
            graph.replay()
            self.assertTrue(torch.equal(result, work()))

    def is_capturing(self, stream):
        with torch.npu.stream(stream):
            return torch.npu.is_current_stream_capturing()

    def test_tensors_used_by_other_streams_are_freed_after_the_capture(self):
        side = torch.npu.Stream()
        graph = torch.npu.NPUGraph()
        x = torch.ones(1 << 16, device=DEVICE)
        x.record_stream(side)
        y = torch.ones(4, device=DEVICE)
        before = torch.npu.memory_allocated()
        with torch.npu.graph(graph):
            del x
            y = y + 1
        torch.npu.synchronize()
        torch.empty(1, device=DEVICE)
        self.assertLess(torch.npu.memory_allocated(), before)
        graph.replay()
        self.assertEqual(y.tolist(), [2] * 4)


class TestTraining(TestCase):
    def step_of(self, model, optimizer, x, target, set_to_none=True):
        def step():
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def same_as_eager(self, make_optimizer, dropout=0.0, replays=5):
        torch.manual_seed(0)
        model = Net(dropout).to(DEVICE)
        data = batches(replays + 3)
        x, target = data[0][0].clone(), data[0][1].clone()
        optimizer = make_optimizer(model.parameters())
        step = self.step_of(model, optimizer, x, target)
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            for inputs in data[:3]:
                x.copy_(inputs[0])
                target.copy_(inputs[1])
                step()
        torch.npu.current_stream().wait_stream(side)

        twin = copy.deepcopy(model)
        optimizer_twin = make_optimizer(twin.parameters())
        optimizer_twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        x_twin, target_twin = x.clone(), target.clone()
        eager = self.step_of(twin, optimizer_twin, x_twin, target_twin)

        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            loss = step()
        losses = [[], []]
        torch.manual_seed(1)
        for inputs in data[3:]:
            x.copy_(inputs[0])
            target.copy_(inputs[1])
            graph.replay()
            losses[0].append(loss.item())
        torch.manual_seed(1)
        for inputs in data[3:]:
            x_twin.copy_(inputs[0])
            target_twin.copy_(inputs[1])
            losses[1].append(eager().item())
        self.assertEqual(losses[0], losses[1])
        for a, b in zip([*model.parameters(), *model.buffers()], [*twin.parameters(), *twin.buffers()], strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_sgd(self):
        self.same_as_eager(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))

    def test_adam(self):
        self.same_as_eager(lambda p: torch.optim.Adam(p, 1e-2, capturable=True))

    def test_adamw_one_by_one(self):
        self.same_as_eager(lambda p: torch.optim.AdamW(p, 1e-2, capturable=True, foreach=False))

    def test_dropout(self):
        self.same_as_eager(lambda p: torch.optim.SGD(p, 0.1), dropout=0.5)

    def test_scaler_around_a_captured_pass(self):
        results = []
        for graphed in (True, False):
            torch.manual_seed(0)
            model = Net().to(DEVICE)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scaler = torch.amp.GradScaler("npu", init_scale=1024.0)
            data = batches(6)
            x, target = data[0][0].clone(), data[0][1].clone()

            def forward_backward(model=model, scaler=scaler, x=x, target=target):
                with torch.autocast("npu", dtype=torch.float16, cache_enabled=False):
                    loss = nn.functional.cross_entropy(model(x), target)
                scaler.scale(loss).backward()
                return loss

            state = copy.deepcopy(model.state_dict())
            scaler.scale(torch.ones(1, device=DEVICE))  # makes the scale's tensor
            run = forward_backward
            if graphed:
                for p in model.parameters():
                    p.grad = torch.zeros_like(p)
                graph, loss = captured(forward_backward)
                model.load_state_dict(state)

                def run(graph=graph, loss=loss):
                    graph.replay()
                    return loss

            losses = []
            for inputs in data:
                x.copy_(inputs[0])
                target.copy_(inputs[1])
                optimizer.zero_grad(set_to_none=False)
                losses.append(run().item())
                scaler.step(optimizer)
                scaler.update()
            results.append((losses, [p.detach().clone() for p in model.parameters()]))
        self.assertEqual(results[0][0], results[1][0])
        for a, b in zip(results[0][1], results[1][1], strict=True):
            self.assertTrue(torch.equal(a, b))


class TestRandom(TestCase):
    def draws(self, generator=None):
        half = torch.full((64,), 0.5, device=DEVICE)

        def draw():
            x = torch.empty(64, device=DEVICE)
            return [
                torch.rand(64, device=DEVICE, generator=generator),
                torch.randn(64, device=DEVICE, generator=generator),
                torch.randn(64, device=DEVICE, generator=generator, dtype=torch.float16),
                torch.randint(1000, (64,), device=DEVICE, generator=generator),
                torch.randperm(50, device=DEVICE, generator=generator),
                x.bernoulli_(0.5, generator=generator).clone(),
                torch.multinomial(half, 5, replacement=True, generator=generator),
                x.uniform_(-1, 1, generator=generator).clone(),
                x.normal_(2, 3, generator=generator).clone(),
                x.exponential_(generator=generator).clone(),
                x.geometric_(0.3, generator=generator).clone(),
                x.cauchy_(generator=generator).clone(),
                x.log_normal_(generator=generator).clone(),
            ]

        return draw

    def test_replays_draw_what_eager_runs_draw(self):
        draw = self.draws()
        graph, results = captured(draw)
        for seed in (5, 6):
            torch.manual_seed(seed)
            replayed = []
            for _ in range(3):
                graph.replay()
                replayed.append([r.clone() for r in results])
            state = torch.npu.get_rng_state()
            torch.manual_seed(seed)
            for actual in replayed:
                for a, e in zip(actual, draw(), strict=True):
                    self.assertTrue(torch.equal(a, e))
            self.assertTrue(torch.equal(state, torch.npu.get_rng_state()))

    def test_every_replay_draws_anew(self):
        graph, result = captured(lambda: torch.nn.functional.dropout(torch.ones(1000, device=DEVICE), 0.5))
        graph.replay()
        first = result.clone()
        graph.replay()
        self.assertFalse(torch.equal(first, result))

    def test_further_generators(self):
        generator = torch.Generator(DEVICE).manual_seed(3)
        draw = self.draws(generator)
        draw()
        graph = torch.npu.NPUGraph()
        graph.register_generator_state(generator)
        with torch.npu.graph(graph):
            results = draw()
        generator.manual_seed(4)
        graph.replay()
        generator.manual_seed(4)
        for a, e in zip(results, draw(), strict=True):
            self.assertTrue(torch.equal(a, e))

    def test_a_generator_that_is_not_registered(self):
        generator = torch.Generator(DEVICE)
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "register_generator_state"), torch.npu.graph(graph):
            torch.rand(4, device=DEVICE, generator=generator)

    def test_a_seed_cannot_be_set_in_a_capture(self):
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "under capture"), torch.npu.graph(graph):
            torch.npu.manual_seed(torch.npu.initial_seed() + 1)
        torch.npu.manual_seed(0)


class TestPools(TestCase):
    def setUp(self):
        gc.collect()
        torch.npu.synchronize()
        torch.npu.empty_cache()

    def test_memory_of_a_graph_is_not_used_by_others(self):
        x = torch.randn(1 << 14, device=DEVICE)

        def work():
            return (x + 1) * 2 - 3  # two temporaries

        graph, result = captured(work)
        noise = [torch.full((1 << 14,), float("nan"), device=DEVICE) for _ in range(20)]
        graph.replay()
        self.assertTrue(torch.equal(result, work()))
        self.assertTrue(all(n.isnan().all().item() for n in noise))

    def test_two_graphs_share_a_pool(self):
        x = torch.randn(1 << 16, device=DEVICE)

        def work():
            return [(x + i).exp().sum() for i in range(4)]

        torch.npu.empty_cache()
        reserved = []
        for shared in (False, True):
            start = torch.npu.memory_reserved()
            pool = torch.npu.graph_pool_handle() if shared else None
            pairs = [captured(work, pool=pool) for _ in range(4)]
            reserved.append(torch.npu.memory_reserved() - start)
            if shared:
                self.assertEqual(len({g.pool() for g, _ in pairs}), 1)
                self.assertEqual(pairs[0][0].pool(), pool)
            for graph, results in pairs:
                graph.replay()
                for a, e in zip(results, work(), strict=True):
                    self.assertTrue(torch.equal(a, e))
            del pairs, graph, results, a, e
            gc.collect()
            torch.npu.empty_cache()
        self.assertLess(reserved[1], reserved[0])

    def test_memory_comes_back_with_the_graph(self):
        start = torch.npu.memory_reserved()
        graph, result = captured(lambda: torch.ones(1 << 20, device=DEVICE) + 1)
        self.assertGreater(torch.npu.memory_reserved(), start)
        del graph, result
        gc.collect()
        torch.npu.empty_cache()
        self.assertEqual(torch.npu.memory_reserved(), start)

    def test_pool_of_a_graph_with_mem_pool(self):
        pool = torch.npu.MemPool()
        graph, result = captured(lambda: torch.ones(64, device=DEVICE) * 3, pool=pool.id)
        self.assertEqual(graph.pool(), pool.id)
        graph.replay()
        self.assertEqual(result[0].item(), 3)


if __name__ == "__main__":
    run_tests()
