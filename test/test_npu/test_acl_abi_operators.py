"""The operator, profiler and dump parts of the AscendCL ABI, called with good and with bad arguments."""

import ctypes
import itertools
import tempfile
import unittest
from pathlib import Path

import acl_library as acl

lib = acl.Library()
byref = ctypes.byref


class AclTest(acl.AclTestCase):
    lib = lib


class TestOperators(AclTest):
    def setUp(self):
        super().setUp()
        self.a = lib.upload(acl.floats(1, 2, 3, 4))
        self.b = lib.upload(acl.floats(10, 20, 30, 40))
        self.r = lib.malloc(16)

    def tearDown(self):
        for pointer in (self.a, self.b, self.r):
            self.ok(lib.aclrtFree(pointer))

    def operands(self, dtype=acl.FLOAT):
        return [(dtype, [2, 2], self.a, 16), (dtype, [2, 2], self.b, 16)], [(dtype, [2, 2], self.r, 16)]

    def test_compile_and_execute(self):
        for call in ("aclopCompileAndExecute", "aclopCompileAndExecuteV2", "aclopExecuteV2"):
            self.ok(lib.aclrtMemset(self.r, 16, 0, 16))
            self.ok(lib.run("Add", *self.operands(), call=call))
            self.ok(lib.aclrtSynchronizeStream(None))
            self.assertEqual(lib.download(self.r, ctypes.c_float, 4), [11, 22, 33, 44])
        self.ok(lib.run("Mul", *self.operands(), call="aclopCompile"))

    def test_execute_needs_a_compiled_operator(self):
        a, r = lib.malloc(1024), lib.malloc(1024)
        operand = (acl.FLOAT, [3, 1, 7, 11], a, 1024)
        out = (acl.FLOAT, [3, 1, 7, 11], r, 1024)
        self.refused(
            lib.run("Sub", [operand, operand], [out], call="aclopExecuteV2"), acl.OP_NOT_FOUND, text="aclopCompile"
        )
        self.ok(lib.run("Sub", [operand, operand], [out], call="aclopCompile"))
        self.ok(lib.run("Sub", [operand, operand], [out], call="aclopExecuteV2"))
        self.ok(lib.aclrtSynchronizeStream(None))
        self.ok(lib.aclrtFree(a))
        self.ok(lib.aclrtFree(r))

    def test_what_is_wrong_with_an_operator_is_said(self):
        inputs, outputs = self.operands()
        self.refused(lib.run("NoSuchOperator", inputs, outputs), acl.GE_FAILURE, text="NoSuchOperator")
        self.refused(lib.run("Add", inputs[:1], outputs), acl.GE_FAILURE, text="2 inputs")
        self.refused(lib.run("Add", *self.operands(13)), acl.GE_FAILURE, text="string")
        bad = lib.aclopCreateAttr()
        self.ok(lib.aclopSetAttrInt(bad, b"no_such_attribute", 3))
        self.refused(lib.run("Add", inputs, outputs, attrs=bad), acl.GE_FAILURE, text="no_such_attribute")
        lib.aclopDestroyAttr(bad)
        self.refused(
            lib.run("Add", [(acl.FLOAT, [2, 2], self.a, 15), inputs[1]], outputs),
            acl.INVALID_PARAM,
            text="needs 16 bytes",
        )
        self.refused(
            lib.run("Add", [(acl.FLOAT, [2, 2], None, 16), inputs[1]], outputs), acl.INVALID_PARAM, text="null"
        )
        host = acl.floats(1, 2, 3, 4)
        outside = (acl.FLOAT, [2, 2], ctypes.addressof(host), 16)
        self.refused(lib.run("Add", [outside, inputs[1]], outputs), acl.INVALID_PARAM, text="is not memory of device 0")
        self.refused(lib.run("Add", inputs, outputs, stream=0x123), acl.RT_INVALID_HANDLE)
        self.refused(lib.run("", inputs, outputs), acl.INVALID_PARAM)
        self.refused(lib.run("Add", [(acl.FLOAT, [-1, 2], self.a, 16), inputs[1]], outputs), 148050, text="dynamic")

    def test_null_arguments(self):
        arguments = [b"Add", 2, None, None, 1, None, None, None, 0, 0, None, None]
        self.refused(lib.aclopCompileAndExecute(*arguments), acl.INVALID_PARAM)
        self.refused(lib.aclopCompileAndExecute(None, *arguments[1:]), acl.INVALID_PARAM)
        self.refused(lib.aclopCompile(b"Add", -1, None, 1, None, None, 0, 0, None), acl.INVALID_PARAM)
        none = (ctypes.c_void_p * 2)(None, None)
        address = ctypes.addressof(none)
        self.refused(
            lib.aclopCompileAndExecute(b"Add", 2, address, address, 1, address, address, None, 0, 0, None, None),
            acl.INVALID_PARAM,
        )

    def test_a_host_operand_is_taken_at_the_call(self):
        value = acl.floats(5)
        scalar = (acl.FLOAT, [1], ctypes.addressof(value), 4)
        inputs, outputs = self.operands()
        self.ok(lib.run("Add", [inputs[0], scalar], outputs, host=(1,)))
        value[0] = 1000
        self.ok(lib.aclrtSynchronizeStream(None))
        self.assertEqual(lib.download(self.r, ctypes.c_float, 4), [6, 7, 8, 9])

    def test_image_formats(self):
        """A convolution of images that are described as NHWC, with filters that are described as HWCN."""
        n, h, w, c, o = 2, 5, 4, 3, 7
        image = [((i * 37) % 11) - 5.0 for i in range(n * h * w * c)]
        filters = [((i * 13) % 7) - 3.0 for i in range(3 * 3 * c * o)]
        expected = []
        for sample, row, column, out in itertools.product(range(n), range(3), range(2), range(o)):
            expected.append(
                sum(
                    image[((sample * h + row + y) * w + column + x) * c + k] * filters[((y * 3 + x) * c + k) * o + out]
                    for y in range(3)
                    for x in range(3)
                    for k in range(c)
                )
            )
        x, f = lib.upload(acl.floats(*image)), lib.upload(acl.floats(*filters))
        size = len(expected) * 4
        y = lib.malloc(size)
        attr = lib.aclopCreateAttr()
        ones, zeros = (ctypes.c_int64 * 4)(1, 1, 1, 1), (ctypes.c_int64 * 4)()
        self.ok(lib.aclopSetAttrListInt(attr, b"strides", 4, ctypes.addressof(ones)))
        self.ok(lib.aclopSetAttrListInt(attr, b"pads", 4, ctypes.addressof(zeros)))
        self.ok(lib.aclopSetAttrString(attr, b"data_format", b"NHWC"))
        inputs = [(acl.FLOAT, [n, h, w, c], x, len(image) * 4, 1), (acl.FLOAT, [3, 3, c, o], f, len(filters) * 4, 16)]
        self.ok(lib.run("Conv2D", inputs, [(acl.FLOAT, [n, 3, 2, o], y, size, 1)], attrs=attr))
        self.ok(lib.aclrtSynchronizeStream(None))
        self.assertEqual(lib.download(y, ctypes.c_float, len(expected)), expected)
        lib.aclopDestroyAttr(attr)
        for pointer in (x, f, y):
            self.ok(lib.aclrtFree(pointer))

    def test_attributes(self):
        attr = lib.aclopCreateAttr()
        ints, numbers, flags = (ctypes.c_int64 * 3)(1, 2, 3), acl.floats(1, 2), (ctypes.c_uint8 * 2)(1, 0)
        texts, types = (ctypes.c_char_p * 2)(b"a", b"bc"), (ctypes.c_int * 2)(0, 1)
        counts = (ctypes.c_int * 1)(3)
        lists = (ctypes.c_void_p * 1)(ctypes.addressof(ints))
        at = ctypes.addressof
        self.ok(lib.aclopSetAttrBool(attr, b"flag", 1))
        self.ok(lib.aclopSetAttrInt(attr, b"number", -5))
        self.ok(lib.aclopSetAttrFloat(attr, b"real", 0.5))
        self.ok(lib.aclopSetAttrString(attr, b"text", b"value"))
        self.ok(lib.aclopSetAttrDataType(attr, b"type", acl.INT64))
        self.ok(lib.aclopSetAttrListBool(attr, b"flags", 2, at(flags)))
        self.ok(lib.aclopSetAttrListInt(attr, b"numbers", 3, at(ints)))
        self.ok(lib.aclopSetAttrListFloat(attr, b"reals", 2, at(numbers)))
        self.ok(lib.aclopSetAttrListString(attr, b"texts", 2, at(texts)))
        self.ok(lib.aclopSetAttrListDataType(attr, b"types", 2, at(types)))
        self.ok(lib.aclopSetAttrListListInt(attr, b"lists", 1, at(counts), at(lists)))
        self.ok(lib.aclopSetAttrListInt(attr, b"empty", 0, None))
        for set_list in ("ListBool", "ListInt", "ListFloat", "ListString", "ListDataType"):
            function = getattr(lib, "aclopSetAttr" + set_list)
            self.refused(function(attr, b"bad", 2, None), acl.INVALID_PARAM)
            self.refused(function(attr, b"bad", -1, at(ints)), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrListListInt(attr, b"bad", 1, None, at(lists)), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrBool(None, b"flag", 1), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrInt(attr, None, 1), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrInt(attr, b"", 1), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrFloat(None, b"real", 1), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrString(attr, b"text", None), acl.INVALID_PARAM)
        self.refused(lib.aclopSetAttrDataType(None, b"type", 0), acl.INVALID_PARAM)
        lib.aclopDestroyAttr(attr)
        self.refused(lib.aclopSetAttrInt(attr, b"late", 1), acl.INVALID_PARAM)
        lib.aclopDestroyAttr(attr)
        lib.aclopDestroyAttr(None)

    def test_compile_options(self):
        self.ok(lib.aclSetCompileopt(7, b"enable"))
        self.assertEqual(lib.aclGetCompileoptSize(7), 7)
        text = ctypes.create_string_buffer(7)
        self.ok(lib.aclGetCompileopt(7, text, 7))
        self.assertEqual(text.value, b"enable")
        self.refused(lib.aclGetCompileopt(7, text, 3), acl.INVALID_PARAM)
        self.refused(lib.aclGetCompileopt(999, text, 7), acl.INVALID_PARAM)
        self.refused(lib.aclSetCompileopt(7, b"perhaps"), acl.INVALID_PARAM, text="enable|disable|force")
        self.refused(lib.aclSetCompileopt(7, None), acl.INVALID_PARAM)
        self.refused(lib.aclSetCompileopt(999, b"enable"), acl.INVALID_PARAM)
        self.assertEqual(lib.aclGetCompileoptSize(999), 0)
        self.ok(lib.aclopSetCompileFlag(1))
        self.ok(lib.aclopSetCompileFlag(0))
        self.refused(lib.aclopSetCompileFlag(5), acl.INVALID_PARAM)

    def test_compile_functions(self):
        function = ctypes.cast(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0), ctypes.c_void_p)
        self.ok(lib.aclopRegisterCompileFunc(b"MyOperator", function))
        self.refused(lib.aclopRegister(b"MyOperator", function), 100030)
        self.ok(lib.aclopUnregisterCompileFunc(b"MyOperator"))
        self.refused(lib.aclopUnregisterCompileFunc(b"MyOperator"), 100028)
        self.refused(lib.aclopRegisterCompileFunc(None, function), acl.INVALID_PARAM)


