"""torch.onnx.export of npu models by both exporters: opsets, dynamic batches, the guide's scripts and its warnings."""

import importlib.util
import os
import sys
import tempfile
import unittest
import warnings
from collections import OrderedDict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import run_tests
from onnx_case import OnnxCase, export, needs_onnx, opset_of, run
from torch.nn import functional as F

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.linear = nn.Linear(8, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.linear(self.drop(x.mean((2, 3))))


def net(seed=0):
    torch.manual_seed(seed)
    model = Net()
    model.norm.running_mean.normal_()
    return model.npu().eval()


def image(batch=2):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))


@needs_onnx
class TestExporters(OnnxCase):
    def test_both_at_their_opsets(self):
        import onnx

        model, x = net(), image()
        for dynamo, opset in ((False, 11), (False, 18), (True, 18)):
            with self.subTest(dynamo=dynamo, opset=opset):
                proto = export(model, (x.npu(),), dynamo=dynamo, opset=opset)
                onnx.checker.check_model(proto, full_check=True)
                self.assertEqual(opset_of(proto), opset)
                self.agrees(proto, model, (x,))

    def test_defaults(self):
        model, x = net(), image()
        for dynamo in (True, False):
            self.agrees(export(model, (x.npu(),), dynamo=dynamo), model, (x,))

    def test_dynamic_batch(self):
        model = net()
        axes = {"x": {0: "batch_size"}, "y": {0: "batch_size"}}
        shapes = {"x": {0: torch.export.Dim("batch_size")}}
        for dynamo, opset, options in (
            (False, 11, {"dynamic_axes": axes}),
            (True, 18, {"dynamic_shapes": shapes}),
        ):
            proto = export(
                model, (image().npu(),), dynamo=dynamo, opset=opset, input_names=["x"], output_names=["y"], **options
            )
            for value in (*proto.graph.input, *proto.graph.output):
                self.assertEqual(value.type.tensor_type.shape.dim[0].dim_param, "batch_size")
            for batch in (1, 3, 7):
                self.agrees(proto, model, (image(batch),))

    def test_several_inputs_and_results(self):
        class Several(nn.Module):
            def forward(self, x, pair):
                return {"sum": x + pair[0], "product": (x * pair[1] * 2.0, pair[1].long())}

        args = (torch.randn(2, 3), (torch.randn(2, 3), torch.randn(3)))
        on_npu = torch.utils._pytree.tree_map(lambda t: t.npu(), args)
        for dynamo in (True, False):
            self.agrees(export(Several(), on_npu, dynamo=dynamo, opset=18), Several(), args)

    def test_half_weights_and_other_devices(self):
        for device in ("npu:1", "npu:0"):
            model = net().to(device).half()
            proto = export(model, (image().half().to(device),), dynamo=False, opset=11)
            (result,) = run(proto, (image().half(),))
            expected = model(image().half().to(device)).detach().cpu().numpy()
            self.assertEqual(result, expected, prec=2e-2)

    def test_weights_in_a_private_format(self):
        model, x = net(), image()
        expected = model(x.npu())
        model.conv.weight.data = model.conv.weight.data.npu_format_cast(4)
        (result,) = run(export(model, (x.npu(),), dynamo=False, opset=11), (x,))
        self.assertEqual(result, expected.detach().cpu().numpy(), prec=1e-4)

    def test_recurrent_and_embedding_layers(self):
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(20, 6)
                self.lstm = nn.LSTM(6, 5, bidirectional=True)

            def forward(self, x):
                return self.lstm(self.words(x))[0]

        torch.manual_seed(0)
        model, x = Tagger().npu().eval(), torch.randint(0, 20, (4, 2))
        self.agrees(export(model, (x.npu(),), dynamo=False, opset=11), model, (x,))

    def test_a_scripted_and_a_traced_model(self):
        model, x = net(), image()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # upstream's, of torch.jit
            both = torch.jit.trace(model, x.npu()), torch.jit.script(model)
        for made in both:
            self.agrees(export(made, (x.npu(),), dynamo=False, opset=11), model, (x,))

    def test_an_exported_program(self):
        model, x = net(), image()
        program = torch.export.export(model, (x.npu(),))
        self.agrees(export(program, (), dynamo=True, opset=18), model, (x,))

    def test_the_model_stays_as_it_was(self):
        model, x = net(), image()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        for dynamo in (True, False):
            export(model, (x.npu(),), dynamo=dynamo, opset=18)
        self.assertFalse(model.training)
        for name, value in model.state_dict().items():
            self.assertEqual(value.device.type, "npu")
            self.assertTrue(torch.equal(value, before[name]))


