"""torch.npu.Stream and Event, torch.Stream and torch.Event on npu: order, identity, contexts, time."""

import threading
import time
import warnings

from common_utils import TestCase, run_tests

import torch


def busy(stream=None):
    """Queue enough work that the host gets past it before it ends."""
    with torch.npu.stream(stream):
        a = torch.ones(1500, 1500, device="npu")
        for _ in range(4):
            a = a @ a / 1500
    return a


class TestStream(TestCase):
    def test_default_stream(self):
        default = torch.npu.default_stream()
        self.assertEqual(default.npu_stream, 0)
        self.assertEqual(torch.npu.current_stream(), default)
        self.assertEqual(default.device, torch.device("npu:0"))
        self.assertTrue(repr(default).startswith("<torch.npu.Stream"))
        self.assertEqual(hash(default), hash(torch.npu.default_stream()))
        self.assertIsInstance(default, torch.Stream)

    def test_new_streams_are_distinct(self):
        for make in (torch.npu.Stream, lambda: torch.Stream(device="npu")):
            first, second = make(), make()
            self.assertNotEqual(first, second)
            self.assertNotEqual(first, torch.npu.default_stream())
            self.assertNotEqual(first.stream_id, second.stream_id)
        self.assertNotEqual(torch.npu.Stream().npu_stream, 0)
        self.assertEqual(torch.npu.Stream("npu:1").device, torch.device("npu:1"))
        self.assertEqual(torch.npu.Stream(device=1).device, torch.device("npu:1"))

    def test_priorities(self):
        least, greatest = torch.npu.Stream.priority_range()
        self.assertLessEqual(greatest, least)
        self.assertEqual(torch.npu.Stream(priority=greatest).priority, greatest)
        self.assertEqual(torch.npu.Stream(priority=-100).priority, greatest)
        self.assertEqual(torch.npu.Stream(priority=100).priority, least)

    def test_context_restores_also_after_an_exception(self):
        for make in (torch.npu.Stream, lambda: torch.Stream(device="npu")):
            stream = make()
            with self.assertRaises(ZeroDivisionError), stream:
                self.assertEqual(torch.npu.current_stream(), stream)
                raise ZeroDivisionError
            self.assertEqual(torch.npu.current_stream(), torch.npu.default_stream())
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            self.assertEqual(torch.npu.current_stream(), stream)
            with torch.npu.stream(None):
                self.assertEqual(torch.npu.current_stream(), stream)
        self.assertEqual(torch.npu.current_stream(), torch.npu.default_stream())

    def test_context_of_a_stream_of_another_device(self):
        stream = torch.npu.Stream("npu:1")
        with torch.npu.stream(stream):
            self.assertEqual(torch.npu.current_device(), 1)
            self.assertEqual(torch.npu.current_stream(), stream)
        self.assertEqual(torch.npu.current_device(), 0)
        self.assertEqual(torch.npu.current_stream(1), torch.npu.default_stream(1))

    def test_current_stream_of_another_device(self):
        side = torch.npu.Stream("npu:1")
        torch.npu.set_stream(side)
        torch.npu.set_device(0)
        try:
            self.assertEqual(torch.npu.current_stream(1), side)
            self.assertEqual(torch.npu.current_stream("npu:1").device, torch.device("npu:1"))
            self.assertEqual(torch.npu.current_stream(), torch.npu.default_stream(0))
            self.assertEqual(torch.npu.current_device(), 0)
        finally:
            torch.npu.set_stream(torch.npu.default_stream(1))
            torch.npu.set_device(0)

    def test_current_stream_is_per_thread(self):
        seen = []
        with torch.npu.stream(torch.npu.Stream()):
            thread = threading.Thread(target=lambda: seen.append(torch.npu.current_stream()))
            thread.start()
            thread.join()
        self.assertEqual(seen, [torch.npu.default_stream()])

    def test_query_and_synchronize(self):
        stream = torch.npu.Stream()
        result = busy(stream)
        stream.synchronize()
        self.assertTrue(stream.query())
        self.assertEqual(result[0, 0].item(), 1.0)
        torch.npu.current_stream().synchronize()

    def test_wait_stream_orders(self):
        first, second = torch.npu.Stream(), torch.npu.Stream()
        result = busy(first)
        second.wait_stream(first)
        with torch.npu.stream(second):
            total = result + 1
        result.record_stream(second)
        second.synchronize()
        self.assertEqual(total.cpu(), torch.full((1500, 1500), 2.0))

    def test_generic_and_npu_classes_work_together(self):
        generic, own = torch.Stream(device="npu"), torch.npu.Stream()
        own.record_event().wait(generic)
        own.wait_event(generic.record_event())
        own.wait_stream(generic)
        first, second = torch.npu.Event(enable_timing=True), torch.Event(device="npu", enable_timing=True)
        generic.synchronize()
        first.record(own)
        second.record(own)
        own.synchronize()
        self.assertGreaterEqual(first.elapsed_time(second), 0)
        torch.npu.synchronize()
        self.assertEqual(torch.npu.default_stream(), torch.accelerator.current_stream())

    def test_external_stream(self):
        own = torch.npu.Stream()
        external = torch.npu.ExternalStream(own.npu_stream)
        self.assertEqual(external.npu_stream, own.npu_stream)
        with torch.npu.stream(external):
            total = torch.ones(3, device="npu") + 1
        external.synchronize()
        self.assertEqual(total.cpu(), torch.full((3,), 2.0))
        self.assertEqual(torch.npu.get_stream_from_external(own.npu_stream).npu_stream, own.npu_stream)


