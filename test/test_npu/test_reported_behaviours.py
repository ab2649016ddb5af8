"""Behaviours that users of NPUs and other out-of-tree back ends reported as broken, a test each, named by its topic.

Not here, because they need what is not built yet: collectives and process groups (gather and object collectives,
SyncBatchNorm, fully_shard, init_process_group with device_id and without a backend, ShardedGradScaler over two ranks),
apex (O1 with two parameter groups), and the profiler (nested regions, pinned copies).
"""

import copy
import io
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import numpy as np
import several_devices  # noqa: F401
import torch.nn.functional as F

import torch
import torch.npu

DEVICE = "npu:0"


def python(code: str, **environment) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def saved(value, **how) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **how)
    file.seek(0)
    return file


class Behaviours(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def close(self, actual, expected, **kwargs):
        self.assertEqual(actual.device.type, "npu")
        torch.testing.assert_close(actual.cpu(), expected, **kwargs)


class TestDeviceAndStream(Behaviours):
    def test_device_from_an_int(self):
        self.assertEqual(torch.device(0), torch.device("npu", 0))
        state = torch.load(saved(torch.nn.Linear(2, 2).state_dict()), map_location=torch.device(0))
        self.assertEqual({t.device for t in state.values()}, {torch.device(DEVICE)})

    def test_fork_after_queries(self):
        code = """
import os, torch
assert torch.npu.is_available() and torch.npu.device_count() >= 1 and not torch.npu.is_initialized()
{before}
pid = os.fork()
if pid == 0:
    try:
        torch.ones(2, device="npu")
    except RuntimeError as error:
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
        self.assertEqual(python(code.format(before="")).stdout.strip(), "0")
        self.assertEqual(python(code.format(before="torch.ones(2, device='npu')")).stdout.strip(), "7")

    def test_device_named_right_after_import(self):
        done = python("import torch; print(torch.device('npu'), hasattr(torch, 'npu'))")
        self.assertEqual(done.stdout.strip(), "npu True", done.stderr)
        done = python("import torch; torch.device('npu')", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertIn("Expected one of cpu, cuda", done.stderr)

    def test_stream_of_another_device(self):
        stream = torch.npu.current_stream(1)
        self.assertEqual(stream.device.index, 1)
        self.assertEqual(torch.npu.current_device(), 0)

    def test_stream_objects_are_distinct(self):
        a, b = torch.Stream(device="npu"), torch.Stream(device="npu")
        default = torch.npu.current_stream()
        self.assertEqual(len({a.stream_id, b.stream_id, default.stream_id}), 3)
        self.assertNotEqual(a, default)
        with self.assertRaisesRegex(ValueError, "inside"), a:
            self.assertEqual(torch.npu.current_stream().stream_id, a.stream_id)
            raise ValueError("inside")
        self.assertEqual(torch.npu.current_stream(), default)

    def test_event_elapsed_time_misuse(self):
        untimed, timed = torch.npu.Event(enable_timing=False), [torch.npu.Event(enable_timing=True) for _ in range(3)]
        untimed.record()
        with self.assertRaises((ValueError, RuntimeError)):
            timed[0].elapsed_time(timed[1])  # never recorded
        x = torch.randn(600, 600, device=DEVICE)
        timed[0].record()
        with self.assertRaises((ValueError, RuntimeError)):
            untimed.elapsed_time(timed[0])
        x @ x
        timed[1].record()
        for _ in range(30):
            x @ x
        timed[2].record()
        torch.npu.synchronize()
        short, long = timed[0].elapsed_time(timed[1]), timed[0].elapsed_time(timed[2])
        self.assertIsInstance(short, float)
        self.assertLessEqual(0, short)
        self.assertLess(short, long)

    def test_autograd_on_another_device(self):
        x = torch.randn(3, 3, device="npu:1", requires_grad=True)
        (x @ x).sin().sum().backward()
        self.assertEqual(x.grad.device, torch.device("npu:1"))
        self.assertEqual(torch.npu.current_device(), 0)
        y = torch.randn(3, requires_grad=True)
        y.exp().sum().backward()
        torch.testing.assert_close(y.grad, y.detach().exp())


class TestSerializationAndModules(Behaviours):
    def test_serialization_location_tags(self):
        storage = torch.ones(3, device="npu:1").untyped_storage()
        tag = torch.serialization.location_tag(storage)
        self.assertEqual(tag, "npu:1")
        host = torch.ones(3).untyped_storage()
        restored = torch.serialization.default_restore_location(host, tag)
        self.assertEqual(restored.device, torch.device("npu:1"))
        for other in ("npux", "cpu_like", "npu2:0"):
            with self.assertRaises(RuntimeError):
                torch.serialization.default_restore_location(host, other)

    def test_serialization_map_location_of_both_file_kinds(self):
        x = torch.arange(4.0)
        for zipped, place in itertools.product((True, False), ("npu:0", torch.device("npu:1"))):
            with self.subTest(zipped=zipped, place=place):
                for form in (place, {"cpu": str(place)}, lambda s, _, p=place: torch.empty(
                    0, dtype=torch.uint8, device=p).set_(s.npu(torch.device(p).index)).untyped_storage()):  # fmt: skip
                    y = torch.load(saved(x, _use_new_zipfile_serialization=zipped), map_location=form)
                    self.assertEqual(y.device, torch.device(place))
                    torch.testing.assert_close(y.cpu(), x)

    def test_serialization_of_a_device_this_host_lacks(self):
        def tag(storage):
            return "npu:9"

        with unittest.mock.patch.object(torch.serialization, "location_tag", tag):
            file = saved(torch.ones(2, device=DEVICE))
        with self.assertRaisesRegex(RuntimeError, rf"9.*{torch.npu.device_count()}"):
            torch.load(file)
        file.seek(0)
        self.close(torch.load(file, map_location="npu:0"), torch.ones(2))

    def test_serialization_of_every_dtype_and_of_views(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.complex64):
            x = torch.randn(5).to(dtype).npu()
            y = pickle.loads(pickle.dumps(x))
            self.assertEqual((y.dtype, y.device), (dtype, x.device))
            self.assertTrue(torch.equal(x.cpu(), y.cpu()))
        base = torch.zeros(6, device=DEVICE)
        a, b = torch.load(saved([base[:4], base[2:]]))
        a.fill_(1)
        self.assertEqual(b.tolist(), [1, 1, 0, 0])

    def test_module_deepcopy(self):
        net = torch.nn.Linear(3, 2).npu()
        twin = copy.deepcopy(net)
        with torch.no_grad():
            net.weight.zero_()
        self.assertEqual(twin.weight.device.type, "npu")
        self.assertGreater(twin.weight.abs().sum().item(), 0)
        base = torch.zeros(4, device=DEVICE)
        a, b = copy.deepcopy([base[:3], base[1:]])
        a.fill_(1)
        self.assertEqual((b.tolist(), base.tolist()), ([1, 1, 0], [0] * 4))
        with self.assertRaisesRegex(RuntimeError, "deepcopy"):
            copy.deepcopy(net.weight * 2)

    def test_module_parameter_data_swapped(self):
        p = torch.nn.Parameter(torch.ones(3))
        same = p
        p.data = torch.full((3,), 2.0, device=DEVICE)
        (p * p).sum().backward()
        self.assertIs(p, same)
        self.close(p.grad, torch.full((3,), 4.0))

    def test_copy_of_weights_there_and_back(self):
        for net in (torch.nn.Embedding(5, 3), torch.nn.Linear(7, 5), torch.nn.Conv2d(3, 8, 3)):
            before = copy.deepcopy(net.state_dict())
            net.npu()
            net.cpu()
            for name, value in net.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]), name)

    def test_copy_with_another_dtype_non_blocking(self):
        for source, target in itertools.product((torch.int32, torch.float32, torch.complex64), repeat=2):
            x = (torch.randn(6, 8) * 9).to(source)
            for host in (x, x.pin_memory(), x.t(), x[:, ::2]):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # complex to real drops a part
                    expected = host.to(target)
                    there = host.to(DEVICE, target, non_blocking=True)
                    back = host.npu().to("cpu", target, non_blocking=True)
                torch.npu.current_stream().synchronize()
                self.assertTrue(torch.equal(there.cpu(), expected), f"{source} {target}")
                self.assertTrue(torch.equal(back, expected), f"{source} {target}")


class TestRandomNumbers(Behaviours):
    def test_rng_checkpoint_device_type(self):
        from torch.utils.checkpoint import _infer_device_type as infer, get_device_states

        meta, npu = torch.ones(2, device="meta"), torch.ones(2, device=DEVICE)
        self.assertEqual((infer(meta, npu), infer(npu, meta)), ("npu", "npu"))
        self.assertEqual(get_device_states(meta, npu)[0], [0])

    def test_rng_checkpoint_default_device(self):
        from torch.utils.checkpoint import checkpoint

        seen = []

        def function(x):
            made = torch.ones(3)
            seen.append(made.device.type)
            return (x * made).sum()

        x = torch.ones(3, device=DEVICE, requires_grad=True)
        with torch.device(DEVICE):
            loss = checkpoint(function, x, use_reentrant=False)
        loss.backward()
        self.assertEqual(seen, ["npu", "npu"])

    def test_rng_generator_of_the_device(self):
        draws = {
            "rand": lambda g: torch.rand(9, device=DEVICE, generator=g),
            "randn": lambda g: torch.randn(9, device=DEVICE, generator=g),
            "randint": lambda g: torch.randint(99, (9,), device=DEVICE, generator=g),
            "randperm": lambda g: torch.randperm(99, device=DEVICE, generator=g),
            "normal": lambda g: torch.normal(torch.zeros(9, device=DEVICE), 1.0, generator=g),
            "bernoulli": lambda g: torch.bernoulli(torch.full((99,), 0.5, device=DEVICE), generator=g),
            "multinomial": lambda g: torch.multinomial(torch.ones(99, device=DEVICE), 9, generator=g),
            "uniform": lambda g: torch.empty(9, device=DEVICE).uniform_(generator=g),
        }
        for name, draw in draws.items():
            with self.subTest(name):
                a, b = (draw(torch.Generator(DEVICE).manual_seed(5)) for _ in range(2))
                self.assertTrue(torch.equal(a, b))
                with self.assertRaises(RuntimeError):
                    draw(torch.Generator("cpu"))

    def test_rng_fork_protects_the_outer_stream(self):
        torch.manual_seed(1)
        expected = torch.rand(3, device=DEVICE).cpu()
        torch.manual_seed(1)
        with torch.random.fork_rng(devices=[0], device_type="npu"):
            torch.manual_seed(99)
            torch.rand(3, device=DEVICE)
        self.close(torch.rand(3, device=DEVICE), expected)

    def test_rng_shuffle_with_a_default_device(self):
        with torch.device(DEVICE):
            data = torch.utils.data.TensorDataset(torch.arange(8))
            generator = torch.Generator(DEVICE).manual_seed(0)
            loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=generator)
            seen = sorted(i for (batch,) in loader for i in batch.tolist())
        self.assertEqual(seen, list(range(8)))


class TestMemory(Behaviours):
    def test_memory_error(self):
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            torch.empty(2**50, dtype=torch.uint8, device=DEVICE)
        text = str(caught.exception)
        self.assertIsInstance(caught.exception, RuntimeError)
        for part in ("NPU out of memory. Tried to allocate", "NPU 0", "total", "allocated", "free", "reserved"):
            self.assertIn(part, text)
        self.assertEqual(torch.ones(3, device=DEVICE).sum().item(), 3)

    def test_memory_counters(self):
        torch.npu.empty_cache()
        torch.npu.reset_peak_memory_stats()
        before = torch.npu.memory_allocated()
        x = torch.empty(2**28, dtype=torch.uint8, device=DEVICE)
        self.assertEqual(torch.npu.memory_allocated() - before, 2**28)
        self.assertEqual(torch.accelerator.memory_allocated(), torch.npu.memory_allocated())
        del x
        self.assertEqual(torch.npu.memory_allocated(), before)
        self.assertEqual(torch.npu.max_memory_allocated(), before + 2**28)
        self.assertGreaterEqual(torch.npu.max_memory_reserved(), torch.npu.max_memory_allocated())
        reserved = torch.npu.memory_reserved()
        torch.npu.empty_cache()
        self.assertLess(torch.npu.memory_reserved(), reserved)
        torch.npu.reset_peak_memory_stats()
        self.assertEqual(torch.npu.max_memory_allocated(), before)
        self.assertIn("allocated_bytes.all.peak", torch.npu.memory_stats())

    def test_memory_of_pinned_host_tensors(self):
        pinned = torch.ones(1024).pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertTrue(torch.npu.host_memory_stats())
        self.assertIsInstance(torch.npu.host_memory_stats_as_nested_dict(), dict)
        torch.npu.reset_peak_host_memory_stats()
        torch.npu.reset_accumulated_host_memory_stats()

    def test_memory_of_a_scalar_on_the_left(self):
        x = torch.ones(2**22, device=DEVICE)
        for function in (lambda: 1 + x, lambda: 2 / x, lambda: 3 - x):
            torch.npu.synchronize()
            torch.npu.reset_peak_memory_stats()
            before = torch.npu.memory_allocated()
            result = function()
            torch.npu.synchronize()
            self.assertLess(torch.npu.max_memory_allocated() - before, 1.5 * x.nbytes)
            del result

    def test_dataloader_pins_for_the_accelerator(self):
        data = [{"x": torch.ones(2), "y": [torch.zeros(1)]} for _ in range(4)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True):
                self.assertTrue(batch["x"].is_pinned() and batch["y"][0].is_pinned())


class TestAmp(Behaviours):
    def test_amp_custom_function(self):
        class Double(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="npu", cast_inputs=torch.float32)
            def forward(ctx, x):
                ctx.seen = (x.dtype, torch.is_autocast_enabled("npu"))
                seen.append(ctx.seen)
                return x * 2

            @staticmethod
            @torch.amp.custom_bwd(device_type="npu")
            def backward(ctx, grad):
                seen.append(torch.is_autocast_enabled("npu"))
                return grad * 2

        seen = []
        x = torch.ones(2, device=DEVICE, dtype=torch.float16, requires_grad=True)
        with torch.autocast("npu"):
            Double.apply(x).sum().backward()
        self.assertEqual(seen, [(torch.float32, False), False])

    def test_amp_state_queries(self):
        net, x = torch.nn.Linear(3, 3).npu(), torch.randn(2, 3, device=DEVICE)
        self.assertFalse(torch.is_autocast_enabled("npu"))
        with torch.autocast("npu", dtype=torch.bfloat16):
            self.assertTrue(torch.is_autocast_enabled("npu"))
            self.assertEqual(torch.get_autocast_dtype("npu"), torch.bfloat16)
            self.assertEqual(net(x).dtype, torch.bfloat16)
            self.assertEqual((x @ x.t()).dtype, torch.bfloat16)
            self.assertEqual(net(x).softmax(1).dtype, torch.float32)
            self.assertEqual(F.mse_loss(net(x), x).dtype, torch.float32)
            with torch.autocast("npu", enabled=False):
                self.assertFalse(torch.is_autocast_enabled("npu"))
                self.assertEqual(net(x).dtype, torch.float32)
        self.assertFalse(torch.is_autocast_enabled("npu"))


class TestOperators(Behaviours):
    def test_ops_boolean_masks(self):
        x = np.arange(60.0).reshape(3, 4, 5)
        some = x > 20
        reads = [some, some.any(2), some.any((1, 2)), np.zeros_like(some)]
        for mask in reads:
            self.close(torch.tensor(x).npu()[torch.tensor(mask).npu()], torch.tensor(x[mask]))
        row = some.any((0, 2))
        self.close(torch.tensor(x).npu()[:, torch.tensor(row).npu()], torch.tensor(x[:, row]))
        for where in (lambda m: (m,), lambda m: (m, None), lambda m: (m, slice(1, 3)), lambda m: (Ellipsis, m)):
            for mask in (some.any(2), some.any((1, 2)), some.any((0, 1))):
                expected, actual = x.copy(), torch.tensor(x).npu()
                try:
                    expected[where(mask)] = -1
                except IndexError:
                    continue
                actual[where(torch.tensor(mask).npu())] = -1
                self.close(actual, torch.tensor(expected))

    def test_ops_python_scalars_on_either_side(self):
        import operator

        names = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "ge", "eq")
        for name, dtype, number in itertools.product(names, (torch.float32, torch.int64), (2, 2.5)):
            function = getattr(operator, name)
            x = torch.tensor([1, 2, 3, 7]).to(dtype)
            for expected, actual in (
                (function(x, number), function(x.npu(), number)),
                (function(number, x), function(number, x.npu())),
            ):
                self.close(actual, expected, msg=f"{name} {dtype} {number}")
            inplace = getattr(operator, f"i{name}", None)
            if inplace and (dtype.is_floating_point or (number == 2 and name != "truediv")):
                self.close(inplace(x.npu(), number), inplace(x.clone(), number))

    def test_ops_repr_of_unusual_tensors(self):
        for x in (
            torch.empty(0),
            torch.tensor(3),
            torch.tensor([float("nan"), float("inf")]),
            torch.tensor([True, False]),
            torch.tensor([1 + 2j]),
            torch.ones(2, requires_grad=True),
            torch.arange(6).view(2, 3).t()[1:],
            torch.ones(2, dtype=torch.bfloat16),
        ):
            grad = x.requires_grad
            text = repr(x.detach().npu().requires_grad_(grad) if grad else x.npu())
            self.assertIn("device='npu:0'", text)
            self.assertEqual(text.replace(", device='npu:0'", ""), repr(x))

    def test_ops_tensor_of_device_scalars(self):
        scalars = list(torch.arange(3.0, device=DEVICE))
        for make in (torch.tensor, torch.as_tensor):
            self.assertEqual(make(scalars).tolist(), [0, 1, 2])
        self.assertEqual(torch.stack(scalars).device.type, "npu")
        self.assertEqual(torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist(), [1, 2])

    def test_ops_on_the_cpu_afterwards(self):
        torch.ones(2, device=DEVICE)
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.Adam(net.parameters())
        data = torch.utils.data.DataLoader(torch.randn(4, 1, 4, 4), batch_size=2, num_workers=1)
        for x in data:
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
        self.assertTrue(all(p.device.type == p.grad.device.type == "cpu" for p in net.parameters()))

    def test_dtype_of_doubles_is_kept(self):
        x = torch.tensor(1 + 1e-12, dtype=torch.float64)
        self.assertEqual(x.npu().dtype, torch.float64)
        self.assertEqual(x.npu().cpu().item(), x.item())

    def test_dtype_of_unsigned_integers(self):
        for dtype in (torch.uint16, torch.uint32, torch.uint64):
            x = torch.tensor([1, 2, 60000], dtype=dtype)
            y = x.npu()
            self.assertEqual(torch.cat([y, y]).cpu().tolist(), [1, 2, 60000] * 2)
            self.assertEqual(torch.stack([y, y])[1, 1:].cpu().tolist(), [2, 60000])
            self.assertEqual(y.clone().view(3, 1).t().contiguous().cpu().tolist(), [[1, 2, 60000]])

    def test_dtype_casts_on_the_device(self):
        kinds = (
            *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
            *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
        )
        values = torch.tensor([0.0, 1.0, 2.5, 3.5, 100.7, 0.1, 65504.0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for source, target in itertools.product(kinds, repeat=2):
                limit = 100.0 if torch.int8 in (source, target) or torch.uint8 in (source, target) else 30000.0
                x = values.clamp(max=limit).to(source)
                self.assertTrue(torch.equal(x.npu().to(target).cpu(), x.to(target)), f"{source} to {target}")

    def test_fallback_unary_forms(self):
        x = torch.tensor([-1.0, float("inf"), float("nan")])
        for function in (torch.abs, torch.isfinite, torch.isinf, torch.isnan):
            self.close(function(x.npu()), function(x), equal_nan=True)
        out = torch.empty(0, device=DEVICE)
        torch.abs(x.npu(), out=out)
        self.close(out, x.abs(), equal_nan=True)
        self.close(x.npu().abs_(), x.abs(), equal_nan=True)

    def test_fallback_mixed_devices(self):
        x, y = torch.ones(3), torch.ones(3, device=DEVICE)
        for function in (torch.dot, torch.add, torch.maximum, lambda a, b: torch.cat([a, b])):
            with self.assertRaisesRegex(RuntimeError, "same device"):
                function(y, x)
        self.close(y + torch.tensor(2.0), torch.full((3,), 3.0))
        self.assertEqual(y.view(3, 1)._base.data_ptr(), y.data_ptr())

    def test_fallback_of_tensors_with_an_offset(self):
        base = torch.randn(100)
        x, y = base[19:79].view(6, 10), base.npu()[19:79].view(6, 10)
        self.assertEqual(y.storage_offset(), 19)
        for function in (
            *(torch.exp, torch.sort, torch.cumsum, torch.softmax),
            *(lambda t, *_: t.t() @ t, lambda t, *_: t.nonzero(), lambda t, *_: t[:, ::3].sum(1)),
            lambda t, *_: torch.linalg.qr(t)[1].abs(),
        ):
            arguments = (1,) if function in (torch.sort, torch.cumsum, torch.softmax) else ()
            for a, e in zip(function(y, *arguments), function(x, *arguments), strict=True):
                self.close(a, e, rtol=1e-4, atol=1e-5)

    def test_nn_attention(self):
        q, k, v = (torch.randn(2, 5, 3, 8).transpose(1, 2).requires_grad_() for _ in range(3))
        grads = torch.randn(2, 3, 5, 8)
        for options in (
            {},
            {"is_causal": True},
            {"attn_mask": torch.rand(5, 5) > 0.2},
            {"attn_mask": torch.randn(2, 1, 5, 5)},
        ):
            results = []
            for device in ("cpu", DEVICE):
                leaves = [t.detach().to(device).requires_grad_() for t in (q, k, v)]
                given = {n: o.to(device) if isinstance(o, torch.Tensor) else o for n, o in options.items()}
                out = F.scaled_dot_product_attention(*leaves, **given)
                results.append([out, *torch.autograd.grad(out, leaves, grads.to(device))])
            for expected, actual in zip(*results, strict=True):
                self.close(actual, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


class TestCompilers(Behaviours):
    def test_compile_traces_npu_tensors(self):
        devices = []

        def spy(graph, inputs):
            devices.extend(t.device.type for t in inputs if isinstance(t, torch.Tensor))
            return graph.forward

        def function(x, w):
            return (x @ w).relu().sum()

        for backend in (spy, "eager", "aot_eager"):
            torch._dynamo.reset()
            results = []
            for call in (function, torch.compile(function, backend=backend, fullgraph=True)):
                torch.manual_seed(0)
                x, w = (torch.randn(4, 4).npu().requires_grad_() for _ in range(2))
                loss = call(x, w)
                loss.backward()
                results.append([loss, x.grad, w.grad])
            for expected, actual in zip(*results, strict=True):
                self.close(actual, expected.cpu())
        self.assertEqual(set(devices), {"npu"})

    def test_compile_with_a_cpu_double(self):
        x, number = torch.ones(3, device=DEVICE), torch.tensor(1.5, dtype=torch.float64)
        for function in (torch.mul, torch.compile(torch.mul, backend="aot_eager")):
            result = function(x, number)
            self.assertEqual(result.dtype, torch.float32)
            self.close(result, torch.full((3,), 1.5))

    def test_compat_script_and_trace(self):
        code = """
import tempfile, torch
{shim}
@torch.jit.script
def double(x, n: int):
    for _ in range(n):
        x = x * 2
    return x
assert isinstance(double, torch.jit.ScriptFunction)
assert double(torch.ones(2, device="npu"), 3).tolist() == [8, 8]
net = torch.nn.Linear(2, 2).npu()
traced = torch.jit.trace(net, torch.ones(1, 2, device="npu"))
with tempfile.NamedTemporaryFile() as file:
    traced.save(file.name)
    again = torch.jit.load(file.name, map_location="npu:0")
x = torch.randn(3, 2, device="npu")
assert torch.equal(again(x), net(x)) and next(again.parameters()).device.type == "npu"
print("right")
"""
        for shim in ("", "import torch.npu.transfer_to_npu"):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # script() reads the source
                file.write(code.format(shim=shim))
                file.flush()
                done = python(f"import runpy; runpy.run_path({file.name!r})")
            self.assertEqual(done.stdout.strip().splitlines()[-1:], ["right"], done.stderr[-2000:])

    def test_compat_vmap(self):
        x = torch.randn(3, 4, device=DEVICE)
        self.close(torch.func.vmap(torch.sum)(x), x.cpu().sum(1))
        self.close(torch.func.vmap(torch.func.grad(lambda t: t.sin().sum()))(x), x.cpu().cos())


if __name__ == "__main__":
    unittest.main()
