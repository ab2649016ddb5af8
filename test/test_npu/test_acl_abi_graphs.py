"""Graphs in the AscendCL ABI (aclmdlRI*): capture, what is refused meanwhile, replay, and the codes of all that."""

import ctypes
import json
import tempfile
import unittest
from pathlib import Path

import acl_library as acl

lib = acl.Library()
byref = ctypes.byref

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NONE, ACTIVE, INVALIDATED = range(3)
NOT_READY = 1
CAPTURE_DEPENDENCY, UNJOINED, MODEL_CAPTURED, STREAM_CAPTURED, EVENT_CAPTURED, NOT_CAPTURED = range(107024, 107030)
MODE_NOT_SUPPORT, IMPLICIT, CONFLICT, UNMATCHED, INVALID = 107030, 107031, 107032, 107036, 507903


class GraphCase(acl.AclTestCase):
    """A stream, x = (1, 2, 3, 4) and room for y."""

    lib = lib

    def setUp(self):
        super().setUp()
        self.stream = lib.stream()
        self.x, self.y = lib.upload(acl.floats(1, 2, 3, 4)), lib.malloc(16)

    def tearDown(self):
        if self.status()[0] != NONE:
            lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p()))
        self.ok(lib.aclrtDestroyStream(self.stream))
        for pointer in (self.x, self.y):
            self.ok(lib.aclrtFree(pointer))

    def status(self, stream=None):
        status, graph = ctypes.c_int(-1), ctypes.c_void_p()
        self.ok(lib.aclmdlRICaptureGetInfo(stream or self.stream, byref(status), byref(graph)))
        return status.value, graph.value

    def begin(self, mode=GLOBAL, stream=None):
        self.ok(lib.aclmdlRICaptureBegin(stream or self.stream, mode))

    def end(self, stream=None):
        graph = ctypes.c_void_p()
        self.ok(lib.aclmdlRICaptureEnd(stream or self.stream, byref(graph)))
        return graph

    def add(self, stream=None):
        """y = x + x"""
        operand = (acl.FLOAT, [4], self.x, 16)
        return lib.run("Add", [operand, operand], [(acl.FLOAT, [4], self.y, 16)], stream=stream or self.stream)

    def result(self):
        self.ok(lib.aclrtSynchronizeStream(self.stream))
        return lib.download(self.y, ctypes.c_float, 4)


