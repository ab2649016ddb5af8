"""open_clip: tiny CLIP and CoCa models, their losses, tokenizer and zero-shot weights on npu."""

import open_clip
from open_clip.loss import SigLipLoss
from side_by_side import check, main, randint, randn, seeded, train
from torch.nn import functional

import torch

TEXT = {"context_length": 12, "vocab_size": 64, "width": 32, "heads": 4, "layers": 2}
IMAGE = {"image_size": 32, "patch_size": 8, "width": 32, "head_width": 8, "layers": 2}
CONVOLUTIONS = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}


def clip(device: str, **options):
    seeded()
    return open_clip.CLIP(embed_dim=16, vision_cfg=IMAGE, text_cfg=TEXT, **options).to(device).train()


def batch(device: str, side: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    words = randint(62, 4, 12) + 1
    words[:, 8] = 63  # the end of each text is its largest token
    return randn(4, 3, side, side).to(device), words.to(device)


def contrast(model, images, words):
    image, text, scale = model(images, words)[:3]
    return open_clip.ClipLoss()(image, text, scale)


@check("CLIP over a vision transformer, contrastive loss, training", tolerance=1e-3)
def transformer(device):
    model, (images, words) = clip(device), batch(device)
    return train(model, lambda m, _: contrast(m, images, words))


@check("CLIP over a ResNet with attention pooling, training", tolerance=2e-3, slow=True)
def resnet(device):
    seeded()
    model = open_clip.CLIP(embed_dim=16, vision_cfg=CONVOLUTIONS, text_cfg=TEXT).to(device).train()
    images, words = batch(device, 64)
    return train(model, lambda m, _: contrast(m, images, words), steps=2, lr=1e-4)


@check("CLIP in bfloat16 by autocast, gradient checkpointing", tolerance=3e-2, slow=True)
def autocast(device):
    model, (images, words) = clip(device), batch(device)
    model.set_grad_checkpointing()

    def loss(m, _):
        with torch.autocast(device, torch.bfloat16):
            return contrast(m, images, words)

    return train(model, loss)


@check("SigLIP's loss, training", tolerance=1e-3, slow=True)
def sigmoid(device):
    model, (images, words) = clip(device, init_logit_bias=-10.0), batch(device)
    loss = SigLipLoss()
    return train(model, lambda m, _: loss(*m(images, words)[:4]))


@check("CoCa: captions beside the contrast, training", tolerance=1e-3, slow=True)
def captions(device):
    seeded()
    decoder = {**TEXT, "attn_pooler_heads": 4, "context_length": 12}
    model = open_clip.CoCa(
        embed_dim=32,
        multimodal_cfg=decoder,
        text_cfg={**TEXT, "embed_cls": True, "output_tokens": True},
        vision_cfg={**IMAGE, "attentional_pool": True, "attn_pooler_heads": 4, "output_tokens": True},
    )
    torch.nn.init.normal_(model.text_decoder.text_projection, std=0.1)  # the library leaves it as the memory was
    model, (images, words) = model.to(device).train(), batch(device)
    loss = open_clip.CoCaLoss(caption_loss_weight=1.0, clip_loss_weight=1.0)

    def both(m, _):
        out = m(images, words)
        return sum(loss(out["image_features"], out["text_features"], out["logits"], out["labels"], out["logit_scale"]))

    return train(model, both)


@check("zero-shot weights, classification, the tokenizer", tolerance=1e-4)
def zero_shot(device):
    model = clip(device).eval()
    tokenizer = open_clip.SimpleTokenizer(context_length=12)

    def words(texts):
        return tokenizer(texts).to(device) % 64

    with torch.no_grad():
        weights = torch.stack(
            [functional.normalize(model.encode_text(words([f"a {n}"])), dim=-1)[0] for n in "abcde"], 1
        )
        images = functional.normalize(model.encode_image(batch(device)[0]), dim=-1)
        return [weights, (images @ weights).softmax(-1)]


if __name__ == "__main__":
    main("open_clip_torch")
