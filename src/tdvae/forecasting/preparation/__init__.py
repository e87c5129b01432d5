"""Preparation: from `Series` to training, validation and test parts without leakage, in the numbers of a model."""

from tdvae.forecasting.preparation.covariates import Covariate
from tdvae.forecasting.preparation.encode import Encoding
from tdvae.forecasting.preparation.own_data import HeldOut, OwnData, new_sequences
from tdvae.forecasting.preparation.prepare import prepare
from tdvae.forecasting.preparation.split import Span, Windows, held_out_windows

__all__ = [
    "Covariate",
    "Encoding",
    "HeldOut",
    "OwnData",
    "Span",
    "Windows",
    "held_out_windows",
    "new_sequences",
    "prepare",
]
