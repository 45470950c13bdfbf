"""Training of the VAE."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from diffusers import AutoencoderKL
from networks import LATENT_SCALE
from pictures import VIEW_ODDS, VIEWS, to_network
from stage import Stage


def picture_loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Distance of two batches of pictures: pixels, edges, and colours of 4x4 blocks."""
    edges = sum(F.l1_loss(torch.diff(made, dim=d), torch.diff(wanted, dim=d)) for d in (2, 3))
    coarse = F.mse_loss(F.avg_pool2d(made, 4), F.avg_pool2d(wanted, 4))
    return F.l1_loss(made, wanted) + F.mse_loss(made, wanted) + 0.5 * edges + 2 * coarse


def train_vae(vae: AutoencoderKL, pictures: torch.Tensor, stage: Stage, batch: int, rate: float) -> None:
    """Train on PICTURES, uint8 [N * len(VIEWS), height, width, 3]. The rate falls to 0 in the second half."""
    odds = VIEW_ODDS.repeat(len(pictures) // len(VIEWS))
    optimizer = torch.optim.AdamW(vae.parameters(), rate, betas=(0.9, 0.98), weight_decay=1e-4)
    for step, done in stage.steps():
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 30) * min(1, 2 * (1 - done)) + 1e-5
        wanted = to_network(pictures[torch.multinomial(odds, batch)])
        latents = vae.encode(wanted).latent_dist
        # At least a tenth of the latents' own spread as noise, so that near latents give near pictures.
        noise = torch.maximum(latents.std, 0.1 * latents.mean.detach().std())
        made = vae.decode(latents.mean + noise * torch.randn_like(noise)).sample
        loss = picture_loss(made, wanted) + 0.01 * latents.kl().mean() / noise[0].numel()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1)
        optimizer.step()
        stage.losses.append(loss.item())


@torch.no_grad()
def encode(vae: AutoencoderKL, pictures: torch.Tensor) -> torch.Tensor:
    """Latents [N, 4, height / 8, width / 8] of PICTURES, uint8 [N, height, width, 3]."""
    return torch.cat([vae.encode(to_network(part)).latent_dist.mean for part in pictures.split(64)])


@torch.no_grad()
def normalise(vae: AutoencoderKL, pictures: torch.Tensor) -> None:
    """Give each latent channel mean 0 and spread 1 / LATENT_SCALE, by way of the two 1x1 convolutions around it."""
    latents = encode(vae, pictures)
    mean = latents.mean((0, 2, 3))
    spread = latents.std((0, 2, 3)) * LATENT_SCALE
    into, out = vae.quant_conv, vae.post_quant_conv
    out.bias += out.weight[:, :, 0, 0] @ mean
    out.weight *= spread[None, :, None, None]
    into.weight[:4] /= spread[:, None, None, None]
    into.bias[:4] = (into.bias[:4] - mean) / spread
    into.bias[4:] -= 2 * spread.log()
