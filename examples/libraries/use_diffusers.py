"""diffusers: networks, schedulers, pipelines and attention processors on npu."""

import _offline  # noqa: F401
import diffusers
from side_by_side import check, main, randint, randn, seeded, train
from torch.nn import functional as F

import torch

UNET = {
    "sample_size": 8,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
}
CROSS = {
    **UNET,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 4,
}


def unet(device: str):
    seeded()
    return diffusers.UNet2DConditionModel(**CROSS).to(device)


def denoising(model, device: str) -> list[float]:
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=20)
    context = randn(2, 5, 32, seed=9).to(device)

    def loss_of(model, step: int) -> torch.Tensor:
        clean, noise = (randn(2, 4, 8, 8, seed=10 * step + n) for n in (1, 2))
        when = randint(20, 2, seed=step)
        noisy = scheduler.add_noise(clean, noise, when).to(device)
        return F.mse_loss(model(noisy, when.to(device), encoder_hidden_states=context).sample, noise.to(device))

    return train(model, loss_of)


# Where torch_npu is there, the gated layers take npu_geglu on either device.
@check("UNet2DConditionModel, training")
def training(device):
    return denoising(unet(device), device)


@check("UNet with the npu attention processor, training")
def processor(device):
    model = unet(device)
    if device == "npu":
        from diffusers.models.attention_processor import AttnProcessorNPU

        model.set_attn_processor(AttnProcessorNPU())
    return denoising(model, device)


@check("attention back end _native_npu", slow=True)
def backend(device):
    seeded()
    model = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).to(device)
    if device == "npu":
        model.set_attention_backend("_native_npu")

    def loss_of(model, step: int) -> torch.Tensor:
        out = model(
            hidden_states=randn(1, 16, 4, seed=step).to(device),
            encoder_hidden_states=randn(1, 6, 32, seed=step + 5).to(device),
            pooled_projections=randn(1, 32).to(device),
            timestep=torch.tensor([1.0]).to(device),
            img_ids=torch.zeros(16, 3).to(device),
            txt_ids=torch.zeros(6, 3).to(device),
        ).sample
        return out.square().mean()

    return train(model, loss_of)


# Schedulers of diffusion, and what they are made with.
SCHEDULERS: dict[str, dict] = {
    "DDIM": {},
    "PNDM": {"skip_prk_steps": True},
    "EulerDiscrete": {},
    "EulerAncestralDiscrete": {},
    "DPMSolverMultistep": {},
    "UniPCMultistep": {},
    "LMSDiscrete": {},
}


def vae(device: str):
    seeded()
    return diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 16),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
    ).to(device)


@check("AutoencoderKL, training", tolerance=1e-3)
def autoencoder(device):
    model, images = vae(device), randn(2, 3, 16, 16).to(device)

    def loss_of(model, step: int) -> torch.Tensor:
        return F.mse_loss(model.decode(model.encode(images).latent_dist.mode()).sample, images)

    return train(model, loss_of)


@check("DDPM and DDIM pipelines without conditions", tolerance=2e-3, slow=True)
def unconditional(device):
    found = []
    for scheduler, pipeline in (
        (diffusers.DDPMScheduler, diffusers.DDPMPipeline),
        (diffusers.DDIMScheduler, diffusers.DDIMPipeline),
    ):
        seeded()
        kinds = {
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        }
        model = diffusers.UNet2DModel(**UNET, in_channels=3, out_channels=3, **kinds)
        pipe = pipeline(unet=model, scheduler=scheduler(num_train_timesteps=20)).to(device)
        pipe.set_progress_bar_config(disable=True)
        images = pipe(generator=torch.Generator().manual_seed(0), num_inference_steps=4, output_type="np").images
        found.append(torch.from_numpy(images))
    return found


@check("StableDiffusionPipeline with seven schedulers", tolerance=5e-3, slow=True)
def stable(device):
    from tiny import text, tokenizer
    from transformers import CLIPTextConfig, CLIPTextModel

    seeded()
    words = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=16,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
    names = tokenizer()
    names.model_max_length = 16
    found = []
    for name in SCHEDULERS:
        try:
            scheduler = getattr(diffusers, f"{name}Scheduler")(num_train_timesteps=100, **SCHEDULERS[name])
        except ImportError:  # one of them wants scipy
            continue
        pipe = diffusers.StableDiffusionPipeline(
            vae=vae("cpu"),
            text_encoder=words,
            tokenizer=names,
            unet=unet("cpu"),
            scheduler=scheduler,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        ).to(device)
        pipe.set_progress_bar_config(disable=True)
        options = {"num_inference_steps": 3, "output_type": "np", "guidance_scale": 4.0, "height": 16, "width": 16}
        images = pipe(text(1), generator=torch.Generator().manual_seed(0), **options).images
        found.append(torch.from_numpy(images))
    return found


if __name__ == "__main__":
    main("diffusers")
