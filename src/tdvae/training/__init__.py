"""Training: config, loop, checkpoints and log. The loop depends on the `Learner` interface, not on concrete models."""

from tdvae.training.config import TrainConfig
from tdvae.training.loop import FitResult, fit

__all__ = ["FitResult", "TrainConfig", "fit"]
