"""Files as the porting guide writes and reads them: .pth, .pt and .pth.tar, both spellings of the keys, `module.`."""

import io
import os
import pickle
import sys
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import TestCase, run_tests

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def trained(device="npu"):
    """A model and an optimizer after a step, so that statistics and momentum are not their first values."""
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss = model(torch.randn(2, 3, 6, 6).to(device)).sum()
    loss.backward()
    optimizer.step()
    return model, optimizer, loss


class InFolder(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def same_results(self, model, other):
        x = torch.randn(2, 3, 6, 6).npu()
        self.assertEqual(model.eval()(x), other.eval()(x), prec=0.0)


class TestStateDict(InFolder):
    def test_pth_and_pt(self):
        model, _, _ = trained()
        for name in ("state_dict_model.pt", "resnet50.pth"):
            torch.save(model.state_dict(), self.path(name))
            other = Net().npu()
            other.load_state_dict(torch.load(self.path(name)))
            self.same_results(model, other)

    def test_a_whole_model_needs_its_class(self):
        file = io.BytesIO()
        torch.save(trained()[0], file)
        file.seek(0)
        with self.assertRaisesRegex(pickle.UnpicklingError, "Weights only load failed"):
            torch.load(file)
        file.seek(0)
        self.same_results(torch.load(file, weights_only=False), trained()[0])
        held = Net
        try:
            del globals()["Net"]
            file.seek(0)
            with self.assertRaisesRegex(AttributeError, "Net"):
                torch.load(file, weights_only=False)
        finally:
            globals()["Net"] = held

    def test_safe_globals(self):
        file = io.BytesIO()
        torch.save(torch.nn.Sequential(OrderedDict(fc=torch.nn.Linear(2, 2))).npu(), file)
        file.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        self.assertIn("torch.nn.modules.linear.Linear", names)
        with torch.serialization.safe_globals([torch.nn.Sequential, torch.nn.Linear]):
            file.seek(0)
            model = torch.load(file)
        self.assertTrue(model.fc.weight.is_npu)


class TestCheckpoint(InFolder):
    def save(self, weights, optimizer_key):
        model, optimizer, loss = trained()
        state = {"epoch": 3, "loss": loss, weights: model.state_dict(), optimizer_key: optimizer.state_dict()}
        torch.save(state, self.path("checkpoint.pth.tar"))
        return model, optimizer

    def test_both_spellings_of_the_keys(self):
        for weights, key in (("state_dict", "optimizer"), ("model_state_dict", "optimizer_state_dict")):
            model, optimizer = self.save(weights, key)
            checkpoint = torch.load(self.path("checkpoint.pth.tar"))
            other = Net().npu()
            other_optimizer = torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
            other.load_state_dict(checkpoint[weights])
            other_optimizer.load_state_dict(checkpoint[key])
            self.assertEqual((checkpoint["epoch"], checkpoint["loss"].device.type), (3, "npu"))
            for a, b in zip(model.parameters(), other.parameters(), strict=True):
                momentum = other_optimizer.state[b]["momentum_buffer"]
                self.assertTrue(momentum.is_npu)
                self.assertEqual(momentum, optimizer.state[a]["momentum_buffer"], prec=0.0)
            # The next step is the same, too.
            for net, step in ((model, optimizer), (other, other_optimizer)):
                step.zero_grad()
                net.train()(torch.ones(2, 3, 6, 6).npu()).sum().backward()
                step.step()
            for a, b in zip(model.parameters(), other.parameters(), strict=True):
                self.assertEqual(a, b, prec=0.0)

    def test_optimizer_of_the_cpu_goes_on_on_npu(self):
        model, optimizer, _ = trained("cpu")
        torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, self.path("cpu.pth.tar"))
        checkpoint = torch.load(self.path("cpu.pth.tar"), map_location="npu:0")
        other = Net().npu()
        other.load_state_dict(checkpoint["state_dict"])
        other_optimizer = torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
        other_optimizer.load_state_dict(checkpoint["optimizer"])
        for parameter in other.parameters():
            self.assertTrue(other_optimizer.state[parameter]["momentum_buffer"].is_npu)

    def test_without_amp_key(self):
        self.save("state_dict", "optimizer")
        checkpoint = torch.load(self.path("checkpoint.pth.tar"), map_location="npu:0")
        self.assertNotIn("amp", checkpoint)
        scaler = torch.npu.amp.GradScaler()
        checkpoint["amp"] = scaler.state_dict()
        torch.save(checkpoint, self.path("with_amp.pth.tar"))
        other = torch.npu.amp.GradScaler(init_scale=2.0)
        other.load_state_dict(torch.load(self.path("with_amp.pth.tar"))["amp"])
        self.assertEqual(other.get_scale(), scaler.get_scale())

    def test_module_prefix(self):
        model, _, _ = trained()
        wrapped = OrderedDict((f"module.{key}", value) for key, value in model.state_dict().items())
        torch.save({"state_dict": wrapped}, self.path("ddp.pth.tar"))
        checkpoint = torch.load(self.path("ddp.pth.tar"), map_location=torch.device("cpu"))
        other = Net()
        with self.assertRaisesRegex(RuntimeError, "module.fc.weight"):
            other.load_state_dict(checkpoint["state_dict"])
        # As the guide strips it when it exports, and as its question on load_state_dict errors does.
        plain = OrderedDict((k[7:] if k[0:7] == "module." else k, v) for k, v in checkpoint["state_dict"].items())
        other.load_state_dict(plain)
        self.same_results(model, other.npu())
        torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(checkpoint["state_dict"], "module.")
        Net().load_state_dict(checkpoint["state_dict"])


