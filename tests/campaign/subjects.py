"""The small trainings and files that the campaign damages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tdvae
from tdvae.forecasting.forecaster import DATA_FILE
from tdvae.models import LSTM, GatedMaps, Gaussian
from tdvae.storage import RunFolder, checkpoint
from tdvae.training.config import derive_seed

MODEL = tdvae.TDVAEConfig(layers=1, latent=2, belief=LSTM(4), decoder=Gaussian((4,)), maps=GatedMaps(4))
CONFIG = tdvae.TrainConfig(steps=6, batch_size=4, pairs=2, checkpoint_every=2, validate_every=2, log_every=1)
JUMPS = tdvae.jumps.Uniform(1, 3)
STORED = {DATA_FILE: bytes(range(256))}  # a further file of the run


def data(n: int = 8) -> tdvae.Sequences:
    generator = torch.Generator().manual_seed(0)
    return tdvae.Sequences(torch.randn(n, 8, 1, generator=generator), torch.full((n,), 8))


def learner() -> tdvae.Learner:
    torch.manual_seed(derive_seed(7))
    return tdvae.Learner(tdvae.models.build(MODEL))


def train(run_dir: Path, resume: bool, steps: int = CONFIG.steps) -> None:
    config = tdvae.TrainConfig(**{**CONFIG.__dict__, "steps": steps})
    info = {"experiment": "campaign", "split_seed": 3}
    tdvae.fit(
        learner(), data(), JUMPS, config, run_dir, data(4), resume=resume, info=info, progress="none", files=STORED
    )


def series() -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(0).normal(size=60).cumsum()


def fit_series(run_dir: Path, resume: bool) -> None:
    """A training as that of `tdvae fit`, whose run keeps a part of the data."""
    own = tdvae.prepare(series(), longest_jump=3)
    sizes: dict[str, Any] = {"layers": 1, "latent": 2, "belief": 4, "batch_size": 4}
    tdvae.fit_forecaster(own, run_dir, steps=2, resume=resume, progress="none", **sizes)


def forecast(run_dir: Path) -> str:
    """A digest of the forecasts of a run of `fit_series`, and of the data that it keeps."""
    forecaster = tdvae.Forecaster.load(run_dir)
    kept = forecaster.data
    parts = {f"history.{name}": tensor for name, tensor in kept.history.named().items()}
    parts |= {f"test.{name}": tensor for name, tensor in kept.test.sequences.named().items()}
    return digest(parts | {"forecast": torch.from_numpy(forecaster.forecast(series(), [1, 3]).quantiles)})


def arrays(path: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(path, x=generator.normal(size=(10, 12, 2)).astype(np.float32), lengths=np.full(10, 12))


def digest(values: dict[str, torch.Tensor]) -> str:
    parts = [name.encode() + value.numpy().tobytes() for name, value in sorted(values.items())]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def weights_of_load(run_dir: Path) -> str:
    """A digest of the weights that `tdvae.load` finds."""
    return digest(tdvae.load(run_dir).state_dict())


def end_of_training(run_dir: Path) -> dict[str, Any]:
    """What a finished training left: weights and optimiser of its last checkpoint, its log, its further file."""
    last, _ = checkpoint.newest(run_dir / "checkpoints", "step")
    return {
        "tensors": {name: digest(group) for name, group in last.tensors.items()},
        "state": {**last.state, "seconds": None, "metrics": None},
        "metrics": [{**entry, "steps_per_second": None} for entry in RunFolder(run_dir).read_metrics()],
        "stored": hashlib.sha256(RunFolder(run_dir).read_file(DATA_FILE)).hexdigest(),
    }
