"""examples/llm: training, generation, adapters and quantised inference, each beside the CPU."""

import contextlib
import importlib
import io
import math
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType
from unittest import mock

from common_utils import TestCase, run_tests

import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llm"
NAMES = ("corpus", "llama", "kv_cache", "train", "generate", "lora", "quantized")


def load_example() -> list[ModuleType]:
    """The example's modules. Their names are common: those of other tests come back afterwards."""
    others = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
    with mock.patch.object(sys, "path", [str(EXAMPLE), *sys.path]):
        found = [importlib.import_module(name) for name in NAMES]
    for name in NAMES:
        del sys.modules[name]
    sys.modules.update(others)
    return found


corpus, llama, kv_cache, train, generate, lora, quantized = load_example()
SMALL = llama.Config(width=32, layers=2, heads=4, key_heads=2, hidden=64, length=64)
BRIEF = ["--steps", "4", "--batch", "4", "--length", "32"]


def model(device: str, attention: str, config: llama.Config = SMALL) -> llama.Llama:
    torch.manual_seed(0)
    return llama.Llama(config, attention).to(device).eval()


def run(module: ModuleType, *argv: object) -> tuple[int, str]:
    """Exit status and output of a script's main()."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = module.main([str(each) for each in argv])
    return status, output.getvalue()


class TestModel(TestCase):
    def test_corpus_is_there_and_apart(self):
        for kind, least in (("documentation", 300_000), ("sources", 100_000)):
            learned, kept = corpus.load(kind)
            self.assertGreater(len(learned), least)
            self.assertGreater(len(kept), 10_000)
            self.assertNotIn(bytes(kept[:200].tolist()), bytes(learned.tolist()))
        x, y = next(corpus.batches(learned, 3, 16, 1, seed=5))
        self.assertEqual((tuple(x.shape), x[:, 1:]), ((3, 16), y[:, :-1]))

    def test_every_attention_agrees(self):
        """Scores and gradients of each way on npu, and the ways of the CPU, are those written out on the CPU."""
        tokens = torch.randint(256, (2, 24), generator=torch.Generator().manual_seed(1))

        def compute(device, attention):
            found = model(device, attention)
            scores = found(tokens.to(device))
            torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten().to(device)).backward()
            return scores, {name: p.grad for name, p in found.named_parameters()}

        scores, gradients = compute("cpu", "eager")
        for device, attention in (("cpu", "sdpa"), *(("npu", kind) for kind in llama.KINDS)):
            with self.subTest(device=device, attention=attention):
                found = compute(device, attention)
                self.assertEqual(found[0], scores, atol=1e-5)
                self.assertEqual(found[1], gradients, atol=1e-5)

    def test_nothing_comes_from_later(self):
        for attention in llama.KINDS:
            found = model("npu", attention)
            tokens = torch.randint(256, (1, 20), generator=torch.Generator().manual_seed(1)).npu()
            changed = tokens.clone()
            changed[:, 12:] = 7
            with torch.no_grad():
                self.assertEqual(found(tokens)[:, :12], found(changed)[:, :12], atol=1e-6)

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "computes on npu devices"):
            model("cpu", "npu")(torch.zeros(1, 4, dtype=torch.long))
        with self.assertRaisesRegex(ValueError, "65 positions"):
            model("npu", "sdpa")(torch.zeros(1, 65, dtype=torch.long).npu())


class TestCaches(TestCase):
    def test_steps_give_the_scores_of_the_whole(self):
        """Byte by byte, by whole prompts of several lengths, in either cache: what one pass over all gives."""
        texts = [torch.randint(256, (n,), generator=torch.Generator().manual_seed(n)) for n in (21, 9)]
        for device, attention in (("cpu", "sdpa"), ("npu", "eager"), ("npu", "sdpa"), ("npu", "npu")):
            found = model(device, attention)
            with torch.no_grad():
                whole = [found(text.unsqueeze(0).to(device))[0] for text in texts]
            for cache in (
                kv_cache.StaticCache(SMALL, 2, 32, device),
                kv_cache.PagedCache(SMALL, 12, 4, device),
            ):
                with self.subTest(device=device, attention=attention, cache=type(cache).__name__), torch.no_grad():
                    tokens = torch.stack([text[:6] for text in texts]).to(device)
                    cache.advance([0, 0], 6)
                    scores = found(tokens, cache)
                    self.assertEqual(scores, torch.stack([w[:6] for w in whole]), atol=1e-5)
                    # Both go on, from different places: the second was read no further than 4.
                    for step in range(3):
                        cache.advance([6 + step, 4 + step], 1)
                        tokens = torch.stack([texts[0][6 + step], texts[1][4 + step]]).unsqueeze(1).to(device)
                        scores = found(tokens, cache)[:, 0]
                        self.assertEqual(scores, torch.stack([whole[0][6 + step], whole[1][4 + step]]), atol=1e-5)

    def test_blocks_are_taken_as_needed_and_given_back(self):
        cache = kv_cache.PagedCache(SMALL, 5, 4, "npu")
        cache.advance([0, 0], 4)
        self.assertEqual((cache.used, len(cache.free)), (2, 3))
        cache.advance([4, 3], 1)
        self.assertEqual(cache.used, 3)
        with self.assertRaisesRegex(MemoryError, "3 blocks are wanted, 2 of the pool are free"):
            cache.advance([5, 4], 7)
        self.assertEqual(cache.used, 3)
        cache.release(0)
        self.assertEqual((cache.used, len(cache.free)), (1, 4))

    def test_capacity(self):
        with self.assertRaisesRegex(ValueError, "9 positions, but the cache has 8"):
            kv_cache.StaticCache(SMALL, 1, 8, "npu").advance([8], 1)
        with self.assertRaisesRegex(ValueError, "65 positions, but the model has 64"):
            kv_cache.PagedCache(SMALL, 40, 4, "npu").advance([64], 1)

    def test_drawn_bytes_are_the_same_on_both_devices(self):
        texts = []
        for device in ("cpu", "npu"):
            found = model(device, llama.default_attention(device))
            cache = generate.make_cache("paged", found, [b"abc", b"z"], 12, 4, torch.float32)
            texts.append(generate.generate(found, [b"abc", b"z"], 12, cache, temperature=1.0, seed=3).texts)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual([len(text) for text in texts[0]], [12, 12])


class TestQuantized(TestCase):
    def test_layers(self):
        torch.manual_seed(0)
        linear, x = torch.nn.Linear(64, 48, bias=False), torch.randn(2, 5, 64)
        for bits, bound in ((8, 0.02), (4, 0.3)):
            cpu = quantized.WeightOnlyLinear(linear, bits)
            npu = quantized.WeightOnlyLinear(torch.nn.Linear(64, 48, bias=False), bits)
            copied = torch.nn.Linear(64, 48, bias=False).npu()
            copied.weight.data.copy_(linear.weight)
            npu = quantized.WeightOnlyLinear(copied, bits)
            self.assertEqual(npu(x.npu()), cpu(x), atol=1e-5)
            self.assertLess((cpu(x) - linear(x)).abs().max().item(), bound)
            self.assertEqual(npu.codes.nbytes, 64 * 48 * bits // 8)

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "without bias"):
            quantized.WeightOnlyLinear(torch.nn.Linear(64, 64), 8)
        with self.assertRaisesRegex(ValueError, "groups of 32"):
            quantized.WeightOnlyLinear(torch.nn.Linear(40, 64, bias=False), 4)


class TestScripts(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.checkpoint = Path(cls.folder.name) / "model.pt"
        options = ("--width", 64, "--layers", 2, "--parity", "--tolerance", 1e-3, "--checkpoint", cls.checkpoint)
        cls.status, cls.text = run(train, *BRIEF, *options)

    def test_training_has_the_losses_of_the_cpu(self):
        self.assertEqual(self.status, 0, self.text)
        self.assertRegex(self.text, r"attention npu on npu\n")
        self.assertRegex(self.text, r" held out +\d\.\d+ +\d\.\d+ +\d\.\d+e[+-]\d+\n")
        self.assertIn("losses that differ by more than 0.001 of the CPU's: 0 of 5\n", self.text)

    def test_mixed_precision(self):
        path = Path(self.folder.name) / "mixed.pt"
        options = ("--amp", "--parity", "--width", 64, "--layers", 2, "--checkpoint", path)
        status, text = run(train, *BRIEF, *options)
        self.assertEqual(status, 0, text)
        self.assertEqual({v.dtype for v in torch.load(path)["model"].values()}, {torch.float32})

    def test_generation(self):
        options = ("--checkpoint", self.checkpoint, "--tokens", 8, "--prompt", "import", "a")
        status, text = run(generate, *options)
        self.assertEqual(status, 0)
        rates = r"prompt +[\d.]+ ms, then +[\d.]+ bytes/s, cache \d+ KiB"
        for device in ("cpu", "npu"):
            self.assertRegex(text, rf"{device} static {rates}; the CPU's bytes\n")
            self.assertRegex(text, rf"{device} paged  {rates} in 2 blocks; the CPU's bytes\n")

    def test_adapters(self):
        adapter = Path(self.folder.name) / "adapter.pt"
        options = ("--checkpoint", self.checkpoint, "--adapter", adapter, "--parity", "--tolerance", 1e-3)
        status, text = run(lora, *BRIEF, *options)
        self.assertEqual(status, 0, text)
        self.assertLess(float(text.split("differ by at most ")[1].split()[0]), 1e-4)
        saved = torch.load(adapter)
        self.assertEqual(len(saved), 2 * 2 * 2)
        self.assertTrue(all(".up" in name or ".down" in name for name in saved))

    def test_quantized_inference(self):
        status, text = run(quantized, "--checkpoint", self.checkpoint, "--tokens", 4)
        self.assertEqual(status, 0)
        found = {tuple(line.split()[:2]): float(line.split("loss ")[1].split(",")[0]) for line in text.splitlines()}
        self.assertEqual(len(found), 6)
        for form in ("float16", "int8", "int4"):
            self.assertLess(abs(found["npu", form] - found["cpu", form]), 1e-3, text)
            self.assertLess(abs(found["npu", form] - found["cpu", "float16"]), 0.05, text)

    def test_without_a_checkpoint(self):
        with self.assertRaisesRegex(SystemExit, "run examples/llm/train.py first"):
            run(generate, "--checkpoint", "nowhere.pt")


@unittest.skipUnless(os.environ.get("NPU_SLOW_TESTS") == "1", "two minutes; NPU_SLOW_TESTS=1 runs it")
class TestWhole(TestCase):
    def test_it_learns_what_the_cpu_learns(self):
        with tempfile.TemporaryDirectory() as folder:
            place = ("--checkpoint", Path(folder) / "model.pt")
            status, text = run(train, "--steps", 200, "--parity", "--tolerance", 0.05, *place)
            self.assertEqual(status, 0, text)
            self.assertLess(float(text.split("held-out text: loss ")[1].split(",")[0]), 2.4)
            status, text = run(generate, *place, "--tokens", 64)
            self.assertEqual(status, 0, text)
            status, text = run(lora, *place, "--parity", "--adapter", Path(folder) / "adapter.pt")
            self.assertEqual(status, 0, text)
            before, after = text.split("held-out sources: loss ")[1].splitlines()[0].split(" before, ")
            self.assertLess(float(after.split()[0]), float(before) - 0.1)
            status, text = run(quantized, *place)
            losses = [float(line.split("loss ")[1].split(",")[0]) for line in text.splitlines()]
            self.assertLess(max(losses) - min(losses), 0.05, text)
            self.assertTrue(all(map(math.isfinite, losses)))


if __name__ == "__main__":
    run_tests()
