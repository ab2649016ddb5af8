#!/usr/bin/env python3
"""Times a training step of ResNet-50 (fp32, SGD with momentum) on npu:0 against upstream's CPU kernels.

Both run in this process and take turns; the best of N steps of each counts. The peak host memory of a step is compared
too, each device in a process of its own. With --amp three take turns: apex's O2 with bfloat16 on npu, the fp32 step on
npu, and upstream's bfloat16 autocast on channels_last memory on the CPU. Exit status 0 says that the figures are valid,
whether or not they meet the targets.
"""

import argparse
import subprocess
import sys

from _common import Machine, Targets, add_arguments, best_of, describe_machine, require_npu

# image side, batch size, rounds, least acceptable cpu time / npu time
CASES = {"64": (64, 64, 7, 1.0), "224": (224, 16, 4, 1.1)}
MEMORY_TARGET = 1.3
# --amp: least acceptable fp32 step / O2 step on npu, by whether the CPU multiplies bfloat16; autocast on the CPU / O2
AMP_TARGET, AMP_TARGET_WIDENED, AUTOCAST_TARGET = 1.15, 0.9, 1.2
CLASSES = 1000


class Trainer:
    """A model with its optimizer and one fixed batch on a device; calling it runs one whole step and waits for it."""

    def __init__(self, device: str, pixels: int, batch: int, channels_last: bool = False) -> None:
        from torchvision.models import resnet50

        import torch

        torch.manual_seed(0)
        self.device = torch.device(device)
        last = {"memory_format": torch.channels_last if channels_last else torch.contiguous_format}
        self.model = resnet50(num_classes=CLASSES).to(self.device).to(**last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
        self.images = torch.randn(batch, 3, pixels, pixels).to(self.device).contiguous(**last)
        self.target = torch.randint(CLASSES, (batch,)).to(self.device)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.wait = torch.npu.synchronize if self.device.type == "npu" else lambda: None

    def __call__(self) -> None:
        loss = self.criterion(self.model(self.images), self.target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.wait()


class AmpTrainer(Trainer):
    """The same step in bfloat16: apex's O2 on npu, autocast on channels_last memory on the CPU."""

    def __init__(self, device: str, pixels: int, batch: int) -> None:
        import torch

        super().__init__(device, pixels, batch, channels_last=device == "cpu")
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=device == "cpu")
        if device == "npu":
            from apex import amp

            self.model, self.optimizer = amp.initialize(
                self.model,
                self.optimizer,
                opt_level="O2",
                cast_model_type=torch.bfloat16,
                loss_scale=1.0,
                combine_grad=True,
                verbosity=0,
            )
            self.scale_loss = amp.scale_loss

    def __call__(self) -> None:
        with self.autocast:
            loss = self.criterion(self.model(self.images), self.target)
        self.optimizer.zero_grad()
        if self.device.type == "npu":
            with self.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        self.optimizer.step()
        self.wait()


def compare_amp(case: str, rounds: int | None, targets: Targets) -> None:
    import torch

    pixels, batch, otherwise, _ = CASES[case]
    best = best_of(
        {
            "npu O2 bfloat16": AmpTrainer("npu", pixels, batch),
            "npu fp32": Trainer("npu", pixels, batch),
            "cpu autocast bfloat16": AmpTrainer("cpu", pixels, batch),
        },
        rounds or otherwise,
    )
    o2, fp32, autocast = best.values()
    print(
        f"step at {pixels} px, batch {batch}: "
        + ", ".join(f"{name} {t * 1e3:.0f} ms ({batch / t:.1f} images/s)" for name, t in best.items()),
        flush=True,
    )
    known = torch.cpu.get_capabilities()
    multiplies = bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    target = AMP_TARGET if multiplies else AMP_TARGET_WIDENED
    targets.at_least(f"npu fp32 / npu O2 at {pixels} px, batch {batch}", fp32 / o2, target)
    targets.at_least(f"cpu autocast / npu O2 at {pixels} px, batch {batch}", autocast / o2, AUTOCAST_TARGET)


def own_peak_mib() -> float:
    """This program's peak resident MiB. Not ru_maxrss, which begins with the peak of the process that forked us."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def peak_mib(device: str, case: str) -> float:
    """Peak resident MiB of a fresh process that runs three steps on `device`."""
    command = [sys.executable, __file__, "--memory-of", device, "--case", case]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    parser.add_argument(
        "--case", choices=[*CASES, "all"], default="all", help="side of the images (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, help="steps of each device that count (default: 7 at 64 px, 4 at 224 px)")
    parser.add_argument("--channels-last", action="store_true", help="model and images in channels_last memory")
    parser.add_argument("--no-memory", action="store_true", help="leave out the comparison of peak memory")
    parser.add_argument("--amp", action="store_true", help="mixed precision instead, see above")
    parser.add_argument("--memory-of", metavar="DEVICE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    require_npu()
    cases = list(CASES) if args.case == "all" else [args.case]
    if args.memory_of:
        pixels, batch, _, _ = CASES[args.case]
        step = Trainer(args.memory_of, pixels, batch)
        for _ in range(3):
            step()
        print(own_peak_mib())
        return

    targets = Targets()
    with Machine(args) as machine:
        print(describe_machine(), flush=True)
        for case in cases:
            if args.amp:
                compare_amp(case, args.rounds, targets)
                continue
            pixels, batch, rounds, target = CASES[case]
            best = best_of(
                {d: Trainer(d, pixels, batch, args.channels_last) for d in ("cpu", "npu")}, args.rounds or rounds
            )
            print(
                f"step at {pixels} px, batch {batch}{', channels_last' if args.channels_last else ''}: "
                + ", ".join(f"{d} {t * 1e3:.0f} ms ({batch / t:.1f} images/s)" for d, t in best.items()),
                flush=True,
            )
            targets.at_least(f"cpu time / npu time at {pixels} px, batch {batch}", best["cpu"] / best["npu"], target)
        if not args.no_memory and not args.amp:
            for case in cases:
                peak = {device: peak_mib(device, case) for device in ("cpu", "npu")}
                print(
                    f"peak host memory at {case} px: cpu {peak['cpu']:.0f} MiB, npu {peak['npu']:.0f} MiB", flush=True
                )
                targets.at_most(f"npu / cpu peak host memory at {case} px", peak["npu"] / peak["cpu"], MEMORY_TARGET)
    print(f"other processes used {machine.foreign:.2f} cores")
    targets.show()


if __name__ == "__main__":
    main()
