"""Libraries that look for `torch_npu` train a tiny model each on npu, with the CPU's losses. Nothing is downloaded."""

import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import unittest

# Before the libraries are imported: they ask the network for nothing, and say little.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

from common_utils import TestCase, run_in_process, run_tests

import torch

LIBRARIES = ("transformers", "accelerate", "peft", "diffusers")
MISSING = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
STEPS = 4


def tokens(seed=0, batch=4, length=12, vocabulary=64):
    return torch.randint(1, vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **options))


def train(model, batches, device, dtype=torch.float32, lr=1e-3, kind=torch.optim.AdamW):
    """Losses of some steps of an optimizer; `batches` are keyword arguments of a model that returns its loss."""
    model = model.to(device, dtype).train()
    optimizer = kind([p for p in model.parameters() if p.requires_grad], lr=lr)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**{key: value.to(device) for key, value in batch.items()}).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def language(steps=STEPS):
    return [{"input_ids": ids, "labels": ids} for ids in (tokens(step % 2) for step in range(steps))]


@unittest.skipIf(MISSING, f"needs {', '.join(MISSING)}: pip install -r requirements-libraries.txt")
class TestLibraries(TestCase):
    def same(self, npu, cpu, tolerance=1e-4):
        self.assertEqual(len(npu), len(cpu))
        self.assertNotEqual(npu[0], npu[-1])
        for a, b in zip(npu, cpu, strict=True):
            self.assertLessEqual(abs(a - b), tolerance * max(1.0, abs(b)), (npu, cpu))

    def test_they_find_the_back_end(self):
        import accelerate.utils
        import diffusers.utils
        import transformers.utils

        self.assertTrue(transformers.utils.is_torch_npu_available(check_device=True))
        self.assertTrue(accelerate.utils.is_npu_available(check_device=True))
        self.assertTrue(diffusers.utils.is_torch_npu_available())
        self.assertEqual(importlib.metadata.version("torch_npu"), torch.__version__)

    def test_transformers_encoder(self):
        from transformers import BertConfig, BertForSequenceClassification

        def model(attention):
            torch.manual_seed(0)
            config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
            config.update({"intermediate_size": 48, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
            config._attn_implementation = attention
            return BertForSequenceClassification(config)

        padding = torch.ones(4, 12, dtype=torch.long)
        padding[1, 8:] = 0
        labels = torch.tensor([0, 1, 1, 0])
        batches = [{"input_ids": tokens(s), "attention_mask": padding, "labels": labels} for s in (0, 1, 0, 1)]
        expected = train(model("eager"), batches, "cpu")
        for attention in ("eager", "sdpa"):
            with self.subTest(attention=attention):
                self.same(train(model(attention), batches, "npu"), expected)

    def test_transformers_decoder(self):
        expected = train(llama(attn_implementation="eager"), language(), "cpu")
        for attention in ("eager", "sdpa"):
            with self.subTest(attention=attention):
                self.same(train(llama(attn_implementation=attention), language(), "npu"), expected)

    def test_transformers_flash_attention(self):
        """What calls npu_fusion_attention: dense, and by sequence where a batch is padded."""
        # AdamW's epsilon is zero in fp16.
        plain = {"lr": 0.05, "kind": torch.optim.SGD}
        expected = train(llama(attn_implementation="eager"), language(), "cpu", **plain)
        for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float16, 5e-3)):
            model = llama(attn_implementation="flash_attention_2")
            self.same(train(model, language(), "npu", dtype, **plain), expected, tolerance)
        padding = torch.ones(4, 12, dtype=torch.long)
        padding[1, 8:] = padding[3, 5:] = 0
        batches = [dict(batch, attention_mask=padding) for batch in language()]
        for batch in batches:
            batch["labels"] = batch["labels"].masked_fill(padding == 0, -100)
        expected = train(llama(attn_implementation="eager"), batches, "cpu")
        model = llama(attn_implementation="flash_attention_2")
        self.same(train(model, batches, "npu", torch.bfloat16), expected, 3e-2)

    def test_transformers_mixture_of_experts(self):
        from transformers import MixtralConfig, MixtralForCausalLM

        def model():
            torch.manual_seed(0)
            sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
            heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
            return MixtralForCausalLM(MixtralConfig(**sizes, **heads, attn_implementation="eager"))

        self.same(train(model(), language(), "npu"), train(model(), language(), "cpu"))

    def test_transformers_trainer(self):
        from transformers import Trainer, TrainingArguments

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                ids = tokens(index, batch=1)[0]
                return {"input_ids": ids, "labels": ids}

        def losses(cpu):
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(
                    folder,
                    max_steps=STEPS,
                    per_device_train_batch_size=4,
                    logging_steps=1,
                    learning_rate=1e-3,
                    use_cpu=cpu,
                    save_steps=2,
                    report_to=[],
                    disable_tqdm=True,
                    seed=0,
                )
                trainer = Trainer(llama(attn_implementation="eager"), arguments, train_dataset=Rows())
                trainer.train()
                device = next(trainer.model.parameters()).device.type
                return device, [row["loss"] for row in trainer.state.log_history if "loss" in row]

        device, npu = losses(False)
        self.assertEqual(device, "npu")
        self.same(npu, losses(True)[1], 1e-3)

    def test_accelerate(self):
        # One process, one device: its own state is global, so a fresh interpreter each.
        script = """
import sys, torch
sys.path.insert(0, {folder!r})
from test_libraries import *
from accelerate import Accelerator
accelerator = Accelerator(cpu=sys.argv[0] == "cpu" or {cpu}, mixed_precision={precision!r})
assert accelerator.device.type == ("cpu" if {cpu} else "npu") and accelerator.num_processes == 1, accelerator.state
model = llama(attn_implementation="eager")
rows = [dict(input_ids=ids, labels=ids) for step in range(STEPS) for ids in tokens(step % 2)]
loader = torch.utils.data.DataLoader(rows, batch_size=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
"""
        found = {}
        for cpu, precision in ((True, "no"), (False, "no"), (False, "bf16"), (False, "fp16")):
            text = script.format(folder=os.path.dirname(os.path.abspath(__file__)), cpu=cpu, precision=precision)
            result = run_in_process(text, ASCEND_SIM_DEVICE_COUNT="1")
            self.assertEqual(result.returncode, 0, result.stderr)
            found[cpu, precision] = [float(line) for line in result.stdout.split()]
        self.same(found[False, "no"], found[True, "no"])
        self.same(found[False, "bf16"], found[True, "no"], 3e-2)
        self.same(found[False, "fp16"], found[True, "no"], 3e-2)

    def test_peft(self):
        from peft import LoraConfig, get_peft_model

        def model():
            base = llama(attn_implementation="sdpa")
            torch.manual_seed(1)
            return get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))

        trained = model()
        npu = train(trained, language(), "npu", lr=1e-2)
        self.same(npu, train(model(), language(), "cpu", lr=1e-2))
        moved = [name for name, p in trained.named_parameters() if p.requires_grad]
        self.assertTrue(moved and all("lora_" in name for name in moved))
        merged = trained.merge_and_unload()
        self.assertTrue(all(p.device.type == "npu" for p in merged.parameters()))

    def test_diffusers(self):
        from diffusers import DDPMScheduler, UNet2DConditionModel

        def losses(device):
            torch.manual_seed(0)
            model = UNet2DConditionModel(
                sample_size=8,
                in_channels=3,
                out_channels=3,
                block_out_channels=(8, 16),
                layers_per_block=1,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                cross_attention_dim=8,
                attention_head_dim=4,
                norm_num_groups=4,
            ).to(device)
            scheduler = DDPMScheduler(num_train_timesteps=20)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            found = []
            for step in range(STEPS):
                generator = torch.Generator().manual_seed(step)
                clean, noise = (torch.randn(2, 3, 8, 8, generator=generator) for _ in range(2))
                when = torch.randint(0, 20, (2,), generator=generator)
                context = torch.randn(2, 5, 8, generator=generator)
                noisy = scheduler.add_noise(clean, noise, when)
                optimizer.zero_grad()
                out = model(noisy.to(device), when.to(device), encoder_hidden_states=context.to(device)).sample
                loss = torch.nn.functional.mse_loss(out, noise.to(device))
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        # Its gated layers take npu_geglu, whose gelu is by tanh: the CPU's is by erf.
        self.same(losses("npu"), losses("cpu"), 2e-3)

    def test_a_laptop_has_one_device(self):
        code = "import torch; print(torch.npu.device_count())"
        result = run_in_process(f"import os; os.environ.pop('ASCEND_SIM_DEVICE_COUNT', 0); {code}")
        self.assertEqual(result.stdout.strip(), "1", result.stderr)

    def test_nothing_else_was_installed_for_torch(self):
        self.assertIn("+ascend", importlib.metadata.version("torch"))
        self.assertNotIn("triton", sys.modules)


if __name__ == "__main__":
    run_tests()
