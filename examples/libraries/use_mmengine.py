"""mmengine: its Runner with hooks, mixed precision, averages, checkpoints, the plug-in's optimizers, on npu.

mmengine takes npu wherever `torch_npu` is there; the CPU is asked for through the variable that get_device() reads.
"""

import logging
import os
import tempfile
from unittest import mock

# mmengine 0.10.7 writes objects of its own into checkpoints, which torch.load refuses unless it is told otherwise.
os.environ.setdefault("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")

import mmengine
import torch_npu
from mmengine.config import Config
from mmengine.device import get_device, is_npu_available, is_npu_support_full_precision
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.optim.optimizer.builder import NPU_OPTIMIZERS
from mmengine.runner import Runner
from side_by_side import check, main, randint, randn
from torch.nn import functional as F

import torch

assert is_npu_available() and is_npu_support_full_precision()


class Classifier(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, bias=False),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(288, 4),
        )

    def forward(self, image, label, mode):
        scores = self.layers(image)
        return {"loss": F.cross_entropy(scores, label)} if mode == "loss" else (scores, label)


class Accuracy(BaseMetric):
    default_prefix = "own"

    def process(self, data_batch, data_samples):
        scores, label = data_samples
        self.results.append(((scores.argmax(1) == label).float().mean().item(), len(label)))

    def compute_metrics(self, results):
        return {"accuracy": sum(a * n for a, n in results) / sum(n for _, n in results)}


class Told(Hook):
    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.losses.append(outputs["loss"].detach())


def loader() -> dict:
    rows = [{"image": randn(3, 8, 8, seed=n), "label": randint(4, 1, seed=n)[0]} for n in range(16)]
    sampler = {"type": "DefaultSampler", "shuffle": False}
    return {"dataset": rows, "batch_size": 4, "sampler": sampler, "collate_fn": {"type": "default_collate"}}


def trained(device: str, wrapper: dict | None = None, folder: str | None = None, epochs: int = 1, **options):
    """(runner, losses) of a Runner that has trained."""
    told = Told()
    with tempfile.TemporaryDirectory() as own, mock.patch("mmengine.device.utils.DEVICE", device):
        assert get_device() == device
        optimizer = {"type": "AdamW", "lr": 1e-2}
        options.setdefault("custom_hooks", []).append(told)
        runner = Runner(
            Classifier(),
            folder or own,
            train_dataloader=loader(),
            train_cfg={"by_epoch": True, "max_epochs": epochs, "val_interval": 1},
            val_dataloader=loader(),
            val_cfg={},
            val_evaluator=[Accuracy()],
            optim_wrapper={"optimizer": optimizer, **(wrapper or {})},
            log_level=logging.ERROR,
            experiment_name=f"{device}-{id(told)}",
            **options,
        )
        runner.train()
    assert next(runner.model.parameters()).device.type == device
    return runner, told.losses


@check("Runner: training, validation, gradient clipping, schedulers")
def plain(device):
    schedule = [
        {"type": "LinearLR", "start_factor": 0.1, "by_epoch": False, "end": 4},
        {"type": "CosineAnnealingLR", "T_max": 2},
    ]
    runner, losses = trained(device, {"clip_grad": {"max_norm": 1.0}}, epochs=2, param_scheduler=schedule)
    return [*losses, runner.message_hub.get_scalar("val/own/accuracy").current()]


@check("Runner: AmpOptimWrapper in bfloat16, accumulated gradients", tolerance=3e-2)
def mixed(device):
    return trained(device, {"type": "AmpOptimWrapper", "dtype": "bfloat16", "accumulative_counts": 2})[1]


@check("Runner: AmpOptimWrapper in fp16 with a loss scaler (fp32 on the CPU)", tolerance=1e-2)
def scaled(device):
    return trained(device, {"type": "AmpOptimWrapper", "loss_scale": "dynamic"} if device == "npu" else None)[1]


@check("Runner: checkpoints, resumed", slow=True)
def resumed(device):
    with tempfile.TemporaryDirectory() as folder:
        first = trained(device, folder=folder, epochs=1)[1]
        return [*first, *trained(device, folder=folder, epochs=2, resume=True)[1]]


@check("Runner: averaged weights (EMAHook), EmptyCacheHook, ProfilerHook", slow=True)
def hooks(device):
    told = [{"type": "EMAHook", "momentum": 0.1}, {"type": "EmptyCacheHook", "after_iter": True}]
    told.append({"type": "ProfilerHook", "by_epoch": False, "profile_times": 2, "activity_with_cuda": False})
    runner, losses = trained(device, custom_hooks=told)
    averaged = next(h for h in runner.hooks if type(h).__name__ == "EMAHook").ema_model
    return [*losses, *averaged.state_dict().values()]


@check("optimizers of torch_npu from the registry (torch's on the CPU)", tolerance=1e-3)
def optimizers(device):
    assert "NpuFusedAdamW" in NPU_OPTIMIZERS and "NpuFusedSGD" in NPU_OPTIMIZERS, NPU_OPTIMIZERS
    found = []
    for name, own, options in (
        ("AdamW", "NpuFusedAdamW", {}),
        ("Adam", "NpuFusedAdam", {}),
        ("SGD", "NpuFusedSGD", {"momentum": 0.9}),
    ):
        optimizer = {"type": own if device == "npu" else name, "lr": 1e-2, **options}
        found += trained(device, {"optimizer": optimizer})[1]
    return found


@check("OptimWrapper and Config by hand")
def by_hand(device):
    settings = Config({"lr": 0.1, "steps": 3})
    model = Classifier().to(device)
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=settings.lr))
    batch = {"image": randn(4, 3, 8, 8).to(device), "label": randint(4, 4).to(device)}
    return [model.train_step(batch, wrapper)["loss"] for _ in range(settings.steps)]


@check("NPUProfilerHook", limit="it calls torch_npu.npu.profile, which the plug-in of 2.13 does not have either")
def profiled(device):
    if device == "npu":
        with tempfile.TemporaryDirectory() as folder:
            mmengine.hooks.NPUProfilerHook(result_path=folder, exit_after_profiling=False)
        assert not hasattr(torch_npu.npu, "profile")
    return [torch.ones(1, device=device)]


if __name__ == "__main__":
    main("mmengine")
