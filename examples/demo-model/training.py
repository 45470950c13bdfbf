"""The stages of the training, one after the other."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

import torch
from captions import Captions, free_pieces
from colour_start import start_with_colours
from denoiser import train_denoiser
from export import export, make_pipeline
from networks import LATENT_SCALE, Networks, load_state, new_networks, save_state
from pictures import Pictures, load_pictures
from polish import polish_decoder
from stage import Stage, log
from vae import encode, normalise, train_vae
from vocabulary import Vocabulary, learn_vocabulary


def begin(state: Path, pictures: Pictures, *, resume: bool) -> tuple[Networks, Vocabulary]:
    """The networks to train: those in STATE, or new ones."""
    if resume:
        return load_state(state)
    vocabulary = learn_vocabulary(pictures.names)
    networks = new_networks(len(vocabulary.ids))
    start_with_colours(networks.vae)
    return networks, vocabulary


def train(arguments: Namespace) -> None:
    """Everything that train.py does; ARGUMENTS are its options."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    pictures = load_pictures(arguments.data)
    state = arguments.out / "state.pt"
    networks, vocabulary = begin(state, pictures, resume=arguments.resume)
    names = [name for several in pictures.names for name in several]
    captions = Captions(pictures.names, free_pieces(vocabulary.ids, names))
    log(f"{len(pictures.names)} concepts, {len(vocabulary.ids)} tokens")

    save = partial(save_state, state, networks, vocabulary)
    max_steps = arguments.max_steps or sys.maxsize
    vae_share, polish_share = arguments.vae_share, arguments.polish_share

    def stage(name: str, share: float) -> Stage:
        return Stage(name, arguments.minutes * share, max_steps, save)

    if vae_share > 0:
        train_vae(networks.vae, pictures.flat, stage("vae", vae_share), arguments.vae_batch, arguments.vae_rate)
        normalise(networks.vae, pictures.flat)
        save()
    networks.vae.requires_grad_(False)
    if vae_share + polish_share < 1:
        latents = (encode(networks.vae, pictures.flat) * LATENT_SCALE).unflatten(0, pictures.views.shape[:2])
        train_denoiser(
            networks,
            vocabulary.tokenizer(),
            captions,
            latents,
            stage("unet", 1 - vae_share - polish_share),
            arguments.batch,
            arguments.rate,
            arguments.guided_from,
        )
    finished = networks.averaged()
    if polish_share > 0:
        networks.vae.post_quant_conv.requires_grad_(True)
        networks.vae.decoder.requires_grad_(True)
        pipeline = make_pipeline(finished, vocabulary)
        polish_decoder(pipeline, captions, pictures, stage("polish", polish_share), 8, 1e-3)
    export(finished, vocabulary, arguments.out / "model", pictures.main_names)
    log("written", arguments.out / "model")
