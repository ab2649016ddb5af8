# torch.npu.transfer_to_npu: CUDA means npu while it is on, and nothing of it is left after undo().
import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import unittest
import warnings

import torch
from torch import nn

os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", "8")  # before a device is opened


class TestTransfer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch.npu.transfer_to_npu as transfer

            transfer.apply()
        cls.transfer = transfer

    @classmethod
    def tearDownClass(cls):
        cls.transfer.undo()

    def on_npu(self, value, index=0):
        self.assertEqual(value.device, torch.device("npu", index))

    def test_device_strings_and_objects(self):
        self.on_npu(torch.zeros(2, device="cuda"))
        self.on_npu(torch.zeros(2, device="cuda:1"), 1)
        self.on_npu(torch.ones(2).to("cuda:1"), 1)
        self.on_npu(torch.tensor([1], device=torch.device("cuda", 1)), 1)
        self.on_npu(torch.ones(2).new_zeros(3, device="cuda"))
        self.on_npu(nn.Linear(2, 2, device="cuda").weight)
        self.assertEqual(torch.device("cuda").type, "npu")
        self.assertEqual(torch.device("cpu").type, "cpu")

    def test_tensors_modules_storages(self):
        x = torch.ones(2).cuda()
        self.on_npu(x)
        self.assertTrue(x.is_cuda)
        self.assertFalse(torch.ones(2).is_cuda)
        self.on_npu(torch.ones(2).cuda(1), 1)
        self.on_npu(nn.Linear(2, 2).cuda().weight)
        self.on_npu(torch.ones(2).untyped_storage().cuda())
        packed = nn.utils.rnn.pack_sequence([torch.ones(2, 1)]).cuda()
        self.on_npu(packed.data)

    def test_names_of_torch_cuda(self):
        import torch.cuda as tc
        from torch.cuda.amp import autocast

        self.assertTrue(tc.is_available())
        self.assertEqual(tc.device_count(), torch.npu.device_count())
        tc.set_device("cuda:0")
        with tc.device("cuda:1"):
            self.assertEqual(tc.current_device(), 1)
        self.assertIs(tc.Stream, torch.npu.Stream)
        self.assertIsInstance(tc.current_stream(), tc.Stream)
        self.assertIs(autocast, torch.npu.amp.autocast)
        self.assertIs(tc.memory.memory_allocated, torch.npu.memory.memory_allocated)
        tc.manual_seed_all(3)
        tc.synchronize()

    def test_the_whole_table(self):
        """Whatever of torch.cuda and torch.backends the table has a counterpart for is that counterpart."""
        from torch.npu import _api_table as table

        torch.npu.init()
        checked = 0
        for row in table.NAMES.values():
            if row.npu is None or row.is_module or row.kept:
                continue
            if not row.cuda.startswith(("torch.cuda.", "torch.backends.")):
                continue
            with self.subTest(row.cuda):
                found, wanted = self.transfer._resolve(row.cuda), self.transfer._resolve(row.npu)
                self.assertIs(found, wanted)
                checked += 1
        self.assertGreater(checked, 115)
        self.assertEqual(torch.backends.cuda.cufft_plan_cache[0].size, 0)

    def test_nothing_with_a_counterpart_is_left_out(self):
        """Functions and classes that torch.cuda and torch.npu both define, wherever they are, have a row."""
        import importlib

        from torch.npu import _api_table as table

        script = """
            import importlib, torch, torch.cuda.comm
            for sub in ("", "memory", "random", "streams", "amp", "comm", "amp.autocast_mode", "amp.grad_scaler"):
                name = "torch.cuda" + ("." + sub if sub else "")
                for leaf, value in vars(importlib.import_module(name)).items():
                    if not leaf.startswith("__") and getattr(value, "__module__", "").startswith("torch.cuda"):
                        print(name + "." + leaf)
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
        self.assertGreater(len(done.stdout.split()), 100, done.stderr)
        for name in done.stdout.split():
            home, _, leaf = name.replace("torch.cuda", "torch.npu", 1).rpartition(".")
            if hasattr(importlib.import_module(home), leaf):
                self.assertIsNotNone(table.find(name), name)

    def test_default_generators(self):
        torch.npu.init()
        self.assertEqual(len(torch.cuda.default_generators), torch.npu.device_count())
        torch.cuda.manual_seed(5)
        self.assertEqual(torch.cuda.default_generators[0].initial_seed(), 5)
        script = """
            import torch, torch.npu.transfer_to_npu
            assert torch.cuda.default_generators == ()
            torch.ones(1).cuda()
            torch.cuda.init()
            print(len(torch.cuda.default_generators))
        """
        code = textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str(torch.npu.device_count()), done.stderr)

    def test_events_and_streams(self):
        event, stream = torch.Event(device="cuda:0"), torch.Stream(device="cuda:1")
        self.assertEqual((event.device.type, stream.device), ("npu", torch.device("npu", 1)))
        timed = torch.Event("cuda", enable_timing=True)
        timed.record()
        timed.synchronize()
        for value, kind in ((event, torch.Event), (stream, torch.Stream), (torch.npu.Stream(), torch.Stream)):
            self.assertIsInstance(value, kind)
        self.assertTrue(issubclass(torch.npu.Event, torch.Event))
        self.assertNotIsInstance(event, torch.Stream)

        class Own(torch.Stream):
            pass

        self.assertIs(type(Own(device="cuda")), Own)
        self.assertNotIsInstance(stream, Own)
        with torch.cuda.stream(stream):
            self.assertEqual(torch.cuda.current_stream().stream_id, stream.stream_id)

    def test_snapshots(self):
        held = torch.ones(3).cuda()
        self.assertTrue(torch.cuda.memory._snapshot()["segments"])
        del held

    def test_by_the_environment(self):
        code = "import torch; print(torch.ones(1).cuda().device, torch.cuda.is_available())"
        for value, expected in (("1", "npu:0 True"), ("0", "")):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code],
                capture_output=True,
                text=True,
                env={**os.environ, "TORCH_TRANSFER_TO_NPU": value},
            )
            self.assertEqual(done.stdout.strip(), expected, done.stderr)

    def test_types(self):
        x = torch.cuda.FloatTensor([1, 2])
        self.on_npu(x)
        self.assertIsInstance(x, torch.cuda.FloatTensor)
        self.assertNotIsInstance(torch.ones(1), torch.cuda.FloatTensor)
        self.on_npu(torch.ones(1).type("torch.cuda.HalfTensor"))
        self.on_npu(torch.ones(1).type(torch.cuda.LongTensor))

    def test_isinstance_checks(self):
        self.assertIsInstance(torch.device("cuda"), torch.device)
        self.assertIsInstance(torch.Generator(), torch.Generator)
        self.assertIsInstance(torch.ones(1).cuda(), torch.Tensor)
        self.assertIsInstance(nn.DataParallel(nn.Linear(1, 1)), nn.DataParallel)

    def test_jit_script(self):
        @torch.jit.script
        def scaled(x: torch.Tensor, n: int, device: torch.device):
            return torch.zeros([n], device=device) + x.to(device) * n

        self.assertEqual(scaled(torch.ones(2), 2, torch.device("cuda")).tolist(), [2.0, 2.0])
        module = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).cuda()
        self.on_npu(module(torch.ones(1, 2).cuda()))

    def test_generator(self):
        generator = torch.Generator(device="cuda").manual_seed(3)
        first = torch.rand(4, generator=generator, device="cuda")
        self.on_npu(first)
        again = torch.rand(4, generator=torch.Generator("cuda").manual_seed(3), device="cuda")
        self.assertEqual(first.tolist(), again.tolist())

    def test_generators_are_pickled(self):
        again = pickle.loads(pickle.dumps(torch.Generator("cpu").manual_seed(3)))
        self.assertEqual(again.initial_seed(), 3)

    def test_default_tensor_type(self):
        try:
            for kind in ("torch.cuda.FloatTensor", torch.cuda.HalfTensor):
                torch.set_default_tensor_type(kind)
                self.on_npu(torch.zeros(1))
            self.assertEqual(torch.zeros(1).dtype, torch.float16)
        finally:
            torch.set_default_tensor_type("torch.FloatTensor")
        self.assertEqual(torch.zeros(1).device.type, "cpu")

    def test_compiled_functions(self):
        """One function has one rule of Dynamo's, and a seed inside of a compiled function does not wait for itself."""
        script = """
            import sys, torch
            if sys.argv[1] == "first":
                import torch._dynamo
            import torch.npu.transfer_to_npu

            def function(x):
                torch.cuda.synchronize()
                torch.cuda.manual_seed(1)
                return x + torch.cuda.current_device()

            y = torch.compile(function, backend="aot_eager")(torch.ones(2, device="cuda"))
            assert (y.tolist(), y.device.type) == ([1.0, 1.0], "npu")
            """
        for order in ("first", "then"):
            command = [sys.executable, "-c", textwrap.dedent(script), order]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_save_and_load(self):
        buffer = io.BytesIO()
        torch.save({"w": torch.arange(3.0).cuda()}, buffer)
        for where in (None, "cuda", "cuda:0", torch.device("cuda", 0), {"cuda:0": "cuda:0"}, lambda s, _: s.cuda()):
            buffer.seek(0)
            self.on_npu(torch.load(buffer, map_location=where)["w"])
        buffer.seek(0)
        self.assertEqual(torch.load(buffer, "cpu")["w"].device.type, "cpu")

    def test_data_loader_and_data_parallel(self):
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True
        )
        model = nn.DataParallel(nn.Linear(2, 1)).cuda()
        for (x,) in loader:
            self.on_npu(model(x.cuda(non_blocking=True)))
        self.on_npu(model.module.weight)

    def test_amp(self):
        x = torch.ones(4, 4).cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            self.assertEqual((x @ x).dtype, torch.float16)
        with torch.cuda.amp.autocast():
            self.assertEqual((x @ x).dtype, torch.float16)
        for scaler in (torch.amp.GradScaler(), torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler()):
            weight = torch.ones(2, device="cuda", requires_grad=True)
            optimizer = torch.optim.SGD([weight], lr=0.5)
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(weight.tolist(), [0.5, 0.5])

    def test_profiler_arguments_are_taken(self):
        with torch.autograd.profiler.profile(use_cuda=True) as profile:
            torch.ones(2).cuda() + 1
        self.assertIn("aten::add", profile.key_averages().table(sort_by="cuda_time_total"))

    def test_threads_started_later(self):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.ones(1, device="cuda").device.type))
        thread.start()
        thread.join()
        self.assertEqual(seen, ["npu"])

    def test_undo(self):
        self.transfer.undo()
        try:
            self.assertFalse(torch.cuda.is_available())
            self.assertIs(torch.Generator, torch._C.Generator)
            self.assertEqual(torch.device("cuda").type, "cuda")
            with self.assertRaises((RuntimeError, AssertionError)):
                torch.zeros(1, device="cuda")
            self.assertFalse(torch.ones(1, device="npu").is_cuda)
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.transfer.apply()


