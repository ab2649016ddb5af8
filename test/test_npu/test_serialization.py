"""Saving, loading, pickling, copying and sharing npu tensors, storages and modules."""

import copy
import io
import os
import pickle
import tempfile

from common_utils import TestCase, run_in_process, run_tests

import torch

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64, torch.bool, torch.complex64,
)  # fmt: skip


def saved(value, zipped=True) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return file


class TestLocationTags(TestCase):
    def test_tag_and_restore(self):
        storage = torch.ones(3, device="npu:1").untyped_storage()
        self.assertEqual(torch.serialization.location_tag(storage), "npu:1")
        self.assertEqual(torch.serialization.location_tag(torch.ones(3).untyped_storage()), "cpu")
        restored = torch.serialization.default_restore_location(torch.arange(4.0).untyped_storage(), "npu:1")
        self.assertEqual(restored.device, torch.device("npu:1"))
        self.assertEqual(bytes(restored.cpu()), bytes(torch.arange(4.0).untyped_storage()))
        self.assertEqual(
            torch.serialization.default_restore_location(torch.ones(1).untyped_storage(), "npu").device.type, "npu"
        )

    def test_similar_names_are_not_npu(self):
        for tag in ("npux", "npu_other:0", "xnpu"):
            with self.assertRaises((RuntimeError, ValueError)):
                torch.serialization.default_restore_location(torch.ones(1).untyped_storage(), tag)


class TestSaveLoad(TestCase):
    def test_every_map_location_for_both_file_kinds(self):
        state = {"weight": torch.arange(6.0, device="npu:1").reshape(2, 3), "host": torch.arange(3)}
        cases = {
            "nothing": (None, "npu:1"),
            "string": ("npu:0", "npu:0"),
            "string without index": ("npu", "npu:0"),
            "cpu": ("cpu", "cpu"),
            "device": (torch.device("npu:0"), "npu:0"),
            "device of an int": (torch.device(1), "npu:1"),
            "dict": ({"npu:1": "npu:0"}, "npu:0"),
            "dict to cpu": ({"npu:1": "cpu"}, "cpu"),
            "dict without it": ({"npu:7": "cpu"}, "npu:1"),
            "function": (lambda storage, location: storage.npu(0) if location == "npu:1" else storage, "npu:0"),
            "function that keeps": (lambda storage, location: storage, "cpu"),
        }
        for zipped in (True, False):
            for name, (map_location, expected) in cases.items():
                with self.subTest(name=name, zipped=zipped):
                    loaded = torch.load(saved(state, zipped), map_location=map_location, weights_only=zipped)
                    self.assertEqual(loaded["weight"].device, torch.device(expected))
                    self.assertEqual(loaded["weight"].cpu(), state["weight"].cpu())
                    self.assertEqual(loaded["host"], state["host"])

    def test_cpu_file_mapped_to_npu(self):
        for zipped in (True, False):
            loaded = torch.load(saved(torch.arange(5), zipped), map_location="npu:1")
            self.assertEqual(loaded.device, torch.device("npu:1"))
            self.assertEqual(loaded.cpu(), torch.arange(5))

    def test_device_that_this_host_lacks(self):
        script = """
import sys, torch
torch.save({"w": torch.arange(4.0, device="npu:7")}, sys.argv[1] if len(sys.argv) > 1 else "%s")
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "seven.pt")
            result = run_in_process(script % path)
            self.assertEqual(result.returncode, 0, result.stderr)
            load = f"""
import torch
try:
    torch.load({path!r})
except RuntimeError as error:
    print(error)
