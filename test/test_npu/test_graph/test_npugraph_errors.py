"""What cannot be captured says so, the capture ends, and the process goes on."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

from graph_case import DEVICE, TestCase, captured, run_tests

import torch


class TestRefused(TestCase):
    def setUp(self):
        self.x = torch.ones(4, device=DEVICE)
        torch.npu.synchronize()

    def refused(self, action, text, error=RuntimeError):
        """The action raises in a capture; afterwards the graph is empty, and all works as before."""
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(error, text), torch.npu.graph(graph):
            y = self.x + 1
            action(y)
        self.assertFalse(torch.npu.is_current_stream_capturing())
        with self.assertRaisesRegex(RuntimeError, "without a preceding successful capture"):
            graph.replay()
        self.assertEqual((self.x + 1).sum().item(), 8)
        with torch.npu.graph(graph):
            y = self.x + 2
        graph.replay()
        self.assertEqual(y.tolist(), [3] * 4)

    def test_values(self):
        text = r"(?s)wanted on the host \(item\(\).*being captured into a graph"
        for action in (
            lambda y: y[0].item(),
            lambda y: y.tolist(),
            lambda y: y.cpu(),
            lambda y: bool(y.sum() > 0),
            lambda y: repr(y),
            lambda y: torch.nonzero(y),
            lambda y: y[y > 1],
            lambda y: torch.unique(y),
            lambda y: torch.zeros(4).copy_(y),
        ):
            self.refused(action, text)

    def test_host_memory_that_is_not_pinned(self):
        text = "(?s)host memory that is not pinned.*being captured into a graph"
        for action in (
            lambda y: torch.tensor([1.0, 2.0], device=DEVICE),
            lambda y: torch.ones(4).to(DEVICE),
            lambda y: y.copy_(torch.zeros(4)),
        ):
            self.refused(action, text)
        self.refused(lambda y: y.copy_(torch.zeros(4).pin_memory()), "(?s)Copying from the host.*being captured")

    def test_waits_and_questions(self):
        stream, event = torch.npu.Stream(), torch.npu.Event()

        def through_event(y):
            event.record()
            event.synchronize()

        def ask_event(y):
            event.record()
            event.query()

        for action in (
            lambda y: torch.npu.synchronize(),
            lambda y: torch.npu.current_stream().synchronize(),
            lambda y: torch.npu.current_stream().query(),
            through_event,
            ask_event,
        ):
            self.refused(action, "not permitted while a stream is being captured")
        stream.synchronize()

    def test_other_exceptions_go_through(self):
        def fail(y):
            raise KeyError("mine")

        self.refused(fail, "mine", KeyError)

    def test_shapes_that_do_not_fit(self):
        self.refused(lambda y: y + torch.ones(3, device=DEVICE), "size")

    def test_swallowed_error_of_the_device_layer(self):
        graph = torch.npu.NPUGraph()
        with (
            self.assertRaisesRegex(RuntimeError, "(?s)capture of an NPUGraph failed.*waiting for a device"),
            torch.npu.graph(graph),
        ):
            try:
                torch.npu.synchronize()
            except RuntimeError:
                pass
        self.assertEqual((self.x + 1).sum().item(), 8)

    def test_work_on_an_invalid_capture(self):
        graph = torch.npu.NPUGraph()
        with (
            self.assertRaisesRegex(RuntimeError, "(?s)the capture is invalid.*waiting for a device"),
            torch.npu.graph(graph),
        ):
            try:
                torch.npu.synchronize()
            except RuntimeError:
                pass
            self.x + 1

    def test_default_stream(self):
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "non-default stream"):
            graph.capture_begin()
        self.assertFalse(torch.npu.is_current_stream_capturing())

    def test_capture_within_a_capture(self):
        self.refused(lambda y: torch.npu.NPUGraph().capture_begin(), "captured into another graph already")

    def test_ends_that_have_no_beginning(self):
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "without a capture_begin"):
            graph.capture_end()
        with self.assertRaisesRegex(RuntimeError, "without a preceding successful capture"):
            graph.pool()
        graph.reset()

    def test_graphs_that_are_captured_already(self):
        graph, _ = captured(lambda: self.x + 1)
        with self.assertRaisesRegex(RuntimeError, "already owns a captured graph"), torch.npu.graph(graph):
            pass
        self.assertEqual(torch.npu.current_stream(), torch.npu.default_stream())

    def test_modes(self):
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "Unknown capture error mode"):
            graph.capture_begin(capture_error_mode="strict")

    def test_streams_that_are_not_joined(self):
        other = torch.npu.Stream()
        graph = torch.npu.NPUGraph()
        with self.assertRaisesRegex(RuntimeError, "has not been joined"), torch.npu.graph(graph):
            other.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(other):
                self.x + 1
        with torch.npu.stream(other):
            self.assertFalse(torch.npu.is_current_stream_capturing())
            self.assertEqual((self.x + 1).sum().item(), 8)

    def test_events_from_outside(self):
        event, other = torch.npu.Event(), torch.npu.Stream()
        event.record(other)
        self.refused(lambda y: torch.npu.current_stream().wait_event(event), "recorded outside of it")

    def test_events_that_were_never_recorded_are_no_marks(self):
        graph, result = captured(lambda: (torch.npu.current_stream().wait_event(torch.npu.Event()), self.x + 1)[1])
        graph.replay()
        self.assertEqual(result.tolist(), [2] * 4)

    def test_default_stream_does_not_join(self):
        self.refused(
            lambda y: torch.npu.default_stream().wait_stream(torch.npu.current_stream()), "default stream waits for"
        )

    def test_events_of_a_capture_are_as_new_afterwards(self):
        event = torch.npu.Event()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            self.x.add_(1)
            event.record()
            torch.npu.current_stream().wait_event(event)
        torch.npu.current_stream().wait_event(event)
        event.record()
        event.synchronize()
        self.assertTrue(event.query())

    def test_other_threads(self):
        """In the global mode no thread may copy synchronously, in the others only the one that captures may not."""
        for mode, refused in (("global", True), ("thread_local", False), ("relaxed", False)):
            errors = []

            def copy(errors=errors):
                try:
                    torch.ones(4).to(DEVICE)
                except RuntimeError as error:
                    errors.append(str(error))

            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph, capture_error_mode=mode):
                y = self.x + 1
                thread = threading.Thread(target=copy)
                thread.start()
                thread.join()
            self.assertEqual(bool(errors), refused, mode)
            graph.replay()
            self.assertEqual(y.tolist(), [2] * 4)

    def test_out_of_memory(self):
        kept = torch.ones(1 << 20, device=DEVICE)
        graph = torch.npu.NPUGraph()
        with self.assertRaises(torch.OutOfMemoryError), torch.npu.graph(graph):
            kept + 1
            torch.empty(1 << 40, device=DEVICE, dtype=torch.uint8)
        gc.collect()
        self.assertEqual((kept + 1)[5].item(), 2)
        with torch.npu.graph(graph):
            y = self.x + 1
        graph.replay()
        self.assertEqual(y.tolist(), [2] * 4)

    def test_operators_that_fail_on_the_device(self):
        index = torch.zeros(3, dtype=torch.long, device=DEVICE)
        graph, result = captured(lambda: self.x.index_select(0, index))
        index.fill_(9)
        graph.replay()
        with self.assertRaisesRegex(RuntimeError, "out of"):
            torch.npu.synchronize()
        index.fill_(1)
        graph.replay()
        self.assertEqual(result.tolist(), [1] * 3)


class TestProcess(TestCase):
    def run_code(self, code, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    PREPARE = """
        import os, torch
        x = torch.ones(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x + 1
        graph.replay()
    """

    def test_exit_with_a_live_graph(self):
        self.assertEqual(self.run_code(self.PREPARE + "    print(y.tolist())\n"), "[2.0, 2.0, 2.0, 2.0]\n")

    def test_exit_in_a_capture(self):
        text = self.run_code("""
            import torch
            x = torch.ones(4, device="npu")
            stream = torch.npu.Stream()
            torch.npu.set_stream(stream)
            graph = torch.npu.NPUGraph()
            graph.capture_begin()
            y = x + 1
            print("done")
        """)
        self.assertIn("done", text)

    def test_fork(self):
        self.run_code(
            self.PREPARE
            + """
        torch.npu.synchronize()
        child = os.fork()
        if child == 0:
            try:
                graph.replay()
            except RuntimeError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert y.tolist() == [2.0] * 4
        """
        )

    def test_collectives(self):
        self.run_code("""
            import os, tempfile, torch
            import torch.distributed as dist
            store = dist.FileStore(tempfile.mktemp(), 1)
            dist.init_process_group("hccl", store=store, rank=0, world_size=1)
            x = torch.ones(4, device="npu")
            dist.all_reduce(x)
            try:
                with torch.npu.graph(torch.npu.NPUGraph()):
                    dist.all_reduce(x)
                raise SystemExit("no error")
            except RuntimeError as error:
                assert "A collective of hccl" in str(error), error
            dist.all_reduce(x)
            assert x.tolist() == [1.0] * 4
            dist.destroy_process_group()
        """)

    def test_task_queue(self):
        """Through the queue's thread, as on a card by default."""
        self.run_code(
            """
            import torch
            x = torch.zeros(64, device="npu")
            graph = torch.npu.NPUGraph()
            x.add_(1)
            with torch.npu.graph(graph):
                y = x * 2
                z = torch.rand(4, device="npu")
                for _ in range(50):
                    y = y + 1
            x.add_(1)
            for i in range(20):
                graph.replay()
                x.add_(1)
            assert y[0].item() == 2 * 21 + 50, y
            try:
                with torch.npu.graph(torch.npu.NPUGraph()):
                    y.sum().item()
            except RuntimeError as error:
                assert "captured" in str(error)
            assert y[0].item() == 92
            """,
            TASK_QUEUE_ENABLE="2",
        )

    def test_profiler_faults_and_dumps_see_replays(self):
        self.run_code(
            """
            import torch
            x = torch.ones(4, device="npu")
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                y = x.exp() + 1
            graph.replay()                     # the first Exp
            torch.npu.synchronize()
            graph.replay()                     # the second one, which fails
            try:
                torch.npu.synchronize()
                raise SystemExit("no error")
            except RuntimeError as error:
                assert "Exp" in str(error), error
            kinds = torch.profiler.ProfilerActivity
            with torch.profiler.profile(activities=[kinds.CPU, kinds.PrivateUse1]) as profile:
                graph.replay()
                torch.npu.synchronize()
            names = {e.name for e in profile.events() if str(e.device_type) != "DeviceType.CPU"}
            assert any("Exp" in n for n in names), names
            """,
            ASCEND_SIM_FAULT="Exp:error@2",
        )


if __name__ == "__main__":
    run_tests()
