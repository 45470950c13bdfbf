"""Finished pictures to files: the image with its metadata, the sidecar, the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from shardtool.generation.kept import SUFFIX, Kept, write_kept
from shardtool.generation.outcome import MadeImage
from shardtool.generation.studio import Picture
from shardtool.images.files import encode_image, write_whole
from shardtool.images.ledger import Ledger
from shardtool.images.parameters import write_parameters
from shardtool.images.plan import Plan
from shardtool.images.record import Model, build_record
from shardtool.images.replay import Verdict, judge
from shardtool.images.settings import Job


class Writer:
    """Saves pictures. ``save`` runs on a thread of its own, beside the next picture's denoising.

    ``identity`` is the model's, once its weights are hashed. ``verdict`` compares the replayed image with the new one.
    """

    def __init__(self, plan: Plan, environment: Mapping[str, Any], identity: Future[Model]) -> None:
        self._plan = plan
        self._environment = environment
        self._identity = identity
        self._ledger = Ledger(plan.request.target.folder) if plan.keeps_ledger else None
        self.made: list[MadeImage] = []
        self.verdict: Verdict | None = None

    @property
    def model(self) -> Model:
        return self._identity.result()

    def save(self, picture: Picture) -> None:
        job, target, delivery = picture.job, self._plan.request.target, self._plan.request.delivery
        key = job.key(self.model.identity)
        record = self._record(job, key, picture.scheduler, picture.pixel_sha256)
        if self._plan.replay is not None:
            self.verdict = judge(self._plan.replay, picture.image, record, self._plan.expected)
        parameters = write_parameters(job, self.model, picture.scheduler.get("_class_name", ""))
        kept = record if delivery.metadata != "none" else None
        data = None
        if not self._plan.writes_nothing:
            data = encode_image(picture.image, target.image_format, kept, parameters)
        overwrite = target.overwrite
        if job.path is not None and data is not None:
            if delivery.sidecar:
                write_whole(job.path.with_suffix(".json"), _json(record), overwrite=overwrite)
            write_whole(job.path, data, overwrite=overwrite)
            if self._ledger is not None:
                self._ledger.add(self._ledger.entry_for(job, key, picture.pixel_sha256))
            _latents_path(job).unlink(missing_ok=True)
        self.made.append(
            MadeImage(job, key, record, picture.seconds, picture.retried, data if job.path is None else None)
        )

    def keep(self, job: Job, kept: Kept) -> Path:
        """Write the state of a picture that was stopped, or that no picture could be made of."""
        record = self._record(job, job.key(self.model.identity), {}, None)
        path = _latents_path(job)
        write_kept(path, replace(kept, record={**record, "path": None if job.path is None else str(job.path)}))
        return path

    def _record(self, job: Job, key: str, scheduler: Mapping[str, Any], pixel_sha256: str | None) -> dict[str, Any]:
        level = self._plan.request.delivery.metadata
        now = datetime.now().astimezone()
        return build_record(
            job, self.model, scheduler, self._environment, key=key, pixel_sha256=pixel_sha256, level=level, now=now
        )


def _latents_path(job: Job) -> Path:
    return job.path.with_suffix(SUFFIX) if job.path is not None else Path(f"image-{job.seed}{SUFFIX}")


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace")
