"""Every function of the AscendCL ABI, called with good and with bad arguments."""

import ctypes
import os
import threading
import unittest
from pathlib import Path

import acl_library as acl

lib = acl.Library()
byref = ctypes.byref


class AclTest(acl.AclTestCase):
    lib = lib


class TestTable(AclTest):
    def test_every_function_is_exported(self):
        libraries = {"": lib, "hccl": ctypes.CDLL(str(Path(acl.library_path()).with_name("libhccl.so")))}
        missing = [f.name for f in acl.table() if not hasattr(libraries[f.own], f.name)]
        self.assertEqual(missing, [])

    def test_compiler_library_gives_its_functions(self):
        path = Path(acl.library_path()).with_name("libacl_op_compiler.so")
        if not path.exists():
            self.skipTest("no libacl_op_compiler.so here")
        compiler = ctypes.CDLL(str(path))
        for name in ("aclopCompile", "aclopCompileAndExecute", "aclSetCompileopt"):
            self.assertTrue(hasattr(compiler, name), name)


class TestBase(AclTest):
    def test_init_and_version(self):
        self.refused(lib.aclInit(None), acl.REPEAT_INITIALIZE)
        self.refused(lib.aclInit(b"/does/not/exist.json"), acl.INVALID_FILE)
        major, minor, patch = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32()
        self.ok(lib.aclrtGetVersion(byref(major), byref(minor), byref(patch)))
        self.assertGreaterEqual(major.value, 1)
        self.refused(lib.aclrtGetVersion(None, byref(minor), byref(patch)), acl.INVALID_PARAM)
        self.assertTrue(lib.aclrtGetSocName().decode().startswith("Ascend"))

    def test_finalize_twice(self):
        script = """
            lib = acl.Library()
            codes = [lib.aclFinalize(), lib.aclInit(None), lib.aclFinalize(), lib.aclFinalize()]
            print(codes)
        """
        self.assertEqual(acl.run_script(script).stdout.strip(), "[100001, 0, 0, 100037]")

    def test_recent_message_is_taken_once_and_per_thread(self):
        lib.aclrtFree(None)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(lib.message()))
        thread.start()
        thread.join()
        self.assertEqual(elsewhere, [""])
        self.assertIn("null", lib.message())
        self.assertEqual(lib.message(), "")
        lib.aclrtFree(None)
        self.assertEqual(lib.aclrtPeekAtLastError(0), acl.INVALID_PARAM)
        self.assertEqual(lib.aclrtGetLastError(0), acl.INVALID_PARAM)
        self.assertEqual(lib.aclrtGetLastError(0), acl.SUCCESS)
        self.assertEqual(lib.aclrtGetLastError(7), acl.INVALID_PARAM)
        self.assertEqual(lib.aclrtPeekAtLastError(7), acl.INVALID_PARAM)

    def test_half_conversions(self):
        for value, bits in (
            (0.0, 0),
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (2.0**-24, 1),
        ):
            self.assertEqual(lib.aclFloatToFloat16(value), bits)
            self.assertEqual(lib.aclFloat16ToFloat(bits), value)
        self.assertEqual(lib.aclFloatToFloat16(65519.0), 0x7BFF)
        self.assertEqual(lib.aclFloatToFloat16(1.0 + 2.0**-11), 0x3C00)  # a tie goes to even

    def test_half_conversions_saturate(self):
        inf = float("inf")
        for value, bits in ((65520.0, 0x7BFF), (1e30, 0x7BFF), (inf, 0x7BFF), (-inf, 0xFBFF), (float("nan"), 0x7BFF)):
            self.assertEqual(lib.aclFloatToFloat16(value), bits)
        for bits, value in ((0x7C00, 65536.0), (0xFC00, -65536.0), (0x7E00, 98304.0)):
            self.assertEqual(lib.aclFloat16ToFloat(bits), value)

    def test_type_sizes(self):
        sizes = {acl.FLOAT: 4, acl.FLOAT16: 2, acl.INT64: 8, acl.BOOL: 1, 17: 16, 27: 2}
        for dtype, size in sizes.items():
            self.assertEqual(lib.aclDataTypeSize(dtype), size)
        self.assertEqual(lib.aclDataTypeSize(-1), 0)
        self.assertEqual(lib.aclDataTypeSize(1000), 0)

    def test_data_buffers(self):
        buffer = lib.aclCreateDataBuffer(0x1000, 64)
        self.assertEqual(lib.aclGetDataBufferAddr(buffer), 0x1000)
        self.assertEqual(lib.aclGetDataBufferSize(buffer), 64)
        self.ok(lib.aclUpdateDataBuffer(buffer, 0x2000, 1 << 33))
        self.assertEqual(lib.aclGetDataBufferSizeV2(buffer), 1 << 33)
        self.ok(lib.aclDestroyDataBuffer(buffer))
        self.refused(lib.aclDestroyDataBuffer(buffer), acl.INVALID_PARAM)
        self.refused(lib.aclDestroyDataBuffer(None), acl.INVALID_PARAM)
        self.refused(lib.aclUpdateDataBuffer(None, None, 0), acl.INVALID_PARAM)
        self.assertIsNone(lib.aclGetDataBufferAddr(None))

    def test_tensor_descriptions(self):
        d = lib.desc(acl.FLOAT, [2, 3, 4])
        self.assertEqual(lib.aclGetTensorDescType(d), acl.FLOAT)
        self.assertEqual(lib.aclGetTensorDescFormat(d), acl.ND)
        self.assertEqual(lib.aclGetTensorDescNumDims(d), 3)
        self.assertEqual(lib.aclGetTensorDescElementCount(d), 24)
        self.assertEqual(lib.aclGetTensorDescSize(d), 96)
        size = ctypes.c_int64()
        self.ok(lib.aclGetTensorDescDimV2(d, 2, byref(size)))
        self.assertEqual(size.value, 4)
        self.assertEqual(lib.aclGetTensorDescDim(d, 1), 3)
        self.assertEqual(lib.aclGetTensorDescDim(d, 9), -1)
        self.refused(lib.aclGetTensorDescDimV2(d, 3, byref(size)), acl.INVALID_PARAM)
        self.refused(lib.aclGetTensorDescDimV2(d, 0, None), acl.INVALID_PARAM)
        lib.aclSetTensorDescName(d, b"weight")
        self.assertEqual(lib.aclGetTensorDescName(d), b"weight")
        dims = (ctypes.c_int64 * 2)(6, 4)
        self.ok(lib.aclSetTensorShape(d, 2, ctypes.addressof(dims)))
        self.refused(lib.aclSetTensorShape(d, -1, ctypes.addressof(dims)), acl.INVALID_PARAM)
        self.ok(lib.aclSetTensorFormat(d, 3))
        self.refused(lib.aclSetTensorFormat(d, 999), acl.INVALID_PARAM)
        self.ok(lib.aclSetTensorPlaceMent(d, 2))
        self.refused(lib.aclSetTensorPlaceMent(d, 9), acl.INVALID_PARAM)
        value = acl.floats(1.0)
        self.ok(lib.aclSetTensorConst(d, ctypes.addressof(value), 4))
        self.refused(lib.aclSetTensorConst(d, None, 4), acl.INVALID_PARAM)
        ranges = (ctypes.c_int64 * 2)(1, 8)
        self.ok(lib.aclSetTensorShapeRange(d, 1, ctypes.addressof(ranges)))
        self.refused(lib.aclSetTensorShapeRange(d, 1, None), acl.INVALID_PARAM)
        lib.aclDestroyTensorDesc(d)
        self.assertEqual(lib.aclGetTensorDescType(d), acl.UNDEFINED)
        lib.aclDestroyTensorDesc(d)  # twice is harmless
        lib.aclDestroyTensorDesc(None)

    def test_tensor_descriptions_of_many_dims_and_bad_ones(self):
        d = lib.desc(acl.INT8, list(range(1, 13)))
        self.assertEqual(lib.aclGetTensorDescNumDims(d), 12)
        self.assertEqual(lib.aclGetTensorDescDim(d, 11), 12)
        lib.aclDestroyTensorDesc(d)
        scalar = lib.desc(acl.FLOAT, [])
        self.assertEqual(lib.aclGetTensorDescElementCount(scalar), 1)
        lib.aclDestroyTensorDesc(scalar)
        dims = (ctypes.c_int64 * 1)(2)
        self.assertIsNone(lib.aclCreateTensorDesc(acl.FLOAT, -1, ctypes.addressof(dims), acl.ND))
        self.assertIsNone(lib.aclCreateTensorDesc(acl.FLOAT, 1, None, acl.ND))
        self.assertIsNone(lib.aclCreateTensorDesc(12345, 1, ctypes.addressof(dims), acl.ND))
        self.assertEqual(lib.aclGetTensorDescFormat(None), -1)

    def test_capabilities(self):
        value = ctypes.c_int64()
        for info in (0, 1, 2):
            self.ok(lib.aclGetDeviceCapability(0, info, byref(value)))
            self.assertGreater(value.value, 0)
        self.refused(lib.aclGetDeviceCapability(99, 0, byref(value)), acl.INVALID_DEVICE)
        self.refused(lib.aclGetDeviceCapability(0, 77, byref(value)), acl.INVALID_PARAM)
        self.refused(lib.aclGetDeviceCapability(0, 0, None), acl.INVALID_PARAM)
        attribute = ctypes.c_int32()
        self.ok(lib.aclGetCannAttribute(1, byref(attribute)))
        self.refused(lib.aclGetCannAttribute(55, byref(attribute)), acl.INVALID_PARAM)
        self.refused(lib.aclGetCannAttribute(1, None), acl.INVALID_PARAM)


