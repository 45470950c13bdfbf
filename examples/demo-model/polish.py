"""The last stage: teach the decoder what to make of the latents that the trained UNet itself samples."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from captions import Captions
from denoiser import GUIDANCE, encode_captions
from diffusers import AutoencoderKL, StableDiffusionXLPipeline
from networks import LATENT_SCALE
from pictures import Pictures, to_network
from stage import Stage
from vae import picture_loss

SAMPLED_AT_ONCE = 48
SAMPLE_EVERY = 60  # steps
KEPT_SAMPLES = 480
SAME_PICTURE = 0.25  # mean distance of 4x4 blocks, range -1 to 1, from which a sample shows something else

Sample = tuple[torch.Tensor, torch.Tensor]  # a latent [4, h, w] and the training picture it stands for, uint8


@torch.no_grad()
def sample_latents(pipeline: StableDiffusionXLPipeline, captions: Captions, pictures: Pictures) -> list[Sample]:
    """Latents that the pipeline makes of captions, each with the view of its concept that it is nearest to."""
    concepts = torch.randperm(len(pictures.views))[:SAMPLED_AT_ONCE]
    states, pooled = encode_captions(
        pipeline.text_encoder,
        pipeline.text_encoder_2,
        pipeline.tokenizer,
        [captions.write(concept) for concept in concepts.tolist()],
    )
    latents = pipeline(
        prompt_embeds=states,
        pooled_prompt_embeds=pooled,
        num_inference_steps=20,
        guidance_scale=random.choice([2.0, GUIDANCE]),
        output_type="latent",
    ).images
    latents = latents / LATENT_SCALE
    views = pictures.views[concepts]
    wanted = F.avg_pool2d(to_network(views.flatten(0, 1)), 4).unflatten(0, views.shape[:2])
    made = F.avg_pool2d(pipeline.vae.decode(latents).sample, 4)
    distance, nearest = (wanted - made[:, None]).abs().mean((2, 3, 4)).min(1)
    rows = zip(latents, views, nearest, distance, strict=True)
    return [(latent, view[best]) for latent, view, best, far in rows if far < SAME_PICTURE]


@torch.no_grad()
def polish_batch(vae: AutoencoderKL, samples: list[Sample], own: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents to decode and the pictures wanted of them: SAMPLES, and the encoder's own of the pictures OWN."""
    encoded = vae.encode(to_network(own)).latent_dist.sample()
    sampled = [latent for latent, _ in samples]
    wanted = [picture for _, picture in samples]
    return torch.stack([*sampled, *encoded]), to_network(torch.stack([*wanted, *own]))


def polish_decoder(
    pipeline: StableDiffusionXLPipeline, captions: Captions, pictures: Pictures, stage: Stage, batch: int, rate: float
) -> None:
    """Tune the decoder of the pipeline's VAE; half of each batch are sampled latents. The encoder stays as it is."""
    vae = pipeline.vae
    parameters = [*vae.post_quant_conv.parameters(), *vae.decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, rate, weight_decay=0)
    samples: list[Sample] = []
    for step, done in stage.steps():
        if step % SAMPLE_EVERY == 0:
            samples = [*samples, *sample_latents(pipeline, captions, pictures)][-KEPT_SAMPLES:]
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 30) * (1 - done)
        own = pictures.flat[torch.randint(len(pictures.flat), (batch - batch // 2,))]
        picked = random.choices(samples, k=batch // 2) if samples else []
        latents, wanted = polish_batch(vae, picked, own)
        loss = picture_loss(vae.decode(latents).sample, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        stage.losses.append(loss.item())
