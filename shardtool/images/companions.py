"""What goes beside the images of a run: the contact sheet and the gallery."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from shardtool.images.contact import SHEET_NAME, contact_sheet
from shardtool.images.files import encode_image, write_whole
from shardtool.images.gallery import GALLERY_NAME, Shown, render_gallery
from shardtool.images.plan import Plan
from shardtool.images.reading import read_settings
from shardtool.images.record import Model
from shardtool.images.settings import Job


def write_companions(plan: Plan, images: Iterable[Job], model: Model) -> tuple[str, ...]:
    """Those that ``plan`` asks for, of every one of ``images`` that is there. Returns their paths."""
    delivery, target = plan.request.delivery, plan.request.target
    written: list[str] = []
    jobs = sorted(images, key=lambda job: job.index)
    there = [(job, job.path) for job in jobs if job.path is not None and job.path.exists()]
    if delivery.grid and there:
        path = target.folder / SHEET_NAME
        captioned = [(_opened(file), f"{job.settings.prompt} · {job.seed}") for job, file in there]
        write_whole(path, encode_image(contact_sheet(captioned), "png"), overwrite=True)
        written.append(str(path))
    if delivery.gallery and there:
        path = target.folder / GALLERY_NAME
        page = render_gallery(f"{len(there)} images, {model.name}", [_shown(job, file) for job, file in there])
        write_whole(path, page.encode("utf-8", "replace"), overwrite=True)
        written.append(str(path))
    return tuple(written)


def _opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def _shown(job: Job, path: Path) -> Shown:
    found = read_settings(path)
    facts: dict[str, Any] = {**job.settings.as_json(), "seed": job.seed, "file": path.name}
    if found["record"] is not None:
        facts["pixels (SHA-256)"] = found["record"].get("pixel_sha256")
    kind = "jpg" if found["format"] == "jpeg" else found["format"]
    return Shown(path.name, kind, path.read_bytes(), found["width"], facts)