class TestGraphs(GraphCase):
    def test_capture_and_replay(self):
        self.ok(lib.aclrtMemset(self.y, 16, 0, 16))
        self.assertEqual(self.status(), (NONE, None))
        self.begin()
        status, within = self.status()
        self.assertEqual(status, ACTIVE)
        self.ok(self.add())
        self.ok(lib.aclrtMemsetAsync(self.x, 16, 0, 8, self.stream))
        graph = self.end()
        self.assertEqual(graph.value, within)
        self.assertEqual(self.status(), (NONE, None))
        self.assertEqual(self.result(), [0, 0, 0, 0])
        self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
        self.assertEqual(self.result(), [2, 4, 6, 8])
        self.ok(lib.aclmdlRIExecuteAsync(graph, None))
        self.ok(lib.aclrtSynchronizeStream(None))
        self.assertEqual(self.result(), [0, 0, 6, 8])
        self.ok(lib.aclmdlRIExecute(graph, -1))
        self.ok(lib.aclmdlRIDestroy(graph))
        for call in (lib.aclmdlRIDestroy, lib.aclmdlRIDebugPrint):
            self.refused(call(graph), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclmdlRIExecuteAsync(graph, self.stream), acl.RT_INVALID_HANDLE)

    def test_arguments(self):
        self.refused(lib.aclmdlRICaptureBegin(None, GLOBAL), IMPLICIT)
        self.refused(lib.aclmdlRICaptureBegin(self.stream, 3), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRICaptureBegin(0xDEAD0, GLOBAL), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, None), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), NOT_CAPTURED)
        self.refused(lib.aclmdlRICaptureGetInfo(self.stream, None, None), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRIExecuteAsync(None, self.stream), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRICaptureThreadExchangeMode(None), acl.INVALID_PARAM)
        self.begin()
        self.refused(lib.aclmdlRICaptureBegin(self.stream, GLOBAL), STREAM_CAPTURED)
        graph = ctypes.c_void_p(self.status()[1])
        self.refused(lib.aclmdlRIExecuteAsync(graph, None), MODEL_CAPTURED)
        self.refused(lib.aclmdlRIDestroy(graph), MODEL_CAPTURED)
        graph = self.end()
        self.refused(lib.aclmdlRIExecute(graph, 0), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRIDebugJsonPrint(graph, None, 0), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRIDebugJsonPrint(graph, b"/no/such/folder/graph.json", 0), 107009)
        self.ok(lib.aclrtSetDevice(1))
        self.refused(lib.aclmdlRIExecuteAsync(graph, None), acl.RT_STREAM_CONTEXT)
        self.ok(lib.aclrtSetDevice(0))
        self.ok(lib.aclmdlRIDestroy(graph))

    def test_waits_make_the_capture_invalid(self):
        event = lib.event()
        status, ms = ctypes.c_int(), ctypes.c_float()
        for record, call, code in (
            (False, lambda: lib.aclrtSynchronizeStream(self.stream), STREAM_CAPTURED),
            (False, lambda: lib.aclrtSynchronizeStreamWithTimeout(self.stream, 10), STREAM_CAPTURED),
            (False, lambda: lib.aclrtStreamQuery(self.stream, byref(status)), STREAM_CAPTURED),
            (False, lambda: lib.aclrtSynchronizeDevice(), STREAM_CAPTURED),
            (True, lambda: lib.aclrtSynchronizeEvent(event), EVENT_CAPTURED),
            (True, lambda: lib.aclrtQueryEventStatus(event, byref(status)), EVENT_CAPTURED),
            (True, lambda: lib.aclrtEventElapsedTime(byref(ms), event, event), EVENT_CAPTURED),
            (True, lambda: lib.aclrtResetEvent(event, self.stream), EVENT_CAPTURED),
        ):
            self.begin()
            if record:
                self.ok(lib.aclrtRecordEvent(event, self.stream))
            self.refused(call(), code)
            self.assertEqual(self.status()[0], INVALIDATED)
            self.refused(self.add(), INVALID)
            graph = ctypes.c_void_p(1)
            self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(graph)), INVALID)
            self.assertIsNone(graph.value)
            self.ok(self.add())
            self.assertEqual(self.result(), [2, 4, 6, 8])
        self.ok(lib.aclrtDestroyEvent(event))

    def test_unsafe_calls_leave_it_valid(self):
        host = (ctypes.c_float * 4)()
        calls = (
            lambda: lib.aclrtMemset(self.y, 16, 0, 16),
            lambda: lib.aclrtMemcpy(self.y, 16, self.x, 16, 3),
            lambda: lib.aclrtMemcpyAsync(self.y, 16, host, 16, 1, None),
        )
        self.begin()
        for call in calls:
            self.refused(call(), MODE_NOT_SUPPORT)
        mode = ctypes.c_int(RELAXED)
        self.ok(lib.aclmdlRICaptureThreadExchangeMode(byref(mode)))
        self.assertEqual(mode.value, GLOBAL)
        for call in calls:
            self.ok(call())
        self.ok(lib.aclmdlRICaptureThreadExchangeMode(byref(mode)))
        self.ok(self.add())
        self.ok(lib.aclmdlRIDestroy(self.end()))
        self.begin(RELAXED)
        for call in calls:
            self.ok(call())
        # What is captured of ordinary host memory is what it held then; there is no result to wait for.
        host[:] = [9, 9, 9, 9]
        self.ok(lib.aclrtMemcpyAsync(self.y, 16, host, 16, 1, self.stream))
        host[:] = [0, 0, 0, 0]
        graph = self.end()
        self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
        self.assertEqual(self.result(), [9, 9, 9, 9])
        self.ok(lib.aclmdlRIDestroy(graph))
        self.begin(RELAXED)
        self.refused(lib.aclrtMemcpyAsync(host, 16, self.y, 16, 2, self.stream), STREAM_CAPTURED)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), INVALID)

    def test_streams_join_by_events(self):
        other, events = lib.stream(), [lib.event() for _ in range(2)]
        self.begin()
        self.ok(lib.aclrtRecordEvent(events[0], self.stream))
        self.ok(lib.aclrtStreamWaitEvent(other, events[0]))
        self.assertEqual(self.status(other), self.status())
        self.ok(self.add(other))
        self.refused(lib.aclmdlRICaptureEnd(other, byref(ctypes.c_void_p())), UNMATCHED)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), INVALID)
        self.assertEqual(self.status(other), (NONE, None))

        for joined in (False, True):
            self.begin()
            self.ok(lib.aclrtRecordEvent(events[0], self.stream))
            self.ok(lib.aclrtStreamWaitEvent(other, events[0]))
            self.ok(self.add(other))
            self.ok(lib.aclrtRecordEvent(events[1], other))
            if joined:
                self.ok(lib.aclrtStreamWaitEvent(self.stream, events[1]))
                graph = self.end()
            else:
                self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), UNJOINED)
        self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
        self.assertEqual(self.result(), [2, 4, 6, 8])
        # As if they had never been recorded.
        self.ok(lib.aclrtStreamWaitEvent(self.stream, events[1]))
        self.ok(lib.aclmdlRIDestroy(graph))

        self.ok(lib.aclrtRecordEvent(events[0], other))
        self.begin()
        self.refused(lib.aclrtStreamWaitEvent(self.stream, events[0]), CAPTURE_DEPENDENCY)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), INVALID)
        self.begin()
        self.ok(lib.aclrtRecordEvent(events[0], self.stream))
        self.refused(lib.aclrtStreamWaitEvent(None, events[0]), IMPLICIT)
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), INVALID)
        self.begin()
        self.begin(stream=other)
        self.ok(lib.aclrtRecordEvent(events[0], self.stream))
        self.refused(lib.aclrtStreamWaitEvent(other, events[0]), CONFLICT)
        for stream in (self.stream, other):
            self.refused(lib.aclmdlRICaptureEnd(stream, byref(ctypes.c_void_p())), INVALID)
        for event in events:
            self.ok(lib.aclrtDestroyEvent(event))
        self.ok(lib.aclrtDestroyStream(other))

    def test_a_stream_that_is_destroyed_ends_its_capture(self):
        stream = lib.stream()
        self.begin(stream=stream)
        self.ok(self.add(stream))
        self.ok(lib.aclrtDestroyStream(stream))
        self.ok(lib.aclrtMemset(self.y, 16, 0, 16))
        self.ok(lib.aclrtSynchronizeDevice())

    def test_description(self):
        self.begin()
        self.ok(self.add())
        self.ok(lib.aclrtMemsetAsync(self.x, 16, 0, 8, self.stream))
        graph = self.end()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph.json")
            self.ok(lib.aclmdlRIDebugJsonPrint(graph, str(path).encode(), 0))
            tasks = json.loads(path.read_text())
        self.assertEqual([t["name"] for t in tasks], ["Add", "MEMSET_ASYNC"])
        self.ok(lib.aclmdlRIDestroy(graph))


