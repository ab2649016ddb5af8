"""The AscendCL ABI through ctypes, for tests that drive the C library directly.

The library is ACL_LIBRARY if that is set (so the same tests run on CANN), else the simulator's inside the installed
torch package. Argument types come from third_party/acl/acl_api.yaml.
"""

import ctypes
import importlib.util
import itertools
import os
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

import several_devices  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
ACL = ROOT / "third_party" / "acl"

SUCCESS = 0
INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002
INVALID_FILE = 100003
OP_NOT_FOUND = 100024
THREAD_NOT_SUBSCRIBE = 100035
WAIT_CALLBACK_TIMEOUT = 100036
PROF_ALREADY_RUN = 100042
PROF_NOT_RUN = 100043
DUMP_ALREADY_RUN = 100044
DUMP_NOT_RUN = 100045
RT_PARAM_INVALID = 107000
RT_INVALID_DEVICEID = 107001
RT_CONTEXT_NULL = 107002
RT_STREAM_CONTEXT = 107003
RT_EVENT_TIMESTAMP_INVALID = 107006
RT_EVENT_TIMESTAMP_REVERSAL = 107007
RT_STREAM_NO_CB_REG = 107015
RT_INVALID_HANDLE = 107017
RT_WAIT_TIMEOUT = 107019
INVALID_DEVICE = 200002
FEATURE_UNSUPPORTED = 200006
RT_FEATURE_NOT_SUPPORT = 207000
RT_MEMORY_ALLOCATION = 207001
RT_MEMORY_FREE = 207002
RT_NO_PERMISSION = 207006
GE_FAILURE = 500002
RT_STREAM_NOT_COMPLETE = 507004
RT_EVENT_NOT_COMPLETE = 507006
RT_LOST_HEARTBEAT = 507010
RT_AICORE_TIMEOUT = 507014
RT_AICORE_EXCEPTION = 507015
RT_DEV_SETUP_ERROR = 507033
RT_STREAM_SYNC_TIMEOUT = 507046
RT_EVENT_SYNC_TIMEOUT = 507047

FLOAT, FLOAT16, INT8, INT32, UINT8, INT64, DOUBLE, BOOL = 0, 1, 2, 3, 4, 9, 11, 12
UNDEFINED = -1
ND = 2
H2H, H2D, D2H, D2D = 0, 1, 2, 3
HUGE_FIRST = 0

_SCALARS = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uint8_t": ctypes.c_uint8,
    "float": ctypes.c_float,
    "aclFloat16": ctypes.c_uint16,
}
_HANDLES = (
    *("aclrtStream", "aclrtEvent", "aclrtContext", "aclmdlRI"),
    *("aclrtDrvMemHandle", "aclrtBinHandle", "aclrtFuncHandle"),
)
_CALLBACKS = ("aclrtCallback", "aclrtExceptionInfoCallback", "aclopCompileFunc")


def _ctype(text, array):
    bare = text.replace("const ", "").strip()
    if array or bare.endswith("*"):
        return ctypes.c_char_p if bare == "char*" and not array else ctypes.c_void_p
    if bare in _HANDLES or bare in _CALLBACKS:
        return ctypes.c_void_p
    return _SCALARS.get(bare, ctypes.c_int)  # enums are ints


def library_path():
    if path := os.environ.get("ACL_LIBRARY"):
        return path
    spec = importlib.util.find_spec("torch")
    return str(Path(spec.origin).parent / "lib" / "ascend_sim" / "libascendcl.so")


def table():
    """The functions of the ABI that the simulator exports, as gen_acl.Function."""
    spec = importlib.util.spec_from_file_location("gen_acl", ACL / "gen_acl.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gen_acl"] = module
    spec.loader.exec_module(module)
    return module.read_table()[1]


