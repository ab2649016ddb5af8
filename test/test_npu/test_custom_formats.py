"""Private formats of device memory: what is stored, and that nobody who computes or copies sees a difference."""

import copy
import io
import itertools
import pickle
import random

from common_utils import TestCase, run_in_process, run_tests

import torch

PRIVATE_4D = (3, 4, 29)
PRIVATE_5D = (32, 33)


class TestFormats(TestCase):
    def setUp(self):
        self.x = torch.randn(3, 5, 7, 9, generator=torch.Generator().manual_seed(0))

    def cases(self):
        for f in PRIVATE_4D:
            yield f, self.x, self.x.npu().npu_format_cast(f)
        volume = torch.randn(2, 17, 3, 4, 5, generator=torch.Generator().manual_seed(1))
        for f in PRIVATE_5D:
            yield f, volume, volume.npu().npu_format_cast(f)

    def test_default_formats(self):
        for shape, f in (((3,), 2), ((3, 4), 2), ((1, 2, 3, 4), 0), ((1, 2, 3, 4, 5), 30)):
            x = torch.ones(shape).npu()
            self.assertEqual((x.get_npu_format(), torch.get_npu_format(x)), (f, f))

    def test_values_and_format(self):
        for f, cpu, npu in self.cases():
            self.assertEqual(npu.get_npu_format(), f)
            self.assertTrue(torch.equal(npu.cpu(), cpu), f)
        for f in (0, 1, 2):
            y = self.x.npu().npu_format_cast(f)
            self.assertEqual(y.get_npu_format(), f)
            self.assertTrue(torch.equal(y.cpu(), self.x))
        back = self.x.npu().npu_format_cast(29).npu_format_cast(0)
        self.assertEqual((back.get_npu_format(), torch.equal(back.cpu(), self.x)), (0, True))

    def test_memory_is_really_arranged(self):
        # 5 channels are stored as 16, 3 filters, 7 rows and 9 columns as 16 each.
        for f, elements in ((3, 3 * 1 * 7 * 9 * 16), (4, 63 * 1 * 16 * 16), (29, 3 * 5 * 16 * 16)):
            before = torch.npu.memory_stats()["requested_bytes.all.current"]
            y = self.x.npu().npu_format_cast(f)
            self.assertEqual(torch.npu.memory_stats()["requested_bytes.all.current"] - before, elements * 4)
            self.assertEqual(y.untyped_storage().nbytes(), self.x.nbytes)
            del y

    def test_one_byte_and_half(self):
        for dtype in (torch.float16, torch.int8, torch.int64, torch.bool):
            cpu = (self.x * 10).to(dtype)
            for f in PRIVATE_4D:
                self.assertTrue(torch.equal(cpu.npu().npu_format_cast(f).cpu(), cpu), (dtype, f))

    def test_fewer_dimensions(self):
        for shape in ((20,), (18, 33)):
            cpu = torch.randn(shape)
            for f in (29, 3, 4):
                npu = cpu.npu().npu_format_cast(f)
                self.assertTrue(torch.equal((npu * 2).cpu(), cpu * 2), (shape, f))

    def test_operators_and_views(self):
        for f, cpu, npu in self.cases():
            self.assertTrue(torch.equal((npu + 1).cpu(), cpu + 1), f)
            self.assertTrue(torch.equal((1 - npu).cpu(), 1 - cpu), f)
            self.assertTrue(torch.equal(npu[1].cpu(), cpu[1]), f)
            self.assertTrue(torch.equal(npu.transpose(0, 2).contiguous().cpu(), cpu.transpose(0, 2)), f)
            self.assertTrue(torch.equal(npu.view(-1)[3:19:2].cpu(), cpu.view(-1)[3:19:2]), f)
            self.assertTrue(torch.equal(torch.cat([npu, npu], 1).cpu(), torch.cat([cpu, cpu], 1)), f)
            self.assertTrue(torch.equal(npu.clone().cpu(), cpu), f)
            self.assertTrue(torch.equal(npu.double().cpu(), cpu.double()), f)
            self.assertEqual(npu.sum().item(), cpu.sum().item(), prec=1e-3)
            self.assertEqual(npu[1, 2, 0, 1].flatten()[0].item(), cpu[1, 2, 0, 1].flatten()[0].item())
            self.assertEqual(str(npu)[:40], str(cpu)[:40])

    def test_writing_keeps_the_format(self):
        for f, cpu, npu in self.cases():
            expected = cpu.clone()
            for t in (expected, npu):
                t.add_(1)
                t[1, 2] = 5
                t.view(-1)[::3].mul_(2)
                torch._foreach_add_([t[0], t[1]], 1.0)
                torch.mul(t[0].clone(), 2, out=t[1])
            self.assertTrue(torch.equal(npu.cpu(), expected), f)
            npu.copy_(cpu)
            self.assertTrue(torch.equal(npu.cpu(), cpu), f)
            npu.copy_(cpu.npu().transpose(0, 1).contiguous().transpose(0, 1))
            self.assertTrue(torch.equal(npu.cpu(), cpu), f)
            self.assertEqual(npu.get_npu_format(), f)

    def test_serialisation(self):
        for f, cpu, npu in self.cases():
            buffer = io.BytesIO()
            torch.save({"x": npu, "view": npu[1]}, buffer)
            buffer.seek(0)
            loaded = torch.load(buffer)
            self.assertTrue(torch.equal(loaded["x"].cpu(), cpu) and torch.equal(loaded["view"].cpu(), cpu[1]), f)
            self.assertTrue(torch.equal(copy.deepcopy(npu).cpu(), cpu), f)
            self.assertTrue(torch.equal(pickle.loads(pickle.dumps(npu)).cpu(), cpu), f)

    def test_a_cast_that_changes_nothing(self):
        for f, _, npu in self.cases():
            self.assertIs(npu.npu_format_cast(f), npu)
        plain = self.x.npu()
        self.assertIs(plain.npu_format_cast(0), plain)
        self.assertIs(plain.npu_format_cast(plain), plain)
        with torch.inference_mode():
            self.assertEqual(plain.npu_format_cast(0).data_ptr(), plain.data_ptr())

    def test_fewer_than_two_dimensions_stay_plain(self):
        for shape in ((), (20,)):
            x = torch.randn(shape).npu()
            for f in (*PRIVATE_4D, *PRIVATE_5D):
                self.assertEqual(x.npu_format_cast(f).get_npu_format(), 2)
                self.assertEqual(x.npu_format_cast_(f).get_npu_format(), 2)

    def test_copies_and_files_keep_the_format(self):
        for f, cpu, npu in self.cases():
            module = torch.nn.Module()
            module.weight = torch.nn.Parameter(npu)
            for new_zip in (True, False):
                buffer = io.BytesIO()
                torch.save({"x": npu, "module": module.state_dict()}, buffer, _use_new_zipfile_serialization=new_zip)
                buffer.seek(0)
                loaded = torch.load(buffer)
                buffer.seek(0)
                self.assertTrue(torch.equal(torch.load(buffer, map_location="cpu")["x"], cpu))
                for t in (loaded["x"], loaded["module"]["weight"]):
                    self.assertEqual((t.get_npu_format(), torch.equal(t.cpu(), cpu)), (f, True))
            for t in (copy.deepcopy(npu), copy.deepcopy(module).weight, pickle.loads(pickle.dumps(npu))):
                self.assertEqual((t.get_npu_format(), torch.equal(t.cpu(), cpu)), (f, True))

    def test_customize_dtype(self):
        x = torch.randint(100, (20, 20), dtype=torch.int32)
        sizes = {}
        for number in (None, 3, 1):
            before = torch.npu.memory_stats()["requested_bytes.all.current"]
            y = x.npu().npu_format_cast(29, customize_dtype=number)
            torch.npu.synchronize()
            sizes[number] = (torch.npu.memory_stats()["requested_bytes.all.current"] - before) // 4
            self.assertTrue(torch.equal(y.cpu(), x) and torch.equal(copy.deepcopy(y).cpu(), x))
            del y
        # Columns in blocks of 16, 8 and 32; rows in blocks of 16.
        self.assertEqual(sizes, {None: 32 * 32, 3: 32 * 24, 1: 32 * 32})
        # The block without it: 32 columns of bytes, 16 of all else.
        for dtype, number, columns in (
            (torch.int8, None, 32), (torch.int8, 3, 24), (torch.float32, None, 32), (torch.float32, 3, 24),
            (torch.float16, None, 32), (torch.bfloat16, 3, 24), (torch.uint8, 1, 32),
        ):  # fmt: skip
            plain = x[:, :17].to(dtype)
            before = torch.npu.memory_stats()["requested_bytes.all.current"]
            y = plain.npu().npu_format_cast(29, customize_dtype=number)
            torch.npu.synchronize()
            taken = torch.npu.memory_stats()["requested_bytes.all.current"] - before
            self.assertEqual((y.get_npu_format(), taken), (29, 32 * columns * plain.element_size()), (dtype, number))
            self.assertTrue(torch.equal(y.cpu(), plain) and torch.equal((y + y).cpu(), plain + plain))
            del y
        # Of other formats it leaves the block alone.
        images = torch.randn(1, 3, 4, 4)
        self.assertTrue(torch.equal(images.npu().npu_format_cast(3, customize_dtype=3).cpu(), images))
        y = torch.ones(20, 20).npu()
        self.assertEqual(y.npu_format_cast_(29, customize_dtype=3).sum().item(), 400.0)
        with self.assertRaisesRegex(RuntimeError, "customize_dtype 99"):
            y.npu_format_cast(29, 99)

    def test_in_place(self):
        for f in PRIVATE_4D:
            y = self.x.npu()
            row = y[1]
            self.assertIs(y.npu_format_cast_(f), y)
            self.assertEqual(y.get_npu_format(), f)
            y.zero_()
            self.assertEqual(row.abs().sum().item(), 0.0)  # still one memory
            row.fill_(2)
            self.assertEqual(y.sum().item(), 2.0 * 5 * 7 * 9)
            y.npu_format_cast_(0)
            self.assertEqual((y.get_npu_format(), y.sum().item()), (0, 2.0 * 5 * 7 * 9))
        y = self.x.npu()
        with self.assertRaisesRegex(RuntimeError, "view of a storage"):
            y[1].npu_format_cast_(29)
        y.npu_format_cast_(torch.zeros_like(y))
        self.assertEqual(y.abs().sum().item(), 0.0)

    def test_as_another_tensor(self):
        y = self.x.npu().npu_format_cast(self.x.npu().npu_format_cast(3))
        self.assertEqual(y.get_npu_format(), 3)

    def test_set(self):
        y = self.x.npu()
        z = torch.empty(0).npu()
        z.npu_set_(y.untyped_storage(), 0, 29, [15, 63])
        self.assertEqual((z.get_npu_format(), z.shape), (29, (15, 63)))
        self.assertTrue(torch.equal(y.cpu(), self.x) and torch.equal(z.cpu(), self.x.view(15, 63)))

    def test_gradient(self):
        y = self.x.npu().requires_grad_()
        (y.npu_format_cast(29) * 3).sum().backward()
        self.assertTrue((y.grad == 3).all().item())
        grad = torch.ones_like(self.x).npu()
        grad.data = grad.data.npu_format_cast(0)
        self.assertEqual(grad.get_npu_format(), 0)

    def test_layers_with_formatted_weights(self):
        conv, linear = torch.nn.Conv2d(5, 4, 3), torch.nn.Linear(9, 6)
        expected = linear(self.x).sum() + conv(self.x).sum()
        expected.backward()
        nconv, nlinear = copy.deepcopy(conv).npu(), copy.deepcopy(linear).npu()
        nconv.weight.data = nconv.weight.data.npu_format_cast(4)
        nlinear.weight.data = nlinear.weight.data.npu_format_cast(29)
        for p in (*nconv.parameters(), *nlinear.parameters()):
            p.grad = None
        x = self.x.npu().npu_format_cast(3)
        (nlinear(x).sum() + nconv(x).sum()).backward()
        optimizer = torch.optim.SGD([*nconv.parameters(), *nlinear.parameters()], 0.1, momentum=0.9)
        optimizer.step()
        torch.optim.SGD([*conv.parameters(), *linear.parameters()], 0.1, momentum=0.9).step()
        self.assertEqual((nconv.weight.get_npu_format(), nlinear.weight.get_npu_format()), (4, 29))
        self.assertEqual(nconv.weight, conv.weight, prec=1e-4)
        self.assertEqual(nlinear.weight, linear.weight, prec=1e-4)

    def test_resize_ends_the_format(self):
        y = self.x.npu().npu_format_cast(29)
        y.resize_(4, 5, 7, 9)
        self.assertTrue(torch.equal(y[:3].cpu(), self.x))

    def test_side_stream(self):
        y = self.x.npu().npu_format_cast(29)
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            y.record_stream(side)
            z = y * 2
        torch.npu.current_stream().wait_stream(side)
        self.assertTrue(torch.equal(z.cpu(), self.x * 2))

    def test_between_devices(self):
        for f in PRIVATE_4D:
            y = self.x.npu().npu_format_cast(f)
            other = y.to("npu:1")
            self.assertTrue(torch.equal(other.cpu(), self.x))
            target = torch.zeros_like(self.x).to("npu:1").npu_format_cast(f)
            target.copy_(y)
            self.assertEqual((target.get_npu_format(), torch.equal(target.cpu(), self.x)), (f, True))

    def test_out_of_line_weights(self):
        norm = torch.nn.BatchNorm2d(5).npu()
        reference = torch.nn.BatchNorm2d(5)
        x = self.x.npu().npu_format_cast(3).requires_grad_()
        c = self.x.clone().requires_grad_()
        norm(x).square().sum().backward()
        reference(c).square().sum().backward()
        self.assertEqual(x.grad, c.grad, prec=1e-3)
        self.assertEqual(norm.running_var, reference.running_var, prec=1e-4)

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "NDC1HWC0.*5 dimensions"):
            self.x.npu().npu_format_cast(32)
        with self.assertRaisesRegex(RuntimeError, "no format 77"):
            self.x.npu().npu_format_cast(77)
        with self.assertRaises(RuntimeError):
            torch.npu_format_cast(self.x, 29)

    def test_without_task_queue(self):
        script = "x = torch.randn(3, 4); y = x.npu().npu_format_cast(29); y.add_(1); print(torch.equal(y.cpu(), x + 1))"
        result = run_in_process(f"import torch; {script}", TASK_QUEUE_ENABLE="0")
        self.assertEqual((result.stdout.strip(), result.returncode), ("True", 0), result.stderr)


