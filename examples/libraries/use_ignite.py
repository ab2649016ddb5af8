"""ignite: engines, metrics, handlers and its own device on npu."""

import tempfile
from pathlib import Path

import ignite.distributed as idist
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, EMAHandler
from ignite.metrics import Accuracy, ConfusionMatrix, Fbeta, Loss, RunningAverage
from side_by_side import check, main, randint, randn
from torch.nn import functional as F

import torch


def data(device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(randn(8, 6, seed=s).to(device), randint(3, 8, seed=s).to(device)) for s in range(4)]


def made(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)).to(device)


@check("trainer, evaluator, metrics, averages, checkpoints")
def training(device):
    model, losses = made(device), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(model, optimizer, F.cross_entropy, device=device)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
    EMAHandler(model, momentum=0.1).attach(trainer, event=Events.ITERATION_COMPLETED)
    metrics = {"accuracy": Accuracy(), "loss": Loss(F.cross_entropy), "f1": Fbeta(1), "table": ConfusionMatrix(3)}
    evaluator = create_supervised_evaluator(model, metrics=metrics, device=device)
    evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(3, lambda e: -e.state.metrics["loss"], trainer))
    with tempfile.TemporaryDirectory() as folder:
        saver = Checkpoint({"model": model, "optimizer": optimizer}, DiskSaver(folder, create_dir=True), n_saved=2)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: evaluator.run(data(device)))
        trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
        trainer.run(data(device), max_epochs=2)
        again = made(device)
        Checkpoint.load_objects({"model": again}, torch.load(Path(folder) / saver.last_checkpoint))
    found = evaluator.state.metrics
    names = ("accuracy", "loss", "f1", "table")
    return [*losses, trainer.state.metrics["average"], *(found[n] for n in names), again(randn(2, 6).to(device))]


@check("idist.device() without a launcher", limit="it knows CUDA, MPS and XLA; give the device by hand")
def own_device(device):
    if device == "npu":
        assert idist.device().type == "npu", idist.device()
    return [torch.ones(1, device=device)]


if __name__ == "__main__":
    main("pytorch-ignite")
