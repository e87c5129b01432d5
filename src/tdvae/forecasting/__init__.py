"""Forecasts of users' own sequences: reading, splitting, training, evaluation against baselines, forecast files."""

from tdvae.forecasting.fitting import Recipe, fit_forecaster, recipe
from tdvae.forecasting.forecaster import Forecaster, RunData
from tdvae.forecasting.forecasts import Forecasts
from tdvae.forecasting.own_data import RUNS, evaluate_run, tables
from tdvae.forecasting.preparation import HeldOut, OwnData, prepare

__all__ = [
    "RUNS",
    "Forecaster",
    "Forecasts",
    "HeldOut",
    "OwnData",
    "Recipe",
    "RunData",
    "evaluate_run",
    "fit_forecaster",
    "prepare",
    "recipe",
    "tables",
]