class TestAnyOperator(TestCase):
    """A chosen part of upstream's operator database with operands in private formats, against plain operands."""

    RANDOM = (
        "rand",
        "normal",
        "bernoulli",
        "multinomial",
        "uniform",
        "exponential",
        "cauchy",
        "geometric",
        "log_normal",
    )
    RANDOM += ("empty", "new_empty", "nn.functional.dropout", "nn.functional.alpha", "nn.functional.feature")
    OTHER = ("nn.functional.rrelu", "nn.functional.fractional", "nn.functional.scaled_dot")
    OTHER += ("linalg", "sparse", "torch.ops", "jiterator")

    @staticmethod
    def moved(arguments, private):
        def move(t):
            t = t.detach().npu()
            if not private or t.numel() == 0 or t.dim() == 0 or t.is_complex():
                return t
            return t.npu_format_cast(4 if t.dim() == 4 else 29)

        return torch.utils._pytree.tree_map_only(torch.Tensor, move, arguments)

    def test_op_db(self):
        from torch.testing._internal.common_methods_invocations import op_db

        chosen = [op for op in op_db if torch.float32 in op.dtypes and not op.name.startswith(self.RANDOM + self.OTHER)]
        compared = 0
        for op in random.Random(0).sample(chosen, 60):
            for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 2):
                arguments = (sample.input, sample.args, sample.kwargs)
                x, args, kwargs = self.moved(arguments, False)
                try:
                    expected = op(x, *args, **kwargs)
                except (RuntimeError, NotImplementedError):
                    continue  # not this test's business
                x, args, kwargs = self.moved(arguments, True)
                with self.subTest(op=op.name):
                    torch.testing.assert_close(op(x, *args, **kwargs), expected, rtol=1e-4, atol=1e-5, equal_nan=True)
                    compared += 1
        self.assertGreater(compared, 80)


class TestCastWeight(TestCase):
    def test_on_request(self):
        from torch.npu import config

        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 3, groups=2), torch.nn.Conv3d(2, 3, 2)
        )
        net.append(torch.nn.Linear(4, 5))
        plain = copy.deepcopy(net).npu()
        self.assertEqual([m.weight.get_npu_format() for m in plain], [0, 0, 30, 2])
        config.allow_internal_format = True
        try:
            for move in (lambda m: m.to("npu"), lambda m: m.npu(), lambda m: m.to("npu:0", torch.float16)):
                cast = move(copy.deepcopy(net))
                self.assertEqual([m.weight.get_npu_format() for m in cast], [4, 0, 33, 29])
                for a, b in zip(cast.parameters(), net.parameters(), strict=True):
                    self.assertEqual(a.float(), b, prec=1e-3)
                self.assertIsInstance(cast[0].weight, torch.nn.Parameter)
        finally:
            config.allow_internal_format = False
        net.cast_weight(torch.device("cpu"))
        self.assertEqual(net[0].weight.device.type, "cpu")


if __name__ == "__main__":
    run_tests()
