#!/usr/bin/env python3
"""Trains an image classifier of torchvision on a folder of images, on an Ascend NPU (real or simulated), GPU or CPU.

This is the ImageNet example as the porting guide's Quick Start leaves it: same options, log lines and checkpoints.

    python examples/imagenet/main.py data/mnist5k --arch resnet50 --device npu --epochs 4

DATA holds train/<class>/*.png and val/<class>/*.png. Where it also holds a recipe.txt, the options in that file come
before those of the command line.
"""

import argparse
import math
import os
import random
import shlex
import sys
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

import torch
from torch import nn

try:
    import torchvision.models as models
except ImportError as missing:
    raise SystemExit(
        f"main.py needs torchvision ({missing}): pip install --no-deps torchvision==0.28.0 && pip install pillow numpy"
    ) from missing

from checkpoints import load_weights, plain_names, read_weights, save_checkpoint
from image_folder import open_folder, train_loader, val_loader
from mixed_precision import Precision
from training_log import PassLog, save_curves

MASTER_PORT = "29688"
BACKENDS = {"npu": "hccl", "gpu": "nccl", "cpu": "gloo"}


def loss_scale(text: str) -> float:
    """The value of --loss-scale: a number, -1 for "dynamic"."""
    return -1.0 if text == "dynamic" else float(text)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="PyTorch ImageNet training on NPU, GPU or CPU")
    add = parser.add_argument
    add("data", metavar="DIR", nargs="?", help="folder of the data set: train/<class>/* and val/<class>/*")
    add(
        "-a",
        "--arch",
        metavar="ARCH",
        default="resnet18",
        choices=models.list_models(module=models),
        help="any model of torchvision.models (default: %(default)s)",
    )
    add("-j", "--workers", default=4, type=int, metavar="N", help="data loading processes (default: %(default)s)")
    add("--epochs", default=90, type=int, metavar="N", help="epochs to run (default: %(default)s)")
    add("--start-epoch", default=0, type=int, metavar="N", help="first epoch, for a restart by hand")
    add(
        "-b",
        "--batch-size",
        default=256,
        type=int,
        metavar="N",
        help="images per step over all devices of this machine (default: %(default)s)",
    )
    add("--lr", "--learning-rate", default=0.1, type=float, metavar="LR", help="learning rate (default: %(default)s)")
    add("--momentum", default=0.9, type=float, metavar="M", help="default: %(default)s")
    add(
        "--wd",
        "--weight-decay",
        default=1e-4,
        type=float,
        metavar="W",
        dest="weight_decay",
        help="default: %(default)s",
    )
    add("-p", "--print-freq", default=10, type=int, metavar="N", help="steps between log lines (default: %(default)s)")
    add("--resume", default="", type=str, metavar="PATH", help="checkpoint to go on from")
    add("-e", "--evaluate", action="store_true", help="only evaluate the model on the validation images")
    add(
        "--pretrained",
        nargs="?",
        const=True,
        default=False,
        metavar="FILE",
        help="start from the weights in FILE (a state dict or checkpoint); without FILE, torchvision's (downloaded)",
    )
    add("--world-size", default=-1, type=int, help="number of machines in a distributed run")
    add("--rank", default=-1, type=int, help="rank of this machine in a distributed run")
    add(
        "--dist-url",
        default="tcp://224.66.41.62:23456",
        type=str,
        help="where the processes meet on gpu; npu and cpu use --addr (default: %(default)s)",
    )
    add("--dist-backend", default=None, type=str, help="default: hccl on npu, nccl on gpu, gloo on cpu")
    add("--seed", default=None, type=int, help="makes initial weights and the order of images repeatable")
    add("--gpu", default=None, type=int, help="index of the one device to use (default: 0)")
    add("--multiprocessing-distributed", action="store_true", help="one process for each device of --device-list")
    # The options that the porting guide adds, with its defaults.
    add("--device", default="npu", type=str, help="npu or gpu (or cpu) (default: %(default)s)")
    add("--addr", default="10.136.181.115", type=str, help="master addr (default: %(default)s)")
    add("--device-list", default="0,1,2,3,4,5,6,7", type=str, help="device id list (default: %(default)s)")
    add(
        "--amp",
        nargs="?",
        const="apex",
        default=None,
        metavar="KIND",
        help="use amp to train the model: apex (what --amp alone means), or torch for torch.amp",
    )
    add(
        "--loss-scale",
        default=1024.0,
        type=loss_scale,
        help="loss scale using in amp, -1 or 'dynamic' means dynamic (default: %(default)s)",
    )
    add("--opt-level", default="O2", type=str, help="apex's optimisation level in amp (default: %(default)s)")
    # Ours.
    add("--image-size", default=224, type=int, metavar="PX", help="side of the square input (default: %(default)s)")
    add(
        "--augment",
        default="imagenet",
        choices=("imagenet", "shift", "none"),
        help="imagenet: random crop and flip; shift: image moved by up to 1/16 of its side (default: %(default)s)",
    )
    add(
        "--lr-schedule",
        default="step",
        choices=("step", "cosine"),
        help="step: a tenth every 30 epochs; cosine: down to 0 at the last step (default: %(default)s)",
    )
    add("--warmup-epochs", default=0.0, type=float, metavar="E", help="linear rise to --lr (default: %(default)s)")
    add("--zero-init-residual", action="store_true", help="ResNets: residual branches start as zero")
    add(
        "--output", default=".", type=Path, metavar="DIR", help="where checkpoints and curves go (default: %(default)s)"
    )
    return parser


