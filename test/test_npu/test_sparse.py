"""Sparse tensors on npu, COO and compressed, against the same on the CPU: upstream's samples of every operator that has
some, gradients, and what runs on the CPU or is refused."""

import collections
import copy
import io
import os
import subprocess
import sys
import unittest
from pathlib import Path

import torchgen
import yaml
from common_utils import run_tests
from sparse_checks import DEVICE, SparseCase, allow_the_cpu, coo, dense, placed
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput

import torch
from torch.utils import _pytree as pytree

SLOW = os.environ.get("NPU_SLOW_TESTS") == "1"
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED)
HALVES = (torch.float16, torch.bfloat16)
# The widest difference of one rounding of a half, for sums that a device takes in another order.
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
# These draw: the device has a generator of its own.
DRAWING = {"randn_like", "rand_like", "randint_like"}
FAMILIES = {
    "sum",
    "mul",
    "add",
    "sub",
    "div",
    "abs",
    "relu",
    "sparse.mm",
    "sparse.sampled_addmm",
    "masked.sum",
    "to_sparse",
}


setUpModule = allow_the_cpu


class TestTensors(SparseCase):
    def test_construction(self):
        indices, values = coo()._indices(), coo()._values()
        for make in (
            lambda d: torch.sparse_coo_tensor(indices, values, (3, 4), device=d),
            lambda d: torch.sparse_coo_tensor(indices.to(d), values.to(d)),
            lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=d, dtype=torch.float64),
            lambda d: torch.sparse_coo_tensor((2, 3), device=d),
            lambda d: torch.sparse_csr_tensor([0, 1, 3], [0, 0, 1], [1.0, 2.0, 3.0], device=d, check_invariants=True),
            lambda d: torch.sparse_csc_tensor([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0], (2, 2), device=d),
            lambda d: torch.sparse_bsr_tensor([0, 1], [1], torch.ones(1, 2, 2), (2, 4), device=d),
            lambda d: torch.sparse_bsc_tensor([0, 0, 1], [0], torch.ones(1, 2, 2), (2, 4), device=d),
            lambda d: torch.empty(2, 3, layout=torch.sparse_coo, device=d),
            lambda d: torch.zeros(2, 3, layout=torch.sparse_csr, device=d),
            lambda d: torch.zeros_like(coo().to(d)),
            lambda d: torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, 1]), (3, 3)).to(d),
        ):
            self.check(make(DEVICE), make("cpu"))

    def test_refused_construction(self):
        for bounds, columns in (
            ([0, 1, 3], [0, 1]),
            ([1, 1, 2], [0, 1]),
            ([0, 2, 2], [1, 0]),
            ([0, 1, 2], [0, 7]),
            ([0, 1, 2], [-1, 0]),
        ):
            said = []
            for device in ("cpu", DEVICE):
                with self.assertRaisesRegex(RuntimeError, "is not satisfied") as caught:
                    torch.sparse_csr_tensor(bounds, columns, [1.0, 2.0], (2, 2), device=device, check_invariants=True)
                said.append(str(caught.exception).splitlines()[0])
            self.assertEqual(said[1], said[0])
        for device in ("cpu", DEVICE):
            with self.assertRaisesRegex(RuntimeError, "size is inconsistent with indices"):
                torch.sparse_coo_tensor([[0, 5], [1, 0]], [1.0, 2.0], (2, 2), device=device, check_invariants=True)

    def test_from_layout_to_layout(self):
        full = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 5]])
        kinds = [(layout, (2, 2) if layout in COMPRESSED[2:] else None) for layout in LAYOUTS]
        for layout, blocks in kinds:
            self.compare(lambda x, to=layout, b=blocks: x.to_sparse(layout=to, blocksize=b), full)
            made = full.to_sparse(layout=layout, blocksize=blocks)
            self.compare(lambda x: x.to_dense(), made)
            for other, size in kinds:
                with self.subTest(f"{layout} to {other}"):
                    try:
                        expected = made.to_sparse(layout=other, blocksize=size)
                    except RuntimeError:
                        with self.assertRaises((RuntimeError, NotImplementedError)):
                            made.to(DEVICE).to_sparse(layout=other, blocksize=size)
                        continue
                    self.check(made.to(DEVICE).to_sparse(layout=other, blocksize=size), expected)

    def test_attributes_and_parts(self):
        for x in (coo(), coo(coalesced=False), coo().to_sparse_csr(), coo().to_sparse_csc()):
            y = x.npu()
            self.assertTrue(y.is_npu and y.device == torch.device(DEVICE, torch.npu.current_device()))
            self.assertEqual((y.is_sparse, y.layout, y._nnz()), (x.is_sparse, x.layout, x._nnz()))
            parts = {
                torch.sparse_coo: ("_indices", "_values"),
                torch.sparse_csr: ("crow_indices", "col_indices", "values"),
                torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
            }[x.layout]
            for name in parts:
                self.assertEqual(getattr(y, name)().device.type, DEVICE)
                self.assertEqual(getattr(y, name)(), getattr(x, name)())
            self.assertIn("device='npu:", str(y))
        with self.assertRaisesRegex(RuntimeError, "Cannot get indices on an uncoalesced tensor"):
            coo(coalesced=False).to(DEVICE).indices()

    def test_copies(self):
        for x in (coo(), coo(coalesced=False), coo().to_sparse_csr(), coo().to_sparse_csc()):
            y = x.to(DEVICE)
            self.assertEqual(y.cpu().device.type, "cpu")
            for copied in (
                y.clone(),
                copy.deepcopy(y),
                y.cpu().to(DEVICE),
                torch.empty_like(y).copy_(y) if y.is_sparse else y,
            ):
                self.check(copied, x)
            for dtype in (torch.float64, torch.float16, torch.complex64, torch.int64):
                self.check(y.to(dtype), x.to(dtype))
                self.check(x.to(DEVICE, dtype), x.to(dtype))
            stream = io.BytesIO()
            torch.save({"x": y}, stream)
            stream.seek(0)
            self.check(torch.load(stream)["x"], x)
            stream.seek(0)
            self.assertEqual(torch.load(stream, map_location="cpu")["x"].device.type, "cpu")
            self.assertFalse(y.is_pinned())
            with self.assertRaisesRegex(RuntimeError, "only dense CPU tensors can be pinned"):
                y.pin_memory()

    @unittest.skipUnless(torch.npu.device_count() > 1, "two devices")
    def test_on_another_device(self):
        here, there = (torch.device(DEVICE, i) for i in (0, 1))
        for x in (coo(), coo().to_sparse_csr()):
            for made in (x.to(there), x.to(here).to(there), (x.to(there) + x.to(there)) * 0.5):
                self.assertEqual((made.device, made.to_dense().device), (there, there))
                self.assertEqual(made @ torch.eye(4, device=there), coo().to_dense())
            with self.assertRaisesRegex(RuntimeError, "on the same device"):
                x.to(there) @ torch.eye(4, device=here)
        self.assertEqual(torch.sparse_coo_tensor([[0], [1]], [1.0], device=there)._values().device, there)

    def test_coalesce(self):
        generator = torch.Generator().manual_seed(0)
        for sizes, dense_sizes, n in (
            ((5,), (), 40),
            ((4, 6), (), 100),
            ((3, 2, 4), (3,), 50),
            ((), (2,), 4),
            ((7,), (0,), 9),
            ((2, 2), (), 1),
        ):
            for dtype in (
                torch.float32,
                torch.float64,
                torch.float16,
                torch.complex64,
                torch.int64,
                torch.int8,
                torch.bool,
            ):
                indices = (
                    torch.stack([torch.randint(s, (n,), generator=generator) for s in sizes])
                    if sizes
                    else torch.zeros(0, n).long()
                )
                values = torch.randint(-3, 4, (n, *dense_sizes), generator=generator).to(dtype)
                x = torch.sparse_coo_tensor(indices, values, (*sizes, *dense_sizes))
                self.compare(lambda t: t.coalesce(), x)
                self.assertEqual(x.to(DEVICE).coalesce().indices(), x.coalesce().indices())


