"""Tiny random models, a tokenizer and texts for the scripts that use Hugging Face's libraries."""

import torch
from torch import Tensor

WORDS = [f"w{n}" for n in range(58)]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<x>"]


def tokenizer():
    """Words apart by spaces; 64 of them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: n for n, word in enumerate(SPECIAL + WORDS)}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return PreTrainedTokenizerFast(tokenizer_object=made, cls_token="<s>", sep_token="</s>", **names)


def text(seed: int, length: int = 8) -> str:
    picked = torch.randint(len(WORDS), (length,), generator=torch.Generator().manual_seed(seed))
    return " ".join(WORDS[n] for n in picked)


def tokens(seed: int = 0, batch: int = 2, length: int = 12, vocabulary: int = 64) -> Tensor:
    """int64 (batch, length), none of them a special one."""
    return torch.randint(len(SPECIAL), vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def llama(attention: str = "sdpa", **options):
    """A decoder of two layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **special, attn_implementation=attention, **options))
