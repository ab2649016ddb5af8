"""torch.npu as a module: devices, properties, typed constructors, options, and how torch knows the device type."""

import copy
import importlib
import pathlib
import tempfile
import threading
import unittest.mock

from common_utils import TestCase, hf32_switches, run_in_process, run_tests

import torch


class TestDevice(TestCase):
    def tearDown(self):
        torch.npu.set_device(0)

    def test_set_device_takes_strings_ints_and_devices(self):
        for device in ("npu:1", 1, torch.device("npu:1"), f"npu:{1}"):
            torch.npu.set_device(0)
            torch.npu.set_device(device)
            self.assertEqual(torch.npu.current_device(), 1)
            self.assertEqual(torch.ones(1, device="npu").device, torch.device("npu:1"))
        torch.npu.set_device(-1)
        self.assertEqual(torch.npu.current_device(), 1)

    def test_set_device_refuses_what_is_not_there(self):
        count = torch.npu.device_count()
        for index in (count, count + 56, 127):
            with self.assertRaisesRegex(RuntimeError, "[Ii]nvalid"):
                torch.npu.set_device(index)
        with self.assertRaises(RuntimeError):
            torch.npu.set_device(256)  # would be 0 in eight bits
        self.assertEqual(torch.npu.current_device(), 0)

    def test_device_context_restores(self):
        with torch.npu.device(1):
            self.assertEqual(torch.npu.current_device(), 1)
            with torch.npu.device("npu:0"):
                self.assertEqual(torch.npu.current_device(), 0)
            with torch.npu.device(None), torch.npu.device(-1):
                self.assertEqual(torch.npu.current_device(), 1)
        self.assertEqual(torch.npu.current_device(), 0)
        with self.assertRaises(ZeroDivisionError), torch.npu.device(1):
            raise ZeroDivisionError
        self.assertEqual(torch.npu.current_device(), 0)
        with torch.npu.device_of(torch.ones(1, device="npu:1")):
            self.assertEqual(torch.npu.current_device(), 1)
        with torch.npu.device_of(torch.ones(1)):
            self.assertEqual(torch.npu.current_device(), 0)

    def test_current_device_is_per_thread(self):
        seen = []

        def work():
            seen.append(torch.npu.current_device())
            torch.npu.set_device(1)
            seen.append(torch.ones(2, device="npu").sum().device.index)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(seen, [0, 1])
        self.assertEqual(torch.npu.current_device(), 0)

    def test_devices_of_other_types_are_refused(self):
        message = "Expected a npu device, but got: cpu"
        for call in (
            torch.npu.synchronize,
            torch.npu.current_stream,
            torch.npu.default_stream,
            torch.npu.set_device,
            torch.npu._utils._get_device_index,
            torch.npu.memory_allocated,
            torch.npu.get_device_properties,
        ):
            for device in ("cpu", torch.device("cpu")):
                with self.subTest(call=call), self.assertRaisesRegex(ValueError, message):
                    call(device)

    def test_get_device_index(self):
        get = torch.npu._utils._get_device_index
        self.assertEqual(get("npu:3"), 3)
        self.assertEqual(get(torch.device("npu:2")), 2)
        self.assertEqual(get(5), 5)
        self.assertEqual(get(None, optional=True), 0)
        self.assertEqual(get("npu", True), 0)
        self.assertEqual(get("cpu", allow_cpu=True), -1)
        with self.assertRaises(ValueError):
            get(None)
        with self.assertRaises(ValueError):
            get("npu")

    def test_properties(self):
        properties = torch.npu.get_device_properties("npu:1")
        self.assertTrue(properties.name.startswith("Ascend"))
        self.assertEqual(properties.name, torch.npu.get_device_name(1))
        self.assertEqual(properties.total_memory, torch.npu.mem_get_info(1)[1])
        self.assertIn(properties.name, repr(properties))
        self.assertEqual(torch.npu.get_device_capability(1), (properties.major, properties.minor))
        for call in (torch.npu.get_device_properties, torch.npu.get_device_name):
            with self.assertRaisesRegex(AssertionError, "Invalid device id"):
                call(torch.npu.device_count())

    def test_peers(self):
        self.assertIsInstance(torch.npu.can_device_access_peer(0, 1), bool)
        with self.assertRaisesRegex(AssertionError, "Invalid peer device id"):
            torch.npu.can_device_access_peer(0, torch.npu.device_count())

    def test_switching_device_in_one_thread_keeps_both_usable(self):
        first = torch.ones(4, device="npu:0")
        second = torch.ones(4, device="npu:1")
        self.assertEqual((first + first.cpu().to("npu:0")).cpu(), torch.full((4,), 2.0))
        self.assertEqual((second + second).cpu(), torch.full((4,), 2.0))
        self.assertEqual(first.to("npu:1").device.index, 1)


