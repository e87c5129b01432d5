"""tdvae: belief-state world models. Learn an abstract state, an explicit belief about it, and jumpy predictions."""

from tdvae import data, exact, jumps, models
from tdvae.errors import CheckpointError, DivergenceError, InputError, TDVAEError
from tdvae.likelihood import (
    Forecast,
    forecast,
    importance_log_prob,
    joint_log_weights,
    pair_log_weights,
    particle_log_prob,
    steps_log_weights,
    trajectory_log_weights,
)
from tdvae.models import TDVAE, TDVAEConfig
from tdvae.objectives import Learner, next_step_loss, pair_terms, state_space_loss, subsequence_loss, tdvae_loss
from tdvae.rollout import belief_at, rollout
from tdvae.saved import load
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.types import Belief, Latent, LossTerms, Pairs, Sequences

__version__ = "0.1.0"

__all__ = [
    "TDVAE",
    "Belief",
    "CheckpointError",
    "DivergenceError",
    "FitResult",
    "Forecast",
    "InputError",
    "Latent",
    "Learner",
    "LossTerms",
    "Pairs",
    "Sequences",
    "TDVAEConfig",
    "TDVAEError",
    "TrainConfig",
    "belief_at",
    "data",
    "exact",
    "fit",
    "forecast",
    "importance_log_prob",
    "joint_log_weights",
    "jumps",
    "load",
    "models",
    "next_step_loss",
    "pair_log_weights",
    "pair_terms",
    "particle_log_prob",
    "rollout",
    "state_space_loss",
    "steps_log_weights",
    "subsequence_loss",
    "tdvae_loss",
    "trajectory_log_weights",
]