class TestImport(unittest.TestCase):
    def run_python(self, code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_warns_once_and_works_under_the_old_name(self):
        code = (
            "import torch\nfrom torch_npu.contrib import transfer_to_npu\nimport torch.npu.transfer_to_npu as t\n"
            "assert t is transfer_to_npu\nt.apply()\nprint(torch.ones(1).cuda().device)\n"
        )
        out, err = self.run_python(code)
        self.assertEqual(out.strip(), "npu:0")
        self.assertEqual(err.count("mean npu and hccl in this process"), 1)

    def test_back_end_of_a_process_group(self):
        code = (
            "import torch, torch.distributed as dist, torch.npu.transfer_to_npu as t\n"
            "print(t._backends_in(('nccl',), {'backend': 'cpu:gloo,cuda:nccl', 'rank': 1}))\n"
            "dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29731', rank=0, world_size=1)\n"
            "print(dist.get_backend()); dist.destroy_process_group()\n"
        )
        out, _ = self.run_python(code)
        self.assertEqual(out.splitlines(), ["(('hccl',), {'backend': 'cpu:gloo,npu:hccl', 'rank': 1})", "gloo"])

    def test_visible_devices(self):
        code = "import torch, torch.npu.transfer_to_npu\nprint(torch.cuda.device_count())\n"
        import os

        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="0,1", PYTHONWARNINGS="ignore")
        environment.pop("ASCEND_RT_VISIBLE_DEVICES", None)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
        )
        self.assertEqual(done.stdout.strip(), "2", done.stderr)


if __name__ == "__main__":
    unittest.main()
