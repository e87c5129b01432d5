"""Models with a common interface (`Model`), their configs, and functions that build them from a config or for data."""

from tdvae.models.base import Model
from tdvae.models.config import build
from tdvae.models.conv import ConvTDVAEConfig
from tdvae.models.decoders import Bits, Classes, Coordinates, Gaussian
from tdvae.models.defaults import for_data, for_pictures
from tdvae.models.nextstep import NextStep, NextStepConfig
from tdvae.models.ssm import Filtering, FilteringConfig, MeanField, MeanFieldConfig, StateSpace
from tdvae.models.tdvae import TDVAE, TDVAEConfig
from tdvae.nn.dense import GatedMaps, Number, Readout, ResidualMaps, Unknown, Waves
from tdvae.nn.memory import GridMap
from tdvae.nn.recurrent import LSTM, DeepLSTM, LegendreSummary, LinearRecurrence, RecurrentSummary

__all__ = [
    "LSTM",
    "TDVAE",
    "Bits",
    "Classes",
    "ConvTDVAEConfig",
    "Coordinates",
    "DeepLSTM",
    "Filtering",
    "FilteringConfig",
    "GatedMaps",
    "Gaussian",
    "GridMap",
    "LegendreSummary",
    "LinearRecurrence",
    "MeanField",
    "MeanFieldConfig",
    "Model",
    "NextStep",
    "NextStepConfig",
    "Number",
    "Readout",
    "RecurrentSummary",
    "ResidualMaps",
    "StateSpace",
    "TDVAEConfig",
    "Unknown",
    "Waves",
    "build",
    "for_data",
    "for_pictures",
]
