"""What a rank runs for test_distributed_libraries.py: a tiny model trained by a library on its share of each batch.

    torchrun --nproc_per_node 2 library_rank.py LIBRARY RESULT [stage]

LIBRARY is accelerate, transformers, lightning or deepspeed; rank 0 writes the mean loss of each step to RESULT, and the
kind of the device and back end that the library has chosen. `plain` is the same by hand, in one process on the CPU.
"""

import json
import os
import sys
import tempfile

import torch.distributed as dist

import torch
from torch import nn

STEPS, BATCH = 6, 8
LEARNING_RATE = 0.01


class Model(nn.Module):
    """Returns the loss, as transformers' models do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))

    def forward(self, inputs, labels):
        return {"loss": nn.functional.cross_entropy(self.layers(inputs), labels)}


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(STEPS * BATCH, 16, generator=generator)
        self.labels = torch.randint(0, 4, (STEPS * BATCH,), generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


def loader(batch, sampler=None):
    return torch.utils.data.DataLoader(Rows(), batch_size=batch, shuffle=False, sampler=sampler)


def strided(batch):
    """The ranks' shares of each global batch: every second row."""
    ranks = {"num_replicas": int(os.environ["WORLD_SIZE"]), "rank": int(os.environ["RANK"])}
    return loader(batch, torch.utils.data.DistributedSampler(Rows(), shuffle=False, **ranks))


def mean(loss):
    """Over the ranks, as a number."""
    total = loss.detach().clone().float()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)


def plain():
    model, losses = Model(), []
    optimizer = adamw(model)
    for batch in loader(BATCH):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return "cpu", losses


def accelerate():
    from accelerate import Accelerator

    accelerator, model, losses = Accelerator(), Model(), []
    model, optimizer, batches = accelerator.prepare(model, adamw(model), loader(BATCH // 2))
    for batch in batches:
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(mean(loss))
    return accelerator.device.type, losses


def transformers():
    from transformers import Trainer, TrainingArguments

    class Ordered(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as folder:
        options = {"max_steps": STEPS, "logging_steps": 1, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
        options |= {"learning_rate": LEARNING_RATE, "weight_decay": 0.01, "lr_scheduler_type": "constant"}
        arguments = TrainingArguments(folder, per_device_train_batch_size=BATCH // 2, max_grad_norm=0.0, **options)
        trainer = Ordered(Model(), arguments, train_dataset=Rows())
        trainer.train()
        return trainer.args.device.type, [row["loss"] for row in trainer.state.log_history if "loss" in row]


def lightning():
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.strategies import DDPStrategy

    class Npu(Accelerator):
        """Lightning knows no npu: this is all that its interface for other devices asks for."""

        def setup_device(self, device):
            torch.npu.set_device(device)

        def teardown(self):
            torch.npu.empty_cache()

        @staticmethod
        def parse_devices(devices):
            return devices

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device("npu", index) for index in range(devices)]

        @staticmethod
        def auto_device_count():
            return torch.npu.device_count()

        @staticmethod
        def is_available():
            return torch.npu.is_available()

        def get_device_stats(self, device):
            return torch.npu.memory_stats(device)

        @staticmethod
        def name():
            return "npu"

    class Task(LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = Model(), []

        def training_step(self, batch):
            self.trained_on = self.device.type  # it goes back to the CPU in the end
            loss = self.model(**batch)["loss"]
            self.losses.append(mean(loss))
            return loss

        def configure_optimizers(self):
            return adamw(self.model)

    class Ddp(DDPStrategy):
        def determine_ddp_device_ids(self):
            return None  # with numbers, Lightning makes a stream of torch.cuda

    strategy = Ddp(accelerator=Npu(), process_group_backend="hccl")
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(strategy=strategy, devices=2, max_epochs=1, use_distributed_sampler=False, **quiet)
    task = Task()
    trainer.fit(task, strided(BATCH // 2))
    return task.trained_on, task.losses


def deepspeed(stage):
    import deepspeed

    deepspeed.init_distributed()
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    model, losses = Model(), []
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    options = {"train_micro_batch_size_per_gpu": BATCH // 2, "zero_optimization": zero, "gradient_clipping": 0.0}
    engine, *_ = deepspeed.initialize(model=model, optimizer=adamw(model), config=options)
    for batch in strided(BATCH // 2):
        loss = engine(**{name: value.npu() for name, value in batch.items()})["loss"]
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss))
    return engine.device.type if hasattr(engine.device, "type") else str(engine.device), losses


def main():
    name, path, *rest = sys.argv[1:]
    device, losses = globals()[name](*map(int, rest))
    backend = dist.get_backend() if dist.is_initialized() else ""
    if int(os.environ.get("RANK", "0")) == 0:
        with open(path, "w") as file:
            json.dump({"device": device, "backend": backend, "losses": losses}, file)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
