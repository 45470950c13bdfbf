"""Small models of every family with random weights, made by diffusers and transformers themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    PixArtAlphaPipeline,
    PixArtTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

SINGLE = "diffusion_pytorch_model.safetensors"
INDEX = "diffusion_pytorch_model.safetensors.index.json"


def seeded(model_class: Any, *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return model_class(*args, **kwargs).eval()


def unet(cross_attention_dim: int = 32, **changes: Any) -> UNet2DConditionModel:
    """A UNet as in Stable Diffusion 1.x, of 0.3 million parameters."""
    settings: dict[str, Any] = {
        "sample_size": 8,
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": cross_attention_dim,
        "attention_head_dim": 8,
        "norm_num_groups": 8,
    }
    return seeded(UNet2DConditionModel, **{**settings, **changes})


def vae(latent_channels: int = 4, **changes: Any) -> AutoencoderKL:
    settings: dict[str, Any] = {
        "block_out_channels": (16, 32),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": latent_channels,
        "norm_num_groups": 8,
        "sample_size": 16,
    }
    return seeded(AutoencoderKL, **{**settings, **changes})


def clip_config(**changes: Any) -> CLIPTextConfig:
    settings = {
        "hidden_size": 32,
        "intermediate_size": 37,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 1232,
        "max_position_embeddings": 32,
        "projection_dim": 32,
        "bos_token_id": 1230,
        "eos_token_id": 1231,
        "pad_token_id": 1231,
    }
    return CLIPTextConfig(**{**settings, **changes})


def bitnet(source: Path, folder: Path) -> Path:
    """The text encoder in ``source`` with linear layers as BitNet packs them, two bits a weight, drawn at random."""
    from transformers.integrations.bitnet import BitLinear, replace_with_bitnet_linear

    copied(source, folder)
    packing = {"quant_method": "bitnet", "linear_class": "bitlinear", "quantization_mode": "offline"}
    edited(folder / "config.json", quantization_config=packing, dtype="float32")
    model = replace_with_bitnet_linear(CLIPTextModel.from_pretrained(source, dtype=torch.float32))
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, BitLinear):
            module.weight.random_(0, 256)
            module.weight_scale.fill_(8.0)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def t5_encoder() -> T5EncoderModel:
    config = T5Config(
        d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, vocab_size=64, feed_forward_proj="gated-gelu"
    )
    return seeded(T5EncoderModel, config)


def t5_tokenizer() -> T5TokenizerFast:
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    words = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"▁w{n}", -float(n + 1)) for n in range(40))]
    return T5TokenizerFast(tokenizer_object=Tokenizer(Unigram(words, unk_id=2)), extra_ids=0, model_max_length=16)


def sd_pipeline(folder: Path, demo: Path) -> Path:
    """A pipeline of the family of Stable Diffusion 1.x; its words are the demo model's."""
    pipe = StableDiffusionPipeline(
        vae=vae(),
        text_encoder=seeded(CLIPTextModel, clip_config()),
        tokenizer=CLIPTokenizer.from_pretrained(demo / "tokenizer"),
        unet=unet(),
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipe.save_pretrained(folder)
    return folder


def sd3_pipeline(folder: Path, demo: Path) -> Path:
    transformer = seeded(
        SD3Transformer2DModel,
        sample_size=8,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
    )
    words = CLIPTokenizer.from_pretrained(demo / "tokenizer")
    pipe = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae(shift_factor=0.06),
        text_encoder=seeded(CLIPTextModelWithProjection, clip_config()),
        tokenizer=words,
        text_encoder_2=seeded(CLIPTextModelWithProjection, clip_config()),
        tokenizer_2=words,
        text_encoder_3=t5_encoder(),
        tokenizer_3=t5_tokenizer(),
    )
    pipe.save_pretrained(folder)
    return folder


def flux_pipeline(folder: Path, demo: Path) -> Path:
    transformer = seeded(
        FluxTransformer2DModel,
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    pipe = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=vae(
            latent_channels=1, shift_factor=0.0609, scaling_factor=1.5, use_quant_conv=False, use_post_quant_conv=False
        ),
        text_encoder=seeded(CLIPTextModel, clip_config()),
        tokenizer=CLIPTokenizer.from_pretrained(demo / "tokenizer"),
        text_encoder_2=t5_encoder(),
        tokenizer_2=t5_tokenizer(),
        transformer=transformer,
    )
    pipe.save_pretrained(folder)
    return folder


def pixart_pipeline(folder: Path) -> Path:
    """Its transformer has a table of positions that no file holds."""
    transformer = seeded(
        PixArtTransformer2DModel,
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        caption_channels=32,
        cross_attention_dim=16,
        out_channels=8,
        norm_type="ada_norm_single",
    )
    pipe = PixArtAlphaPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=t5_encoder(),
        vae=vae(),
        transformer=transformer,
        scheduler=DDIMScheduler(),
    )
    pipe.save_pretrained(folder)
    return folder


def split(folder: Path, stem: str = "diffusion_pytorch_model", *, parts: int = 2) -> None:
    """Replace a component's one file by shards and an index, tensors in turn, as somebody might have written them."""
    tensors = load_file(folder / f"{stem}.safetensors")
    write_shards(folder, tensors, stem=stem, parts=parts)
    (folder / f"{stem}.safetensors").unlink()


def write_shards(
    folder: Path, tensors: Mapping[str, torch.Tensor], *, stem: str = "diffusion_pytorch_model", parts: int = 2
) -> None:
    weight_map = {}
    for number in range(parts):
        name = f"{stem}-{number + 1:05d}-of-{parts:05d}.safetensors"
        held = {key: tensors[key] for key in list(tensors)[number::parts]}
        save_file(held, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(held, name))
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index))


OLD_ATTENTION = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def with_old_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The names that a VAE's attention had before 2023."""
    renamed = {}
    for name, tensor in tensors.items():
        if "mid_block.attentions" in name:
            for new, old in OLD_ATTENTION.items():
                name = name.replace(f".{new}.", f".{old}.")
        renamed[name] = tensor
    return renamed


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def edited(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Bit for bit the same names, dtypes and numbers, buffers that no file holds included."""
    ours = {**dict(first.named_parameters()), **dict(first.named_buffers())}
    theirs = {**dict(second.named_parameters()), **dict(second.named_buffers())}
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]) for name in ours
    )
