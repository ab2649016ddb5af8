"""Weights to and from others: safetensors, the plug-in for PyTorch, distributed checkpoints of one process."""

import importlib.util
import io
import logging
import os
import pickle
import pickletools
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch.distributed.checkpoint as dcp
from common_utils import TestCase, run_tests
from torch.distributed.checkpoint.api import CheckpointException

import torch
import torch.npu

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.float64)


def weights(device="npu:0"):
    torch.manual_seed(1)
    return {str(dtype).removeprefix("torch."): (torch.randn(3, 4) * 4).to(dtype).to(device) for dtype in DTYPES}


@unittest.skipIf(importlib.util.find_spec("safetensors") is None, "needs safetensors")
class TestSafetensors(TestCase):
    def test_from_and_to_npu(self):
        from safetensors.torch import load_file, save_file

        state = weights()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            save_file(state, path, metadata={"format": "pt"})
            for target in ("cpu", "npu:0", "npu:1"):
                loaded = load_file(path, device=target)
                for name, value in state.items():
                    self.assertEqual((loaded[name].device, loaded[name].dtype), (torch.device(target), value.dtype))
                    self.assertTrue(torch.equal(loaded[name].cpu(), value.cpu()))

    def test_one_tensor_and_a_model(self):
        from safetensors import safe_open
        from safetensors.torch import load, load_model, save, save_model

        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).npu()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            save_model(model, path)
            other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)).npu()
            load_model(other, path, device="npu:0")
            x = torch.randn(2, 3).npu()
            self.assertEqual(other(x), model(x), prec=0.0)
            with safe_open(path, framework="pt", device="npu:0") as file:
                part = file.get_slice("0.weight")[1:3]
                self.assertTrue(torch.equal(file.get_tensor("0.weight").cpu(), model[0].weight.cpu()))
            self.assertTrue(torch.equal(part.cpu(), model[0].weight[1:3].cpu()))
        self.assertTrue(torch.equal(load(save({"x": x}))["x"], x.cpu()))


class PluginPickler(pickle.Pickler):
    """Writes tensors as the plug-in writes those of an npu: one of the CPU, its function, the format's number."""

    def __init__(self, file, storages, form):
        super().__init__(file, protocol=2)
        self.storages, self.form = storages, form

    def reducer_override(self, value):
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        from torch.npu._format import Format
        from torch.npu.utils.storage import _rebuild_npu_tensor

        info = Format(self.form) if isinstance(self.form, int) and not isinstance(self.form, bool) else self.form
        storage = value._typed_storage()
        arguments = (storage, value.storage_offset(), tuple(value.size()), value.stride(), False, {}, info)
        return _rebuild_npu_tensor, arguments

    def persistent_id(self, value):
        if not isinstance(value, torch.storage.TypedStorage):
            return None
        key = str(len(self.storages))
        self.storages[key] = value
        kind = getattr(torch, torch.storage._dtype_to_storage_type_map()[value.dtype])
        return "storage", kind, key, "cpu", value._size()


def file_of_the_plugin(state, form=2):
    """A file as the plug-in's torch.save makes it."""
    storages, data = {}, io.BytesIO()
    PluginPickler(data, storages, form).dump(state)
    # The names that the plug-in has, of the same lengths or not: pickle's text opcodes end with a line.
    code = data.getvalue().replace(b"ctorch.npu.utils.storage\n", b"ctorch_npu.utils.storage\n")
    code = code.replace(b"ctorch.npu._format\n", b"ctorch_npu.npu._format\n")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", code)
        archive.writestr("archive/byteorder", sys.byteorder)
        for key, storage in storages.items():
            archive.writestr(f"archive/data/{key}", bytes(storage._untyped_storage))
        archive.writestr("archive/version", "3\n")
    file.seek(0)
    return file


# map_location, and where the tensors are then.
PLACES = ((None, "npu:0"), ("cpu", "cpu"), ("npu:1", "npu:1"), ({"cpu": "npu:1"}, "npu:1"))


