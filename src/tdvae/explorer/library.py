"""What the explorer uses of the rest of the package. Other modules of the explorer import it from here."""

from tdvae import __version__
from tdvae.data import OscillatorSettings, from_arrays, simulate
from tdvae.distributions import Categorical, DiagonalNormal, Distribution, PointMass
from tdvae.envs.minipacman import PALETTE as GAME_PALETTE
from tdvae.envs.minipacman import record as play_games
from tdvae.envs.minipacman.maze import ACTIONS as GAME_ACTIONS
from tdvae.envs.pendulum import record_pendulum
from tdvae.errors import InputError, TDVAEError, failure
from tdvae.exact import BankPosterior, GaussianMixture, OscillatorOracle
from tdvae.forecasting.evaluation import sample_crps
from tdvae.forecasting.forecaster import Forecaster
from tdvae.forecasting.predictors import (
    CorrelatedNormal,
    Density,
    MixtureDensity,
    Normals,
    Origins,
    Stack,
    compose,
    fill,
    seeded,
)
from tdvae.forecasting.preparation import Covariate
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.rollouts import rollout
from tdvae.saved import SavedModel, load_saved, shipped_names
from tdvae.storage.files import write_file
from tdvae.training.config import derive_seed
from tdvae.types import Belief, Latent, Sequences, State, missing_as_nan
from tdvae_paper.moving_mnist.mnist import Digits
from tdvae_paper.moving_mnist.moving_digits import draw_sequences

__all__ = [
    "GAME_ACTIONS",
    "GAME_PALETTE",
    "BankPosterior",
    "Belief",
    "Categorical",
    "CorrelatedNormal",
    "Covariate",
    "Density",
    "DiagonalNormal",
    "Digits",
    "Distribution",
    "Forecaster",
    "GaussianMixture",
    "InputError",
    "Latent",
    "MixtureDensity",
    "Model",
    "Normals",
    "Origins",
    "OscillatorOracle",
    "OscillatorSettings",
    "PointMass",
    "SavedModel",
    "Sequences",
    "Stack",
    "State",
    "TDVAEError",
    "__version__",
    "compose",
    "derive_seed",
    "draw_sequences",
    "failure",
    "fill",
    "forecast",
    "from_arrays",
    "load_saved",
    "missing_as_nan",
    "play_games",
    "record_pendulum",
    "rollout",
    "sample_crps",
    "seeded",
    "shipped_names",
    "simulate",
    "write_file",
]
