"""Products of CSR and CSC matrices with dense ones on npu: one IR operator each, against the same in fp64 on the CPU;
and the same on a device that has CANN's operators alone."""

import torch.nn.functional as F
from common_utils import run_in_process, run_tests
from sparse_checks import DEVICE, SparseCase, allow_the_cpu, dense

import torch

setUpModule = allow_the_cpu
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
LAYOUTS = (torch.sparse_csr, torch.sparse_csc)


def matrix(rows, columns, share=0.2, seed=0):
    """Some rows and columns are empty, one row is full."""
    generator = torch.Generator().manual_seed(seed)
    full = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    full = full * (torch.rand(rows, columns, generator=generator) < share)
    full[rows // 2] = 1
    full[0] = full[-1] = 0
    full[:, -1] = 0
    return full


def number(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestProducts(SparseCase):
    def near(self, found, wanted, dtype):
        found, wanted = dense(found), dense(wanted)
        self.assertEqual((found.dtype, found.shape), (dtype, wanted.shape))
        scale = max(1.0, wanted.abs().max().item())
        self.assertLessEqual((found.double() - wanted.double()).abs().max().item() / scale, TOLERANCES[dtype])

    def stored(self, full, layout, dtype, index=torch.int64):
        s = full.to(dtype).to_sparse(layout=layout)
        if index == torch.int64:
            return s
        make = torch.sparse_csr_tensor if layout == torch.sparse_csr else torch.sparse_csc_tensor
        parts = (
            (s.crow_indices(), s.col_indices()) if layout == torch.sparse_csr else (s.ccol_indices(), s.row_indices())
        )
        return make(*(p.to(index) for p in parts), s.values(), s.shape)

    def test_values(self):
        for rows, columns, width in ((7, 5, 3), (130, 260, 33), (300, 50, 1), (40, 40, 300)):
            full = matrix(rows, columns)
            right, left, added = number(columns, width), number(width, rows), number(rows, width, seed=2)
            for layout in LAYOUTS:
                for dtype in TOLERANCES:
                    for index in (torch.int64, torch.int32):
                        with self.subTest(rows=rows, width=width, layout=layout, dtype=dtype, index=index):
                            s = self.stored(full, layout, dtype, index).to(DEVICE)
                            exact = full.to(dtype).double()
                            r, a, w = (t.to(dtype).to(DEVICE) for t in (right, left, added))
                            rd, ad, wd = (t.cpu().double() for t in (r, a, w))
                            self.near(s @ r, exact @ rd, dtype)
                            self.near(a @ s, ad @ exact, dtype)
                            self.near(s @ r[:, 0], exact @ rd[:, 0], dtype)
                            self.near(torch.addmm(w, s, r, beta=2, alpha=3), 2 * wd + 3 * (exact @ rd), dtype)
                            self.near(torch.sparse.addmm(w, s, r), wd + exact @ rd, dtype)
                            self.near(s @ r.t().contiguous().t(), exact @ rd, dtype)

    def test_gradients(self):
        full, right = matrix(60, 90), number(90, 17)
        for dtype in (torch.float64, torch.float32):
            s = full.to(dtype).to_sparse_csr()
            here = [s.detach().requires_grad_(), right.to(dtype).requires_grad_()]
            there = [s.to(DEVICE).detach().requires_grad_(), right.to(dtype).to(DEVICE).requires_grad_()]
            dy = number(60, 17, seed=3).to(dtype)
            for product in (torch.mm, torch.sparse.mm, lambda a, b: torch.sparse.mm(a, b, "sum")):
                found = torch.autograd.grad(product(*there), there, dy.to(DEVICE))
                wanted = torch.autograd.grad(product(*here), here, dy)
                for a, b in zip(found, wanted, strict=True):
                    self.assertEqual(a.layout, b.layout)
                    self.near(a, b, dtype)
            mean = [torch.sparse.mm(*operands, "mean") for operands in (there, here)]
            self.near(*mean, dtype)
            sampled = [
                torch.sparse.sampled_addmm(a, y, b.t().contiguous(), beta=0.5, alpha=2)
                for a, b, y in (
                    (there[0].detach(), there[1].detach(), dy.to(DEVICE)),
                    (here[0].detach(), here[1].detach(), dy),
                )
            ]
            self.near(*sampled, dtype)

    def test_other_numbers(self):
        full = matrix(9, 8)
        for dtype in (torch.int64, torch.int32, torch.complex64, torch.complex128):
            s = (full * 3).to(dtype).to_sparse_csr()
            r = (number(8, 4) * 3).to(dtype)
            self.assertEqual(dense(s.to(DEVICE) @ r.to(DEVICE)), s.to_dense() @ r)

    def test_nothing(self):
        empty = torch.sparse_csr_tensor(torch.zeros(4).long(), torch.zeros(0).long(), torch.zeros(0), (3, 5))
        self.assertEqual(dense(empty.to(DEVICE) @ torch.ones(5, 2, device=DEVICE)), torch.zeros(3, 2))
        s = matrix(4, 5).float().to_sparse_csr().to(DEVICE)
        self.assertEqual((s @ torch.ones(5, 0, device=DEVICE)).shape, (4, 0))

    def test_one_operator(self):
        s = matrix(50, 40).float().to_sparse_csr().to(DEVICE)
        r, out = torch.ones(40, 8, device=DEVICE), torch.empty(50, 8, device=DEVICE)

        def launched():
            torch.npu.synchronize()
            counted = torch._C._npu_simulatorCounters(0)
            if counted is None:
                self.skipTest("only the simulated device counts what it launches")
            return counted["ops_launched"]

        s @ r
        before = launched()
        s @ r
        self.assertLessEqual(launched() - before, 3)  # beside the result's zeros, and a copy to it
        torch.mm(s, r, out=out)
        self.near(out, s.cpu().to_dense().double() @ r.cpu().double(), torch.float32)

    def test_results_do_not_change(self):
        s, r = matrix(500, 400).float().to_sparse_csr().to(DEVICE), number(400, 64).float().to(DEVICE)
        first = s @ r
        self.assertTrue(all(torch.equal(s @ r, first) for _ in range(3)))

    def test_a_layer_of_a_graph(self):
        """Normalised neighbours, a weight, a loss: the same gradients as with a dense matrix."""
        adjacent = (matrix(80, 80) != 0).float()
        x, w = number(80, 12).float(), number(12, 5).float()
        found, wanted = [], []
        for a, results in ((adjacent.to_sparse_csr().to(DEVICE), found), (adjacent, wanted)):
            device = DEVICE if results is found else "cpu"
            weight = w.to(device).requires_grad_()
            loss = F.relu(a @ (x.to(device) @ weight)).square().mean()
            results += [loss.detach(), *torch.autograd.grad(loss, weight)]
        for a, b in zip(found, wanted, strict=True):
            self.near(a, b, torch.float32)

    def test_an_index_out_of_range(self):
        script = """
import torch
bad = torch.sparse_csr_tensor([0, 1, 2], [0, 9], [1.0, 1.0], (2, 3), check_invariants=False).npu()
try:
    bad @ torch.ones(3, 2, device="npu")
    torch.npu.synchronize()
except RuntimeError as error:
    print("raised", error)
"""
        self.assertRegex(run_in_process(script).stdout, "raised (.|\n)*index of a sparse matrix 9 is out of range")

    def test_on_a_card(self):
        script = """
import test_sparse_products as t
case = t.TestProducts("test_values")
t.allow_the_cpu()
case.test_values()
case.test_gradients()
print("same")
"""
        done = run_in_process(script, ASCEND_SIM_OPERATORS="cann")
        self.assertIn("same", done.stdout, done.stderr)


if __name__ == "__main__":
    run_tests()
