"""sentence-transformers: embeddings, training with two losses, cross encoders on npu."""

import tempfile

import _offline  # noqa: F401
import sentence_transformers
from sentence_transformers import util
from sentence_transformers.sentence_transformer import losses, modules
from side_by_side import check, main, train
from tiny import text, tokenizer

import torch


def made(device: str) -> sentence_transformers.SentenceTransformer:
    """A tiny BERT with mean pooling, written to a folder and read from it, as the library wants."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    config.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 64})
    with tempfile.TemporaryDirectory() as folder:
        BertModel(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        words = modules.Transformer(folder)
    pooling = modules.Pooling(32)
    return sentence_transformers.SentenceTransformer(modules=[words, pooling], device=device)


@check("encode, similarity, semantic search, community detection")
def encode(device):
    model = made(device).eval()
    found = model.encode([text(s) for s in range(8)], convert_to_tensor=True, show_progress_bar=False)
    assert found.device.type == device
    hits = util.semantic_search(found[:2], found, top_k=3)
    return [
        found,
        model.similarity(found, found),
        torch.tensor([[hit["score"] for hit in each] for each in hits]),
        util.pytorch_cos_sim(found, found),
    ]


def register(name: str, make) -> None:
    @check(f"{name}, training", tolerance=1e-3)
    def run(device: str) -> list[float]:
        model = made(device).train()
        loss, pairs = make(model), [[text(s + 10 * side) for s in range(4)] for side in (0, 1)]
        inputs = [{k: v.to(device) for k, v in model.tokenize(side).items() if hasattr(v, "to")} for side in pairs]
        labels = torch.tensor([0.1, 0.9, 0.5, 0.3], device=device)
        return train(model, lambda m, _: loss([dict(each) for each in inputs], labels))


register("CosineSimilarityLoss", lambda model: losses.CosineSimilarityLoss(model))
register("MultipleNegativesRankingLoss", lambda model: losses.MultipleNegativesRankingLoss(model))
register("MatryoshkaLoss", lambda model: losses.MatryoshkaLoss(model, losses.CoSENTLoss(model), [32, 16]))


if __name__ == "__main__":
    main("sentence-transformers")
