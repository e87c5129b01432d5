"""Forecasts of users' own sequences: reading, splitting, training, evaluation against baselines, forecast files."""

from tdvae.forecasting.choice import Candidates, candidates
from tdvae.forecasting.forecaster import Forecaster, Forecasts
from tdvae.forecasting.own_data import RUNS, RunData, evaluate, tables
from tdvae.forecasting.preparation import HeldOut, OwnData, prepare
from tdvae.forecasting.recipe import Recipe, recipe

__all__ = [
    "RUNS",
    "Candidates",
    "Forecaster",
    "Forecasts",
    "HeldOut",
    "OwnData",
    "Recipe",
    "RunData",
    "candidates",
    "evaluate",
    "prepare",
    "recipe",
    "tables",
]
