"""Training of the UNet and both text encoders: v-prediction with zero terminal SNR."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from captions import NOTHING, Captions
from diffusers import DDPMScheduler
from networks import Networks
from pictures import VIEW_ODDS
from stage import Stage
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True,
    "timestep_spacing": "trailing",
}
GUIDANCE = 5.0  # the default of StableDiffusionXLPipeline
SIZE_IDS = [64.0, 64, 0, 0, 64, 64]  # original size, crop, target size: "time_ids" in SDXL
CAPTIONS_DROPPED = 0.1
CAPTIONS_OF_NOTHING = 0.04


@dataclass(frozen=True)
class Noised:
    """A batch of noisy latents [B, 4, h, w], their timesteps [B], the v to predict, and the signal's share of them."""

    latents: torch.Tensor
    timesteps: torch.Tensor
    target: torch.Tensor
    signal: torch.Tensor


def add_noise(latents: torch.Tensor, alphas_cumprod: torch.Tensor) -> Noised:
    """Noise at random levels, more often high ones, where the caption decides what the picture becomes."""
    timesteps = (999.99 * (1 - torch.rand(len(latents)) ** 1.5)).long()
    share = alphas_cumprod[timesteps][:, None, None, None]
    signal, noise = share.sqrt(), (1 - share).sqrt()
    epsilon = torch.randn_like(latents)
    return Noised(signal * latents + noise * epsilon, timesteps, signal * epsilon - noise * latents, signal)


def encode_captions(
    encoder: CLIPTextModel, encoder_2: CLIPTextModelWithProjection, tokenizer: CLIPTokenizer, captions: list[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """What SDXL's UNet is told: hidden states [B, tokens, 64 + 96] of both encoders, pooled [B, 96] of the second."""
    tokens = tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids
    first = encoder(tokens, output_hidden_states=True)
    second = encoder_2(tokens, output_hidden_states=True)
    return torch.cat([first.hidden_states[-2], second.hidden_states[-2]], -1), second.text_embeds


def write_captions(captions: Captions, concepts: torch.Tensor) -> list[str]:
    """A caption for each number in CONCEPTS; now and then one for no picture in particular."""
    return [
        random.choice(NOTHING) if random.random() < CAPTIONS_OF_NOTHING else captions.write(concept)
        for concept in concepts.tolist()
    ]


def predict(
    networks: Networks, noised: Noised, states: torch.Tensor, pooled: torch.Tensor, uncaptioned: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The UNet's v for the batch, and for its first UNCAPTIONED latents without a caption.

    Without a caption means zeros, as the pipeline has it for a missing negative prompt.
    """
    latents = torch.cat([noised.latents, noised.latents[:uncaptioned]])
    timesteps = torch.cat([noised.timesteps, noised.timesteps[:uncaptioned]])
    states = torch.cat([states, torch.zeros_like(states[:uncaptioned])])
    pooled = torch.cat([pooled, torch.zeros_like(pooled[:uncaptioned])])
    time_ids = torch.tensor([SIZE_IDS]).expand(len(latents), -1)
    conditions = {"text_embeds": pooled, "time_ids": time_ids}
    made = networks.unet(latents, timesteps, states, added_cond_kwargs=conditions).sample
    return made.tensor_split([len(noised.latents)])


def guided_loss(captioned: torch.Tensor, uncaptioned: torch.Tensor, noised: Noised) -> torch.Tensor:
    """Pull the guided prediction to the target too, more so the less noise there is.

    Without this the small errors of both predictions come out GUIDANCE times larger, as fringes and false colours.
    """
    some = len(uncaptioned)
    target, signal = noised.target[:some], noised.signal[:some]
    guided = uncaptioned + GUIDANCE * (captioned[:some] - uncaptioned)
    return 0.4 * F.mse_loss(uncaptioned, target) + 0.1 * (signal * (guided - target) ** 2).mean()


def train_denoiser(
    networks: Networks,
    tokenizer: CLIPTokenizer,
    captions: Captions,
    latents: torch.Tensor,
    stage: Stage,
    batch: int,
    rate: float,
    guided_from: float,
) -> None:
    """Train on LATENTS [concepts, views, 4, h, w], scaled; from the share GUIDED_FROM of the stage on, guided too."""
    parameters = networks.denoiser()
    optimizer = torch.optim.AdamW(parameters, rate, betas=(0.9, 0.99), weight_decay=1e-3)
    alphas_cumprod = DDPMScheduler(**SCHEDULE).alphas_cumprod
    for step, done in stage.steps():
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 100) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-5
        guided = done >= guided_from
        concepts = torch.randint(len(latents), (batch,))
        views = torch.multinomial(VIEW_ODDS, batch, replacement=True)
        noised = add_noise(latents[concepts, views], alphas_cumprod)
        texts = write_captions(captions, concepts)
        states, pooled = encode_captions(networks.text_encoder, networks.text_encoder_2, tokenizer, texts)
        if not guided:
            kept = (torch.rand(batch) > CAPTIONS_DROPPED).float()
            states, pooled = states * kept[:, None, None], pooled * kept[:, None]
        captioned, uncaptioned = predict(networks, noised, states, pooled, batch // 2 if guided else 0)
        loss = F.mse_loss(captioned, noised.target)
        stage.losses.append(loss.item())
        if guided:
            loss = loss + guided_loss(captioned, uncaptioned, noised)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        networks.update_average()
