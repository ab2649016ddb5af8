"""use_load: operators compute here what another device's file gave them."""

import sys
import unittest
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dump_case import ConvNet, DumpCase, attributes, calls, data, seeded, train
from test_names import NETS

import torch


class TestLoad(DumpCase):
    def load(self, work, source, name="load.h5", **options):
        path = self.folder / name
        options = options or {"use_dump": True}
        with torch.utils.dumper(dump_path=path, load_file_path=source, progress=False, **options) as dump:
            work()
        return dump, path

    def assertInputsEqual(self, a, b):
        with h5py.File(a, "r") as first, h5py.File(b, "r") as second:
            for call in calls(b):
                for name, item in second[call]["input"].items():
                    if "DataType" in item.attrs and item.shape is not None:
                        np.testing.assert_array_equal(item[()], first[call]["input"][name][()], f"{call} {name}")

    def test_both_directions(self):
        for there, here in (("cpu", "npu"), ("npu", "cpu")):
            with self.subTest(there + here):
                x = torch.randn(2, 3, 8, 8)
                model = seeded(ConvNet, there)
                given = x.to(there)
                _, source = self.dump(lambda m=model, v=given: train(m, v), f"{there}.h5")
                # Other weights and another input: nothing of them is left in the file.
                other = seeded(ConvNet, here, seed=1)
                before = {k: v.clone() for k, v in other.state_dict().items() if "running" not in k}
                noise = torch.randn(2, 3, 8, 8).to(here)
                dump, path = self.load(lambda m=other, v=noise: train(m, v), source, f"{here}_loaded.h5")
                self.assertEqual((dump.problems, calls(path)), ([], calls(source)))
                self.assertInputsEqual(source, path)
                self.assertEqual(attributes(path, "/convolution/1/output/output")["DeviceType"], here)
                for call in ("/convolution/2", "/convolution_backward/1", "/native_batch_norm/1", "/addmm/1"):
                    with h5py.File(source, "r") as file:
                        names = [n for n, v in file[call]["output"].items() if v.shape is not None]
                    for name in names:
                        a, b = data(source, f"{call}/output/{name}"), data(path, f"{call}/output/{name}")
                        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=f"{call} {name}")
                for key, value in other.state_dict().items():
                    if key in before and "num_batches" not in key:
                        self.assertTrue(torch.equal(value, before[key]), key)

    def test_regions(self):
        for name in ("attention", "lstm", "gru", "transformer", "lstm cell"):
            with self.subTest(name):
                make, shape = NETS[name]
                model, x = seeded(make), torch.randn(shape)
                _, source = self.dump(lambda m=model, v=x: train(m, v), f"{name}.h5")
                other = seeded(make, "npu", seed=2)
                zeros = torch.zeros(shape).npu()
                dump, path = self.load(lambda m=other, v=zeros: train(m, v), source, f"{name}_npu.h5")
                self.assertEqual((dump.problems, calls(path)), ([], calls(source)))
                self.assertInputsEqual(source, path)
                for call in calls(source):
                    if "lstm" in call or "gru" in call or "attention" in call:
                        with h5py.File(source, "r") as a, h5py.File(path, "r") as b:
                            self.assertEqual(set(a[call]["output"]), set(b[call]["output"]))
                            for key, value in a[call]["output"].items():
                                np.testing.assert_allclose(value[()], b[call]["output"][key][()], rtol=1e-3, atol=1e-5)
                self.assertTrue(all(p.grad is not None for p in other.parameters()))

    def test_use_load(self):
        x = torch.ones(2)
        _, source = self.dump(lambda: x * 3)
        dump, path = self.load(lambda: torch.zeros(2) * 5, source, use_load=True)
        # The tensor comes from the file; numbers are the program's.
        np.testing.assert_array_equal(data(path, "/mul/1/output/output"), [5, 5])
        self.assertTrue(all("mul" not in problem for problem in dump.problems))

    def test_differences_are_reported(self):
        _, source = self.dump(lambda: (torch.ones(2).exp(), torch.ones(2).sin(), torch.ones(3).cos()), filter="*[npso]")

        def work():
            torch.zeros(2).exp()
            torch.zeros(3).sin()
            torch.zeros(3, dtype=torch.float64).cos()
            torch.zeros(2).tan()

        dump, path = self.load(work, source)
        text = "\n".join(dump.problems)
        self.assertNotIn("/exp/1", text)
        self.assertRegex(text, r"/sin/1: input self is float32\[2\] in the file, float32\[3\] here")
        self.assertRegex(text, r"/cos/1: input self is float32\[3\] in the file, float64\[3\] here")
        self.assertRegex(text, r"/tan/1: not in .*dump.h5")
        np.testing.assert_array_equal(data(path, "/sin/1/output/output"), np.zeros(3))

    def test_unreadable_values_are_reported(self):
        _, source = self.dump(lambda: (torch.ones(2).exp(), torch.ones(2).sin()))
        with h5py.File(source, "r+") as file:
            file["exp/1/input/self"].attrs["DataType"] = "float32"
            del file["exp/1/input/self"].attrs["Stride"]
        dump, path = self.load(lambda: (torch.zeros(2).exp(), torch.zeros(2).sin()), source)
        text = "\n".join(dump.problems)
        self.assertRegex(text, r"/exp/1: .*dump.h5: /exp/1/input/self cannot be read as a dump's")
        self.assertNotIn("/sin/1", text)
        np.testing.assert_array_equal(data(path, "/exp/1/output/output"), [1, 1])

    def test_in_place_and_views(self):
        def work(value):
            x = torch.full((4,), value)
            y = x[:2]
            y.mul_(2.0)
            return x + 1

        _, source = self.dump(lambda: work(1.0))
        found = []
        dump, path = self.load(lambda: found.append(work(7.0)), source)
        self.assertEqual(dump.problems, [])
        self.assertEqual(found[0].tolist(), [3.0, 3.0, 2.0, 2.0])
        np.testing.assert_array_equal(data(path, "/mul_/1/output/output"), [2, 2])

    def test_arguments_that_are_one_tensor(self):
        def work(value):
            x, y = torch.full((2,), value), torch.full((2,), value + 1)
            return x.addcmul_(y, y), x.mul_(x)

        _, source = self.dump(lambda: work(1.0))
        dump, path = self.load(lambda: work(10.0), source)
        np.testing.assert_array_equal(data(path, "/addcmul_/1/output/output"), [5, 5])
        np.testing.assert_array_equal(data(path, "/mul_/1/output/output"), [25, 25])

    def test_foreach(self):
        def work(value):
            xs = [torch.full((2,), value), torch.full((3,), value)]
            torch._foreach_add_(xs, [x * 2 for x in xs])
            return xs

        _, source = self.dump(lambda: work(1.0))
        found = []
        _, path = self.load(lambda: found.extend(work(10.0)), source)
        self.assertEqual([x.tolist() for x in found], [[3.0] * 2, [3.0] * 3])
        np.testing.assert_array_equal(data(path, "/_foreach_add_/1/output/self_1"), [3] * 3)

    def test_autocast(self):
        """Regions under autocast are fed and computed under it, backward as well."""
        make, shape = NETS["lstm"]
        for device in ("cpu", "npu"):
            model, x = seeded(make, device), torch.randn(shape).to(device)

            def work(model=model, x=x, device=device):
                with torch.autocast(device, torch.bfloat16):
                    y = model(x)[0]
                y.float().sum().backward()

            _, source = self.dump(work, f"{device}.h5")
            dump, path = self.load(work, source, f"{device}_again.h5")
            self.assertEqual(dump.problems, [p for p in dump.problems if "/add_/" in p])  # .grad is there already
            a, b = (data(p, "/lstm_backward/1/output/grad_params_0") for p in (source, path))
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-2)

    def test_results_that_mean_nothing(self):
        """Devices give `offset2bag`, `max_indices` and `buffer` in different shapes; the rest is fed all the same."""

        def work(device):
            for mode in ("mean", "sum"):
                weight = torch.ones(3, 2, device=device, requires_grad=True)
                y = torch.nn.functional.embedding_bag(torch.tensor([[1, 2]], device=device), weight, mode=mode)
                torch.nn.functional.logsigmoid(y).sum().backward()

        _, source = self.dump(lambda: work("cpu"))
        dump, _ = self.load(lambda: work("npu"), source)
        self.assertEqual(dump.problems, [])

    def test_summary_cannot_be_loaded(self):
        _, source = self.dump(lambda: torch.ones(2).exp(), summary_only=True)
        dump, _ = self.load(lambda: torch.zeros(2).exp(), source)
        self.assertTrue(any("/exp/1" in problem for problem in dump.problems))


if __name__ == "__main__":
    unittest.main()
