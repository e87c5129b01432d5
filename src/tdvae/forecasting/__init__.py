"""Forecasts of users' own sequences: reading, splitting, training, evaluation against baselines, forecast files."""

from tdvae.forecasting.forecaster import Forecaster, Forecasts
from tdvae.forecasting.own_data import RUNS, RunData, evaluate, tables
from tdvae.forecasting.preparation import HeldOut, OwnData, prepare
from tdvae.forecasting.recipe import Recipe, recipe

__all__ = [
    "RUNS",
    "Forecaster",
    "Forecasts",
    "HeldOut",
    "OwnData",
    "Recipe",
    "RunData",
    "evaluate",
    "prepare",
    "recipe",
    "tables",
]
