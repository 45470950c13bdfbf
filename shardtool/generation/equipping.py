"""What is done to a built pipeline before pictures are made with it: LoRAs, the VAE's economies, compilation."""

from __future__ import annotations

from shardtool.events import Listener, ignore
from shardtool.generation.loras import add_loras
from shardtool.images.plan import Plan
from shardtool.pipeline import BuiltPipeline


def equip(built: BuiltPipeline, plan: Plan, *, on_event: Listener = ignore) -> None:
    """As ``plan`` says. Raises ``InputError`` for a LoRA that does not fit."""
    machine = plan.request.machine
    add_loras(built, plan.model.loras, on_event=on_event)
    if machine.vae_tiling:
        built.pipe.vae.enable_tiling()
    if machine.vae_slicing:
        built.pipe.vae.enable_slicing()
    if machine.compile:
        # In place, so that hooks and the pipeline keep their hold of the module.
        built.pipe.unet.compile()
