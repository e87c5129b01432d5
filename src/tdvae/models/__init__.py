"""Models with a common interface (`Model`), and functions that build them from a config or for a data set."""

from tdvae.models.base import Model
from tdvae.models.build import build, for_data, for_pictures
from tdvae.models.config import ConvTDVAEConfig, FilteringConfig, MeanFieldConfig, NextStepConfig, TDVAEConfig
from tdvae.models.nextstep import NextStep
from tdvae.models.ssm import Filtering, MeanField, StateSpace
from tdvae.models.tdvae import TDVAE

__all__ = [
    "TDVAE",
    "ConvTDVAEConfig",
    "Filtering",
    "FilteringConfig",
    "MeanField",
    "MeanFieldConfig",
    "Model",
    "NextStep",
    "NextStepConfig",
    "StateSpace",
    "TDVAEConfig",
    "build",
    "for_data",
    "for_pictures",
]