class Library:
    """`lib.aclrtMalloc(...)` calls the C function; `lib.check(code)` raises on anything but success."""

    def __init__(self):
        self._cdll = ctypes.CDLL(library_path())
        for f in table():
            function = getattr(self._cdll, f.name, None)
            if function is None:
                continue
            function.restype = None if f.ret == "void" else _ctype(f.ret, False)
            function.argtypes = [_ctype(a.type, bool(a.suffix)) for a in f.args] if not f.variadic else None
            setattr(self, f.name, function)

    def message(self):
        text = self.aclGetRecentErrMsg()
        return text.decode() if text else ""

    def check(self, code):
        if code != SUCCESS:
            raise AssertionError(f"ACL error {code}: {self.message()}")

    # ---- memory

    def malloc(self, size):
        pointer = ctypes.c_void_p()
        self.check(self.aclrtMalloc(ctypes.byref(pointer), size, HUGE_FIRST))
        return pointer.value

    def upload(self, array):
        """A ctypes array's bytes in new device memory."""
        size = ctypes.sizeof(array)
        pointer = self.malloc(max(size, 1))
        if size:
            self.check(self.aclrtMemcpy(pointer, size, ctypes.addressof(array), size, H2D))
        return pointer

    def download(self, pointer, kind, count):
        array = (kind * count)()
        size = ctypes.sizeof(array)
        self.check(self.aclrtMemcpy(ctypes.addressof(array), size, pointer, size, D2H))
        return list(array)

    # ---- streams, events

    def stream(self):
        handle = ctypes.c_void_p()
        self.check(self.aclrtCreateStream(ctypes.byref(handle)))
        return handle.value

    def event(self):
        handle = ctypes.c_void_p()
        self.check(self.aclrtCreateEvent(ctypes.byref(handle)))
        return handle.value

    def counters(self, device=0):
        values = (ctypes.c_uint64 * 24)()
        self.check(self.aclsimGetCounters(device, ctypes.addressof(values)))
        names = ["h2d", "h2d_bytes", "d2h", "d2h_bytes", "d2d", "d2d_bytes", "launched", "run_by_caller", "compiled"]
        names += ["used", "peak", "total", "scratch", "scratch_peak", "relayouts", "cached", "busy_ns"]
        return dict(zip(names, values, strict=False))

    # ---- operators

    def desc(self, dtype, dims, layout=None):
        values = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        return self.aclCreateTensorDesc(dtype, len(dims), ctypes.addressof(values), ND if layout is None else layout)

    def run(self, op, inputs, outputs, attrs=None, stream=None, host=(), call="aclopCompileAndExecute"):
        """inputs and outputs: (dtype, dims, pointer, bytes[, format]). Gives ACL's code; descriptions are destroyed."""
        descs, buffers = [], []
        for i, (dtype, dims, pointer, size, *layout) in enumerate([*inputs, *outputs]):
            d = self.desc(dtype, dims, *layout)
            if i in host:
                self.check(self.aclSetTensorPlaceMent(d, 1))
            descs.append(d)
            buffers.append(self.aclCreateDataBuffer(pointer, size))
        n, m = len(inputs), len(outputs)
        keep = [(ctypes.c_void_p * max(len(x), 1))(*x) for x in (descs[:n], buffers[:n], descs[n:], buffers[n:])]
        a = [ctypes.addressof(k) for k in keep]
        if call == "aclopExecuteV2":
            code = self.aclopExecuteV2(op.encode(), n, a[0], a[1], m, a[2], a[3], attrs, stream)
        elif call == "aclopCompile":
            code = self.aclopCompile(op.encode(), n, a[0], m, a[2], attrs, 0, 0, None)
        else:
            code = getattr(self, call)(op.encode(), n, a[0], a[1], m, a[2], a[3], attrs, 0, 0, None, stream)
        for d in descs:
            self.aclDestroyTensorDesc(d)
        for b in buffers:
            self.check(self.aclDestroyDataBuffer(b))
        return code


class AclTestCase(unittest.TestCase):
    """Device 0 is this thread's device; `ok` and `refused` check a code together with the message it comes with."""

    lib = None  # set by the test module

    @classmethod
    def setUpClass(cls):
        code = cls.lib.aclInit(None)
        if code not in (SUCCESS, REPEAT_INITIALIZE):
            raise RuntimeError(f"aclInit failed with {code}: {cls.lib.message()}")

    def setUp(self):
        self.ok(self.lib.aclrtSetDevice(0))

    def ok(self, code):
        self.assertEqual(code, SUCCESS, self.lib.message())

    def refused(self, code, *expected, text=None):
        self.assertIn(code, expected)
        message = self.lib.message()
        self.assertTrue(message, "an error has a message")
        if text:
            self.assertIn(text, message)


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


_scripts = itertools.count()


def run_script(body, env=None, timeout=120):
    """Runs Python text in a fresh process with this module imported as `acl`; gives the CompletedProcess."""
    prelude = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    prelude += "import ctypes, os, threading, time\nimport acl_library as acl\n"
    variables = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("ASCEND_SIM_", "ASCEND_RT_", "ASCEND_GLOBAL_", "ASCEND_SLOG_"))
    }
    # Several devices, as several_devices.py gives to the tests of a process, and a host of its own with all its memory.
    host = f"script-{os.getpid()}-{next(_scripts)}"
    variables.update({"ASCEND_SIM_DEVICE_COUNT": "8", "ASCEND_SIM_HOST": host, **(env or {})})
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(body)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