class TestKnownToTorch(TestCase):
    def test_device_type(self):
        device = torch.device("npu:1")
        self.assertEqual((device.type, device.index), ("npu", 1))
        self.assertIsNone(torch.device("npu").index)
        self.assertEqual(torch.device(1), torch.device("npu:1"))
        self.assertIs(torch.get_device_module("npu"), torch.npu)
        self.assertEqual(torch._C._get_privateuse1_backend_name(), "npu")

    def test_accelerator(self):
        self.assertEqual(torch.accelerator.current_accelerator(), torch.device("npu"))
        self.assertTrue(torch.accelerator.is_available())
        self.assertEqual(torch.accelerator.device_count(), torch.npu.device_count())
        torch.accelerator.set_device_index(1)
        self.assertEqual(torch.npu.current_device(), 1)
        with torch.accelerator.device_index(0):
            self.assertEqual(torch.npu.current_device(), 0)
        torch.accelerator.set_device_index(0)
        stream = torch.accelerator.current_stream()
        self.assertEqual(stream, torch.npu.current_stream())
        torch.accelerator.synchronize()

    def test_tensor_methods(self):
        cpu = torch.arange(3.0)
        self.assertFalse(cpu.is_npu)
        for moved in (cpu.npu(), cpu.npu(0), cpu.to("npu"), cpu.to("npu:0"), cpu.to("npu:0", non_blocking=True)):
            self.assertTrue(moved.is_npu)
            self.assertEqual(moved.device, torch.device("npu:0"))
            self.assertEqual(moved.cpu(), cpu)
        self.assertEqual(cpu.npu("npu:1").get_device(), 1)
        with self.assertRaises(RuntimeError):
            cpu.npu("cpu")

    def test_tensor_keeps_its_own_methods(self):
        script = """
import torch
before = dict(vars(torch.Tensor))
torch.ones(1, device="npu")
torch.npu.synchronize()
changed = [k for k, v in vars(torch.Tensor).items() if before.get(k) is not v]
assert not changed, changed
"""
        result = run_in_process(script)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_lists_of_device_scalars(self):
        scalars = [torch.tensor(float(i), device="npu") for i in range(3)]
        expected = torch.tensor([0.0, 1.0, 2.0])
        self.assertEqual(torch.tensor(scalars), expected)
        self.assertEqual(torch.as_tensor(scalars), expected)
        self.assertEqual(torch.stack(scalars).cpu(), expected)

    def test_default_device(self):
        torch.set_default_device("npu")
        try:
            self.assertTrue(torch.ones(2).is_npu)
            self.assertEqual(torch.get_default_device(), torch.device("npu:0"))
        finally:
            torch.set_default_device(None)
        with torch.device("npu:1"):
            self.assertEqual(torch.zeros(2).get_device(), 1)

    def test_cpu_work_is_untouched(self):
        generator = torch.Generator().manual_seed(3)
        before = torch.randn(4, generator=generator)
        torch.randn(4, device="npu")
        self.assertEqual(torch.randn(4, generator=generator.manual_seed(3)), before)
        weight = torch.ones(2, requires_grad=True)
        (weight * 3).sum().backward()
        self.assertEqual(weight.grad, torch.full((2,), 3.0))


