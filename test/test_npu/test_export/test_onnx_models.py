"""Small networks of torchvision and transformers with random weights: onnxruntime gives the numbers that npu gives.

A default run takes three of them, NPU_SLOW_TESTS=1 all.
"""

import functools
import importlib.util
import os
import sys
import unittest
from pathlib import Path

# Before transformers is imported: it asks the network for nothing, and says little.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common_utils import run_tests
from onnx_case import SLOW, OnnxCase, export, needs_onnx

import torch

VISION = importlib.util.find_spec("torchvision") is not None
TEXT = importlib.util.find_spec("transformers") is not None


def vision(name, **options):
    import torchvision.models as models

    return getattr(models, name)(num_classes=10, **options)


def blocks(name, layers):
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, layers, num_classes=10, **{"groups": 4, "width_per_group": 8} if name == "next" else {})


def dense():
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 2, 2, 2), 16, num_classes=10)


def vit():
    from torchvision.models import VisionTransformer

    model = VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=10)
    torch.nn.init.normal_(model.heads.head.weight)
    return model


def swin():
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=10, layer_scale=1.0)


def lraspp():
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    return _First(model, "out")


class _First(torch.nn.Module):
    """One of a model's results."""

    def __init__(self, model, key):
        super().__init__()
        self.model, self.key = model, key

    def forward(self, *args):
        return self.model(*args)[self.key]


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 50,
    "max_position_embeddings": 32,
}


def text(kind, key="last_hidden_state", **sizes):
    import transformers

    config = getattr(transformers, f"{kind}Config")(**(SIZES | sizes))
    model = getattr(transformers, f"{kind}Model")(config)
    model.config.use_cache = False
    return _First(model, key)


def t5():
    import transformers

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 50}
    return _First(transformers.T5EncoderModel(transformers.T5Config(**sizes)), "last_hidden_state")


def image(size=64):
    return (torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1)),)


def words():
    return (torch.randint(1, 50, (2, 7), generator=torch.Generator().manual_seed(1)),)


# Name: what makes the model, its inputs, and whether the TorchScript exporter takes it at the guide's opset, too.
MODELS = {
    "resnet": (functools.partial(blocks, "", [1, 1, 1, 1]), image, True),
    "mobilenet_v2": (functools.partial(vision, "mobilenet_v2", width_mult=0.25), image, True),
    "vit": (vit, functools.partial(image, 32), False),
    "resnext": (functools.partial(blocks, "next", [1, 1, 1, 1]), image, True),
    "mobilenet_v3": (functools.partial(vision, "mobilenet_v3_small", width_mult=0.5), image, True),
    "shufflenet_v2": (functools.partial(vision, "shufflenet_v2_x0_5"), image, True),
    "squeezenet": (functools.partial(vision, "squeezenet1_1"), image, True),
    "densenet": (dense, image, True),
    "mnasnet": (functools.partial(vision, "mnasnet0_5"), image, True),
    "regnet": (functools.partial(vision, "regnet_y_400mf"), image, True),
    "convnext": (convnext, image, True),
    "swin": (swin, functools.partial(image, 32), False),
    "lraspp": (lraspp, image, True),
    "bert": (functools.partial(text, "Bert"), words, False),
    "roberta": (functools.partial(text, "Roberta", max_position_embeddings=40), words, False),
    "albert": (functools.partial(text, "Albert", embedding_size=8), words, False),
    "electra": (functools.partial(text, "Electra", embedding_size=8), words, False),
    "gpt2": (functools.partial(text, "GPT2", n_embd=16, n_layer=2, n_head=2, n_positions=32), words, False),
    "llama": (functools.partial(text, "Llama", num_key_value_heads=1), words, False),
    "qwen2": (functools.partial(text, "Qwen2", num_key_value_heads=1), words, False),
    "t5": (t5, words, False),
}
DEFAULT = ("resnet", "mobilenet_v2", "vit")


@needs_onnx
class TestModels(OnnxCase):
    def model(self, name):
        make, inputs, guide = MODELS[name]
        if not (VISION if inputs is not words else TEXT):
            self.skipTest("needs torchvision" if inputs is not words else "needs transformers")
        torch.manual_seed(0)
        model = make().eval()
        # Statistics that are not their first values, and weights that let the input through.
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        return model.npu().requires_grad_(False), inputs(), guide

    def check(self, name):
        model, args, guide = self.model(name)
        on_npu = tuple(value.npu() for value in args)
        # Three default models share both exporters; the rest go both ways.
        for dynamo, opset in ((True, 18), (False, 11 if guide else 17)):
            if not SLOW and dynamo != (name == "vit"):
                continue
            if not dynamo and not guide:
                continue
            with self.subTest(dynamo=dynamo, opset=opset):
                self.agrees(export(model, on_npu, dynamo=dynamo, opset=opset), model, args, 2e-4)

    def test_every_name_is_one_network(self):
        self.assertGreaterEqual(len(MODELS), 20)
        self.assertLessEqual(set(DEFAULT), set(MODELS))


def _add(name):
    @unittest.skipUnless(SLOW or name in DEFAULT, "NPU_SLOW_TESTS=1")
    def test(self):
        self.check(name)

    setattr(TestModels, f"test_{name}", test)


for _name in MODELS:
    _add(_name)


if __name__ == "__main__":
    run_tests()
