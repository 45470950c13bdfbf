"""The networks of the demo model and the file that their training can go on from."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
from vocabulary import PROMPT_LENGTH, Vocabulary

LATENT_SCALE = 0.13025  # SDXL's scaling_factor; the latents are scaled to fit it
AVERAGE_DECAY = 0.996


def make_vae() -> AutoencoderKL:
    """SDXL's 8x reduction, 64x64 picture to 4x8x8 latent. Several norm groups would wash out colours at this size."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 24, 48, 80),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
        sample_size=64,
        mid_block_add_attention=False,
        scaling_factor=LATENT_SCALE,
        force_upcast=False,
    )


def make_unet() -> UNet2DConditionModel:
    """SDXL's kind of UNet ("text_time" conditioning) with one level of cross attention."""
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128),
        layers_per_block=1,
        norm_num_groups=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=1,
        attention_head_dim=(2, 4),
        cross_attention_dim=64 + 96,
        use_linear_projection=True,
        resnet_time_scale_shift="scale_shift",
        addition_embed_type="text_time",
        addition_time_embed_dim=16,
        projection_class_embeddings_input_dim=96 + 6 * 16,
    )


def text_config(tokens: int, width: int, activation: str) -> CLIPTextConfig:
    """The configuration of a text encoder of two layers. The last two of its TOKENS begin and end a prompt."""
    return CLIPTextConfig(
        vocab_size=tokens,
        hidden_size=width,
        intermediate_size=2 * width,
        projection_dim=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_act=activation,
        max_position_embeddings=PROMPT_LENGTH,
        bos_token_id=tokens - 2,
        eos_token_id=tokens - 1,
        pad_token_id=tokens - 1,
    )


@dataclass
class Networks:
    """The four networks. The denoiser is the UNet and both text encoders, which are trained together.

    AVERAGE is the running mean of the denoiser's parameters, which makes better pictures than the last ones.
    """

    vae: AutoencoderKL
    unet: UNet2DConditionModel
    text_encoder: CLIPTextModel
    text_encoder_2: CLIPTextModelWithProjection
    average: list[torch.Tensor] = field(default_factory=list)
    averaged_steps: int = 0

    def parts(self) -> dict[str, torch.nn.Module]:
        """The networks by the names that a pipeline has for them."""
        names = ("vae", "unet", "text_encoder", "text_encoder_2")
        return {name: getattr(self, name) for name in names}

    def denoiser(self) -> list[torch.nn.Parameter]:
        """The parameters of UNet and text encoders, in the order of AVERAGE."""
        networks = (self.unet, self.text_encoder, self.text_encoder_2)
        return [parameter for network in networks for parameter in network.parameters()]

    @torch.no_grad()
    def update_average(self) -> None:
        """Take the present parameters into the mean; they weigh more in the first steps of all."""
        self.averaged_steps += 1
        decay = min(AVERAGE_DECAY, self.averaged_steps / (self.averaged_steps + 11))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.denoiser()], 1 - decay)

    @torch.no_grad()
    def averaged(self) -> Networks:
        """The networks to make pictures with: the same VAE, and a copy of the denoiser that holds the mean."""
        unet, *encoders = copy.deepcopy([self.unet, self.text_encoder, self.text_encoder_2])
        result = Networks(self.vae, unet, *encoders)
        for parameter, mean in zip(result.denoiser(), self.average, strict=True):
            parameter.copy_(mean)
            parameter.requires_grad_(False)
        return result


def new_networks(tokens: int) -> Networks:
    """Untrained networks for a vocabulary of TOKENS tokens."""
    encoder = CLIPTextModel(text_config(tokens, 64, "quick_gelu"))
    encoder_2 = CLIPTextModelWithProjection(text_config(tokens, 96, "gelu"))
    networks = Networks(make_vae(), make_unet(), encoder, encoder_2)
    networks.average = [parameter.detach().clone() for parameter in networks.denoiser()]
    return networks


def save_state(path: Path, networks: Networks, vocabulary: Vocabulary) -> None:
    """Write everything that training goes on from; an interrupted write leaves the file of before."""
    state = {name: network.state_dict() for name, network in networks.parts().items()}
    state |= {"average": networks.average, "averaged_steps": networks.averaged_steps}
    state |= {"ids": vocabulary.ids, "merges": vocabulary.merges}
    partial = path.with_suffix(".tmp")
    torch.save(state, partial)
    partial.replace(path)


def load_state(path: Path) -> tuple[Networks, Vocabulary]:
    """What `save_state` wrote."""
    state = torch.load(path, weights_only=True)
    vocabulary = Vocabulary(state["ids"], state["merges"])
    networks = new_networks(len(vocabulary.ids))
    for name, network in networks.parts().items():
        network.load_state_dict(state[name])
    networks.average = state["average"]
    networks.averaged_steps = state["averaged_steps"]
    return networks, vocabulary
