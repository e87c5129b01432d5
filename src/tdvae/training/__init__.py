"""The one training loop, its config, its checkpoints and its log. It sees a Learner, never a concrete model."""

from tdvae.training.config import TrainConfig
from tdvae.training.loop import FitResult, fit

__all__ = ["FitResult", "TrainConfig", "fit"]
