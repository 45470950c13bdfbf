"""The VAE's first weights: "shrink to 8x8 colours and enlarge again".

Colours are there before training and only detail is left to learn; from random weights the loss takes twice as long
to fall as far. The first channels carry the colours and their negatives, since silu(a) - silu(-a) = a, past residual
branches that begin small.
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL

CENTRE = ((1, 1),)
CORNER = ((0, 0),)
BLOCK = ((0, 0), (0, 1), (1, 0), (1, 1))


@torch.no_grad()
def start_with_colours(vae: AutoencoderKL) -> None:
    """Set the weights of a new VAE."""
    _carry_through(vae.encoder, 6)
    _join_ends(vae.encoder.conv_in, vae.encoder.conv_out, 3)
    _carry_through(vae.decoder, 8)
    _join_ends(vae.decoder.conv_in, vae.decoder.conv_out, 4)
    _carry(vae.quant_conv, 4, CORNER)
    _carry(vae.post_quant_conv, 4, CORNER)
    vae.quant_conv.weight[4:] *= 0.1  # and with little noise on the latents
    vae.quant_conv.bias[4:] = -5


def _carry(conv: torch.nn.Conv2d, channels: int, taps: tuple[tuple[int, int], ...]) -> None:
    """Let the first CHANNELS pass a convolution as the mean of the TAPS of its kernel."""
    conv.weight[:channels] = 0
    conv.bias[:channels] = 0
    for row, column in taps:
        for channel in range(channels):
            conv.weight[channel, channel, row, column] = 1 / len(taps)


def _carry_through(part: torch.nn.Module, channels: int) -> None:
    """Let the first CHANNELS pass an encoder or decoder."""
    for module in part.modules():
        kind = type(module).__name__
        if kind == "ResnetBlock2D":
            module.conv2.weight *= 0.3
            module.conv2.bias *= 0
            module.conv2.weight[:channels] = 0
            if module.conv_shortcut is not None:
                _carry(module.conv_shortcut, channels, CORNER)
        elif kind == "Downsample2D":
            _carry(module.conv, channels, BLOCK)
        elif kind == "Upsample2D":
            _carry(module.conv, channels, CENTRE)


def _join_ends(first: torch.nn.Conv2d, last: torch.nn.Conv2d, colours: int) -> None:
    """Make COLOURS and their negatives of the input, and at most three colours of them at the output."""
    first.weight[: 2 * colours] = 0
    first.bias[: 2 * colours] = 0
    for colour in range(colours):
        first.weight[colour, colour, 1, 1] = 1
        first.weight[colours + colour, colour, 1, 1] = -1
    shown = min(colours, 3)
    last.weight[:shown] = 0
    last.bias[:shown] = 0
    for colour in range(shown):
        last.weight[colour, colour, 1, 1] = 0.7
        last.weight[colour, colours + colour, 1, 1] = -0.7
