"""Graph mode: casts, format changes and copies that bring values where they are already are not sent."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from fused_case import values
from test_lazy import LazyCase

import torch

NC1HWC0, FRACTAL_NZ, ND = 3, 29, 2


class RedundantTest(LazyCase):
    def test_a_cast_and_back_with_other_operators_between(self):
        half = values(40, 50, dtype=torch.float16)

        def function():
            wide = half.float()
            product = wide @ wide.t()
            return wide.half() * 2, product

        change = self.graph_of(function)
        self.assertEqual(change["redundant"], 1)
        change = self.graph_of(lambda: (half.bfloat16().half() * 2,))  # which rounds
        self.assertEqual(change["redundant"], 0)

    def test_the_same_again_is_computed_once(self):
        x, y = values(40, 50), values(30, 50, seed=1)

        def function():
            a, b = x.t().contiguous(), x[::2, ::3].contiguous()
            c, d = x.t().contiguous(), x[::2, ::3].contiguous()
            return a.sum(1), b.sum(1), c.sum(0), d.sum(0)

        change = self.graph_of(function)
        self.assertEqual(change["redundant"], 2)

        def other_values():
            return x[::2, ::3].sum(0), x[::2, 1::3].sum(0), y[::2, ::3].sum(0), x.half().float(), x.bfloat16().float()

        self.assertEqual(self.graph_of(other_values)["redundant"], 0)

    def test_orders_that_take_each_other_back(self):
        x = values(6, 7, 8)

        def there_and_back():
            a = x.permute(2, 0, 1).contiguous()
            return (a.permute(1, 2, 0).contiguous() * 2,)

        change = self.graph_of(there_and_back)
        self.assertEqual((change["redundant"], change["sent"]), (1, 1))

        def not_back():
            a = x.permute(2, 0, 1).contiguous()
            return (a.permute(2, 0, 1).contiguous() * 2,)

        self.assertEqual(self.graph_of(not_back)["redundant"], 0)

    def test_copies_are_read_at_their_origin(self):
        x = values(40, 50)
        change = self.graph_of(lambda: (x.clone().sum(0), x.clone().clone().softmax(1)))
        self.assertEqual((change["sent"], change["dropped"] + change["redundant"]), (2, 3))

        def kept():
            y = x.clone()
            return y, y.sum(0)

        self.assertEqual(self.graph_of(kept)["sent"], 2)

    def test_what_is_written_in_between(self):
        x = values(40, 50).nan_to_num(0, 1, -1)

        def function():
            source = x.half()
            wide = source.float()
            source.mul_(2)
            back = wide.half()
            copy = source.clone()
            source.add_(1)
            wide.add_(copy)
            other = copy.sum(0)
            turned = source.t().contiguous()
            source[3] = 4
            again = source.t().contiguous()
            return source, wide, back, other, turned, again, turned.t().contiguous()

        self.graph_of(function)

        def into_its_own_copy():
            a = (x @ x.t()).clamp(-1, 1)
            b = a.clone()
            torch.mm(b, b, out=a)
            return a, b

        self.graph_of(into_its_own_copy)

    def test_formats(self):
        image, matrix = values(2, 20, 6, 6), values(40, 50)
        for format, x in ((NC1HWC0, image), (FRACTAL_NZ, matrix)):
            private = torch.npu_format_cast(x, format)

            def there_and_back(x=x, format=format):
                return (torch.npu_format_cast(torch.npu_format_cast(x + 1, format), ND) * 2,)

            change = self.graph_of(there_and_back)
            self.assertEqual((change["redundant"], change["sent"]), (1, 1), format)

            def read_twice(private=private):
                return private.sum(0), private.sum(1), private * 2

            self.assertEqual(self.graph_of(read_twice)["redundant"], 2, format)

            def in_place(x=x, format=format):
                y = torch.npu_format_cast(x, format)
                y.add_(1).relu_().mul_(3)
                return (y + 0,)

            # Each operator brings the values out of the format and into it again; none of that is sent.
            change = self.graph_of(in_place)
            self.assertEqual((change["gathered"], change["sent"], change["fused"]), (12, 1, 4), format)

    def test_commands_of_many_kinds(self):
        # More kinds of commands than are remembered.
        torch.npu.enable_graph_mode()
        total = torch.zeros(1, device="npu")
        for n in range(1, 4300):
            total += torch.ones(n, device="npu").exp()[:1].clone()
        torch.npu.disable_graph_mode()
        self.assertLess(abs(total.item() / (4299 * 2.718281828) - 1), 1e-4)


class DumpedGraphTest(unittest.TestCase):
    SCRIPT = """
import torch
image, half = torch.rand(2, 20, 6, 6).npu(), torch.rand(40, 50).half().npu()
torch.npu.synchronize()
torch.npu.enable_graph_mode()
y = torch.npu_format_cast(torch.npu_format_cast(image + 1, 3), 2) * 2
z = half.float().half() * 2
turned = half.t().contiguous()
back = turned.t().contiguous() @ turned
torch.npu.launch_graph()
"""

    def test_they_are_not_in_the_graph_that_is_sent(self):
        for variables in ({}, {"ASCEND_SIM_OPERATORS": "cann"}):
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, "DUMP_GRAPH_PATH": folder, "DUMP_GE_GRAPH": "2", **variables}
                done = subprocess.run(
                    [sys.executable, "-c", self.SCRIPT], env=environment, capture_output=True, text=True
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                texts = {
                    when: "".join(path.read_text() for path in Path(folder).glob(f"*{when}_passes.txt"))
                    for when in ("before", "after")
                }
            # Of the transpositions one gives a tensor that is kept.
            for ir, left in (("TransData", 0), ("Cast", 0), ("Transpose", 1)):
                self.assertEqual(texts["before"].count(f"= {ir}("), 2, texts["before"])
                self.assertEqual(texts["after"].count(f"= {ir}("), left, texts["after"])


if __name__ == "__main__":
    unittest.main()
