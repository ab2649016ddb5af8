"""torch.utils.dumper: the file that it writes, its options and its errors."""

import os
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import GOLDEN, ConvNet, DumpCase, attributes, calls, data, train

import torch


class TestFile(DumpCase):
    def test_layout(self):
        x = torch.arange(6.0).view(2, 3).t().requires_grad_()
        _, path = self.dump(lambda: torch.add(x, 2, alpha=3))
        self.assertEqual(calls(path), ["/add/1"])
        np.testing.assert_array_equal(data(path, "/add/1/input/self"), x.detach().numpy())
        np.testing.assert_array_equal(data(path, "/add/1/output/output"), x.detach().numpy() + 6)
        self.assertEqual(data(path, "/add/1/input/other"), 2)
        self.assertEqual(data(path, "/add/1/input/alpha"), 3)
        found = attributes(path, "/add/1/input/self")
        self.assertEqual(found.pop("Stride").tolist(), [1, 3])
        self.assertEqual(
            found,
            {"DeviceType": "cpu", "DataType": "float32", "FormatType": "ND", "Type": "Tensor", "RequiresGrad": 1},
        )

    def test_forward_and_backward(self):
        model, x = ConvNet(), torch.randn(2, 3, 8, 8)
        dump, path = self.dump(lambda: train(model, x))
        found = calls(path)
        self.assertEqual(len(found), dump.operators)
        for name in ("/convolution/2", "/native_batch_norm/1", "/convolution_backward/2", "/mm/1", "/add/1"):
            self.assertIn(name, found)
        self.assertLess(found.index("/convolution/2"), found.index("/convolution_backward/1"))
        self.assertEqual(attributes(path, "/convolution_backward/1")["Phase"], "backward")
        self.assertEqual(attributes(path, "/native_batch_norm/1/input/weight")["Type"], "Parameter")
        # The statistics before and after, which the operator writes without saying so.
        np.testing.assert_array_equal(data(path, "/native_batch_norm/1/input/running_mean"), np.zeros(4, np.float32))
        np.testing.assert_array_equal(data(path, "/native_batch_norm/1/output/running_mean"), model.bn.running_mean)

    def test_every_kind_of_value_is_replayed(self):
        base = torch.randn(4, 6)
        view = base.t()[1:4]
        half, brain = torch.randn(3).half(), torch.randn(3).bfloat16()
        work = {
            "view": lambda: view * 2.0,
            "expanded": lambda: torch.randn(3, 1).expand(3, 4) + 1,
            "half": lambda: half + half,
            "bfloat16": lambda: brain * brain,
            "complex": lambda: torch.randn(3, dtype=torch.complex64) * (1 + 2j),
            "conjugate": lambda: torch.randn(3, dtype=torch.complex128).conj() + 1,
            "bool": lambda: torch.tensor([True, False]) & torch.tensor([True, True]),
            "int8": lambda: torch.tensor([1, -2], dtype=torch.int8) + 1,
            "empty": lambda: torch.randn(0, 3) + 1,
            "zero dimensions": lambda: torch.tensor(3.0) + 1,
            "list": lambda: torch.cat([torch.randn(2, 2), torch.randn(1, 2)], dim=0),
            "indices": lambda: base[torch.tensor([0, 2]), :, None],
            "dtype": lambda: base.to(torch.float64),
            "text": lambda: torch.nn.functional.gelu(base, approximate="tanh"),
            "none": lambda: torch.clamp(base, min=None, max=0.5),
            "sizes": lambda: torch.nn.functional.avg_pool2d(torch.randn(1, 1, 4, 4), (2, 1), (2, 2)),
            "in place": lambda: base.mul_(2.0),
            "in place with itself": lambda: half.add_(half),
            "several results": lambda: torch.topk(base, 2),
            "list of results": lambda: torch.split(base, 2),
            "infinite": lambda: torch.clamp(base, min=float("-inf")),
        }
        for name, run in work.items():
            with self.subTest(name):
                _, path = self.dump(run, "one.h5")
                for call in calls(path):
                    if attributes(path, call).get("Kind") in ("random", "uninitialised"):
                        continue
                    found = torch.utils.dumper.replay(path, call)
                    with h5py.File(path, "r") as file:
                        self.assertEqual(set(found), set(file[call]["output"]), call)
                    from torch.utils.dumper._reader import Reader

                    with Reader(path) as reader:
                        for output, value in found.items():
                            wanted = reader.call(call).value(output, "output")
                            self.assertEqual(value.dtype, wanted.dtype)
                            self.assertTrue(torch.equal(value.nan_to_num(), wanted.nan_to_num()), (call, output))

    def test_views_keep_their_strides(self):
        base = torch.arange(24.0).view(4, 6)
        _, path = self.dump(lambda: (base.t()[1:4] + 1, base[:1].expand(3, 6) + 1))
        from torch.utils.dumper._reader import Reader

        with Reader(path) as reader:
            self.assertEqual(reader.call("/add/1").value("self").stride(), (1, 6))
            self.assertEqual(reader.call("/add/2").value("self").stride(), (0, 1))

    def test_other_devices_than_those_with_values(self):
        _, path = self.dump(lambda: torch.ones(2, 3, device="meta") + 1)
        self.assertEqual(attributes(path, "/add/1/output/output")["DeviceType"], "meta")
        self.assertEqual(attributes(path, "/add/1/output/output")["Shape"].tolist(), [2, 3])
        _, path = self.dump(lambda: torch.eye(3).to_sparse() * 2)
        self.assertIn("sparse_coo", {attributes(path, "/mul/1/input/self")["Type"]})

    def test_dtypes_that_numpy_lacks(self):
        bits = torch.tensor([1, 200], dtype=torch.uint8)
        for i, name in enumerate(("float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits2x4")):
            dtype = getattr(torch, name)
            _, path = self.dump(lambda d=dtype: bits.view(d).view(torch.uint8), f"{i}.h5")
            self.assertEqual(attributes(path, "/view/2/input/self")["DataType"], name)
            replayed = torch.utils.dumper.replay(path, "/view/2")["output"]
            self.assertEqual(replayed.tolist(), [1, 200])

    def test_tensors_without_memory_of_their_own(self):
        """Fake, nested and wrapped tensors are recorded by dtype and shape; the run goes on as without the dumper."""

        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            def __init__(self, inner):
                self.inner = inner

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))

        def fake():
            with torch._subclasses.fake_tensor.FakeTensorMode():
                return (torch.ones(3) + 1).shape

        pair = [torch.ones(2, 3), torch.ones(3, 3)]
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor(pair, layout=layout)
            _, path = self.dump(lambda n=nested: n * 2, f"{layout}.h5")
            self.assertEqual(attributes(path, "/mul/1/input/self")["DataType"], "float32")
        self.dump(fake, "fake.h5")
        wrapped = Wrapped(torch.ones(3))
        _, path = self.dump(lambda: wrapped * 2, "wrapped.h5")
        self.assertEqual(attributes(path, "/mul/1/input/self")["Type"], "Wrapped")
        self.assertEqual(attributes(path, "/mul/1/input/self")["Shape"].tolist(), [3])
        np.testing.assert_array_equal(data(path, "/mul/1/output/output"), [2, 2, 2])

    def test_the_program_may_resize_its_tensors(self):
        """Reading a tensor's memory leaves the tensor as it was."""
        x, out = torch.randn(4), (torch.empty(0), torch.empty(0, dtype=torch.int64))
        self.dump(lambda: (torch.topk(x, 2, out=out), x.resize_(9)))
        self.assertEqual((out[0].shape, x.shape), ((2,), (9,)))

    def test_zeros_without_memory(self):
        for device in ("cpu", "npu"):
            zeros = torch._efficientzerotensor((3,), device=device)
            for summary_only in (False, True):
                self.dump(zeros.clone, f"{device}{summary_only}.h5", summary_only=summary_only)
            path = self.folder / f"{device}False.h5"
            np.testing.assert_array_equal(data(path, "/clone/1/input/self"), np.zeros(3, np.float32))

    def test_memory_that_no_argument_shows(self):
        """as_strided looks beyond its tensor, and set_ takes a storage: both can be made again from the file."""
        for device in ("cpu", "npu"):
            base = torch.arange(12.0, device=device)

            def work(base=base, device=device):
                base[3:5].as_strided((2, 3), (1, 4), 2)
                base.view(3, 4).t()[1:].as_strided((2,), (4,))
                torch.empty(0, device=device).set_(base.untyped_storage(), 2, (3,), (2,))

            _, path = self.dump(work, f"{device}.h5")
            for call, wanted in (
                ("/as_strided/1", [[2, 6, 10], [3, 7, 11]]),
                ("/as_strided/2", [1, 5]),
                ("/set_/1", [2, 4, 6]),
            ):
                output = "output"
                np.testing.assert_array_equal(data(path, f"{call}/output/{output}"), wanted)
                self.assertEqual(torch.utils.dumper.replay(path, call, device)[output].tolist(), wanted)

    def test_results_that_mean_nothing(self):
        """Uninitialised parts, and what devices give in different shapes, are not kept; what counts is."""
        bag = torch.nn.functional.embedding_bag

        def work():
            lengths = torch.tensor([6, 4]), torch.tensor([3, 2])
            torch.nn.functional.ctc_loss(torch.randn(6, 2, 5).log_softmax(2), torch.ones(2, 3).long(), *lengths)
            for mode in ("mean", "max"):
                bag(torch.tensor([[1, 2]]), torch.ones(3, 2, requires_grad=True), mode=mode)

        _, path = self.dump(work)
        with h5py.File(path) as file:
            self.assertIsNone(file["_ctc_loss/1/output/output_1"].shape)
            self.assertEqual([file[f"_embedding_bag/{i}/output/output_3"].shape for i in (1, 2)], [None, (1, 2)])

    def test_npu(self):
        x = torch.ones(2, 3).npu()
        _, path = self.dump(lambda: x.half() * 2)
        self.assertEqual(attributes(path, "/mul/1/output/output")["DeviceType"], "npu")
        np.testing.assert_array_equal(data(path, "/mul/1/output/output"), np.full((2, 3), 2, np.float16))

    @unittest.skipUnless(hasattr(torch, "npu_format_cast"), "needs private formats")
    def test_private_formats(self):
        x = torch.randn(20, 33)
        y = torch.npu_format_cast(x.npu(), 29)
        _, path = self.dump(lambda: y + 1)
        self.assertEqual(attributes(path, "/add/1/input/self")["FormatType"], "FRACTAL_NZ")
        np.testing.assert_array_equal(data(path, "/add/1/input/self"), x.numpy())
        replayed = torch.utils.dumper.replay(path, "/add/1", "npu")["output"]
        self.assertTrue(torch.equal(replayed.cpu(), x + 1))

    def test_threads(self):
        x = torch.ones(3)

        def work():
            threads = [threading.Thread(target=lambda: x * 2) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda v: x + v, range(4)))

        before = threading.Thread.start
        _, path = self.dump(work)
        self.assertEqual(sorted(calls(path)), [f"/add/{i}" for i in range(1, 5)] + [f"/mul/{i}" for i in range(1, 4)])
        self.assertIs(threading.Thread.start, before)

    def test_threads_from_outside_are_left_alone(self):
        go, done = threading.Event(), threading.Event()

        def other():
            go.wait(20)
            torch.ones(3).exp()
            done.set()

        thread = threading.Thread(target=other)
        thread.start()
        _, path = self.dump(lambda: (go.set(), done.wait(20), torch.ones(2).sin()))
        thread.join()
        self.assertNotIn("/exp/1", calls(path))

    def test_steps_of_one_file(self):
        x = torch.ones(2)
        self.dump(lambda: x + 1)
        _, path = self.dump(lambda: (x + 2, x * 2))
        self.assertEqual(calls(path), ["/add/1", "/add/2", "/mul/1"])
        self.assertEqual(data(path, "/add/2/input/other"), 2)
        self.assertEqual([attributes(path, f"/add/{i}")["Step"] for i in (1, 2)], [1, 2])

    def test_directory_gives_new_files(self):
        paths = set()
        for _ in range(2):
            with torch.utils.dumper(use_dump=True, dump_path=self.folder, progress=False) as dump:
                torch.ones(2).exp()
            paths.add(dump.path)
        self.assertEqual(len(paths), 2)
        self.assertTrue(all(path.endswith(".h5") for path in paths))

    def test_ranks_have_their_own_files(self):
        with mock.patch.dict(os.environ, RANK="1"):
            dump, path = self.dump(lambda: torch.ones(2).exp(), "model.h5")
        self.assertEqual(Path(dump.path).name, "model_rank1.h5")
        self.assertFalse(path.exists())

    def test_filter_and_numbers(self):
        x = torch.ones(2)

        def work():
            for i in range(3):
                x + i
                x * i

        for chosen in (["mul"], "m*", lambda name: name == "mul"):
            _, path = self.dump(work, f"{len(os.listdir(self.folder))}.h5", filter=chosen)
            self.assertEqual(calls(path), ["/mul/1", "/mul/2", "/mul/3"])

    def test_summary(self):
        x = torch.tensor([1.0, float("nan"), float("inf"), -3.0])
        _, path = self.dump(lambda: x + 0, summary_only=True)
        found = dict(
            zip(
                attributes(path, "/add/1/output/output")["Summary"].split(","),
                data(path, "/add/1/output/output"),
                strict=True,
            )
        )
        self.assertEqual(
            (found["min"], found["max"], found["mean"], found["nan"], found["inf"], found["count"]),
            (-3, 1, -1, 1, 1, 4),
        )
        self.assertEqual(attributes(path, "/add/1/output/output")["Shape"].tolist(), [4])
        bits = torch.zeros(2, dtype=torch.uint8)
        self.dump(lambda: (bits.view(torch.bits8), bits.view(torch.float4_e2m1fn_x2)), "bits.h5", summary_only=True)

    def test_result_is_what_it_would_be(self):
        torch.manual_seed(0)
        model, x = ConvNet(), torch.randn(2, 3, 8, 8)
        train(model, x)
        plain = [p.grad.clone() for p in model.parameters()]
        for p in model.parameters():
            p.grad = None
        model.bn.reset_running_stats()
        self.dump(lambda: train(model, x))
        for a, p in zip(plain, model.parameters(), strict=True):
            self.assertTrue(torch.equal(a, p.grad))

    def test_forked_children_do_not_write(self):
        def work():
            torch.ones(2).exp()
            pid = os.fork()
            if pid == 0:
                torch.ones(2).exp()
                os._exit(0)
            os.waitpid(pid, 0)
            torch.ones(2).exp()

        _, path = self.dump(work)
        self.assertEqual([c for c in calls(path) if "exp" in c], ["/exp/1", "/exp/2"])

    def test_golden_file_opens(self):
        """A file of the first version is readable for good."""
        self.assertTrue(GOLDEN.is_file())
        from torch.utils.dumper._reader import Reader

        with Reader(GOLDEN) as reader:
            self.assertEqual(reader.operators()[0], "/convolution/1")
            self.assertIn("/scaled_dot_product_attention_backward/1", reader.operators())
        for call in ("/convolution/1", "/mul/1", "/mul_/1", "/scaled_dot_product_attention_backward/1"):
            for name, value in torch.utils.dumper.replay(GOLDEN, call).items():
                with Reader(GOLDEN) as reader:
                    torch.testing.assert_close(value, reader.call(call).value(name, "output"))


