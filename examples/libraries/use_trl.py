"""trl: supervised fine-tuning, preferences and rewards with tiny models on npu."""

import tempfile

import _offline  # noqa: F401
import datasets
import trl
from side_by_side import check, main
from tiny import llama, text, tokenizer

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
    "dataset_num_proc": None,
}
TEXTS = {"text": [text(seed) for seed in range(16)]}
PAIRS = {
    "prompt": [text(seed, 3) for seed in range(16)],
    "chosen": [text(seed + 20, 4) for seed in range(16)],
    "rejected": [text(seed + 40, 4) for seed in range(16)],
}


def losses(kind, config, device: str, rows: dict, model=None, **options) -> list[float]:
    extra = options.pop("config", {})
    with tempfile.TemporaryDirectory() as folder:
        arguments = config(folder, use_cpu=device == "cpu", **(COMMON | extra))
        trainer = kind(
            model=model or llama(),
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(rows),
            processing_class=tokenizer(),
            **options,
        )
        trainer.train()
        assert next(trainer.model.parameters()).device.type == device
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]


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
    return losses(trl.DPOTrainer, trl.DPOConfig, device, PAIRS)


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


@check("GRPOTrainer with the likeliest words", tolerance=1e-3, slow=True)
def grpo(device):
    def length(completions, **_) -> list[float]:
        return [float(len(set(each.split()))) for each in completions]

    config = {
        "num_generations": 2,
        "max_completion_length": 6,
        # What is drawn is each device's own; the likeliest of all is not.
        "top_k": 1,
        "use_vllm": False,
    }
    return losses(
        trl.GRPOTrainer, trl.GRPOConfig, device, {"prompt": PAIRS["prompt"]}, config=config, reward_funcs=length
    )


if __name__ == "__main__":
    main("trl")
