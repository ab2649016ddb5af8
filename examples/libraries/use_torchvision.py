"""torchvision: classifiers, detectors, segmentation, operators and transforms on npu."""

import torchvision
from side_by_side import check, main, randint, randn, seeded, train
from torch.nn import functional as F
from torchvision import ops
from torchvision.transforms import v2

import torch


def classifier(name: str, device: str, side: int = 64) -> list[float]:
    seeded()
    model = torchvision.models.get_model(name, weights=None, num_classes=5).to(device).train()
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, ops.StochasticDepth)):
            module.p = 0.0
    images, labels = randn(4, 3, side, side).to(device), randint(5, 4).to(device)
    return train(model, lambda m, _: F.cross_entropy(m(images), labels))


@check("resnet18, training", tolerance=5e-3)
def resnet(device):
    return classifier("resnet18", device)


@check("mobilenet_v3_small, training", tolerance=1e-3)
def mobilenet(device):
    return classifier("mobilenet_v3_small", device)


@check("convnext_tiny, training", slow=True)
def convnext(device):
    return classifier("convnext_tiny", device, side=32)


@check("swin_t, training", slow=True)
def swin(device):
    return classifier("swin_t", device)


def boxes_of(count: int, seed: int = 0) -> torch.Tensor:
    corner, size = randn(count, 2, seed=seed).abs() * 20, randn(count, 2, seed=seed + 1).abs() * 20 + 2
    return torch.cat([corner, corner + size], 1)


@check("fasterrcnn_mobilenet_v3_large_320_fpn, training", tolerance=1e-3, slow=True)
def detector(device):
    seeded()
    # A sampler that takes every proposal: which ones a device draws is its own.
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_batch_size_per_image=100000,
        box_batch_size_per_image=100000,
    ).to(device)
    images = [image.to(device) for image in randn(2, 3, 64, 64).abs().clamp(0, 1)]
    targets = [
        {"boxes": boxes_of(3, seed).clamp(0, 64).to(device), "labels": torch.tensor([1, 2, 1], device=device)}
        for seed in (3, 5)
    ]
    return train(model.train(), lambda m, _: sum(m(images, targets).values()), steps=2)


@check("deeplabv3_mobilenet_v3_large, training", tolerance=1e-3, slow=True)
def segmentation(device):
    seeded()
    model = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    ).to(device)
    for module in model.modules():
        if isinstance(module, (torch.nn.Dropout, ops.StochasticDepth)):
            module.p = 0.0
    images, labels = randn(2, 3, 64, 64).to(device), randint(4, 2, 64, 64).to(device)
    return train(model.train(), lambda m, _: F.cross_entropy(m(images)["out"], labels))


@check("nms, batched_nms, roi_align, roi_pool, deform_conv2d, box_iou")
def operators(device):
    boxes, scores = boxes_of(40).to(device), randn(40, seed=2).to(device)
    images = randn(2, 4, 16, 16).to(device)
    rois = torch.cat([torch.arange(2.0).repeat(4).unsqueeze(1).to(device), boxes[:8] / 4], 1)
    offset, weight = randn(2, 18, 14, 14, seed=4).to(device), randn(6, 4, 3, 3, seed=5).to(device)
    return [
        ops.nms(boxes, scores, 0.4),
        ops.batched_nms(boxes, scores, torch.arange(40, device=device) % 3, 0.4),
        ops.roi_align(images, rois, (3, 3)),
        ops.roi_pool(images, rois, (3, 3)),
        ops.deform_conv2d(images, offset, weight),
        ops.box_iou(boxes, boxes),
    ]


@check("transforms.v2 of a batch", tolerance=1e-4)
def transforms(device):
    images = randn(4, 3, 24, 24).abs().clamp(0, 1).to(device)
    chain = v2.Compose([v2.Resize(16, antialias=True), v2.CenterCrop(12), v2.Grayscale(3), v2.Normalize([0.5], [0.2])])
    return [chain(images), v2.functional.rotate(images, 30.0), v2.functional.gaussian_blur(images, [5, 5])]


@check("io: encode_png, decode_image", limit="its codecs are linked against CUDA's libraries; PIL reads files")
def codecs(device):
    image = randint(255, 3, 8, 8).to(torch.uint8)
    return [torchvision.io.decode_image(torchvision.io.encode_png(image)).to(device)]


if __name__ == "__main__":
    main("torchvision")