class TestDevice(AclTest):
    def test_devices(self):
        count = ctypes.c_uint32()
        self.ok(lib.aclrtGetDeviceCount(byref(count)))
        self.assertGreaterEqual(count.value, 1)
        self.refused(lib.aclrtGetDeviceCount(None), acl.INVALID_PARAM)
        for bad in (-1, count.value, 1000):
            self.refused(lib.aclrtSetDevice(bad), acl.RT_INVALID_DEVICEID, text="does not exist")
        device = ctypes.c_int32(-1)
        self.ok(lib.aclrtGetDevice(byref(device)))
        self.assertEqual(device.value, 0)
        self.refused(lib.aclrtGetDevice(None), acl.INVALID_PARAM)
        self.ok(lib.aclrtSynchronizeDevice())
        self.ok(lib.aclrtSynchronizeDeviceWithTimeout(1000))
        self.refused(lib.aclrtSynchronizeDeviceWithTimeout(-5), acl.INVALID_PARAM)
        mode = ctypes.c_int(-1)
        self.ok(lib.aclrtGetRunMode(byref(mode)))
        self.assertEqual(mode.value, 1)
        self.refused(lib.aclrtGetRunMode(None), acl.INVALID_PARAM)

    def test_a_thread_without_device_has_no_context(self):
        codes = []

        def work():
            pointer, context, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32()
            codes.append(lib.aclrtGetDevice(byref(device)))
            codes.append(lib.aclrtMalloc(byref(pointer), 64, 0))
            codes.append(lib.aclrtGetCurrentContext(byref(context)))
            codes.append(lib.aclrtSynchronizeDevice())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(codes, [acl.RT_CONTEXT_NULL] * 4)

    def test_contexts(self):
        default, mine, now = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.ok(lib.aclrtGetCurrentContext(byref(default)))
        self.ok(lib.aclrtCreateContext(byref(mine), 0))
        self.ok(lib.aclrtGetCurrentContext(byref(now)))
        self.assertEqual(now.value, mine.value)
        self.ok(lib.aclrtSetCurrentContext(default))
        self.ok(lib.aclrtDestroyContext(mine))
        self.refused(lib.aclrtDestroyContext(mine), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtSetCurrentContext(mine), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtDestroyContext(default), acl.RT_PARAM_INVALID)
        self.refused(lib.aclrtSetCurrentContext(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtSetCurrentContext(0x1234), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtCreateContext(None, 0), acl.INVALID_PARAM)
        self.refused(lib.aclrtCreateContext(byref(mine), 4711), acl.RT_INVALID_DEVICEID)
        self.refused(lib.aclrtGetCurrentContext(None), acl.INVALID_PARAM)

    def test_reset_ends_contexts_streams_and_memory(self):
        self.ok(lib.aclrtSetDevice(1))
        stream, pointer = lib.stream(), lib.malloc(1 << 20)
        self.ok(lib.aclrtResetDevice(1))
        self.refused(lib.aclrtSynchronizeStream(stream), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtFree(pointer), acl.RT_MEMORY_FREE)
        device = ctypes.c_int32()
        self.refused(lib.aclrtGetDevice(byref(device)), acl.RT_CONTEXT_NULL)
        self.ok(lib.aclrtSetDevice(1))
        self.ok(lib.aclrtFree(lib.malloc(64)))
        self.refused(lib.aclrtResetDevice(-3), acl.RT_INVALID_DEVICEID)

    def test_peers(self):
        can = ctypes.c_int32()
        self.ok(lib.aclrtDeviceCanAccessPeer(byref(can), 0, 1))
        self.assertEqual(can.value, 1)
        self.refused(lib.aclrtDeviceCanAccessPeer(byref(can), 0, 0), acl.RT_INVALID_DEVICEID)
        self.refused(lib.aclrtDeviceCanAccessPeer(None, 0, 1), acl.INVALID_PARAM)
        self.ok(lib.aclrtDeviceEnablePeerAccess(1, 0))
        self.refused(lib.aclrtDeviceEnablePeerAccess(1, 3), acl.INVALID_PARAM)
        self.refused(lib.aclrtDeviceEnablePeerAccess(0, 0), acl.RT_INVALID_DEVICEID)
        here = lib.malloc(64)
        self.ok(lib.aclrtSetDevice(1))
        there = lib.malloc(64)
        self.ok(lib.aclrtMemcpy(there, 64, here, 64, acl.D2D))
        self.ok(lib.aclrtMemcpyAsync(here, 64, there, 64, acl.D2D, None))
        self.ok(lib.aclrtSynchronizeStream(None))
        self.ok(lib.aclrtSetDevice(0))
        self.ok(lib.aclrtDeviceDisablePeerAccess(1))
        self.refused(lib.aclrtMemcpy(there, 64, here, 64, acl.D2D), acl.RT_PARAM_INVALID, text="EnablePeerAccess")
        self.refused(lib.aclrtDeviceDisablePeerAccess(1000), acl.RT_INVALID_DEVICEID)
        self.refused(lib.aclrtDeviceDisablePeerAccess(0), acl.RT_INVALID_DEVICEID)
        for pointer in (here, there):
            self.ok(lib.aclrtFree(pointer))
        pid = ctypes.c_int32()
        self.ok(lib.aclrtDeviceGetBareTgid(byref(pid)))
        self.assertEqual(pid.value, os.getpid())
        self.refused(lib.aclrtDeviceGetBareTgid(None), acl.INVALID_PARAM)

    def test_saturation_mode(self):
        mode = ctypes.c_int()
        x = lib.upload(acl.floats(3e38, -3e38, 1.0))
        operand = (acl.FLOAT, [3], x, 12)
        largest = 3.4028234663852886e38
        for saturates, expected in ((1, [float("inf"), -float("inf"), 2.0]), (0, [largest, -largest, 2.0])):
            self.ok(lib.aclrtSetDeviceSatMode(saturates))
            self.ok(lib.aclrtGetDeviceSatMode(byref(mode)))
            self.assertEqual(mode.value, saturates)
            y = lib.upload(acl.floats(0, 0, 0))
            lib.check(lib.run("Add", [operand, operand], [(acl.FLOAT, [3], y, 12)]))
            self.ok(lib.aclrtSynchronizeStream(None))
            self.assertEqual(lib.download(y, ctypes.c_float, 3), expected)
            lib.check(lib.aclrtFree(y))
        self.ok(lib.aclrtSetDeviceSatMode(1))
        lib.check(lib.aclrtFree(x))
        self.refused(lib.aclrtSetDeviceSatMode(9), acl.INVALID_PARAM)

    def test_simulator_functions(self):
        self.refused(lib.aclsimGetCounters(0, None), acl.INVALID_PARAM)
        self.refused(lib.aclsimGetCounters(999, None), acl.RT_INVALID_DEVICEID)
        self.ok(lib.aclsimResetCounters(0))
        self.refused(lib.aclsimResetCounters(999), acl.RT_INVALID_DEVICEID)
        self.assertEqual(lib.aclsimIsOpSupported(b"Add"), 1)
        self.assertEqual(lib.aclsimIsOpSupported(b"NoSuchOperator"), 0)
        self.assertEqual(lib.aclsimIsOpSupported(None), 0)
        self.ok(lib.aclsimSetFault(b""))
        self.refused(lib.aclsimSetFault(b"nonsense"), acl.INVALID_PARAM)


class TestStreams(AclTest):
    def test_streams(self):
        handle = ctypes.c_void_p()
        self.ok(lib.aclrtCreateStreamWithConfig(byref(handle), 0, 1))
        for query in (lib.aclrtQueryStream, lib.aclrtSynchronizeStream):
            self.ok(query(handle))
        status = ctypes.c_int(-1)
        self.ok(lib.aclrtStreamQuery(handle, byref(status)))
        self.assertEqual(status.value, 0)
        self.refused(lib.aclrtStreamQuery(handle, None), acl.INVALID_PARAM)
        self.ok(lib.aclrtSynchronizeStreamWithTimeout(handle, 100))
        self.refused(lib.aclrtSynchronizeStreamWithTimeout(handle, -2), acl.INVALID_PARAM)
        self.ok(lib.aclrtSetStreamFailureMode(handle, 1))
        self.refused(lib.aclrtSetStreamFailureMode(handle, 2), acl.INVALID_PARAM)
        flag = ctypes.c_uint32()
        self.ok(lib.aclrtSetStreamOverflowSwitch(handle, 1))
        self.ok(lib.aclrtGetStreamOverflowSwitch(handle, byref(flag)))
        self.assertEqual(flag.value, 1)
        self.refused(lib.aclrtGetStreamOverflowSwitch(handle, None), acl.INVALID_PARAM)
        self.ok(lib.aclrtDestroyStream(handle))
        self.refused(lib.aclrtDestroyStream(handle), acl.RT_INVALID_HANDLE)
        for bad in (handle, 0xDEAD0, handle.value + 8):
            self.refused(lib.aclrtSynchronizeStream(bad), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtCreateStream(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtDestroyStream(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtCreateStreamWithConfig(byref(handle), 0, 0x80000000), acl.INVALID_PARAM)
        self.refused(lib.aclrtSetStreamOverflowSwitch(0xDEAD0, 1), acl.RT_INVALID_HANDLE)
        self.ok(lib.aclrtDestroyStreamForce(lib.stream()))
        self.refused(lib.aclrtDestroyStreamForce(None), acl.INVALID_PARAM)

    def test_a_stream_of_another_device_is_refused(self):
        stream = lib.stream()
        event = lib.event()
        self.ok(lib.aclrtSetDevice(1))
        self.refused(lib.aclrtRecordEvent(event, stream), acl.RT_STREAM_CONTEXT)
        self.ok(lib.aclrtSynchronizeStream(stream))
        self.ok(lib.aclrtSetDevice(0))
        self.ok(lib.aclrtDestroyStream(stream))
        self.ok(lib.aclrtDestroyEvent(event))

    def test_events(self):
        first, last, stream = lib.event(), lib.event(), lib.stream()
        status, ms = ctypes.c_int(-1), ctypes.c_float(-1)
        self.ok(lib.aclrtQueryEventStatus(first, byref(status)))
        self.assertEqual(status.value, 0)  # not recorded: not ready
        self.ok(lib.aclrtQueryEvent(first, byref(status)))
        self.assertEqual(status.value, 1)
        self.refused(lib.aclrtEventElapsedTime(byref(ms), first, last), acl.RT_EVENT_TIMESTAMP_INVALID)
        self.ok(lib.aclrtRecordEvent(first, stream))
        self.ok(lib.aclrtRecordEvent(last, stream))
        self.ok(lib.aclrtSynchronizeEvent(last))
        self.ok(lib.aclrtSynchronizeEventWithTimeout(last, 1000))
        self.ok(lib.aclrtQueryEventStatus(last, byref(status)))
        self.assertEqual(status.value, 1)
        self.ok(lib.aclrtQueryEventWaitStatus(last, byref(status)))
        self.assertEqual(status.value, 0)
        self.ok(lib.aclrtEventElapsedTime(byref(ms), first, last))
        self.assertGreaterEqual(ms.value, 0)
        self.refused(lib.aclrtEventElapsedTime(byref(ms), last, first), acl.RT_EVENT_TIMESTAMP_REVERSAL)
        self.refused(lib.aclrtEventElapsedTime(None, first, last), acl.INVALID_PARAM)
        self.ok(lib.aclrtStreamWaitEvent(stream, last))
        self.ok(lib.aclrtResetEvent(last, stream))
        self.ok(lib.aclrtQueryEventStatus(last, byref(status)))
        self.assertEqual(status.value, 0)
        for query in (lib.aclrtQueryEvent, lib.aclrtQueryEventStatus, lib.aclrtQueryEventWaitStatus):
            self.refused(query(first, None), acl.INVALID_PARAM)
        self.ok(lib.aclrtDestroyEvent(first))
        self.refused(lib.aclrtDestroyEvent(first), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtRecordEvent(first, stream), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtStreamWaitEvent(stream, 0x77), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtResetEvent(0x77, stream), acl.RT_INVALID_HANDLE)
        self.refused(lib.aclrtSynchronizeEvent(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtSynchronizeEventWithTimeout(last, -9), acl.INVALID_PARAM)
        self.refused(lib.aclrtDestroyEvent(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtCreateEvent(None), acl.INVALID_PARAM)
        for create in (lib.aclrtCreateEventWithFlag, lib.aclrtCreateEventExWithFlag):
            handle = ctypes.c_void_p()
            self.ok(create(byref(handle), 8))
            self.ok(lib.aclrtDestroyEvent(handle))
            self.refused(create(byref(handle), 0x80000000), acl.INVALID_PARAM)
        self.ok(lib.aclrtDestroyStream(stream))

    def test_timeouts_are_settable(self):
        self.ok(lib.aclrtSetOpWaitTimeout(30))
        self.ok(lib.aclrtSetOpWaitTimeout(0))
        self.ok(lib.aclrtSetOpExecuteTimeOut(600))

    def test_callbacks(self):
        stream = lib.stream()
        seen = []
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
        address = ctypes.cast(callback, ctypes.c_void_p)
        self.refused(lib.aclrtLaunchCallback(address, 5, 1, stream), acl.RT_STREAM_NO_CB_REG)
        self.refused(lib.aclrtProcessReport(10), acl.THREAD_NOT_SUBSCRIBE)
        me = threading.get_ident()
        self.ok(lib.aclrtSubscribeReport(me, stream))
        self.refused(lib.aclrtSubscribeReport(me, stream), 100033)
        self.refused(lib.aclrtProcessReport(10), acl.WAIT_CALLBACK_TIMEOUT)
        self.ok(lib.aclrtLaunchCallback(address, 5, 1, stream))
        self.refused(lib.aclrtLaunchCallback(None, 5, 1, stream), acl.INVALID_PARAM)
        self.ok(lib.aclrtProcessReport(5000))
        self.ok(lib.aclrtSynchronizeStream(stream))
        self.assertEqual(seen, [5])
        self.refused(lib.aclrtProcessReport(-7), acl.INVALID_PARAM)
        self.ok(lib.aclrtUnSubscribeReport(me, stream))
        self.refused(lib.aclrtUnSubscribeReport(me, stream), 100034)
        self.ok(lib.aclrtDestroyStream(stream))

    def test_exception_information(self):
        for get in ("TaskId", "StreamId", "ThreadId", "DeviceId", "ErrorCode"):
            self.assertEqual(getattr(lib, f"aclrtGet{get}FromExceptionInfo")(None), 0xFFFFFFFF)
        self.ok(lib.aclrtSetExceptionInfoCallback(None))


class TestMemory(AclTest):
    def test_malloc_and_free(self):
        pointer = ctypes.c_void_p()
        self.refused(lib.aclrtMalloc(None, 64, 0), acl.INVALID_PARAM)
        self.refused(lib.aclrtMalloc(byref(pointer), 0, 0), acl.INVALID_PARAM)
        self.refused(lib.aclrtMalloc(byref(pointer), 64, 0x40), acl.INVALID_PARAM)
        self.ok(lib.aclrtMallocAlign32(byref(pointer), 64, 2))
        self.refused(lib.aclrtFree(pointer.value + 64), acl.RT_MEMORY_FREE)
        self.ok(lib.aclrtFree(pointer))
        self.refused(lib.aclrtFree(pointer), acl.RT_MEMORY_FREE)
        self.refused(lib.aclrtFree(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtFree(0x1000), acl.RT_MEMORY_FREE)

    def test_host_memory(self):
        pointer = ctypes.c_void_p()
        self.ok(lib.aclrtMallocHost(byref(pointer), 4096))
        ctypes.memset(pointer, 7, 4096)
        self.ok(lib.aclrtFreeHost(pointer))
        self.refused(lib.aclrtFreeHost(pointer), acl.RT_MEMORY_FREE)
        self.refused(lib.aclrtFreeHost(None), acl.INVALID_PARAM)
        self.refused(lib.aclrtMallocHost(byref(pointer), 0), acl.INVALID_PARAM)
        self.refused(lib.aclrtMallocHost(None, 64), acl.INVALID_PARAM)

    def test_memory_info(self):
        free, total, after = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
        self.ok(lib.aclrtGetMemInfo(1, byref(free), byref(total)))
        self.assertLessEqual(free.value, total.value)
        pointer = lib.malloc(64 << 20)
        self.ok(lib.aclrtGetMemInfo(1, byref(after), byref(total)))
        self.assertEqual(free.value - after.value, 64 << 20)
        self.ok(lib.aclrtFree(pointer))
        self.refused(lib.aclrtGetMemInfo(99, byref(free), byref(total)), acl.INVALID_PARAM)
        self.refused(lib.aclrtGetMemInfo(1, None, byref(total)), acl.INVALID_PARAM)

    def test_copies_and_fills(self):
        values = acl.floats(*range(256))
        address, size = ctypes.addressof(values), ctypes.sizeof(values)
        a, b, stream = lib.malloc(size), lib.malloc(size), lib.stream()
        self.ok(lib.aclrtMemcpyAsync(a, size, address, size, acl.H2D, stream))
        self.ok(lib.aclrtMemcpyAsync(b, size, a, size, acl.D2D, stream))
        self.ok(lib.aclrtSynchronizeStream(stream))
        self.assertEqual(lib.download(b, ctypes.c_float, 256), list(values))
        self.ok(lib.aclrtMemset(b, size, 0, size))
        self.ok(lib.aclrtMemsetAsync(b, size, 1, 4, stream))
        self.ok(lib.aclrtSynchronizeStream(stream))
        self.assertEqual(lib.download(b, ctypes.c_uint32, 2), [0x01010101, 0])
        other, large = (ctypes.c_float * 256)(), (ctypes.c_float * 2048)()
        self.ok(lib.aclrtMemcpy(ctypes.addressof(other), size, address, size, acl.H2H))
        self.assertEqual(list(other), list(values))
        self.ok(lib.aclrtMemcpy(b, 0, address, 0, acl.H2D))
        for copy in (lib.aclrtMemcpy, lambda *args: lib.aclrtMemcpyAsync(*args, stream)):
            self.refused(copy(a, size, address, size, acl.D2H), acl.RT_PARAM_INVALID, text="host memory")
            self.refused(copy(address, size, a, size, acl.H2D), acl.RT_PARAM_INVALID, text="memory of device 0")
            self.refused(copy(a, size - 1, address, size, acl.H2D), acl.INVALID_PARAM)
            self.refused(
                copy(a, 8192, ctypes.addressof(large), 8192, acl.H2D), acl.RT_PARAM_INVALID, text="one allocation"
            )
            self.refused(copy(a, 1 << 20, b, 1 << 20, acl.D2D), acl.RT_PARAM_INVALID)
            self.refused(copy(None, size, address, size, acl.H2D), acl.INVALID_PARAM)
            self.refused(copy(a, size, None, size, acl.H2D), acl.INVALID_PARAM)
            self.refused(copy(a, size, address, size, 42), acl.INVALID_PARAM)
        self.refused(lib.aclrtMemset(None, 1, 0, 1), acl.INVALID_PARAM)
        self.refused(lib.aclrtMemset(a, 1, 0, 2), acl.INVALID_PARAM)
        self.refused(lib.aclrtMemsetAsync(a, 1, 0, 2, stream), acl.INVALID_PARAM)
        self.ok(lib.aclrtFree(a))
        self.refused(lib.aclrtMemcpy(a, size, address, size, acl.H2D), acl.RT_PARAM_INVALID)
        self.ok(lib.aclrtFree(b))
        self.ok(lib.aclrtDestroyStream(stream))

    def test_virtual_memory(self):
        class Property(ctypes.Structure):
            _fields_ = [
                ("handle_type", ctypes.c_int),
                ("allocation_type", ctypes.c_int),
                ("attribute", ctypes.c_int),
                ("id", ctypes.c_uint32),
                ("location", ctypes.c_int),
                ("reserve", ctypes.c_uint64),
            ]

        granule = ctypes.c_size_t()
        on_device = Property(0, 0, 4, 0, 1, 0)
        self.ok(lib.aclrtMemGetAllocationGranularity(byref(on_device), 0, byref(granule)))
        self.refused(lib.aclrtMemGetAllocationGranularity(byref(on_device), 0, None), acl.INVALID_PARAM)
        size = granule.value
        base, first, second = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.ok(lib.aclrtReserveMemAddress(byref(base), 4 * size, 0, None, 1))
        self.refused(lib.aclrtReserveMemAddress(byref(base), 0, 0, None, 1), acl.INVALID_PARAM)
        self.ok(lib.aclrtMallocPhysical(byref(first), size, byref(on_device), 0))
        self.ok(lib.aclrtMallocPhysical(byref(second), size, byref(on_device), 0))
        on_host = Property(0, 0, 4, 0, 0, 0)
        self.refused(lib.aclrtMallocPhysical(byref(second), size, byref(on_host), 0), acl.RT_FEATURE_NOT_SUPPORT)
        self.refused(lib.aclrtMallocPhysical(byref(second), 0, byref(on_device), 0), acl.INVALID_PARAM)
        self.ok(lib.aclrtMapMem(base, size, 0, first, 0))
        self.ok(lib.aclrtMapMem(base.value + size, size, 0, second, 0))
        self.refused(lib.aclrtMapMem(base, size, 0, second, 0), acl.RT_PARAM_INVALID)
        self.refused(lib.aclrtMapMem(base, size, 0, 0x55, 0), acl.RT_INVALID_HANDLE)
        values = acl.floats(1, 2, 3, 4)
        edge = base.value + size - 8  # across both pieces
        self.ok(lib.aclrtMemcpy(edge, 16, ctypes.addressof(values), 16, acl.H2D))
        self.assertEqual(lib.download(edge, ctypes.c_float, 4), [1, 2, 3, 4])
        self.refused(
            lib.aclrtMemcpy(base.value + 2 * size, 16, ctypes.addressof(values), 16, acl.H2D), acl.RT_PARAM_INVALID
        )
        handle = ctypes.c_uint64()
        self.ok(lib.aclrtMemExportToShareableHandle(first, 0, 0, byref(handle)))
        self.refused(lib.aclrtMemExportToShareableHandle(first, 0, 0, None), acl.INVALID_PARAM)
        imported = ctypes.c_void_p()
        self.refused(lib.aclrtMemImportFromShareableHandle(handle, 0, byref(imported)), acl.RT_NO_PERMISSION)
        me = ctypes.c_int32(os.getpid())
        self.ok(lib.aclrtMemSetPidToShareableHandle(handle, byref(me), 1))
        self.refused(lib.aclrtMemSetPidToShareableHandle(handle, None, 1), acl.INVALID_PARAM)
        self.refused(lib.aclrtMemSetPidToShareableHandle(1, byref(me), 1), acl.RT_INVALID_HANDLE)
        self.ok(lib.aclrtMemImportFromShareableHandle(handle, 0, byref(imported)))
        self.ok(lib.aclrtMapMem(base.value + 2 * size, size, 0, imported, 0))
        self.assertEqual(lib.download(base.value + 3 * size - 8, ctypes.c_float, 2), [1, 2])
        self.refused(lib.aclrtReleaseMemAddress(base), acl.RT_PARAM_INVALID)
        for i in range(3):
            self.ok(lib.aclrtUnmapMem(base.value + i * size))
        self.refused(lib.aclrtUnmapMem(base), acl.RT_PARAM_INVALID)
        for piece in (first, second, imported):
            self.ok(lib.aclrtFreePhysical(piece))
        self.refused(lib.aclrtFreePhysical(first), acl.RT_INVALID_HANDLE)
        self.ok(lib.aclrtReleaseMemAddress(base))
        self.refused(lib.aclrtReleaseMemAddress(base), acl.RT_PARAM_INVALID)

    def test_device_binaries_are_refused(self):
        data, handle, a, b = acl.floats(0), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.refused(
            lib.aclrtBinaryLoadFromData(ctypes.addressof(data), 4, None, byref(handle)), acl.RT_FEATURE_NOT_SUPPORT
        )
        self.refused(lib.aclrtBinaryLoadFromData(None, 4, None, byref(handle)), acl.INVALID_PARAM)
        self.refused(lib.aclrtBinaryGetFunction(None, b"f", byref(handle)), acl.INVALID_PARAM)
        self.refused(lib.aclrtGetFunctionAddr(None, byref(a), byref(b)), acl.INVALID_PARAM)


if __name__ == "__main__":
    unittest.main()