class TestTypes(TestCase):
    def test_creation_keeps_the_dtype(self):
        for dtype in (torch.long, torch.int, torch.half, torch.float, torch.bool, torch.double, torch.bfloat16):
            made = torch.tensor([1, 2, 3], dtype=dtype, device="npu")
            self.assertTrue(made.is_npu)
            self.assertEqual(made.dtype, dtype)
            self.assertEqual(made.cpu(), torch.tensor([1, 2, 3], dtype=dtype))

    def test_typed_constructors(self):
        for name, dtype in {
            "BoolTensor": torch.bool,
            "ByteTensor": torch.uint8,
            "CharTensor": torch.int8,
            "DoubleTensor": torch.double,
            "FloatTensor": torch.float,
            "HalfTensor": torch.half,
            "IntTensor": torch.int,
            "LongTensor": torch.long,
            "ShortTensor": torch.short,
            "BFloat16Tensor": torch.bfloat16,
        }.items():
            constructor = getattr(torch.npu, name)
            made = constructor([1, 2, 3])
            self.assertEqual((made.dtype, made.device.type), (dtype, "npu"))
            self.assertEqual(made.cpu(), torch.tensor([1, 2, 3], dtype=dtype))
            self.assertEqual(constructor(2, 3).shape, (2, 3))
            self.assertEqual(constructor().shape, (0,))
            self.assertIsInstance(made, constructor)
            self.assertNotIsInstance(made.cpu(), constructor)
            self.assertEqual(made.type(), f"torch.npu.{name}")
            self.assertEqual(torch.ones(2).type(constructor).type(), f"torch.npu.{name}")
        self.assertEqual(torch.npu.FloatTensor(torch.Size([4])).shape, (4,))
        with self.assertRaises(TypeError):
            torch.npu.FloatTensor(torch.ones(2))
        with self.assertRaises(TypeError):
            torch.npu.FloatTensor(2.5)

    def test_type_by_name(self):
        self.assertTrue(torch.ones(2).type("torch.npu.HalfTensor").is_npu)

    def test_default_tensor_type(self):
        self.addCleanup(torch.set_default_tensor_type, torch.FloatTensor)
        for kind in (torch.npu.HalfTensor, "torch.npu.DoubleTensor"):
            torch.set_default_tensor_type(kind)
            made = torch.ones(2)
            self.assertTrue(made.is_npu)
            self.assertEqual(made.dtype, torch.half if kind is torch.npu.HalfTensor else torch.double)
        torch.set_default_tensor_type(torch.FloatTensor)
        self.assertEqual((torch.ones(2).device.type, torch.ones(2).dtype), ("cpu", torch.float))
        with self.assertRaises(TypeError):
            torch.set_default_tensor_type(torch.npu.LongTensor)

    def test_float64_stays_float64(self):
        value = torch.tensor([1 + 1e-12], dtype=torch.float64)
        self.assertEqual(value.to("npu").dtype, torch.float64)
        self.assertTrue(torch.equal(value.to("npu").cpu(), value))


class TestOptions(TestCase):
    def test_defaults_and_setting(self):
        self.assertEqual(torch.npu.get_option("ACL_OP_SELECT_IMPL_MODE"), "high_precision")
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_performance", "ACL_OPTYPELIST_FOR_IMPLMODE": "Pooling"})
        self.assertEqual(torch.npu.get_option("ACL_OP_SELECT_IMPL_MODE"), "high_performance")
        self.assertEqual(torch.npu.get_option("ACL_OPTYPELIST_FOR_IMPLMODE"), "Pooling")
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_precision"})
        for level in (0, 1, 2, 3, "4", 0):
            torch.npu.set_option({"ACL_OP_DEBUG_LEVEL": level})

    def test_wrong_options(self):
        for wrong in (
            {"ACL_OP_SELECT_IMPL_MODE": "fast"},
            {"ACL_OPTYPELIST_FOR_IMPLMODE": "Pooling,LRN"},
            {"ACL_OP_DEBUG_LEVEL": 5},
            {"ACL_DEBUG_DIR": "/no/such/directory"},
            {"ACL_OP_COMPILER_CACHE_MODE": "enable"},
            {"ACL_OP_COMPILER_CACHE_DIR": "/"},
            {"ACL_OP_COMPILER_CACHE_MODE": "often", "ACL_OP_COMPILER_CACHE_DIR": "/"},
            {"NO_SUCH_OPTION": "1"},
        ):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                torch.npu.set_option(wrong)
        with self.assertRaises(TypeError):
            torch.npu.set_option([("ACL_OP_DEBUG_LEVEL", 1)])

    def test_nothing_is_set_when_one_is_wrong(self):
        with self.assertRaises(ValueError):
            torch.npu.set_option({"ACL_OP_DEBUG_LEVEL": 3, "NO_SUCH_OPTION": 1})
        self.assertEqual(torch.npu.get_option("ACL_OP_DEBUG_LEVEL"), "0")

    def test_compile_mode(self):
        torch.npu.set_compile_mode(jit_compile=True)
        torch.npu.set_compile_mode(jit_compile=False)
        with self.assertRaises(TypeError):
            torch.npu.set_compile_mode(jit_compile="no")

    def test_hf32(self):
        for switch, default in ((torch.npu.matmul, False), (torch.npu.conv, True)):
            self.assertIs(switch.allow_hf32, default)
            with hf32_switches():
                switch.allow_hf32 = not default
                self.assertIs(switch.allow_hf32, not default)
                x = torch.randn(40, 40)
                # HF32 keeps ten bits of a number (test_cube_precision.py compares with a reference).
                self.assertEqual(x.npu() @ x.npu(), x @ x, prec=0.05 if torch.npu.matmul.allow_hf32 else 1e-4)
                with self.assertRaisesRegex(TypeError, "allow_hf32 is a bool"):
                    switch.allow_hf32 = 1

    def test_graph_mode_gives_the_same_results(self):
        with self.assertRaises(RuntimeError):
            torch.npu.launch_graph()
        torch.npu.enable_graph_mode()
        self.assertTrue(torch.npu.is_graph_mode())
        total = torch.ones(3, device="npu") + 1
        torch.npu.launch_graph()
        self.assertEqual(total.cpu(), torch.full((3,), 2.0))
        torch.npu.disable_graph_mode()
        self.assertFalse(torch.npu.is_graph_mode())