class TestErrors(DumpCase):
    def assertRefused(self, text, **options):
        with self.assertRaisesRegex(RuntimeError, text), torch.utils.dumper(progress=False, **options):
            self.fail("entered")

    def test_modes(self):
        path, old = self.folder / "a.h5", self.folder / "old.h5"
        self.assertRefused("use_dump and use_load", use_dump=True, use_load=True, dump_path=path, load_file_path=old)
        self.assertRefused("use_dump and check_overflow", use_dump=True, check_overflow=True, dump_path=path)
        self.assertRefused("load_file_path", check_overflow=True, dump_path=path, load_file_path=str(old))
        self.assertRefused("check_overflow='over' is none of", check_overflow="over", dump_path=path)
        self.assertRefused("load_file_path", use_load=True, dump_path=path)
        self.assertRefused("use_load=True", load_file_path=str(old))
        self.assertRefused("use_load=True", use_dump=True, load_with_acl_dump=True, dump_path=path)

    def test_paths(self):
        self.assertRefused("no directory .*missing", use_dump=True, dump_path=self.folder / "missing" / "a.h5")
        self.assertRefused("no such directory", use_dump=True, dump_path=self.folder / "missing")
        bad = self.folder / "bad.h5"
        bad.write_text("not a dump")
        self.assertRefused("bad.h5", use_load=True, dump_path=self.folder, load_file_path=bad)
        self.assertRefused("none.h5", use_load=True, dump_path=self.folder, load_file_path=self.folder / "none.h5")
        h5py.File(self.folder / "empty.h5", "w").close()
        self.assertRefused(
            "no operators", use_load=True, dump_path=self.folder, load_file_path=self.folder / "empty.h5"
        )
        _, path = self.dump(lambda: torch.ones(2).exp())
        os.link(path, self.folder / "link.h5")
        for same in (path, self.folder / "link.h5"):
            self.assertRefused("same file", use_dump=True, dump_path=same, load_file_path=path)
        self.assertRefused("dump_path=5 is not a path", use_dump=True, dump_path=5)
        self.assertRefused("load_file_path=5 is not a path", use_load=True, load_file_path=5)
        self.assertRefused("no null character", use_dump=True, dump_path="a\0.h5")

    def test_filters(self):
        for wanted in (5, [5], {"relu": 1}):
            self.assertRefused("filter=.*: a list of operators' names", use_dump=True, filter=wanted)

    def test_damaged_and_foreign_files(self):
        """Every error names the file and the place, whatever h5py finds in it."""
        foreign = self.folder / "foreign.h5"
        with h5py.File(foreign, "w") as file:
            file["kernel"], file["add/1"], file["mul/1/input"] = np.ones(2), np.ones(2), np.ones(2)
            file["sub"] = h5py.SoftLink("/nowhere")
        self.assertRefused("foreign.h5 holds no operators", use_load=True, load_file_path=foreign)
        with h5py.File(foreign, "r+") as file:
            file["exp/1/input/self"] = np.ones(2, np.float32)
        with self.assertRaisesRegex(RuntimeError, "foreign.h5: /exp/1 does not say which overload"):
            torch.utils.dumper.replay(foreign, "/exp/1")
        _, path = self.dump(lambda: torch.ones(2).exp())
        tensor = "input/self"
        for place, key, value in ((tensor, "Stride", "x"), (tensor, "Stride", [10**15]), ("", "Index", "x")):
            with h5py.File(path, "r+") as file:
                old = file[f"exp/1/{place}"].attrs[key]
                file[f"exp/1/{place}"].attrs[key] = value
            with self.assertRaisesRegex(RuntimeError, "dump.h5: .* cannot be read as a dump's"):
                torch.utils.dumper.replay(path, "/exp/1")
            with h5py.File(path, "r+") as file:
                file[f"exp/1/{place}"].attrs[key] = old
        whole = path.read_bytes()
        for start in (96, 672, 960, 1248):  # superblock, heap, attributes: HDF5 itself hangs at some other places
            path.write_bytes(whole[:start] + b"\xff" * 64 + whole[start + 64 :])
            try:
                with torch.utils.dumper(
                    use_load=True, load_file_path=path, dump_path=self.folder / "b.h5", progress=False
                ):
                    torch.ones(2).exp()
                torch.utils.dumper.replay(path, "/exp/1")
            except (RuntimeError, ValueError) as error:
                self.assertIn("dump.h5", str(error))

    def test_nesting(self):
        with torch.utils.dumper(use_dump=True, dump_path=self.folder / "a.h5", progress=False) as dump:
            self.assertRefused("nested", use_dump=True, dump_path=self.folder / "b.h5")
            with self.assertRaisesRegex(RuntimeError, "nested"), dump:
                pass
            torch.ones(2).exp()
        self.assertEqual([c for c in calls(dump.path) if "exp" in c], ["/exp/1"])

    def test_a_block_that_another_thread_ends(self):
        def work():
            dump = torch.utils.dumper(use_dump=True, dump_path=self.folder / "a.h5", progress=False)
            dump.__enter__()
            torch.ones(2).exp()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(dump.__exit__, None, None, None).result()
            torch.ones(2).sin()

        thread = threading.Thread(target=work)  # the mode that stays ends with it
        thread.start()
        thread.join()
        self.assertEqual(calls(self.folder / "a.h5"), ["/ones/1", "/exp/1"])

    def test_regions_of_meta_tensors(self):
        x = torch.randn(5, 3, 8, device="meta")
        _, path = self.dump(lambda: torch.nn.LSTM(8, 4, device="meta")(x))
        self.assertTrue(calls(path))

    def test_a_name_that_goes_inside_the_block(self):
        module, before = types.ModuleType("a_script"), torch.dropout
        module.dropout = torch.dropout
        with mock.patch.dict(sys.modules, {"a_script": module}):
            self.dump(lambda: delattr(module, "dropout"))
        self.assertIs(torch.dropout, before)

    def test_nothing_to_do(self):
        for options in ({"enabled": False, "use_dump": True}, {}, {"check_overflow": False, "load_file_path": ""}):
            with torch.utils.dumper(dump_path=self.folder, **options) as dump:
                torch.ones(2).exp()
            self.assertEqual((os.listdir(self.folder), dump.path), ([], None))

    def test_unknown_argument(self):
        with self.assertRaises(TypeError):
            torch.utils.dumper(use_dumps=True)

    def test_failing_operator(self):
        def work():
            with self.assertRaises(RuntimeError):
                torch.ones(2) @ torch.ones(3)
            torch.ones(2).exp()

        _, path = self.dump(work)
        self.assertIn("Error", attributes(path, "/dot/1"))
        self.assertIn("/exp/1", calls(path))

    def test_exception_in_the_block(self):
        path = self.folder / "a.h5"
        with self.assertRaises(KeyError), torch.utils.dumper(use_dump=True, dump_path=path, progress=False):
            torch.ones(2).exp()
            raise KeyError
        self.assertIn("/exp/1", calls(path))
        self.assertEqual(torch.utils._python_dispatch._len_torch_dispatch_stack(), 0)

    def test_exit_inside(self):
        done = self.script(
            """
            import torch
            with torch.utils.dumper(use_dump=True, dump_path="model_gpu.h5") as dump:
                torch.ones(2).exp()
                exit()
            """
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/exp/1", calls(self.folder / "model_gpu.h5"))
        self.assertRegex(done.stderr, r"dumper: \d operators, .* B written to model_gpu.h5")

    def test_killed(self):
        """The file opens however the process ended."""
        script = self.folder / "endless.py"
        script.write_text(
            "import time\n"
            "import torch\n"
            "x = torch.randn(50, 50)\n"
            "with torch.utils.dumper(use_dump=True, dump_path='killed.h5'):\n"
            "    for _ in range(100):\n"
            "        x = (x @ x).softmax(0) + x\n"
            "    start, said = time.monotonic(), False\n"
            "    while True:\n"
            "        x = (x @ x).softmax(0) + x\n"
            "        if not said and time.monotonic() - start > 1.5:  # the file is at most half a second behind\n"
            "            print('go', flush=True)\n"
            "            said = True\n"
        )
        for delay in (0.0, 0.1):
            process = subprocess.Popen([sys.executable, script], cwd=self.folder, stdout=subprocess.PIPE)
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            found = calls(self.folder / "killed.h5")
            self.assertGreater(len(found), 20)
            with h5py.File(self.folder / "killed.h5") as file:
                shapes = {file[call]["output"]["output"][()].shape for call in found[:-1]}
            self.assertEqual(shapes, {(50, 50)})

    def test_full_disk(self):
        disk = os.statvfs(self.folder)  # the file's disk is asked through the file, wherever the script has gone
        full = mock.Mock(f_bavail=100, f_frsize=disk.f_frsize)
        path = self.folder / "full.h5"
        x = torch.randn(1 << 20)
        told = self.assertRaisesRegex(RuntimeError, r"/exp/\d+/output/output to .*full.h5.*No space left")
        with told, torch.utils.dumper(use_dump=True, dump_path=path, progress=False):
            for _ in range(4):
                x.sin()
            with mock.patch("os.fstatvfs", return_value=full):
                for _ in range(8):
                    x = x.exp()
        self.assertIn("/sin/4", calls(path))

    def test_write_error(self):
        """The disk refuses a write (here by the process's limit on file sizes)."""
        done = self.script(
            """
            import resource, torch
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
            x = torch.randn(1 << 18)
            try:
                with torch.utils.dumper(use_dump=True, dump_path="limit.h5"):
                    for _ in range(9):
                        x = x.exp()
            except RuntimeError as error:
                print(type(error).__name__, error)
            """
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"DumpError .*writing /exp/\d/\w+/\w+ to limit.h5 failed after .*B:")
        calls(self.folder / "limit.h5")

    def test_write_errors_that_the_script_swallows(self):
        """The end of the block tells, and the file holds what was committed; a head that does not fit leaves none."""
        for limit, wait in ((300000, 0.7), (300000, 0.0), (3000, 0.0)):
            done = self.script(
                f"""
                import resource, time, torch
                resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
                errors = []
                try:
                    with torch.utils.dumper(use_dump=True, dump_path="limit.h5", progress=False):
                        for _ in range(5):
                            torch.ones(3).sin()
                        time.sleep({wait})
                        for _ in range(20):
                            try:
                                torch.ones(10000).exp()
                            except RuntimeError as error:
                                errors.append(error)
                except RuntimeError as error:
                    print(len(errors), type(error).__name__, error)
                """
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"^\d+ DumpError .* to limit.h5 failed after .*B: .*File too large")
            if limit < 10000:
                self.assertFalse((self.folder / "limit.h5").exists())
                continue
            self.assertGreater(int(done.stdout.split()[0]), 10)
            self.assertEqual("/sin/5" in calls(self.folder / "limit.h5"), bool(wait))


if __name__ == "__main__":
    unittest.main()