class TestEvent(TestCase):
    def test_life(self):
        event = torch.npu.Event()
        self.assertIsNone(event.device)
        self.assertTrue(event.query())
        self.assertEqual(repr(event), "<torch.npu.Event uninitialized>")
        torch.npu.Event.record(event)
        self.assertEqual(event.device, torch.device("npu:0"))
        event.synchronize()
        self.assertTrue(event.query())
        self.assertTrue(repr(event).startswith("<torch.npu.Event"))
        self.assertIsInstance(event, torch.Event)

    def test_query_is_false_while_work_is_pending(self):
        source = torch.ones(10 * 1024 * 1024 // 4).pin_memory()
        busy()
        copied = source.to("npu", non_blocking=True)
        event = torch.npu.Event()
        event.record()
        self.assertFalse(event.query())
        event.synchronize()
        self.assertTrue(event.query())
        self.assertEqual(copied[-1].item(), 1.0)

    def test_elapsed_time_is_in_milliseconds_and_grows(self):
        for make in (torch.npu.Event, lambda **kw: torch.Event(device="npu", **kw)):
            first, second, third = (make(enable_timing=True) for _ in range(3))
            first.record()
            busy()
            second.record()
            torch.npu.synchronize()
            before = time.perf_counter()
            busy()
            third.record()
            torch.npu.synchronize()
            host = (time.perf_counter() - before) * 1000
            self.assertGreater(first.elapsed_time(second), 0)
            self.assertGreater(first.elapsed_time(third), first.elapsed_time(second))
            self.assertLessEqual(second.elapsed_time(third), host * 1.5 + 5)
            self.assertIsInstance(first.elapsed_time(second), float)

    def test_elapsed_time_misuse(self):
        for make in (torch.npu.Event, lambda **kw: torch.Event(device="npu", **kw)):
            timed = make(enable_timing=True)
            with self.assertRaises((ValueError, RuntimeError)):  # never recorded
                timed.elapsed_time(make(enable_timing=True))
            timed.record()
            with self.assertRaises((ValueError, RuntimeError)):
                timed.elapsed_time(make(enable_timing=True))
            untimed = make(enable_timing=False)
            untimed.record()
            torch.npu.synchronize()
            with self.assertRaises((ValueError, RuntimeError)):
                timed.elapsed_time(untimed)
            with self.assertRaises((ValueError, RuntimeError)):
                untimed.elapsed_time(timed)

    def test_elapsed_time_of_unfinished_events(self):
        first, second = (torch.npu.Event(enable_timing=True) for _ in range(2))
        first.record()
        busy()
        second.record()
        with self.assertRaises((ValueError, RuntimeError)):
            first.elapsed_time(second)
        torch.npu.synchronize()
        self.assertGreaterEqual(first.elapsed_time(second), 0)

    def test_elapsed_time_without_saying_warns(self):
        first, second = torch.npu.Event(), torch.npu.Event()
        first.record()
        second.record()
        torch.npu.synchronize()
        with self.assertWarnsRegex(UserWarning, "enable_timing"):
            self.assertGreaterEqual(first.elapsed_time(second), 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            timed = torch.npu.Event(enable_timing=True)
            timed.record()
            timed.synchronize()
            self.assertGreaterEqual(timed.elapsed_time(timed), 0)

    def test_wait_orders_streams_of_two_devices(self):
        event = torch.npu.Event()
        result = busy()
        event.record()
        with torch.npu.device(1):
            event.wait(torch.npu.current_stream())
            torch.npu.current_stream().synchronize()
        self.assertTrue(event.query())
        self.assertEqual(result[0, 0].item(), 1.0)

    def test_recording_on_a_second_device_is_refused(self):
        event = torch.npu.Event()
        event.record(torch.npu.default_stream(0))
        with self.assertRaises(RuntimeError):
            event.record(torch.npu.default_stream(1))

    def test_what_is_no_stream_is_refused(self):
        event = torch.npu.Event()
        for call in (event.record, event.wait):
            for other in (3, "npu", torch.device("npu")):
                with self.assertRaisesRegex(
                    TypeError, f"expected a torch.Stream or None, but got {type(other).__name__}"
                ):
                    call(other)
        self.assertTrue(event.query())

    def test_interprocess_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "interprocess"):
            torch.npu.Event(interprocess=True)


if __name__ == "__main__":
    run_tests()