class TestPlugin(TestCase):
    def test_its_files_load(self):
        state = {"weight": torch.randn(2, 3), "step": torch.tensor([3])}
        state["view"] = state["weight"].t()
        for form in (2, 29, True):
            for weights_only in (True, False):
                for target, expected in PLACES:
                    with self.subTest(form=form, weights_only=weights_only, target=target):
                        file = file_of_the_plugin(state, form)
                        loaded = torch.load(file, map_location=target, weights_only=weights_only)
                        for name, value in state.items():
                            self.assertEqual(loaded[name].device, torch.device(expected))
                            self.assertTrue(torch.equal(loaded[name].cpu(), value))

    def test_its_names_are_in_its_file(self):
        with zipfile.ZipFile(file_of_the_plugin({"x": torch.ones(2)})) as archive:
            code = archive.read("archive/data.pkl")
        names = {argument for operation, argument, _ in pickletools.genops(code) if operation.name == "GLOBAL"}
        self.assertIn("torch_npu.utils.storage _rebuild_npu_tensor", names)
        self.assertIn("torch_npu.npu._format Format", names)

    def test_ours_name_nothing_that_it_lacks(self):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).npu()
        model[0].weight.data = model[0].weight.data.npu_format_cast(4)
        file = io.BytesIO()
        torch.save({"state_dict": model.state_dict(), "epoch": 1}, file)
        file.seek(0)
        self.assertEqual(torch.serialization.get_unsafe_globals_in_checkpoint(file), [])
        with zipfile.ZipFile(file) as archive:
            operations = list(pickletools.genops(archive.read("archive/data.pkl")))
        names = {argument for operation, argument, _ in operations if operation.name == "GLOBAL"}
        for name in names:
            self.assertFalse(name.startswith(("torch.npu", "torch_npu")), name)
        texts = {argument for _, argument, _ in operations if isinstance(argument, str)}
        self.assertIn("npu:0", texts)  # the tag that the plug-in's storages have

    def test_a_location_of_its_kind(self):
        # Storages that other devices of torch tag: `npu:0` is all that such a file says.
        file = io.BytesIO()
        torch.save(torch.arange(4.0, device="npu:0"), file)
        file.seek(0)
        self.assertEqual(torch.load(file).device, torch.device("npu:0"))

    def test_a_failed_load_leaves_nothing_behind(self):
        file = file_of_the_plugin({"x": torch.ones(2)})
        torch.save({"x": print}, broken := io.BytesIO())
        broken.seek(0)
        with self.assertRaises(pickle.UnpicklingError):
            torch.load(broken)
        broken.seek(0)
        self.assertFalse(torch.serialization._serialization_tls.plugin_to_npu)
        self.assertEqual(torch.load(file, map_location="cpu")["x"].device.type, "cpu")


class TestDistributedCheckpoint(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def same(self, state, other):
        for name, value in state.items():
            self.assertTrue(torch.equal(value.cpu(), other[name].cpu()), name)

    def test_one_process_without_a_group(self):
        state = weights()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no group: one process is assumed
            dcp.save(state, checkpoint_id=self.folder)
            for target in ("npu:0", "npu:1", "cpu"):
                other = {name: torch.zeros_like(value, device=target) for name, value in state.items()}
                dcp.load(other, checkpoint_id=self.folder)
                self.same(state, other)
                self.assertEqual(other["float32"].device, torch.device(target))

    def test_model_and_optimizer(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        def made(seed):
            torch.manual_seed(seed)
            model = torch.nn.Linear(3, 2).npu()
            optimizer = torch.optim.AdamW(model.parameters(), 0.1)
            model(torch.ones(1, 3).npu()).sum().backward()
            optimizer.step()
            return model, optimizer

        model, optimizer = made(0)
        other, other_optimizer = made(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state, moments = get_state_dict(model, optimizer)
            dcp.save({"model": state, "optimizer": moments}, checkpoint_id=self.folder)
            state, moments = get_state_dict(other, other_optimizer)
            dcp.load({"model": state, "optimizer": moments}, checkpoint_id=self.folder)
            set_state_dict(other, other_optimizer, model_state_dict=state, optim_state_dict=moments)
        self.same(model.state_dict(), other.state_dict())
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            self.assertEqual(optimizer.state[a]["exp_avg"], other_optimizer.state[b]["exp_avg"], prec=0.0)

    def test_to_and_from_one_file(self):
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

        state = weights()
        path = os.path.join(self.folder, "model.pth")
        torch.save(state, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch_save_to_dcp(path, os.path.join(self.folder, "parts"))
            dcp_to_torch_save(os.path.join(self.folder, "parts"), path)
        self.same(state, torch.load(path))


class TestKilled(TestCase):
    def killed(self, script, *arguments):
        """Runs a script that kills itself in the middle of a save."""
        result = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)

    def test_a_new_folder_each_time_keeps_the_old_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = os.path.join(folder, "1"), os.path.join(folder, "2")
            state = {"x": torch.arange(4.0, device="npu")}
            dcp.save(state, checkpoint_id=first)
            self.killed(
                "import os, sys, torch, torch.distributed.checkpoint as dcp\n"
                "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
                "dcp.save({'x': torch.zeros(4, device='npu')}, checkpoint_id=sys.argv[1])\n",
                second,
            )
            other = {"x": torch.zeros(4, device="npu")}
            dcp.load(other, checkpoint_id=first)
            self.assertTrue(torch.equal(other["x"].cpu(), torch.arange(4.0)))
            # What was not finished has no metadata, and says so instead of giving half of the numbers.
            logging.disable()
            self.addCleanup(logging.disable, logging.NOTSET)
            with self.assertRaisesRegex(CheckpointException, "metadata"):
                dcp.load(other, checkpoint_id=second)

    def test_replacing_keeps_the_old_file(self):
        """What docs/export.md shows: written beside it, then renamed over it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint.pth.tar")
            torch.save({"x": torch.arange(4.0, device="npu")}, path)
            self.killed(
                "import os, sys, torch\n"
                "path = sys.argv[1]\n"
                "class Stops:\n"
                "    def __reduce__(self):\n"
                "        os.kill(os.getpid(), 9)\n"
                "torch.save({'x': torch.zeros(4, device='npu'), 'y': Stops()}, path + '.new')\n"
                "os.replace(path + '.new', path)\n",
                path,
            )
            self.assertEqual(torch.load(path)["x"].cpu(), torch.arange(4.0))


if __name__ == "__main__":
    run_tests()