@needs_onnx
class TestWarnings(OnnxCase):
    def told(self, model, x, dynamo, opset, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            export(model, (x,), dynamo=dynamo, opset=opset, quiet=False, **options)
        return [str(warning.message) for warning in caught]

    def test_training_mode(self):
        for dynamo in (False, True):
            said = self.told(net().train(), image().npu(), dynamo, 18)
            self.assertEqual(len([text for text in said if "training mode" in text]), 1, said)
            said = self.told(net(), image().npu(), dynamo, 18)
            self.assertFalse([text for text in said if "training mode" in text], said)

    def test_opset(self):
        def about_opset(said):
            return [text for text in said if "opset 11" in text]

        self.assertEqual(about_opset(self.told(net(), image().npu(), False, 11)), [])
        for dynamo, opset, words in ((False, 12, "opset_version=12"), (True, 18, "opset_version=18")):
            (text,) = about_opset(self.told(net(), image().npu(), dynamo, opset))
            self.assertIn(words, text)
            self.assertIn("torch.npu.onnx.check", text)
        (text,) = about_opset(self.told(net(), image().npu(), True, None))
        self.assertIn("no opset_version is given", text)

    def test_a_model_on_the_cpu_is_nobody_s_business(self):
        said = self.told(net().cpu(), image(), False, 13)
        self.assertFalse([text for text in said if "ATC" in text], said)


@needs_onnx
@unittest.skipIf(importlib.util.find_spec("torchvision") is None, "needs torchvision")
class TestGuide(OnnxCase):
    """The guide's two scripts, with smaller networks' weights made here."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.before = os.getcwd()
        os.chdir(folder.name)
        self.addCleanup(os.chdir, self.before)

    def test_pth(self):
        import onnx
        import torchvision.models as models

        torch.manual_seed(0)
        trained = models.resnet18(num_classes=10).npu()
        trained(torch.randn(2, 3, 64, 64).npu())  # running statistics
        torch.save(trained.state_dict(), "resnet18.pth")

        model = models.resnet18(num_classes=10)
        model.load_state_dict(torch.load("resnet18.pth", map_location="cpu"))
        model.eval()
        dummy = torch.randn(1, 3, 64, 64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                model,
                dummy,
                "resnet18_official.onnx",
                input_names=["input"],
                output_names=["output"],
                opset_version=11,
                dynamic_axes={"input": {0: "batch_size"}, "output": {0: "batch_size"}},
                dynamo=False,
            )
        proto = onnx.load("resnet18_official.onnx")
        onnx.checker.check_model(proto, full_check=True)
        self.assertEqual(opset_of(proto), 11)
        for value in (*proto.graph.input, *proto.graph.output):
            self.assertEqual(value.type.tensor_type.shape.dim[0].dim_param, "batch_size")
        self.agrees(proto, trained.eval(), (torch.randn(3, 3, 64, 64),), 1e-3)

    def test_pth_tar(self):
        import onnx
        import torchvision.models as models

        def proc_nodes_module(checkpoint, name):
            return OrderedDict((k[7:] if k[0:7] == "module." else k, v) for k, v in checkpoint[name].items())

        torch.manual_seed(0)
        trained = models.mobilenet_v2(num_classes=10, width_mult=0.25).npu().eval()
        state = OrderedDict((f"module.{key}", value) for key, value in trained.state_dict().items())
        torch.save({"state_dict": state}, "mobilenet.pth.tar")

        checkpoint = torch.load("mobilenet.pth.tar", map_location=torch.device("cpu"))
        model = models.mobilenet_v2(num_classes=10, width_mult=0.25)
        model.load_state_dict(proc_nodes_module(checkpoint, "state_dict"))
        model.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                model,
                torch.randn(1, 3, 64, 64),
                "mobilenetV2_npu.onnx",
                input_names=["actual_input_1"],
                output_names=["output1"],
                opset_version=11,
                dynamo=False,
            )
        proto = onnx.load("mobilenetV2_npu.onnx")
        self.assertEqual([value.name for value in proto.graph.input], ["actual_input_1"])
        self.assertEqual([value.name for value in proto.graph.output], ["output1"])
        self.agrees(proto, trained, (torch.randn(1, 3, 64, 64),), 1e-3)


if __name__ == "__main__":
    run_tests()