class TestProfilerAndDump(AclTest):
    def test_profiler_sessions(self):
        devices = (ctypes.c_uint32 * 1)(0)
        with tempfile.TemporaryDirectory() as folder:
            path = folder.encode()
            self.refused(lib.aclprofFinalize(), acl.PROF_NOT_RUN)
            self.refused(lib.aclprofInit(b"/does/not/exist", 15), acl.INVALID_FILE)
            self.refused(lib.aclprofInit(path, 3), acl.INVALID_PARAM)
            self.ok(lib.aclprofInit(path, len(path)))
            self.refused(lib.aclprofInit(path, len(path)), acl.PROF_ALREADY_RUN)
            config = lib.aclprofCreateConfig(ctypes.addressof(devices), 1, 1, None, 3)
            self.assertIsNotNone(config)
            self.assertIsNone(lib.aclprofCreateConfig(ctypes.addressof(devices), 1, 77, None, 3))
            self.assertIsNone(lib.aclprofCreateConfig(None, 1, 1, None, 3))
            self.ok(lib.aclprofStart(config))
            self.refused(lib.aclprofStart(config), acl.PROF_ALREADY_RUN)
            self.refused(lib.aclprofDestroyConfig(config), acl.PROF_ALREADY_RUN)
            self.refused(lib.aclprofFinalize(), acl.PROF_ALREADY_RUN)
            self.ok(lib.aclprofStop(config))
            self.refused(lib.aclprofStop(config), acl.PROF_NOT_RUN)
            self.refused(lib.aclprofStart(0x99), acl.INVALID_PARAM)
            self.ok(lib.aclprofDestroyConfig(config))
            self.refused(lib.aclprofDestroyConfig(config), acl.INVALID_PARAM)
            self.ok(lib.aclprofFinalize())

    def test_marks(self):
        stamp = lib.aclprofCreateStamp()
        self.ok(lib.aclprofSetStampTraceMessage(stamp, b"step", 4))
        self.refused(lib.aclprofSetStampTraceMessage(stamp, None, 4), acl.INVALID_PARAM)
        self.ok(lib.aclprofPush(stamp))
        self.ok(lib.aclprofPop())
        self.refused(lib.aclprofPop(), acl.INVALID_PARAM)
        self.refused(lib.aclprofPush(0x5), acl.INVALID_PARAM)
        self.ok(lib.aclprofMark(stamp))
        self.refused(lib.aclprofMark(None), acl.INVALID_PARAM)
        number = ctypes.c_uint32()
        self.ok(lib.aclprofRangeStart(stamp, byref(number)))
        self.ok(lib.aclprofRangeStop(number))
        self.refused(lib.aclprofRangeStop(number), acl.INVALID_PARAM)
        self.refused(lib.aclprofRangeStart(stamp, None), acl.INVALID_PARAM)
        lib.aclprofDestroyStamp(stamp)
        self.refused(lib.aclprofMark(stamp), acl.INVALID_PARAM)
        self.ok(lib.aclprofMarkEx(b"here", 4, None))
        self.refused(lib.aclprofMarkEx(None, 4, None), acl.INVALID_PARAM)

    def test_dump(self):
        self.refused(lib.aclmdlFinalizeDump(), acl.DUMP_NOT_RUN)
        self.refused(lib.aclmdlSetDump(b"x"), acl.DUMP_NOT_RUN)
        self.ok(lib.aclmdlInitDump())
        self.refused(lib.aclmdlInitDump(), acl.DUMP_ALREADY_RUN)
        self.refused(lib.aclmdlSetDump(b"/does/not/exist.json"), acl.INVALID_FILE)
        self.ok(lib.aclmdlFinalizeDump())

    def test_application_log(self):
        with tempfile.TemporaryDirectory() as folder:
            script = """
                lib = acl.Library()
                lib.aclAppLog(3, b"main", b"app.cpp", 7, b"%d of %s", 5, b"six")
                lib.aclAppLog(1, b"main", b"app.cpp", 8, b"not shown")
            """
            result = acl.run_script(script, env={"ASCEND_PROCESS_LOG_PATH": folder})
            self.assertEqual(result.returncode, 0, result.stderr)
            text = "".join(p.read_text() for p in Path(folder).rglob("plog-*.log"))
            self.assertIn("5 of six", text)
            self.assertNotIn("not shown", text)


if __name__ == "__main__":
    unittest.main()