class TestSyncDebug(TestCase):
    def test_modes(self):
        value = torch.ones(3, device="npu")
        self.addCleanup(torch.npu.set_sync_debug_mode, "default")
        self.assertEqual(torch.npu.get_sync_debug_mode(), 0)
        torch.npu.set_sync_debug_mode("warn")
        with self.assertWarnsRegex(UserWarning, "synchronizing NPU operation"):
            value.cpu()
        torch.npu.set_sync_debug_mode(2)
        with self.assertRaisesRegex(RuntimeError, "synchronizing NPU operation"):
            value.sum().item()
        torch.npu.synchronize()  # said, so not reported
        value.add_(1)
        torch.npu.set_sync_debug_mode("default")
        self.assertEqual(value.cpu(), torch.full((3,), 2.0))
        for wrong in ("loud", 7):
            with self.assertRaises((RuntimeError, ValueError)):
                torch.npu.set_sync_debug_mode(wrong)


class TestAttributes(TestCase):
    def test_unknown_name(self):
        with self.assertRaisesRegex(AttributeError, "no_such_thing"):
            _ = torch.npu.no_such_thing

    def test_everything_listed_is_there(self):
        for name in torch.npu.__all__:
            self.assertTrue(hasattr(torch.npu, name), name)
            self.assertIn(name, dir(torch.npu))

    def test_functions_have_docstrings(self):
        for name in torch.npu.__all__:
            value = getattr(torch.npu, name)
            if callable(value):
                self.assertTrue(value.__doc__, name)


