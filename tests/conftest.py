"""What every test shares: a quiet, offline environment, and small checkpoints made once a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before anything imports torch or the Hub's client: no spinning threads, no network, no user's cache.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "200"
for name in [name for name in os.environ if name.startswith("SHARDTOOL_")]:
    del os.environ[name]

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_hub_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf-home"))


@pytest.fixture(scope="session")
def demo() -> Path:
    """The embedded demo pipeline; never write to it."""
    return ROOT / "shardtool" / "demo"


@pytest.fixture(scope="session")
def sd(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Path:
    """A tiny pipeline as Stable Diffusion 1.x, in fp32; never write to it."""
    from tests.models import sd_pipeline

    return sd_pipeline(tmp_path_factory.mktemp("families") / "sd", demo)