def parse_options(argv: list[str]) -> argparse.Namespace:
    """The options of `argv`, after those of the data set's recipe.txt if there is one. Exits with 2 on a bad one."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.data is None and isinstance(args.pretrained, str):
        # `--pretrained DIR`: an option with an optional value has swallowed the data set.
        args.data, args.pretrained = args.pretrained, True
    if args.data is None and args.amp not in (None, "apex", "torch"):
        args.data, args.amp = args.amp, "apex"
    if args.data is None:
        parser.error("the following arguments are required: DIR")
    if args.amp not in (None, "apex", "torch"):
        parser.error(f"argument --amp: '{args.amp}' is neither apex nor torch")
    recipe = Path(args.data, "recipe.txt")
    if recipe.is_file():
        options = shlex.split(recipe.read_text(), comments=True)
        data, pretrained, amp = args.data, args.pretrained, args.amp
        args = parser.parse_args([*options, *argv])
        args.data, args.pretrained, args.amp = data, pretrained, amp
        print(f"=> options of {recipe}: {' '.join(options)}")
    args.device = {"cuda": "gpu"}.get(args.device, args.device)
    if args.device not in BACKENDS:
        parser.error(f"argument --device: '{args.device}' is none of npu, gpu, cpu")
    for name in ("batch_size", "image_size", "print_freq"):
        if getattr(args, name) < 1:
            parser.error(f"argument --{name.replace('_', '-')}: must be at least 1")
    args.dist_backend = args.dist_backend or BACKENDS[args.device]
    return args


def device_id_to_process_device_map(device_list: str) -> dict[int, int]:
    """From "3,1" to {0: 1, 1: 3}: the n-th process works on the n-th smallest device number of the list."""
    return dict(enumerate(sorted(int(device) for device in device_list.split(","))))


def require_device(args: argparse.Namespace) -> None:
    """Raises SystemExit, saying what is missing, where --device cannot be had. Does not initialise the device."""
    if args.device == "npu" and not (hasattr(torch, "npu") and torch.npu.is_available()):
        raise SystemExit("main.py: --device npu: this PyTorch has no NPU; use this repository's wheel, or --device cpu")
    if args.device == "gpu" and not torch.cuda.is_available():
        raise SystemExit("main.py: --device gpu: CUDA is not available; use --device npu or --device cpu")
    if args.distributed and not dist.is_available():
        raise SystemExit("main.py: this PyTorch was built without torch.distributed: train on one device")
    if args.distributed and not dist.is_backend_available(args.dist_backend):
        raise SystemExit(
            f"main.py: training on several devices needs the communication back end '{args.dist_backend}', which this "
            "build does not have: leave out --multiprocessing-distributed and --world-size"
        )


def main() -> None:
    args = parse_options(sys.argv[1:])
    launched = "RANK" in os.environ and "WORLD_SIZE" in os.environ  # by torchrun, which says where to meet, too
    if launched:
        args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ.get("LOCAL_RANK", 0))
        # A simulated host has one device unless told otherwise before the first look at it; each rank needs one.
        os.environ.setdefault("ASCEND_SIM_DEVICE_COUNT", os.environ.get("LOCAL_WORLD_SIZE", "1"))
    else:
        os.environ["MASTER_ADDR"] = args.addr
        os.environ["MASTER_PORT"] = MASTER_PORT
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    args.process_device_map = device_id_to_process_device_map(args.device_list)
    require_device(args)
    args.output.mkdir(parents=True, exist_ok=True)
    if launched:
        main_worker(args.gpu, int(os.environ.get("LOCAL_WORLD_SIZE", 1)), args)
    elif args.multiprocessing_distributed:
        processes = len(args.process_device_map)
        args.world_size = max(args.world_size, 1) * processes
        mp.spawn(main_worker, nprocs=processes, args=(processes, args))
    else:
        main_worker(args.gpu, 1, args)


def choose_device(args: argparse.Namespace) -> torch.device:
    """Makes args.gpu the current device and returns it."""
    if args.device == "cpu":
        return torch.device("cpu")
    module, kind = (torch.npu, "npu") if args.device == "npu" else (torch.cuda, "cuda")
    device = torch.device(kind, args.gpu or 0)
    module.set_device(device)
    return device


def build_model(args: argparse.Namespace, classes: int) -> nn.Module:
    print(f"=> {'using pre-trained' if args.pretrained else 'creating'} model '{args.arch}'")
    options = {"zero_init_residual": True} if args.zero_init_residual else {}
    model = models.__dict__[args.arch](num_classes=classes, **options)
    if args.pretrained:
        published = args.pretrained is True
        weights = (
            models.get_model_weights(args.arch).DEFAULT.get_state_dict() if published else read_weights(args.pretrained)
        )
        other = load_weights(model, weights)
        if other:
            print(f"=> left at their initial values, the shapes differ: {', '.join(other)}")
    return model


def learning_rate(args: argparse.Namespace, epoch: float, step: float) -> float:
    """The learning rate at `epoch`, a fraction (2.5 is the middle of the third epoch), of which a step is `step`."""
    if epoch < args.warmup_epochs:
        # Reached at the end of the step, so that the first one is not at zero.
        return args.lr * min((epoch + step) / args.warmup_epochs, 1.0)
    if args.lr_schedule == "step":
        return args.lr * 0.1 ** (int(epoch) // 30)
    done = (epoch - args.warmup_epochs) / max(args.epochs - args.warmup_epochs, 1e-9)
    return args.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def main_worker(gpu: int | None, ngpus_per_node: int, args: argparse.Namespace) -> None:
    launched = "LOCAL_RANK" in os.environ
    args.gpu = args.process_device_map[gpu] if args.multiprocessing_distributed and not launched else gpu
    if args.gpu is not None and args.device != "cpu":
        print(f"Use GPU: {args.gpu} for training")
    device = choose_device(args)
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    if args.distributed:
        if args.multiprocessing_distributed and not launched:
            # The rank is that of the process among all; until here it was the machine's.
            args.rank = max(args.rank, 0) * ngpus_per_node + gpu
        url = args.dist_url if args.device == "gpu" else None
        dist.init_process_group(args.dist_backend, init_method=url, world_size=args.world_size, rank=args.rank)
        args.batch_size = args.batch_size // ngpus_per_node
        args.workers = (args.workers + ngpus_per_node - 1) // ngpus_per_node
    try:
        run(args, device, saves=not args.distributed or args.rank % ngpus_per_node == 0)
    finally:
        if args.distributed:
            dist.destroy_process_group()


def run(args: argparse.Namespace, device: torch.device, saves: bool) -> None:
    """Trains or evaluates as `args` says, on one device; `saves` picks the process that writes the files."""
    train_set = None if args.evaluate else open_folder(args, "train")
    val_set = open_folder(args, "val")
    model = build_model(args, len((train_set or val_set).classes)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    precision = Precision(args, device)
    model, optimizer = precision.prepare(model, optimizer)
    best_acc1, history = 0.0, {"steps": [], "epochs": []}
    if args.resume:
        best_acc1, history = resume(args, device, model, optimizer, precision)
    network = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [args.gpu])
    held_out = val_loader(val_set, args)
    if args.evaluate:
        validate(held_out, model, criterion, precision, args, device)
        return

    train_batches = train_loader(train_set, args)
    if not len(train_batches):
        raise SystemExit(f"main.py: {len(train_set)} training images do not fill one batch of {args.batch_size}")
    images = seconds = 0.0
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_batches.sampler.set_epoch(epoch)
        if args.seed is not None:
            # By the epoch, so that a resumed run sees the order that an uninterrupted one would.
            train_batches.generator.manual_seed(args.seed + epoch)
        log = train(train_batches, model, criterion, optimizer, precision, epoch, args, device)
        images += log.figures.images
        seconds += log.seconds
        history["steps"] += [(epoch + (index + 1) / log.batches, loss, acc1) for index, loss, acc1 in log.points]
        loss, acc1 = validate(held_out, model, criterion, precision, args, device)
        history["epochs"].append((epoch + 1, loss, acc1))
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if saves:
            state = {
                "epoch": epoch + 1,
                "arch": args.arch,
                "state_dict": network.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
                "history": history,
            }
            save_checkpoint(state | precision.checkpoint(), is_best, args.output)
    if saves:
        images *= args.world_size if args.distributed else 1
        report(args, device, images, seconds, best_acc1, history, precision.skipped)


def resume(
    args: argparse.Namespace,
    device: torch.device,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
) -> tuple[float, dict]:
    """Loads args.resume into model, optimizer and precision, sets args.start_epoch; (best Acc@1, curves) so far."""
    if not os.path.isfile(args.resume):
        print(f"=> no checkpoint found at '{args.resume}'")
        return 0.0, {"steps": [], "epochs": []}
    print(f"=> loading checkpoint '{args.resume}'")
    checkpoint = torch.load(args.resume, map_location=device)
    args.start_epoch = checkpoint["epoch"]
    model.load_state_dict(plain_names(checkpoint["state_dict"]))
    optimizer.load_state_dict(checkpoint["optimizer"])
    precision.resume(checkpoint)
    print(f"=> loaded checkpoint '{args.resume}' (epoch {checkpoint['epoch']})")
    return float(checkpoint["best_acc1"]), checkpoint.get("history", {"steps": [], "epochs": []})


def to_device(images: torch.Tensor, target: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    if device.type == "npu":
        # The card computes losses with 32-bit class numbers.
        target = target.to(torch.int32)
    return images.to(device, non_blocking=True), target.to(device, non_blocking=True)


def train(loader, model, criterion, optimizer, precision, epoch, args, device) -> PassLog:
    """One epoch of training. Returns its log, closed."""
    log = PassLog(f"Epoch: [{epoch}]", len(loader), args.print_freq, args.batch_size)
    model.train()
    for i, (images, target) in enumerate(loader):
        log.data_arrived()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, epoch + i / len(loader), 1 / len(loader))
        images, target = to_device(images, target, device)
        with precision.autocast():
            output = model(images)
            loss = criterion(output, target)
        optimizer.zero_grad()
        precision.backward_and_step(loss, optimizer)
        log.figures.add(loss, output, target)
        log.batch_done(i)
    log.close()
    return log


@torch.no_grad()
def validate(loader, model, criterion, precision, args, device) -> tuple[float, float]:
    """(mean loss, Acc@1 in percent) over the loader's images; prints both accuracies."""
    log = PassLog("Test: ", len(loader), args.print_freq, args.batch_size)
    model.eval()
    for i, (images, target) in enumerate(loader):
        log.data_arrived()
        images, target = to_device(images, target, device)
        with precision.autocast():
            output = model(images)
            loss = criterion(output, target)
        log.figures.add(loss, output, target)
        log.batch_done(i)
    loss, acc1, acc5 = log.close()
    print(f" * Acc@1 {acc1:.3f} Acc@5 {acc5:.3f}", flush=True)
    return loss, acc1


def report(
    args: argparse.Namespace,
    device: torch.device,
    images: float,
    seconds: float,
    best_acc1: float,
    history: dict,
    skipped: int,
) -> None:
    print(save_curves(history, args.output / "curves.png"))
    if seconds:
        print(f"=> {images:.0f} images in {seconds:.1f} s of training: {images / seconds:.1f} images/s on {device}")
    if skipped:
        print(f"=> steps that overflowed and were skipped: {skipped}")
    if device.type == "npu" and torch.npu.fallback_stats():
        print(f"=> operators that ran on the CPU: {torch.npu.fallback_stats()}")
    print(f"=> best Acc@1 {best_acc1:.3f}, checkpoints in {args.output.resolve()}")


if __name__ == "__main__":
    main()
