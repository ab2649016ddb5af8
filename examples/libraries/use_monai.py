"""monai: networks for volumes, losses, metrics, transforms, sliding windows and its engines on npu."""

import monai
from monai import losses, metrics, transforms
from monai.data import MetaTensor
from monai.inferers import SlidingWindowInferer, sliding_window_inference
from monai.networks import nets
from monai.networks.utils import one_hot
from side_by_side import check, main, randint, randn, train

import torch


def volume(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return randn(*(shape or (2, 1, 16, 16, 16)), seed=seed).to(device)


def labels(device: str, *shape: int, classes: int = 3, seed: int = 1) -> torch.Tensor:
    """(batch, 1, ...) of blobs, so that surfaces and components exist."""
    shape = shape or (2, 1, 16, 16, 16)
    smooth = torch.nn.functional.avg_pool3d(randn(*shape, seed=seed), 5, 1, 2)
    return torch.bucketize(smooth, torch.tensor([-0.03, 0.03])[: classes - 1]).float().to(device)


NETWORKS = {
    "UNet": lambda: nets.UNet(3, 1, 3, (4, 8, 16), (2, 2), num_res_units=1),
    "DynUNet": lambda: nets.DynUNet(3, 1, 3, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16]),
    "SegResNet": lambda: nets.SegResNet(3, 8, 1, 3, blocks_down=(1, 1), blocks_up=(1,), num_groups=4),
    "AttentionUnet": lambda: nets.AttentionUnet(3, 1, 3, (4, 8, 16), (2, 2)),
}


def network_check(name: str):
    @check(f"{name}, DiceCELoss, training", tolerance=1e-3, slow=name not in ("UNet", "SegResNet"))
    def run(device):
        torch.manual_seed(0)
        loss = losses.DiceCELoss(to_onehot_y=True, softmax=True)
        model = NETWORKS[name]().to(device)
        return train(model, lambda m, step: loss(m(volume(device, seed=step % 2)), labels(device)), lr=1e-2)

    return run


for each in NETWORKS:
    network_check(each)


@check("DenseNet, ViT, classification of volumes, training", tolerance=1e-3, slow=True)
def classification(device):
    torch.manual_seed(0)
    dense = nets.DenseNet(3, 1, 2, init_features=8, growth_rate=4, block_config=(2, 2)).to(device)
    sizes = {"hidden_size": 24, "mlp_dim": 32, "num_layers": 2, "num_heads": 3, "num_classes": 2}
    transformer = nets.ViT(1, (16, 16, 16), (8, 8, 8), classification=True, **sizes).to(device)
    wanted = randint(2, 2).to(device)
    cross = torch.nn.functional.cross_entropy
    found = train(dense, lambda m, step: cross(m(volume(device, seed=step % 2)), wanted))
    return found + train(transformer, lambda m, step: cross(m(volume(device, seed=step % 2))[0], wanted))


@check("losses: Dice, focal, Tversky, Hausdorff, clDice, SSIM, NCC, mutual information", tolerance=1e-3)
def criteria(device):
    scores = volume(device, 2, 3, 16, 16, 16).requires_grad_()
    wanted = labels(device)
    image, other = volume(device).sigmoid(), volume(device, seed=3).sigmoid()
    found = [
        losses.DiceLoss(to_onehot_y=True, softmax=True)(scores, wanted),
        losses.GeneralizedDiceLoss(to_onehot_y=True, softmax=True)(scores, wanted),
        losses.DiceFocalLoss(to_onehot_y=True, softmax=True)(scores, wanted),
        losses.FocalLoss(to_onehot_y=True)(scores, wanted),
        losses.TverskyLoss(to_onehot_y=True, softmax=True)(scores, wanted),
        losses.SoftclDiceLoss()(one_hot(wanted, 3), scores.softmax(1)),
        losses.HausdorffDTLoss(to_onehot_y=True, softmax=True)(scores, wanted),
        losses.SSIMLoss(3, win_size=7)(image, other),
        losses.LocalNormalizedCrossCorrelationLoss()(image, other),
        losses.GlobalMutualInformationLoss()(image, other),
        losses.ContrastiveLoss()(volume(device, 4, 8), volume(device, 4, 8, seed=1)),
    ]
    sum(found).backward()
    return [*found, scores.grad]


