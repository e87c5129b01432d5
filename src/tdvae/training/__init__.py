"""Training: config, loop, checkpoints and log. The loop depends on the `Learner` interface, not on concrete models."""

from tdvae.training.config import TrainConfig
from tdvae.training.loop import FitResult, fit
from tdvae.training.monitor import Monitor

__all__ = ["FitResult", "Monitor", "TrainConfig", "fit"]
