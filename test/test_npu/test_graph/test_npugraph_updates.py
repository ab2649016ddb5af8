"""Captured operators that get other arguments: task groups, NPUGraph.update, and what replays wait for meanwhile."""

import threading

from graph_case import DEVICE, TestCase, captured, run_tests

import torch


class TestTaskGroups(TestCase):
    def setUp(self):
        super().setUp()
        self.x = torch.arange(4.0, device=DEVICE)
        self.out = torch.zeros(4, device=DEVICE)
        self.stream = torch.npu.Stream()

    def group(self, event=None):
        """A graph of out = (x + 1) * 2, of which the sum is a group; and what it returned."""
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            stream = torch.npu.current_stream()
            if event is not None:
                event.wait(stream)
                event.reset(stream)
            torch.npu.graph_task_group_begin(stream)
            torch.add(self.x, 1, out=self.out)
            handle = torch.npu.graph_task_group_end(stream)
            result = self.out * 2
        return graph, handle, result

    def update(self, handle, work):
        with torch.npu.stream(self.stream):
            torch.npu.graph_task_update_begin(self.stream, handle)
            work()
            torch.npu.graph_task_update_end(self.stream)

    def test_another_number(self):
        graph, handle, result = self.group()
        graph.replay()
        self.assertEqual(result.tolist(), [2, 4, 6, 8])
        for number in (5, 7):
            self.update(handle, lambda number=number: torch.add(self.x, number, out=self.out))
            self.x.add_(1)
            torch.npu.synchronize()
            graph.replay()
            self.assertEqual(result.tolist(), ((self.x + number) * 2).tolist())

    def test_more_work_with_memory_of_its_own(self):
        """An update may take other operators, and what they allocate is nobody else's."""
        graph, handle, result = self.group()
        wide = torch.arange(16.0, device=DEVICE).view(4, 4)

        def work():
            parts = [wide.t()[i] * (i + 1) for i in range(4)]
            torch.sum(torch.stack(parts), 0, out=self.out)

        for _ in range(3):
            self.update(handle, work)
            noise = [torch.full((4,), float("nan"), device=DEVICE) for _ in range(50)]
            graph.replay()
            self.assertEqual(
                result.tolist(), [2 * sum(wide[j, i].item() * (i + 1) for i in range(4)) for j in range(4)]
            )
            del noise

    def test_several_groups(self):
        outs = [torch.zeros(4, device=DEVICE) for _ in range(3)]
        graph, handles = torch.npu.NPUGraph(), []
        with torch.npu.graph(graph):
            stream = torch.npu.current_stream()
            for out in outs:
                torch.npu.graph_task_group_begin(stream)
                torch.mul(self.x, 2, out=out)
                handles.append(torch.npu.graph_task_group_end(stream))
            total = sum(outs)
        self.update(handles[1], lambda: torch.mul(self.x, 10, out=outs[1]))
        graph.replay()
        self.assertEqual(total.tolist(), (self.x * 14).tolist())

    def test_a_replay_waits_for_the_update(self):
        """The order of today's inference engines: the replay is launched before the host knows the new arguments."""
        event = torch.npu.ExternalEvent()
        graph, handle, result = self.group(event)
        for number in (3, 4, 5):
            replaying = torch.npu.Stream()
            with torch.npu.stream(replaying):
                graph.replay()
            self.assertFalse(replaying.query())
            self.update(handle, lambda number=number: torch.add(self.x, number, out=self.out))
            event.record(self.stream)
            replaying.synchronize()
            self.assertEqual(result.tolist(), ((self.x + number) * 2).tolist())

    def test_misuse(self):
        graph, handle, _ = self.group()
        with self.assertRaisesRegex(RuntimeError, "not in capture"):
            torch.npu.graph_task_group_begin(self.stream)
        with self.assertRaisesRegex(RuntimeError, "not one that graph_task_group_end returned"):
            torch.npu.graph_task_update_begin(self.stream, handle + 8)
        with self.assertRaisesRegex(RuntimeError, "default stream"):
            torch.npu.graph_task_update_begin(torch.npu.default_stream(), handle)
        with self.assertRaisesRegex(RuntimeError, "another stream updates it"):
            torch.npu.graph_task_update_begin(torch.npu.graph.default_capture_stream[0], handle)
        with self.assertRaisesRegex(RuntimeError, "no update has begun"):
            torch.npu.graph_task_update_end(self.stream)
        with self.assertRaisesRegex(TypeError, "torch.npu.Stream"):
            torch.npu.graph_task_update_begin(0, handle)
        with torch.npu.stream(self.stream):
            torch.npu.graph_task_update_begin(self.stream, handle)
            with self.assertRaisesRegex(RuntimeError, "captured into a graph"):
                self.x.tolist()
            torch.npu.graph_task_update_end(self.stream)
        graph.reset()
        with self.assertRaisesRegex(RuntimeError, "its graph is gone"):
            torch.npu.graph_task_update_begin(self.stream, handle)
        unfinished = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "has not ended"), torch.npu.graph(unfinished):
            torch.npu.graph_task_group_begin(torch.npu.current_stream())
            self.x + 1

    def test_memory_goes_with_the_graph(self):
        torch.npu.synchronize()
        torch.npu.empty_cache()
        before = torch.npu.memory_reserved()
        graph, handle, result = self.group()
        big = torch.ones(1 << 20, device=DEVICE)
        self.update(handle, lambda x=big: torch.add(self.x, (x * 3).sum(), out=self.out))
        self.update(handle, lambda x=big: torch.add(self.x, (x * 4).sum(), out=self.out))
        graph.replay()
        self.assertEqual(result.tolist(), ((self.x + (4 << 20)) * 2).tolist())
        del graph, result, big
        torch.npu.synchronize()
        torch.npu.empty_cache()
        self.assertEqual(torch.npu.memory_reserved(), before)


