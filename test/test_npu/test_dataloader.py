"""DataLoader beside an NPU: pinned batches, workers, shuffling under a default device."""

import collections
import warnings

from common_utils import TestCase, run_tests
from torch.utils.data import DataLoader, Dataset, RandomSampler, SubsetRandomSampler, TensorDataset, random_split

import torch

Pair = collections.namedtuple("Pair", ["image", "label"])


class Nested(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"pair": Pair(torch.full((2,), float(i)), i), "list": [torch.tensor(i), "name"]}


class OnTheDevice(Nested):
    def __getitem__(self, i):
        return {"image": torch.ones(2).npu(), "label": i}


class TestWorkers(TestCase):
    def test_npu_tensors_of_the_parent(self):
        held = [torch.ones(1, device="npu") for _ in range(2)]
        loader = DataLoader(held, batch_size=None, num_workers=1, timeout=60, multiprocessing_context="fork")
        with self.assertRaisesRegex(RuntimeError, r"DataLoader worker process 0(.|\n)*dataset returned npu tensors"):
            next(iter(loader))

    def test_npu_tensors_of_workers(self):
        torch.ones(1, device="npu").item()
        for method, said in (("fork", "Cannot re-initialize NPU in forked"), ("spawn", "dataset returned npu tensors")):
            loader = DataLoader(OnTheDevice(), num_workers=1, timeout=60, multiprocessing_context=method)
            with self.assertRaisesRegex(RuntimeError, f"DataLoader worker process 0(.|\\n)*{said}"):
                next(iter(loader))


class TestPinMemory(TestCase):
    def check(self, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batches = list(DataLoader(Nested(), batch_size=4, pin_memory=True, **options))
        self.assertEqual(len(batches), 2)
        for i, batch in enumerate(batches):
            self.assertIsInstance(batch["pair"], Pair)
            for tensor in (batch["pair"].image, batch["pair"].label, batch["list"][0]):
                self.assertTrue(tensor.is_pinned())
                self.assertEqual(tensor.device.type, "cpu")
            moved = batch["pair"].image.to("npu", non_blocking=True)
            self.assertEqual(moved.cpu(), torch.arange(4.0 * i, 4 * i + 4)[:, None].expand(4, 2))
            self.assertEqual(batch["list"][1], ["name"] * 4)

    def test_in_this_process(self):
        self.check()

    def test_with_workers(self):
        torch.ones(1, device="npu").item()  # workers are forked from a process that uses the device
        self.check(num_workers=2)
        self.check(num_workers=1, persistent_workers=True)

    def test_pinning_by_hand(self):
        value = torch.arange(5.0)
        self.assertFalse(value.is_pinned())
        pinned = value.pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertTrue(pinned[1:].is_pinned())
        self.assertEqual(pinned, value)
        self.assertTrue(torch.empty(3, pin_memory=True).is_pinned())
        self.assertFalse(torch.empty(3, device="npu").is_pinned())

    def test_batches_are_not_overwritten_while_copied(self):
        data = torch.arange(64 * 4096, dtype=torch.float32).reshape(64, 4096)
        moved = [
            batch.to("npu", non_blocking=True)
            for (batch,) in DataLoader(TensorDataset(data), batch_size=4, pin_memory=True)
        ]
        self.assertEqual(torch.cat(moved).cpu(), data)


class TestShuffle(TestCase):
    def setUp(self):
        torch.set_default_device("npu")
        self.addCleanup(torch.set_default_device, None)
        self.data = TensorDataset(torch.arange(10))

    def test_without_a_generator(self):
        for options in ({}, {"num_workers": 1, "multiprocessing_context": "fork"}):
            data = TensorDataset(torch.arange(10, device="cpu"))
            seen = torch.cat([batch.cpu() for (batch,) in DataLoader(data, batch_size=3, shuffle=True, **options)])
            self.assertEqual(sorted(seen.tolist()), list(range(10)))

    def test_with_generators_of_both_devices(self):
        for device in ("npu", "cpu"):
            orders = []
            for _ in range(2):
                generator = torch.Generator(device=device).manual_seed(5)
                loader = DataLoader(self.data, batch_size=2, shuffle=True, generator=generator)
                orders.append(torch.cat([batch for (batch,) in loader]).tolist())
            self.assertEqual(sorted(orders[0]), list(range(10)))
            self.assertEqual(orders[0], orders[1])

    def test_samplers_and_splits(self):
        for device in ("npu", "cpu"):
            generator = torch.Generator(device=device).manual_seed(1)
            self.assertEqual(sorted(RandomSampler(range(6), generator=generator)), list(range(6)))
            self.assertEqual(len(list(RandomSampler(range(6), True, 40, generator))), 40)
            self.assertEqual(sorted(SubsetRandomSampler([4, 5, 6], generator)), [4, 5, 6])
            parts = random_split(range(10), [7, 3], generator)
            self.assertEqual(sorted([*parts[0], *parts[1]]), list(range(10)))
        self.assertEqual(sorted(SubsetRandomSampler([4, 5, 6])), [4, 5, 6])
        self.assertEqual(len(random_split(range(10), [7, 3])), 2)

    def test_the_order_does_not_depend_on_the_default_device(self):
        orders = []
        for device in ("npu", "cpu"):
            torch.set_default_device(device)
            torch.manual_seed(9)
            orders.append(list(RandomSampler(range(20))))
        self.assertEqual(orders[0], orders[1])


if __name__ == "__main__":
    run_tests()