@check("metrics: Dice, IoU, Hausdorff, surface distance, confusion matrix, ROC AUC, PSNR, SSIM")
def measures(device):
    wanted, guessed = (one_hot(labels(device, seed=seed), 3) for seed in (1, 2))
    found = [
        metrics.compute_dice(guessed, wanted),
        metrics.compute_iou(guessed, wanted),
        metrics.compute_generalized_dice(guessed, wanted),
        metrics.compute_hausdorff_distance(guessed, wanted, percentile=95),
        metrics.compute_average_surface_distance(guessed, wanted),
        metrics.compute_surface_dice(guessed, wanted, [1.0, 1.0]),
        metrics.get_confusion_matrix(guessed, wanted),
        metrics.PSNRMetric(1.0)(volume(device).sigmoid(), volume(device, seed=1).sigmoid()),
        metrics.SSIMMetric(3, win_size=7)(volume(device).sigmoid(), volume(device, seed=1).sigmoid()),
        float(metrics.compute_roc_auc(volume(device, 40).sigmoid(), randint(2, 40).to(device))),
    ]
    dice = metrics.DiceMetric(include_background=False, reduction="mean_batch")
    for seed in (1, 3):
        dice(guessed, one_hot(labels(device, seed=seed), 3))
    return [*found, dice.aggregate()]


@check("sliding windows: constant, gaussian", tolerance=1e-3)
def windows(device):
    torch.manual_seed(0)
    model = NETWORKS["UNet"]().to(device).eval()
    image = volume(device, 1, 1, 24, 20, 28)
    with torch.no_grad():
        size = (16, 16, 16)
        found = [sliding_window_inference(image, size, 2, model, overlap=0.5, mode=m) for m in ("constant", "gaussian")]
        return [*found, SlidingWindowInferer(size, 4)(image, model)]


@check("transforms of tensors on the device, MetaTensor, inverse", tolerance=1e-3)
def transformed(device):
    image = MetaTensor(volume(device, 1, 20, 18, 16), affine=torch.diag(torch.tensor([2.0, 1.0, 1.0, 1.0])))
    steps = [
        transforms.Orientation("RAS", labels=(("L", "R"), ("P", "A"), ("I", "S"))),
        transforms.Spacing((1.5, 1.0, 1.0)),
        transforms.ScaleIntensity(),
        transforms.NormalizeIntensity(),
        transforms.Rotate((0.2, 0.1, 0.3), keep_size=True),
        transforms.Zoom(1.2),
        transforms.Flip(1),
        transforms.ResizeWithPadOrCrop((16, 16, 16)),
        transforms.GaussianSmooth(1.0),
        transforms.AdjustContrast(1.5),
    ]
    found, at = [], image
    for step in steps:
        at = step(at)
        found.append(at.as_tensor())
    resized = transforms.Resize((10, 10, 10))
    small = resized(image)
    moved = transforms.RandAffine(1.0, rotate_range=0.3, translate_range=2, device=torch.device(device))
    moved.set_random_state(seed=0)
    seg = transforms.AsDiscrete(argmax=True, to_onehot=3)(volume(device, 3, 8, 8, 8))
    return [*found, small, resized.inverse(small), moved(image), seg, at.affine]


@check("engines: SupervisedTrainer, SupervisedEvaluator, handlers", tolerance=1e-3, slow=True)
def engines(device):
    from ignite.engine import Events
    from monai.engines import SupervisedEvaluator, SupervisedTrainer
    from monai.handlers import MeanDice, StatsHandler, from_engine

    torch.manual_seed(0)
    model = NETWORKS["UNet"]().to(device)
    rows = [{"image": volume("cpu", 1, 16, 16, 16, seed=n), "label": labels("cpu")[0]} for n in range(4)]
    loader = monai.data.DataLoader(monai.data.Dataset(rows), batch_size=2)
    told = []
    trainer = SupervisedTrainer(
        torch.device(device),
        2,
        loader,
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-2),
        losses.DiceCELoss(to_onehot_y=True, softmax=True),
        train_handlers=[StatsHandler(iteration_log=False, epoch_log=False)],
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: told.append(e.state.output[0]["loss"]))
    trainer.run()
    after = transforms.Compose(
        [
            transforms.AsDiscreted("pred", argmax=True, to_onehot=3),
            transforms.AsDiscreted("label", to_onehot=3),
        ]
    )
    dice = MeanDice(output_transform=from_engine(["pred", "label"]))
    evaluator = SupervisedEvaluator(
        torch.device(device), loader, model, postprocessing=after, key_val_metric={"d": dice}
    )
    evaluator.run()
    return [*told, evaluator.state.metrics["d"]]


if __name__ == "__main__":
    main("monai")
