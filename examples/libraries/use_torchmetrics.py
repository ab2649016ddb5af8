"""torchmetrics: metrics that keep their state on npu."""

import torchmetrics
from side_by_side import check, main, randint, randn
from torchmetrics import classification, image, regression, retrieval, text

import torch


def updated(metric: torchmetrics.Metric, device: str, *batches: tuple) -> torch.Tensor:
    metric = metric.to(device)
    for batch in batches:
        metric.update(*(value.to(device) for value in batch))
    return metric.compute()


@check("classification: accuracy, F1, AUROC, average precision, confusion, calibration, kappa")
def classes(device):
    batches = [(torch.softmax(randn(32, 5, seed=s), -1), randint(5, 32, seed=s)) for s in (1, 2)]
    kinds = (
        classification.MulticlassAccuracy(5),
        classification.MulticlassF1Score(5),
        classification.MulticlassAUROC(5),
        classification.MulticlassAUROC(5, thresholds=20),
        classification.MulticlassAveragePrecision(5),
        classification.MulticlassConfusionMatrix(5),
        classification.MulticlassCalibrationError(5),
        classification.MulticlassCohenKappa(5),
        classification.MulticlassMatthewsCorrCoef(5),
    )
    return [updated(kind, device, *batches) for kind in kinds]


@check("regression: MSE, MAE, R2, Pearson, Spearman, explained variance, cosine")
def numbers(device):
    batches = [(randn(40, seed=s), randn(40, seed=s + 9)) for s in (1, 2)]
    kinds = (
        regression.MeanSquaredError(),
        regression.MeanAbsoluteError(),
        regression.R2Score(),
        regression.PearsonCorrCoef(),
        regression.SpearmanCorrCoef(),
        regression.ExplainedVariance(),
        regression.ConcordanceCorrCoef(),
    )
    return [updated(kind, device, *batches) for kind in kinds]


@check("image: PSNR, SSIM, MS-SSIM, total variation, UQI", tolerance=1e-3)
def images(device):
    a, b = (randn(2, 3, 192, 192, seed=s).abs().clamp(0, 1) for s in (1, 2))
    kinds = (
        image.PeakSignalNoiseRatio(data_range=1.0),
        image.StructuralSimilarityIndexMeasure(data_range=1.0),
        image.MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0),
        image.UniversalImageQualityIndex(),
    )
    return [*(updated(kind, device, (a, b)) for kind in kinds), updated(image.TotalVariation(), device, (a,))]


@check("retrieval, perplexity, aggregation, collections")
def others(device):
    ranks = (randn(30, seed=1), randint(2, 30, seed=1).bool(), randint(4, 30, seed=2))
    metrics = torchmetrics.MetricCollection(
        {"accuracy": classification.BinaryAccuracy(), "auroc": classification.BinaryAUROC()}
    ).to(device)
    metrics.update(torch.sigmoid(randn(50)).to(device), randint(2, 50).to(device))
    return [
        updated(retrieval.RetrievalMAP(), device, ranks),
        updated(retrieval.RetrievalNormalizedDCG(), device, ranks),
        updated(text.Perplexity(), device, (randn(2, 6, 9), randint(9, 2, 6))),
        updated(torchmetrics.MeanMetric(), device, (randn(9),), (randn(9, seed=4),)),
        updated(torchmetrics.CatMetric(), device, (randn(9),), (randn(9, seed=4),)),
        *metrics.compute().values(),
    ]


@check("forward, reset, state_dict, pickling")
def state(device):
    import pickle

    metric = classification.MulticlassAccuracy(5).to(device)
    metric.persistent(True)
    scores, labels = torch.softmax(randn(32, 5), -1).to(device), randint(5, 32).to(device)
    step = metric(scores, labels)
    copied = pickle.loads(pickle.dumps(metric))
    assert copied.tp.device.type == torch.device(device).type
    loaded = classification.MulticlassAccuracy(5).to(device)
    loaded.persistent(True)
    loaded.load_state_dict(metric.state_dict())
    metric.reset()
    return [step, copied.compute(), loaded.compute()]


if __name__ == "__main__":
    main("torchmetrics")
