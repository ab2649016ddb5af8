"""trl: supervised fine-tuning, preferences and rewards with tiny models on npu."""

import tempfile
from unittest import mock

import _offline  # noqa: F401
import datasets
import trl
from side_by_side import check, main, seeded
from tiny import llama, text, tokenizer

import torch

COMMON = {
    "max_steps": 3,
    "per_device_train_batch_size": 4,
    "logging_steps": 1,
    "learning_rate": 1e-2,
    "report_to": [],
    "disable_tqdm": True,
    "seed": 0,
    "bf16": False,
    "gradient_checkpointing": False,
}
TEXTS = {"text": [text(seed) for seed in range(16)]}
PAIRS = {
    "prompt": [text(seed, 3) for seed in range(16)],
    "chosen": [text(seed + 20, 4) for seed in range(16)],
    "rejected": [text(seed + 40, 4) for seed in range(16)],
}


def losses(kind, options_of, device: str, rows: dict, model=None, **options) -> list[float]:
    extra = options.pop("config", {})
    with tempfile.TemporaryDirectory() as folder:
        arguments = options_of(folder, use_cpu=device == "cpu", **(COMMON | extra))
        trainer = kind(
            model=model or llama(),
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(rows),
            processing_class=tokenizer(),
            **options,
        )
        trainer.train()
        assert next(trainer.model.parameters()).device.type == device
        steps = [row for row in trainer.state.log_history if "loss" in row]
        assert all(row["grad_norm"] > 0 for row in steps), steps
        return [row[name] for row in steps for name in ("loss", "grad_norm", "reward") if name in row]


@check("SFTTrainer", tolerance=1e-3)
def sft(device):
    return losses(trl.SFTTrainer, trl.SFTConfig, device, TEXTS)


@check("SFTTrainer, packed, bfloat16", tolerance=3e-2, slow=True)
def packed(device):
    config = {"packing": True, "packing_strategy": "wrapped", "max_length": 16, "bf16": True}
    return losses(trl.SFTTrainer, trl.SFTConfig, device, TEXTS, config=config)


@check("SFTTrainer with LoRA", tolerance=1e-3, slow=True)
def adapters(device):
    import peft

    adapter = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian")
    return losses(trl.SFTTrainer, trl.SFTConfig, device, TEXTS, peft_config=adapter)


@check("SFTTrainer, activation offloading (without on the CPU)", tolerance=1e-3, slow=True)
def offloading(device):
    return losses(trl.SFTTrainer, trl.SFTConfig, device, TEXTS, config={"activation_offloading": device == "npu"})


@check("DPOTrainer", tolerance=1e-3)
def dpo(device):
    return losses(trl.DPOTrainer, trl.DPOConfig, device, PAIRS, ref_model=llama())


@check("RewardTrainer", tolerance=1e-3, slow=True)
def reward(device):
    from transformers import LlamaConfig, LlamaForSequenceClassification

    import torch

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=1,
        pad_token_id=0,
    )
    model = LlamaForSequenceClassification(config)
    rows = {name: PAIRS[name] for name in ("chosen", "rejected")}
    return losses(trl.RewardTrainer, trl.RewardConfig, device, rows, model=model)


@check("GRPOTrainer, words drawn on the host", tolerance=1e-3, slow=True)
def grpo(device):
    generator, drawn = seeded(), torch.multinomial

    def draw(scores: torch.Tensor, num_samples: int, *_, **__) -> torch.Tensor:
        return drawn(scores.cpu(), num_samples, generator=generator).to(scores.device)

    def variety(completions, **_) -> list[float]:
        return [float(len(set(each.split()))) for each in completions]

    config = {"num_generations": 4, "max_completion_length": 6, "use_vllm": False}
    rows = {"prompt": PAIRS["prompt"]}
    # What a device draws by itself is its own.
    with mock.patch.object(torch, "multinomial", draw):
        return losses(trl.GRPOTrainer, trl.GRPOConfig, device, rows, config=config, reward_funcs=variety)


if __name__ == "__main__":
    main("trl")
