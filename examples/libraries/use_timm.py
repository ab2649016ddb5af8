"""timm: image models of several kinds, its optimizers, schedules, averaged weights and losses on npu."""

import timm
from side_by_side import check, main, randint, randn, seeded, train
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

import torch

# Each with small sizes of its own, so that a step takes a fraction of a second.
MODELS = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "deit_tiny_patch16_224": {"img_size": 32, "depth": 2},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
    "mobilenetv4_conv_small_050": {},
    "mixer_s32_224": {"img_size": 32},
    "regnetx_002": {},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "depths": (1, 1, 1, 1)},
    "maxvit_rmlp_pico_rw_256": {"img_size": 64},
    "edgenext_xx_small": {},
}


def classifier(name: str, device: str, side: int) -> list[float]:
    seeded()
    model = timm.create_model(name, pretrained=False, num_classes=5, drop_path_rate=0.0, **MODELS[name])
    model = model.to(device).train()
    images, labels = randn(4, 3, side, side).to(device), randint(5, 4).to(device)
    return train(model, lambda m, _: torch.nn.functional.cross_entropy(m(images), labels), steps=2, lr=1e-4)


def register(name: str, options: dict) -> None:
    side = options.get("img_size", 64)

    @check(f"{name}, training", tolerance=1e-3, slow=name not in ("resnet10t", "vit_tiny_patch16_224"))
    def run(device: str) -> list[float]:
        return classifier(name, device, side)


for each, sizes in MODELS.items():
    register(each, sizes)


@check("optimizers: adamw, lamb, lion, adopt, muon, nadamw, adafactor, madgrad", tolerance=1e-3)
def optimizers(device):
    found = []
    for name in ("adamw", "lamb", "lion", "adopt", "muon", "nadamw", "adafactor", "madgrad"):
        seeded()
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(device)
        optimizer = create_optimizer_v2(model, opt=name, lr=1e-2, weight_decay=0.01)
        x, y = randn(16, 8).to(device), randint(4, 16).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
    return found


@check("label smoothing, soft targets, averaged weights")
def helpers(device):
    seeded()
    model = torch.nn.Linear(8, 4).to(device)
    averaged = ModelEmaV3(model, decay=0.9)
    x, y = randn(16, 8).to(device), randint(4, 16).to(device)
    losses = train(model, lambda m, _: LabelSmoothingCrossEntropy()(m(x), y))
    averaged.update(model)
    soft = SoftTargetCrossEntropy()(model(x), torch.softmax(randn(16, 4, seed=3), -1).to(device))
    return [*losses, soft, *averaged.module.parameters()]


if __name__ == "__main__":
    main("timm")