class TestExternalEvents(TestCase):
    def test_a_wait_before_the_record(self):
        event, first, second = torch.npu.ExternalEvent(), torch.npu.Stream(), torch.npu.Stream()
        x = torch.zeros(2, device=DEVICE)
        torch.npu.synchronize()
        with torch.npu.stream(first):
            event.wait()
            x.add_(1)
        self.assertFalse(first.query())
        event.record(second)
        first.synchronize()
        self.assertEqual(x.tolist(), [1, 1])
        with torch.npu.stream(first):
            event.wait()  # it is set still
        first.synchronize()
        event.reset(second)
        second.synchronize()
        event.wait(first)
        self.assertFalse(first.query())
        threading.Timer(0.05, event.record, (second,)).start()
        first.synchronize()

    def test_a_graph_records_it(self):
        event, other = torch.npu.ExternalEvent(), torch.npu.Stream()

        def work():
            event.record()

        graph, _ = captured(work, warm_up=0)
        event.wait(other)
        self.assertFalse(other.query())
        graph.replay()
        other.synchronize()
        del graph


class TestUpdate(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.query, self.key, self.value = (torch.randn(2, 4, n, 64).half().to(DEVICE) for n in (1, 32, 32))

    def attention(self, lengths):
        return torch.ops.npu.npu_fused_infer_attention_score(
            self.query,
            self.key,
            self.value,
            num_heads=4,
            scale=0.125,
            input_layout="BNSD",
            actual_seq_lengths_kv=lengths,
        )[0]

    def test_lengths_of_attention(self):
        wanted = {lengths: self.attention(list(lengths)) + 1 for lengths in ((32, 32), (5, 17), (1, 30))}
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            result = self.attention([32, 32]) + 1
        graph.replay()
        self.assertTrue(torch.equal(result, wanted[32, 32]))
        for lengths in ((5, 17), (1, 30), (32, 32)):
            graph.update(cpu_update_input=[{"actual_seq_lengths_kv": list(lengths)}])
            graph.replay()
            self.assertTrue(torch.equal(result, wanted[lengths]))

    def test_one_entry_for_each(self):
        wanted = self.attention([3, 4]) + self.attention([5, 6])
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            result = self.attention([9, 9]) + self.attention([9, 9])
        with self.assertRaisesRegex(RuntimeError, "2 captured operators can be updated.*3 entries"):
            graph.update([{}] * 3)
        graph.update([{"actual_seq_lengths_kv": [3, 4]}, {"actual_seq_lengths_kv": [5, 6]}])
        graph.replay()
        self.assertTrue(torch.equal(result, wanted))

    def test_a_handler_of_ones_own(self):
        name = "aten.leaky_relu.default"
        seen = []

        @torch.npu.register_npu_graph_handler(["leaky_relu.default", name])
        class Handler(torch.npu.NpuGraphOpHandler):
            UPDATE_SPECS = {"leaky_relu.default": [("arg", 1, "slope")]}

            @classmethod
            def postprocess_result(cls, result, kwargs):
                seen.append("captured")
                return result

        self.addCleanup(
            lambda: [torch.npu._graph_updates._NPU_GRAPH_OP_HANDLERS.pop(n) for n in ("leaky_relu.default", name)]
        )
        x = torch.tensor([-2.0, 3.0], device=DEVICE)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            result = torch.ops.aten.leaky_relu(x, 0.5) * 2
        graph.replay()
        self.assertEqual((result.tolist(), seen), ([-2.0, 6.0], ["captured"]))
        graph.update([{"slope": 0.25}])
        graph.replay()
        self.assertEqual(result.tolist(), [-1.0, 6.0])
        with self.assertRaisesRegex(TypeError, "no subclass of NpuGraphOpHandler"):
            torch.npu.register_npu_graph_handler("op")(dict)

    def test_without_being_asked_for(self):
        graph, _ = captured(lambda: self.query + 1)
        with self.assertRaisesRegex(RuntimeError, "auto_dispatch_capture=True"):
            graph.update([{}])


if __name__ == "__main__":
    run_tests()
