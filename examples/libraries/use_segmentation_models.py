"""segmentation-models-pytorch: every architecture over small encoders, losses and metrics on npu."""

import segmentation_models_pytorch as smp
from side_by_side import check, main, randint, randn, seeded, train

# Architecture: (encoder, its options). Small, random, for images of 64 x 64, or 128 x 128.
MODELS = {
    "Unet": ("resnet18", {"encoder_depth": 3, "decoder_channels": (32, 16, 8)}),
    "UnetPlusPlus": ("resnet18", {"encoder_depth": 3, "decoder_channels": (32, 16, 8)}),
    "FPN": ("mobilenet_v2", {"decoder_pyramid_channels": 32, "decoder_segmentation_channels": 32}),
    "Linknet": ("resnet18", {}),
    "PSPNet": ("resnet18", {"psp_out_channels": 32}),
    "DeepLabV3": ("resnet18", {"decoder_channels": 32}),
    "DeepLabV3Plus": ("mobilenet_v2", {"decoder_channels": 32}),
    "MAnet": ("resnet18", {"encoder_depth": 3, "decoder_channels": (32, 16, 8)}),
    "PAN": ("resnet18", {"decoder_channels": 32}),
    "UPerNet": ("resnet18", {"decoder_channels": 32}),
    "Segformer": ("mit_b0", {"decoder_segmentation_channels": 32}),
}


def register(name: str, encoder: str, options: dict) -> None:
    @check(f"{name} over {encoder}, Dice and focal loss, training", tolerance=2e-3, slow=name != "Unet")
    def run(device: str) -> list[float]:
        seeded()
        model = getattr(smp, name)(encoder, encoder_weights=None, classes=3, **options).to(device).train()
        # The same masks everywhere: dropout draws from the device's generator.
        for module in model.modules():
            if "Drop" in type(module).__name__:
                module.eval()
        side = 128 if name == "PAN" else 64
        images, masks = randn(2, 3, side, side).to(device), randint(3, 2, side, side).to(device)
        dice = smp.losses.DiceLoss("multiclass", from_logits=True)
        focal = smp.losses.FocalLoss("multiclass")
        return train(model, lambda m, _: dice(m(images), masks) + focal(m(images), masks), steps=2, lr=1e-4)


for each, (encoder, options) in MODELS.items():
    register(each, encoder, options)


@check("losses: Dice, Jaccard, Tversky, focal, Lovasz, soft BCE, soft CE, MCC")
def losses(device):
    scores, masks = randn(2, 3, 16, 16).to(device).requires_grad_(), randint(3, 2, 16, 16).to(device)
    one, halves = scores[:, :1], (masks[:, None] > 0).float()
    kinds = smp.losses
    found = [kind("multiclass")(scores, masks) for kind in (kinds.DiceLoss, kinds.JaccardLoss, kinds.TverskyLoss)]
    found += [kinds.FocalLoss("multiclass")(scores, masks), kinds.LovaszLoss("multiclass")(scores, masks)]
    found += [kinds.SoftBCEWithLogitsLoss(smooth_factor=0.1)(one, halves), kinds.MCCLoss()(one.sigmoid(), halves)]
    found.append(kinds.SoftCrossEntropyLoss(smooth_factor=0.1)(scores, masks))
    sum(found).backward()
    return [*found, scores.grad]


@check("metrics: true and false positives, IoU, F1, accuracy, recall", tolerance=0.0)
def metrics(device):
    found, masks = randint(3, 4, 16, 16, seed=1).to(device), randint(3, 4, 16, 16).to(device)
    stats = smp.metrics.get_stats(found, masks, mode="multiclass", num_classes=3)
    scores = [smp.metrics.iou_score, smp.metrics.f1_score, smp.metrics.accuracy, smp.metrics.recall]
    return [*stats, *(score(*stats, reduction=way) for score in scores for way in ("micro", "macro-imagewise"))]


@check("classification head beside the masks, saved and loaded", tolerance=1e-4)
def heads(device):
    import tempfile

    seeded()
    auxiliary = {"classes": 4, "pooling": "avg"}
    model = smp.Unet("resnet18", encoder_weights=None, classes=2, aux_params=auxiliary).to(device).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = smp.from_pretrained(folder).to(device).eval()
    masks, labels = again(randn(1, 3, 64, 64).to(device))
    return [masks, labels]


if __name__ == "__main__":
    main("segmentation-models-pytorch")