class TestPluginNames(TestCase):
    """What libraries of the plug-in era ask for."""

    def test_chip_and_cann(self):
        import torch_npu
        from torch_npu.npu.utils import get_soc_version

        self.assertEqual(get_soc_version(), 220)
        self.assertEqual(torch_npu.npu.get_soc_version(), 220)
        self.assertTrue(torch.npu.utils.is_support_inf_nan())
        self.assertIsNone(torch.version.cann)
        self.assertEqual(torch_npu.utils.get_cann_version(), "")
        with self.assertRaisesRegex(AttributeError, "no attribute 'cannot'"):
            _ = torch.version.cannot

    def test_version_file_of_cann(self):
        with tempfile.TemporaryDirectory() as home:
            (pathlib.Path(home) / "x86_64-linux").mkdir()
            info = pathlib.Path(home) / "x86_64-linux" / "ascend_toolkit_install.info"
            info.write_text("package_name=Ascend-cann-toolkit\nversion=8.3.RC1\n")
            with (
                unittest.mock.patch.dict("os.environ", {"ASCEND_HOME_PATH": home}),
                unittest.mock.patch.object(torch._C, "_npu_isSimulator", lambda: False),
            ):
                self.assertEqual(torch.npu.utils.get_cann_version(), "8.3.RC1")
                self.assertEqual(torch.npu.utils.get_cann_version("NONE"), "")
                self.assertEqual(torch.version.cann, "8.3.RC1")

    def test_modules_of_the_bindings(self):
        import torch_npu
        import torch_npu._C._profiler
        from torch_npu._C._distributed_c10d import ProcessGroupHCCL

        self.assertIs(ProcessGroupHCCL, torch.distributed.ProcessGroupHCCL)
        self.assertIs(torch_npu._C._profiler.ProfilerActivity, torch._C._profiler.ProfilerActivity)
        with self.assertRaises(ModuleNotFoundError):
            importlib.import_module("torch_npu._C._none")
        options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
        self.assertEqual(options.hccl_config, {})
        options.hccl_config = {"hccl_buffer_size": 200, "group_name": "a", "exact": True}
        self.assertEqual(copy.deepcopy(options).hccl_config, options.hccl_config)
        self.assertIs(options.hccl_config["exact"], True)
        with self.assertRaises(TypeError):
            options.hccl_config = {"hccl_buffer_size": [200]}

    def test_bindings_and_dtypes(self):
        import torch_npu

        storage = torch.ones(3).npu().untyped_storage()
        count = torch_npu._C._storage_Use_Count(storage._cdata)
        self.assertEqual(count, torch._C._storage_Use_Count(storage._cdata))
        self.assertGreaterEqual(count, 1)
        for dtype in torch_npu.unsupported_dtype:
            with self.assertRaises((RuntimeError, NotImplementedError)):
                torch._empty_affine_quantized([4], scale=1.0, zero_point=0, dtype=dtype, device="npu")
        self.assertEqual(int(torch_npu.Format.FRACTAL_NZ), 29)

    def test_autocast(self):
        self.assertEqual(torch.npu.get_autocast_dtype(), torch.get_autocast_dtype("npu"))
        self.assertFalse(torch.npu.is_autocast_enabled())
        before = torch.npu.get_autocast_dtype()
        try:
            torch.npu.set_autocast_dtype(torch.bfloat16)
            torch.npu.set_autocast_enabled(True)
            self.assertTrue(torch.npu.is_autocast_enabled() and torch.is_autocast_enabled("npu"))
            x = torch.ones(2, 2).npu()
            self.assertEqual((x @ x).dtype, torch.bfloat16)
        finally:
            torch.npu.set_autocast_enabled(False)
            torch.npu.set_autocast_dtype(before)
            torch.clear_autocast_cache()


class TestAutograd(TestCase):
    def test_backward_on_another_device(self):
        weight = torch.ones(3, device="npu:1", requires_grad=True)
        (weight * 2).sum().backward()
        self.assertEqual(weight.grad.device, torch.device("npu:1"))
        self.assertEqual(weight.grad.cpu(), torch.full((3,), 2.0))
        self.assertEqual(torch.npu.current_device(), 0)
        cpu = torch.ones(3, requires_grad=True)
        (cpu * 5).sum().backward()
        self.assertEqual(cpu.grad, torch.full((3,), 5.0))

    def test_backward_before_any_set_device(self):
        script = """
import torch
x = torch.ones(2, requires_grad=True)
(x * 2).sum().backward()
torch.npu.set_device("npu:1")
y = torch.ones(2, device="npu", requires_grad=True)
(y * 2).sum().backward()
assert y.grad.device == torch.device("npu:1")
"""
        result = run_in_process(script)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_only_another_device_is_used(self):
        script = 'import torch; x = torch.ones(2, device="npu:1"); print((x + x).cpu().tolist())'
        result = run_in_process(script)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "[2.0, 2.0]\n", ""))


class TestDistributed(TestCase):
    def test_hccl_is_there(self):
        import torch.distributed as dist

        self.assertTrue(dist.is_hccl_available() and dist.is_backend_available("hccl"))
        self.assertEqual((dist.Backend.HCCL, dist.Backend.default_device_backend_map["npu"]), ("hccl", "hccl"))


if __name__ == "__main__":
    run_tests()
