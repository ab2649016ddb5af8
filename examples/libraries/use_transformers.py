"""transformers: 28 architectures, Trainer in three precisions, generation with every cache, pipelines on npu."""

import tempfile

import _offline  # noqa: F401
import transformers
from processes import losses_of
from side_by_side import check, main, randint, randn, train
from tiny import llama, text, tokenizer, tokens

import torch

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODER = {**SIZES, "num_attention_heads": 4, **QUIET}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
T5 |= {"decoder_start_token_id": 0}
BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "dropout": 0.0,
    "max_position_embeddings": 64,
}
GPT = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, **QUIET}
VISION |= {"image_size": 16, "patch_size": 4}

# Prefix of the library's classes: (what is learned, sizes).
LANGUAGE = {
    "Llama": {**SIZES, **HEADS},
    "Mistral": {**SIZES, **HEADS, "sliding_window": 8},
    "Qwen2": {**SIZES, **HEADS},
    "Qwen3": {**SIZES, **HEADS, "head_dim": 8},
    "Gemma": {**SIZES, **HEADS, "head_dim": 8},
    "Gemma2": {**SIZES, **HEADS, "head_dim": 8, "sliding_window": 8},
    "Phi3": {**SIZES, **HEADS, "pad_token_id": 0},
    "Falcon": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "GPTNeoX": {**SIZES, "num_attention_heads": 4},
    "GPT2": GPT,
    "OPT": {"vocab_size": 64, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"dropout": 0.0, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "Bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Mixtral": {**SIZES, **HEADS, "num_local_experts": 4},
    "Qwen2Moe": {**SIZES, **HEADS, **EXPERTS, "shared_expert_intermediate_size": 24},
    "Qwen3Moe": {**SIZES, **HEADS, **EXPERTS, "head_dim": 8},
    "Olmoe": {**SIZES, **HEADS, "num_experts": 4, "num_experts_per_tok": 2},
    "DeepseekV3": {
        **SIZES,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 24,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "Mamba": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_mambapy": False},
}
MASKED = {
    "Bert": ENCODER,
    "Roberta": {**ENCODER, "max_position_embeddings": 66},
    "Electra": {**ENCODER, "embedding_size": 32},
    "DebertaV2": {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "Albert": {**ENCODER, "embedding_size": 16},
    "ModernBert": {**SIZES, "num_attention_heads": 4, "pad_token_id": 0},
    "DistilBert": {"vocab_size": 64, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}
    | {"dropout": 0.0, "attention_dropout": 0.0},
}
TRANSLATION = {"T5": T5, "Bart": BART, "MT5": T5}
IMAGES = {"ViT": VISION, "DeiT": VISION, "Dinov2": {**VISION, "mlp_ratio": 2}}


def made(prefix: str, head: str, sizes: dict, device: str, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{prefix}Config")(**sizes, **options)
    return getattr(transformers, f"{prefix}{head}")(config).to(device).train()


def losses(model, device: str, batches: list[dict]) -> list[float]:
    moved = [{key: value.to(device) for key, value in batch.items()} for batch in batches]
    return train(model, lambda m, step: m(**moved[step % len(moved)]).loss)


def register(prefix: str, head: str, sizes: dict, batches, slow: bool) -> None:
    @check(f"{prefix}{head}, training", tolerance=1e-3, slow=slow)
    def run(device: str) -> list[float]:
        return losses(made(prefix, head, sizes, device), device, batches)


texts = [{"input_ids": tokens(s), "labels": tokens(s)} for s in (0, 1)]
pictures = [{"pixel_values": randn(2, 3, 16, 16, seed=s), "labels": randint(2, 2, seed=s)} for s in (0, 1)]
for name, options in LANGUAGE.items():
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    register(name, head, options, texts, slow=name not in ("Llama", "Mixtral"))
for name, options in MASKED.items():
    register(name, "ForMaskedLM", options, texts, slow=name != "Bert")
for name, options in TRANSLATION.items():
    register(name, "ForConditionalGeneration", options, texts, slow=name != "T5")
for name, options in IMAGES.items():
    register(name, "ForImageClassification", options, pictures, slow=name != "ViT")


@check("attention: eager, sdpa", slow=True)
def attention(device):
    return [loss for kind in ("eager", "sdpa") for loss in losses(llama(kind).to(device), device, texts)]


@check("attention: flash_attention_2 in bfloat16, beside sdpa on the CPU", tolerance=3e-2)
def flash(device):
    kind = "flash_attention_2" if device == "npu" else "sdpa"
    return losses(llama(kind).to(device, torch.bfloat16), device, texts)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict:
        ids = tokens(index, batch=1)[0]
        return {"input_ids": ids, "labels": ids}


def trained(device: str, resume: bool = False, **options) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=4,
            logging_steps=1,
            learning_rate=1e-2,
            use_cpu=device == "cpu",
            save_steps=2,
            report_to=[],
            disable_tqdm=True,
            seed=0,
            **options,
        )
        trainer = transformers.Trainer(llama(), arguments, train_dataset=Rows(), eval_dataset=Rows())
        assert trainer.args.device.type == device, trainer.args.device
        trainer.train()
        if resume:
            trainer = transformers.Trainer(llama(), arguments, train_dataset=Rows(), eval_dataset=Rows())
            trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-2")
        found = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        return [*found, trainer.evaluate()["eval_loss"]]


@check("Trainer, fp32, evaluation", tolerance=1e-3)
def trainer(device):
    return trained(device)


@check("Trainer, resumed from a checkpoint", tolerance=1e-3, slow=True)
def resumed(device):
    return trained(device, resume=True)


@check("Trainer, bf16", tolerance=3e-2, slow=True)
def trainer_bf16(device):
    return trained(device, bf16=True)


@check("Trainer, fp16 (fp32 on the CPU)", tolerance=3e-2, slow=True)
def trainer_fp16(device):
    return trained(device, fp16=device == "npu")


@check("Trainer, gradient checkpointing and accumulation", tolerance=1e-3, slow=True)
def trainer_checkpointing(device):
    return trained(device, gradient_checkpointing=True, gradient_accumulation_steps=2)


@check("Trainer, adamw_torch_npu_fused (adamw_torch on the CPU)", tolerance=1e-3)
def trainer_fused(device):
    return trained(device, optim="adamw_torch_npu_fused" if device == "npu" else "adamw_torch")


def register_cache(name: str, limit: str = "", **options) -> None:
    @check(f"generate, {name}", tolerance=0.0, limit=limit, slow=name != "dynamic cache")
    def run(device: str) -> list:
        model = llama().to(device).eval()
        ids = tokens(3).to(device)
        here = {} if limit and device == "cpu" else options
        return [model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, **here)]


register_cache("dynamic cache")
register_cache("static cache", cache_implementation="static")
CUDA = "transformers calls torch.cuda.default_stream there"
register_cache("offloaded cache", CUDA, cache_implementation="offloaded")
register_cache("offloaded static cache", CUDA, cache_implementation="offloaded_static")
register_cache("no cache", use_cache=False)

# What today's users of torch_npu write in front of a script of CUDA's: torch.cuda's names are npu's from there on.
TRANSFERRED = """
from torch_npu.contrib import transfer_to_npu
import _offline
device, kind = sys.argv[1:]
model, ids = llama().to(device).eval(), tokens(3).to(device)
options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": kind}
found = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
for token in found.flatten().tolist():
    tell(found.device, token)
"""


def register_transferred(name: str, kind: str, on_cpu: str) -> None:
    # Offloading to the host's memory is for an accelerator: on the CPU the same without it.
    @check(f"generate, {name} under transfer_to_npu", tolerance=0.0, slow=True, once=True)
    def run(device: str) -> list:
        return [
            torch.tensor(losses_of(TRANSFERRED, device, (), device, kind if device == "npu" else on_cpu)).to(device)
        ]


register_transferred("offloaded cache", "offloaded", "dynamic")
register_transferred("offloaded static cache", "offloaded_static", "static")


def register_quantized(bits: int) -> None:
    @check(f"generate, cache quantized to {bits} bits by quanto", tolerance=0.0, slow=True)
    def run(device: str) -> list:
        model, ids = llama().to(device).eval(), tokens(3).to(device)
        config = {"backend": "quanto", "nbits": bits, "q_group_size": 8, "residual_length": 4}
        options = {
            "max_new_tokens": 12,
            "do_sample": False,
            "cache_implementation": "quantized",
            "cache_config": config,
        }
        return [model.generate(ids, attention_mask=torch.ones_like(ids), **options)]


register_quantized(2)
register_quantized(4)
register_cache("beams", num_beams=3)
register_cache("penalty of repetition", repetition_penalty=1.3)


@check("generate, padded batch", tolerance=0.0)
def padded(device):
    model, ids = llama().to(device).eval(), tokens(3)
    mask = torch.ones_like(ids)
    mask[1, :5] = 0
    ids = ids.masked_fill(mask == 0, 0)
    return [model.generate(ids.to(device), attention_mask=mask.to(device), max_new_tokens=8, do_sample=False)]


@check("generate, scores of each step", tolerance=1e-4)
def scores(device):
    model, ids = llama().to(device).eval(), tokens(3).to(device)
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=6,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    return [*found.scores, found.sequences]


@check("pipelines: text-generation, fill-mask, text-classification, feature-extraction", tolerance=1e-4, slow=True)
def pipelines(device):
    words = tokenizer()
    ask = {"tokenizer": words, "device": device}
    generated = transformers.pipeline("text-generation", model=llama().eval(), **ask)(
        text(1), max_new_tokens=6, do_sample=False
    )[0]["generated_text"]
    found = [*words(generated)["input_ids"]]
    masked = made("Bert", "ForMaskedLM", ENCODER, "cpu").eval()
    filled = transformers.pipeline("fill-mask", model=masked, **ask)(f"{text(2)} <mask>")
    found += [value for each in filled for value in (each["score"], float(each["token"]))]
    classes = made("Bert", "ForSequenceClassification", ENCODER, "cpu").eval()
    found.append(transformers.pipeline("text-classification", model=classes, **ask)(text(3))[0]["score"])
    features = made("Bert", "Model", ENCODER, "cpu").eval()
    found.append(torch.tensor(transformers.pipeline("feature-extraction", model=features, **ask)(text(4))))
    return found


@check("save_pretrained, from_pretrained with device_map, in bfloat16", tolerance=0.0)
def saved(device):
    with tempfile.TemporaryDirectory() as folder:
        llama().to(device).save_pretrained(folder)
        found = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map=device, dtype=torch.bfloat16)
        assert found.device.type == device and found.dtype == torch.bfloat16
        return list(found.parameters())


if __name__ == "__main__":
    main("transformers")
