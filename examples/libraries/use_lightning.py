"""lightning: Trainer and Fabric on npu by an accelerator of some lines; callbacks, bfloat16, checkpoints.

lightning 2.6 has entry points for callbacks only, none for accelerators, so that nothing is "npu" before a script calls
`AcceleratorRegistry.register("npu", NPUAccelerator)`. "auto" looks for XLA, MPS and CUDA without asking the registry.
For an accelerator that is none of these, strategy="auto" means the CPU, and mixed precision means CUDA, unless both are
told. So a script says `Trainer(accelerator="npu", strategy=SingleDeviceStrategy("npu:0"))`, as below.
"""

import tempfile

import _offline  # noqa: F401
import lightning
from lightning.fabric import Fabric
from lightning.fabric.accelerators import ACCELERATOR_REGISTRY
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.callbacks import DeviceStatsMonitor, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy
from side_by_side import check, main, randint, randn
from torch.nn import functional as F

import torch


class NPUAccelerator(Accelerator):
    """NPUs, as lightning's Trainer and Fabric ask for devices."""

    def setup_device(self, device: torch.device) -> None:
        if device.type != "npu":
            raise ValueError(f"the device should be an npu, got {device}")
        torch.npu.set_device(device)

    def teardown(self) -> None:
        torch.npu.empty_cache()

    def get_device_stats(self, device) -> dict:
        return torch.npu.memory_stats(device)

    @staticmethod
    def parse_devices(devices) -> list[int]:
        return list(range(int(devices))) if isinstance(devices, (int, str)) else list(devices)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device("npu", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.npu.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.npu.is_available()

    @staticmethod
    def name() -> str:
        return "npu"


# What makes accelerator="npu" known by name; Fabric has a registry of its own.
AcceleratorRegistry.register("npu", NPUAccelerator, description="NPUs")
ACCELERATOR_REGISTRY.register("npu", NPUAccelerator, description="NPUs")


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", F.cross_entropy(self.layers(batch[0]), batch[1]), prog_bar=True)

    def predict_step(self, batch, index):
        return self.layers(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def loader(seed: int = 0) -> torch.utils.data.DataLoader:
    rows = torch.utils.data.TensorDataset(randn(24, 6, seed=seed), randint(3, 24, seed=seed))
    return torch.utils.data.DataLoader(rows, batch_size=8)


def trainer(device: str, folder: str, precision: str = "32-true", **options) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder}
    if device == "cpu":
        return Trainer(accelerator="cpu", precision=precision, **quiet, **options)
    plugins = [MixedPrecision(precision, "npu")] if precision.endswith("mixed") else None
    strategy = SingleDeviceStrategy("npu:0")
    return Trainer(accelerator="npu", devices=1, strategy=strategy, plugins=plugins, **quiet, **options)


@check("Trainer: fit, validate, predict, checkpoint, resume, callbacks, logger")
def fit(device):
    with tempfile.TemporaryDirectory() as folder:
        model, saver = Classifier(), ModelCheckpoint(folder, monitor="val_loss")
        callbacks = [saver, EarlyStopping("val_loss"), LearningRateMonitor(), DeviceStatsMonitor(cpu_stats=False)]
        logged = {"logger": CSVLogger(folder), "log_every_n_steps": 1}
        run = trainer(device, folder, max_epochs=2, callbacks=callbacks, gradient_clip_val=1.0, **logged)
        run.fit(model, loader(), loader(1))
        assert run.strategy.root_device.type == device
        found = run.validate(model, loader(1), verbose=False)[0]["val_loss"]
        predicted = torch.cat(run.predict(model, loader(2)))
        again = Classifier()
        more = trainer(device, folder, max_epochs=3, logger=False)
        more.fit(again, loader(), loader(1), ckpt_path=saver.best_model_path)
        return [*model.losses, found, predicted, *again.losses]


@check("Trainer: bf16-mixed, accumulated gradients", tolerance=3e-2)
def mixed(device):
    with tempfile.TemporaryDirectory() as folder:
        model = Classifier()
        run = trainer(device, folder, "bf16-mixed", max_epochs=1, accumulate_grad_batches=2, logger=False)
        run.fit(model, loader(), loader(1))
        return model.losses


@check("Fabric: set up, backward, clipping, saving")
def fabric(device):
    strategy = lightning.fabric.strategies.SingleDeviceStrategy(torch.device(device, 0) if device == "npu" else device)
    made = Fabric(accelerator=device, devices=1, strategy=strategy)
    made.launch()
    model = Classifier().layers
    model, optimizer = made.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    for x, y in made.setup_dataloaders(loader()):
        assert x.device.type == device
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        made.backward(loss)
        made.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(loss.detach())
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/state.ckpt", {"model": model})
        made.load(f"{folder}/state.ckpt", {"model": model})
    return [*losses, *model.parameters()]


def fitted(device: str, **options) -> list:
    """Trained where lightning itself chooses the strategy; it has to have chosen the device."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        model = Classifier()
        run = Trainer(devices=1, max_epochs=1, default_root_dir=folder, **quiet, **options)
        run.fit(model, loader())
        if run.strategy.root_device.type != device:
            raise RuntimeError(f"it trained on {run.strategy.root_device}")
        return model.losses


@check('accelerator="npu" with strategy="auto"', limit="for accelerators of other packages that is the CPU")
def strategy_auto(device):
    return fitted(device, accelerator=device)


@check('accelerator="auto"', limit="it looks for XLA, MPS and CUDA only")
def accelerator_auto(device):
    return fitted(device, accelerator="auto")


if __name__ == "__main__":
    main("lightning")