class TestTaskGroups(GraphCase):
    """Parts of a graph that are captured anew, and external events."""

    def setUp(self):
        super().setUp()
        self.other = lib.stream()

    def tearDown(self):
        self.ok(lib.aclrtDestroyStream(self.other))
        super().tearDown()

    def multiply(self, stream):
        """y = x * x"""
        operand = (acl.FLOAT, [4], self.x, 16)
        return lib.run("Mul", [operand, operand], [(acl.FLOAT, [4], self.y, 16)], stream=stream)

    def captured(self):
        """A graph whose one operator is a group, and the group."""
        group = ctypes.c_void_p()
        self.begin()
        self.ok(lib.aclmdlRICaptureTaskGrpBegin(self.stream))
        self.ok(self.add())
        self.ok(lib.aclmdlRICaptureTaskGrpEnd(self.stream, byref(group)))
        return self.end(), group

    def test_update(self):
        graph, group = self.captured()
        for work, expected in ((None, [2, 4, 6, 8]), (self.multiply, [1, 4, 9, 16]), (self.add, [2, 4, 6, 8])):
            if work is not None:
                self.ok(lib.aclmdlRICaptureTaskUpdateBegin(self.other, group))
                self.assertEqual(self.status(self.other), (ACTIVE, graph.value))
                self.ok(work(self.other))
                self.ok(lib.aclmdlRICaptureTaskUpdateEnd(self.other))
                self.assertEqual(self.status(self.other)[0], NONE)
            self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
            self.assertEqual(self.result(), expected)
        self.ok(lib.aclmdlRIDestroy(graph))

    def test_what_is_refused(self):
        group = ctypes.c_void_p()
        self.refused(lib.aclmdlRICaptureTaskGrpBegin(self.stream), NOT_CAPTURED)
        self.refused(lib.aclmdlRICaptureTaskGrpEnd(self.stream, byref(group)), NOT_CAPTURED)
        self.refused(lib.aclmdlRICaptureTaskGrpEnd(self.stream, None), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRICaptureTaskUpdateBegin(self.other, None), acl.INVALID_PARAM)
        self.refused(lib.aclmdlRICaptureTaskUpdateBegin(self.other, self.x), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclmdlRICaptureTaskUpdateEnd(self.other), NOT_CAPTURED)
        self.begin()
        self.refused(lib.aclmdlRICaptureTaskGrpEnd(self.stream, byref(group)), UNMATCHED)
        self.ok(lib.aclmdlRICaptureTaskGrpBegin(self.stream))
        self.refused(lib.aclmdlRICaptureTaskGrpBegin(self.stream), acl.RT_FEATURE_NOT_SUPPORT, text="do not overlap")
        self.refused(lib.aclmdlRICaptureEnd(self.stream, byref(ctypes.c_void_p())), INVALID, text="has not ended")
        graph, group = self.captured()
        self.refused(lib.aclmdlRICaptureTaskUpdateBegin(None, group), IMPLICIT)
        self.refused(lib.aclmdlRICaptureTaskUpdateBegin(self.stream, group), acl.RT_FEATURE_NOT_SUPPORT)
        self.ok(lib.aclmdlRICaptureTaskUpdateBegin(self.other, group))
        self.refused(lib.aclrtSynchronizeStream(self.other), STREAM_CAPTURED)
        self.refused(lib.aclrtRecordEvent(self.event(), self.other), acl.RT_FEATURE_NOT_SUPPORT)
        self.ok(lib.aclmdlRICaptureTaskUpdateEnd(self.other))
        self.ok(lib.aclmdlRIDestroy(graph))
        self.refused(lib.aclmdlRICaptureTaskUpdateBegin(self.other, group), acl.RT_INVALID_HANDLE)

    def event(self, flags=0x8):
        event = ctypes.c_void_p()
        self.ok(lib.aclrtCreateEventExWithFlag(byref(event), flags))
        self.addCleanup(lib.aclrtDestroyEvent, event)
        return event

    def test_an_external_event_holds_a_replay_up(self):
        event, group = self.event(0x20), ctypes.c_void_p()
        self.begin()
        self.ok(lib.aclrtStreamWaitEvent(self.stream, event))
        self.ok(lib.aclrtResetEvent(event, self.stream))
        self.ok(lib.aclmdlRICaptureTaskGrpBegin(self.stream))
        self.ok(self.add())
        self.ok(lib.aclmdlRICaptureTaskGrpEnd(self.stream, byref(group)))
        graph = self.end()
        for work, expected in ((self.multiply, [1, 4, 9, 16]), (self.add, [2, 4, 6, 8])):
            self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
            done = ctypes.c_int(-1)
            self.ok(lib.aclrtStreamQuery(self.stream, byref(done)))
            self.assertEqual(done.value, NOT_READY)
            self.ok(lib.aclmdlRICaptureTaskUpdateBegin(self.other, group))
            self.ok(work(self.other))
            self.ok(lib.aclmdlRICaptureTaskUpdateEnd(self.other))
            self.ok(lib.aclrtRecordEvent(event, self.other))
            self.assertEqual(self.result(), expected)
        self.ok(lib.aclmdlRIDestroy(graph))

    def test_a_graph_that_goes_early(self):
        """Its groups, and what an unfinished update has recorded, go with it."""
        graph, group = self.captured()
        self.ok(lib.aclmdlRICaptureTaskUpdateBegin(self.other, group))
        self.ok(self.multiply(self.other))
        self.ok(lib.aclrtDestroyStream(self.other))
        self.other = lib.stream()
        self.ok(lib.aclmdlRIExecuteAsync(graph, self.stream))
        self.assertEqual(self.result(), [2, 4, 6, 8])
        self.ok(lib.aclmdlRIDestroy(graph))


if __name__ == "__main__":
    unittest.main()