class TestOperators(SparseCase):
    def sweep(self, operators, layouts, dtypes):
        """Upstream's samples, with gradients of what has some; what the CPU refuses npu refuses."""
        tally = collections.Counter()
        for op in operators:
            for layout in filter(op.supports_sparse_layout, layouts):
                for dtype in filter(lambda d, o=op: o.supports_dtype(d, "cpu"), dtypes):
                    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
                    try:
                        samples = list(op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=grad))
                    except (NotImplementedError, unittest.SkipTest):
                        continue  # upstream has no samples of this layout
                    for i, sample in enumerate(samples):
                        with self.subTest(f"{op.full_name} {layout} {dtype} sample {i}"):
                            if isinstance(sample, SampleInput):
                                tally[self.one(op, sample, dtype)] += 1
        return tally

    def call(self, op, sample, device):
        values = (sample.input, sample.args, sample.kwargs)
        given = placed(values, device)
        wanted = [
            new.requires_grad_()
            for old, new in zip(pytree.tree_leaves(values), pytree.tree_leaves(given), strict=True)
            if isinstance(old, torch.Tensor) and old.requires_grad
        ]
        result = op(given[0], *given[1], **given[2])
        if not wanted or not isinstance(result, torch.Tensor) or not result.requires_grad:
            return result
        out = torch.ones_like(result) if result.layout is torch.strided else result.detach()
        return result, torch.autograd.grad(result, wanted, out, allow_unused=True)

    def one(self, op, sample, dtype):
        try:
            expected = self.call(op, sample, "cpu")
        except Exception as refusal:  # whatever the CPU raises
            with self.assertRaises((RuntimeError, NotImplementedError, IndexError, ValueError, TypeError)):
                self.call(op, sample, DEVICE)
            return f"refused by both: {type(refusal).__name__}"
        self.check(self.call(op, sample, DEVICE), expected, TOLERANCES.get(dtype))
        return "right"

    def test_samples(self):
        tally = self.sweep([op for op in op_db if op.name in FAMILIES], LAYOUTS, [torch.float32])
        self.assertGreater(tally["right"], 100, tally)

    @unittest.skipUnless(SLOW, "minutes; NPU_SLOW_TESTS=1 runs it")
    def test_all_samples(self):
        dtypes = [torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool, *HALVES]
        tally = self.sweep([op for op in op_db if op.name not in DRAWING], LAYOUTS, dtypes)
        print(f"\nsparse samples: {dict(tally)}; on the CPU: {torch.npu.fallback_stats()}")

    def test_error_samples(self):
        seen = 0
        for op in op_db:
            if op.error_inputs_sparse_func is None or not op.supports_sparse:
                continue
            for layout in filter(op.supports_sparse_layout, LAYOUTS):
                for sample in op.error_inputs_sparse("cpu", layout):
                    given = sample.sample_input
                    with self.subTest(f"{op.full_name} {layout}"), self.assertRaises(sample.error_type):
                        args, kwargs = placed((given.args, given.kwargs), DEVICE)
                        op(placed(given.input, DEVICE), *args, **kwargs)
                    seen += 1
        self.assertGreater(seen, 0)

    def test_products(self):
        for dtype in (torch.float32, torch.float64, torch.complex64, torch.int64, *HALVES):
            x, tolerance = coo(dtype, coalesced=False), TOLERANCES.get(dtype)
            w = torch.randint(-3, 4, (4, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
            added = torch.ones(3, 5).to(dtype)
            for function in (
                lambda s, w, a: s @ w,
                lambda s, w, a: torch.sparse.mm(s, w),
                lambda s, w, a: torch.sparse.addmm(a, s, w, beta=2, alpha=3),
                lambda s, w, a: torch.addmm(a, s, w, beta=0),
                lambda s, w, a: torch.addmm(a[0], s, w),
                lambda s, w, a: a.addmm_(s, w),
                lambda s, w, a: w.t() @ s.t(),
                lambda s, w, a: s.mv(w[:, 0]),
            ):
                self.check(
                    function(*(t.clone().to(DEVICE) for t in (x, w, added))), function(x, w, added.clone()), tolerance
                )
            if dtype in HALVES:
                continue  # of these the CPU has no halves
            self.compare(lambda s, w: torch.bmm(torch.stack([s, s * 2]), torch.stack([w, w + 1])), x, w)
            self.assertEqual(dense(torch.sparse.mm(x.to(DEVICE), x.t().to(DEVICE))), x.to_dense() @ x.t().to_dense())
            if dtype.is_floating_point or dtype.is_complex:  # of these the CPU has no integers
                self.compare(lambda a, b: torch.sparse.mm(a, b), x, x.t().coalesce())
            self.assertEqual(dense(torch.hspmm(x.to(DEVICE), w.to(DEVICE))), dense(torch.hspmm(x, w)))
            self.assertEqual(dense(torch.smm(x.to(DEVICE), w.to(DEVICE))), dense(torch.smm(x, w)))
            s = torch.ones(3, 5).to(dtype).to_sparse()
            added = (s.to(DEVICE), x.to(DEVICE), w.to(DEVICE))
            self.assertEqual(
                dense(torch.sspaddmm(*added, beta=2, alpha=3)), dense(torch.sspaddmm(s, x, w, beta=2, alpha=3))
            )

    def test_products_of_compressed(self):
        full = coo().to_dense()
        full = torch.cat([full, full[:1]])
        for layout in COMPRESSED:
            s = full.to_sparse(layout=layout, blocksize=(2, 2) if layout in COMPRESSED[2:] else None)
            y, w = s.to(DEVICE), torch.arange(8.0).view(4, 2)
            self.assertEqual(dense(y @ w.to(DEVICE)), full @ w)
            self.assertEqual(dense(w.t().to(DEVICE) @ y), w.t() @ full)
            self.assertEqual(dense(y @ w[:, 0].to(DEVICE)), full @ w[:, 0])
            added = torch.ones(4, 2)
            self.assertEqual(
                dense(torch.addmm(added.to(DEVICE), y, w.to(DEVICE), beta=2, alpha=3)),
                torch.addmm(added, full, w, beta=2, alpha=3),
            )
        for layout in (torch.sparse_csr, torch.sparse_csc):
            s = full.to_sparse(layout=layout).to(DEVICE)
            self.assertEqual(dense(s @ s), full @ full)
        narrow = torch.sparse_csr_tensor(
            torch.tensor([0, 1, 2]).int(), torch.tensor([1, 0]).int(), torch.ones(2), (2, 2)
        )
        self.compare(lambda t: t @ torch.eye(2, device=t.device), narrow)
        self.compare(lambda t: t + t, narrow)
        self.assertEqual((narrow.to(DEVICE) + narrow.to(DEVICE)).crow_indices().dtype, torch.int32)

    def test_sums_masks_and_selection(self):
        x, y = coo(coalesced=False), torch.ones(3, 4).tril().to_sparse()
        hybrid = torch.sparse_coo_tensor([[0, 2, 2], [1, 0, 0]], torch.arange(6.0).view(3, 2), (3, 2, 2))
        for i, function in enumerate(
            (
                lambda s, o: s + o,
                lambda s, o: o.sub(s, alpha=2),
                lambda s, o: s.to_dense() + o,
                lambda s, o: s.to_dense().add_(s, alpha=-1),
                lambda s, o: s * o,
                lambda s, o: s * s.to_dense(),
                lambda s, o: s * 3,
                lambda s, o: s / 2,
                lambda s, o: torch.sparse.sum(s),
                lambda s, o: torch.sparse.sum(s, 1),
                lambda s, o: s.sum(0),
                lambda s, o: s.norm(),
                lambda s, o: s.to_dense().sparse_mask(o),
                lambda s, o: s.sparse_mask(o),
                lambda s, o: s.index_select(1, torch.tensor([2, 0, 0, -1], device=s.device)),
                lambda s, o: s.select(0, 1),
                lambda s, o: torch.cat([s, o]),
                lambda s, o: torch.stack([s, o], 1),
                lambda s, o: s.t(),
                lambda s, o: s.unsqueeze(1),
                lambda s, o: s.narrow_copy(0, 1, 2),
                lambda s, o: torch.zeros(3, 4, device=s.device).add_(s),
                lambda s, o: s.clone().zero_(),
            )
        ):
            with self.subTest(i):
                self.compare(function, x, y)
        self.compare(
            lambda s: (s.coalesce(), s.to_dense(), torch.sparse.sum(s, 2), torch.sparse.sum(s, (0, 2))), hybrid
        )
        self.compare(lambda s: s.index_select(2, torch.tensor([1], device=s.device)), hybrid)
        with self.assertRaisesRegex(IndexError, "out of range"):
            x.to(DEVICE).index_select(0, torch.tensor([7], device=DEVICE))

    def test_softmax(self):
        hybrid = torch.sparse_coo_tensor([[0, 0, 2], [1, 0, 0]], torch.arange(6.0).view(3, 2), (3, 2, 2))
        for x in (coo(), coo(torch.float64, coalesced=False), hybrid):
            for dim in range(x.dim()):
                for function in (torch.sparse.softmax, torch.sparse.log_softmax):
                    self.compare(lambda t, f=function, d=dim: f(t, d), x)
                    grads = []
                    for device in (DEVICE, "cpu"):
                        leaf = x.coalesce().detach().to(device).requires_grad_()
                        result = function(leaf, dim)
                        grads.append(torch.autograd.grad(result, leaf, result.detach() * 2)[0])
                    self.check(*grads)

    def test_nothing(self):
        """No elements, no rows, no columns."""
        none, csr = torch.sparse_coo_tensor((3, 4)), torch.zeros(3, 4, layout=torch.sparse_csr)
        w = torch.ones(4, 2)
        for i, (function, *arguments) in enumerate(
            (
                (lambda s, w: (s @ w, s + s, s * s, s.coalesce(), s.to_dense(), s.to_sparse_csr()), none, w),
                (lambda s: (torch.sparse.sum(s, 0), torch.sparse.softmax(s, 1), s.sparse_mask(s.clone())), none),
                (lambda s: torch.sparse.mm(s, s.t()), none),
                (lambda s: s.index_select(0, torch.zeros(2, dtype=torch.long, device=s.device)), none),
                (lambda s: s.index_select(0, torch.zeros(0, dtype=torch.long, device=s.device)), coo()),
                (lambda s, w: (s @ w, s + s, s.to_dense(), s.to_sparse(), s.sum(0, keepdim=True)), csr, w),
                (lambda s, w: torch.sparse.mm(s, w, "amax"), csr, w),
                (lambda s: s.to_sparse_bsr((1, 2)), csr),
                (lambda s, w: s @ w[:, :0], coo(), w),
                (lambda s: s @ torch.ones(4, 2, device=s.device), torch.sparse_coo_tensor((0, 4))),
            )
        ):
            with self.subTest(i):
                self.compare(function, *arguments)

    def test_out_and_mixed_devices(self):
        x = coo().to(DEVICE)
        out = torch.empty(0, device=DEVICE)
        torch.mm(x, torch.eye(4, device=DEVICE), out=out)
        self.assertEqual(out, coo().to_dense())
        result = torch.zeros(3, 4, layout=torch.sparse_coo, device=DEVICE)
        torch.add(x, x, out=result)
        self.assertEqual(dense(result), coo().to_dense() * 2)
        for call in (
            lambda: x @ torch.eye(4),
            lambda: coo() @ torch.eye(4, device=DEVICE),
            lambda: x + coo(),
            lambda: x * coo(),
        ):
            with self.assertRaisesRegex(RuntimeError, "same device"):
                call()


class TestFallback(SparseCase):
    def test_counted_and_said(self):
        torch.npu.reset_fallback_stats()
        x = coo().to_sparse_csr().to(DEVICE)
        actual = torch._sparse_csr_prod(x, [1], True)
        self.check(actual, torch._sparse_csr_prod(coo().to_sparse_csr(), [1], True))
        self.assertEqual(torch.npu.fallback_stats(), {"aten::_sparse_csr_prod.dim_dtype": 1})

    def test_native_operators_do_not_fall_back(self):
        torch.npu.reset_fallback_stats()
        x = coo(coalesced=False).to(DEVICE)
        weight = torch.ones(4, 2, device=DEVICE, requires_grad=True)
        leaf = x.detach().coalesce().requires_grad_()
        torch.sparse.mm(torch.sparse.softmax(leaf, 1), weight).sum().backward()
        csr = x.to_sparse_csr().requires_grad_()
        (csr @ weight).sum().backward()
        torch.sparse.sum(x + x * x, 0).to_dense()
        self.assertEqual(torch.npu.fallback_stats(), {})

    def test_refused_without_the_cpu(self):
        code = (
            "import torch, torch.npu\n"
            "x = torch.eye(2, device='npu').to_sparse_csr()\n"
            "print((x @ x.to_dense()).sum().item())\n"
            "try:\n"
            "    torch._sparse_csr_prod(x, [1], True)\n"
            "except NotImplementedError as error:\n"
            "    print(str(error)[:74])\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "NPU_FALLBACK": "0"},
            cwd=Path.home(),
        )
        said = "Could not run 'aten::_sparse_csr_prod.dim_dtype' with arguments from the '"
        self.assertEqual(done.stdout.splitlines(), ["2.0", said], done.stderr)

    def test_refused(self):
        x = coo().to(DEVICE)
        for call in (lambda: torch.equal(x, x), lambda: x.view(4, 3)):
            with self.assertRaises((NotImplementedError, RuntimeError)):
                call()
        with self.assertRaisesRegex(
            NotImplementedError, "neither npu nor the CPU has a kernel of it for sparse tensors"
        ):
            torch.equal(x, x)

    def test_upstreams_shared_functions_are_registered(self):
        """What upstream gives one function for the CPU and CUDA serves npu, or npu has a kernel of its own."""
        path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
        missing = []
        for entry in yaml.load(path.read_text(), yaml.CSafeLoader):
            kernels = {k.strip(): v for keys, v in (entry.get("dispatch") or {}).items() for k in keys.split(",")}
            name = "aten::" + entry["func"].split("(")[0]
            for layout in ("Sparse", "SparseCsr"):
                shared = kernels.get(f"{layout}CPU") and kernels.get(f"{layout}CPU") == kernels.get(f"{layout}CUDA")
                if shared and not torch._C._dispatch_has_kernel_for_dispatch_key(name, f"{layout}PrivateUse1"):
                    missing.append((layout, name))
        self.assertEqual(missing, [])


if __name__ == "__main__":
    run_tests()