print(torch.load({path!r}, map_location="npu:0")["w"].cpu().tolist())
print(torch.load({path!r}, map_location={{"npu:7": "cpu"}})["w"].device)
"""
            result = run_in_process(load, ASCEND_RT_VISIBLE_DEVICES="0,1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("NPU device 7 but torch.npu.device_count() is 2", result.stdout)
        self.assertIn("[0.0, 1.0, 2.0, 3.0]\ncpu\n", result.stdout)

    def test_mmap_and_weights_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.pt")
            torch.save({"w": torch.arange(4.0, device="npu")}, path)
            loaded = torch.load(path, map_location="npu", mmap=True, weights_only=True)
            self.assertEqual(loaded["w"].cpu(), torch.arange(4.0))

    def test_module_and_optimizer_state(self):
        model = torch.nn.Linear(3, 2).npu()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 3, device="npu")).sum().backward()
        optimizer.step()
        state = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
        other = torch.nn.Linear(3, 2).npu()
        other.load_state_dict(state["model"])
        other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
        other_optimizer.load_state_dict(state["optimizer"])
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            self.assertEqual(a, b)
            momentum = other_optimizer.state[b]["momentum_buffer"]
            self.assertTrue(momentum.is_npu)
            self.assertEqual(momentum, optimizer.state[a]["momentum_buffer"])

    def test_state_dict_mapped_to_a_device_of_an_int(self):
        model = torch.nn.Linear(3, 2)
        state = torch.load(saved(model.state_dict()), map_location=torch.device(0))
        self.assertTrue(all(value.device == torch.device("npu:0") for value in state.values()))


class TestPickle(TestCase):
    def test_every_dtype_is_bit_exact(self):
        for dtype in DTYPES:
            for make in (lambda v: pickle.loads(pickle.dumps(v)), lambda v: torch.load(saved(v))):
                value = torch.tensor([0, 1, 2, 77]).to(dtype).to("npu")
                back = make(value)
                self.assertEqual((back.dtype, back.device), (value.dtype, value.device))
                self.assertTrue(torch.equal(back.cpu(), value.cpu()))

    def test_views_still_share_their_storage(self):
        base = torch.arange(10.0, device="npu")
        for make in (lambda v: torch.load(saved(v)), lambda v: torch.load(saved(v, False)), copy.deepcopy):
            first, second = make([base[2:8], base[4:]])
            self.assertEqual(first.untyped_storage().data_ptr(), second.untyped_storage().data_ptr())
            first[2] = 100.0
            self.assertEqual(second[0].item(), 100.0)
        self.assertEqual(base.cpu(), torch.arange(10.0))

    def test_strides_and_offset(self):
        value = torch.arange(24.0, device="npu").reshape(4, 6).t()[1:, ::2]
        back = pickle.loads(pickle.dumps(value))
        self.assertEqual((back.stride(), back.storage_offset()), (value.stride(), value.storage_offset()))
        self.assertEqual(back.cpu(), value.cpu())

    def test_parameter(self):
        parameter = torch.nn.Parameter(torch.ones(2, device="npu"))
        back = pickle.loads(pickle.dumps(parameter))
        self.assertIsInstance(back, torch.nn.Parameter)
        self.assertTrue(back.requires_grad and back.is_npu)

    def test_typed_storage(self):
        storage = torch.arange(3.0, device="npu").storage()
        self.assertEqual(storage.type(), "torch.npu.FloatStorage")
        self.assertEqual(pickle.loads(pickle.dumps(storage)).tolist(), [0.0, 1.0, 2.0])


class TestCopies(TestCase):
    def test_deepcopy_module(self):
        model = torch.nn.Linear(3, 2).npu()
        other = copy.deepcopy(model)
        self.assertTrue(other.weight.is_npu)
        self.assertEqual(other.weight, model.weight)
        with torch.no_grad():
            other.weight.zero_()
        self.assertNotEqual(model.weight.abs().sum().item(), 0.0)

    def test_deepcopy_of_a_leaf_copies_its_gradient(self):
        leaf = torch.ones(2, device="npu", requires_grad=True)
        (leaf * 3).sum().backward()
        other = copy.deepcopy(leaf)
        self.assertEqual(other.grad.cpu(), torch.full((2,), 3.0))
        self.assertIsNot(other.grad, leaf.grad)

    def test_deepcopy_of_a_non_leaf_raises(self):
        leaf = torch.ones(2, device="npu", requires_grad=True)
        with self.assertRaisesRegex(RuntimeError, "graph leaves"):
            copy.deepcopy(leaf * 2)

    def test_deepcopy_keeps_ties(self):
        weight = torch.nn.Parameter(torch.ones(2, device="npu"))
        first, second = copy.deepcopy((weight, weight))
        self.assertIs(first, second)

    def test_storage_methods(self):
        storage = torch.arange(3.0).untyped_storage()
        self.assertFalse(storage.is_npu)
        moved = storage.npu()
        self.assertTrue(moved.is_npu)
        self.assertEqual(bytes(moved.cpu()), bytes(storage))
        self.assertEqual(bytes(moved.clone().cpu()), bytes(storage))


class TestSharing(TestCase):
    def test_share_memory_is_harmless(self):
        value = torch.ones(3, device="npu")
        self.assertIs(value.share_memory_(), value)
        self.assertEqual(value.cpu(), torch.ones(3))
        model = torch.nn.Linear(2, 2).npu().share_memory()
        self.assertTrue(model.weight.is_npu)

    def test_sending_to_another_process_says_what_to_do(self):
        from torch.multiprocessing.reductions import reduce_storage, reduce_tensor

        value = torch.ones(3, device="npu")
        with self.assertRaisesRegex(RuntimeError, r"tensor\.cpu\(\)"):
            reduce_tensor(value)
        with self.assertRaisesRegex(RuntimeError, "host memory"):
            reduce_storage(value.untyped_storage())


if __name__ == "__main__":
    run_tests()