class TestDirections(InFolder):
    def test_between_cpu_npu_and_meta(self):
        model, _, _ = trained()
        for source in ("cpu", "npu:0", "npu:1", "meta"):
            state = {key: value.to(source) for key, value in model.state_dict().items()}
            for zipped in (True, False):
                if source == "meta" and not zipped:
                    continue  # upstream's old files have no tensors without data
                path = self.path("state.pth")
                torch.save(state, path, _use_new_zipfile_serialization=zipped)
                for target in ("cpu", "npu:0", "npu:1", "meta") if source != "meta" else ("meta",):
                    with self.subTest(source=source, target=target, zipped=zipped):
                        loaded = torch.load(path, map_location=target)
                        for key, value in state.items():
                            self.assertEqual(loaded[key].device, torch.device(target))
                            self.assertEqual(loaded[key].shape, value.shape)
                            if target != "meta":
                                self.assertTrue(torch.equal(loaded[key].cpu(), value.cpu()))

    def test_mmap(self):
        model, _, _ = trained()
        path = self.path("state.pth")
        torch.save(model.state_dict(), path)
        for target in ("cpu", "npu:0", "meta"):
            loaded = torch.load(path, map_location=target, mmap=True, weights_only=True)
            self.assertTrue(all(value.device == torch.device(target) for value in loaded.values()))
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False)
        with self.assertRaisesRegex(RuntimeError, "mmap can only be used"):
            torch.load(path, mmap=True)

    def test_a_model_without_memory_takes_the_file_s_tensors(self):
        model, _, _ = trained()
        torch.save(model.state_dict(), self.path("state.pth"))
        with torch.device("meta"):
            other = Net()
        other.load_state_dict(torch.load(self.path("state.pth"), map_location="npu:0", mmap=True), assign=True)
        self.same_results(model, other)

    def test_formats_and_quantized_tensors(self):
        plain = torch.randn(2, 16, 8, 8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # upstream's, of quantized tensors
            coded = torch.quantize_per_tensor(plain, 0.1, 3, torch.quint8)
        for zipped in (True, False):
            file = io.BytesIO()
            torch.save(
                {"formatted": plain.npu().npu_format_cast(3), "coded": coded.npu()},
                file,
                _use_new_zipfile_serialization=zipped,
            )
            for target in ("cpu", "npu:0", "npu:1"):
                file.seek(0)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # TypedStorage, in old files
                    loaded = torch.load(file, map_location=target)
                self.assertEqual({value.device for value in loaded.values()}, {torch.device(target)})
                self.assertTrue(torch.equal(loaded["formatted"].cpu(), plain))
                self.assertTrue(torch.equal(loaded["coded"].cpu(), coded))


if __name__ == "__main__":
    run_tests()
