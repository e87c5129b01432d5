"""Forecasts of users' own sequences: training, evaluation against baselines, saved runs."""

from tdvae.forecasting.own_data import RUNS, OwnData, evaluate, tables, train
from tdvae.forecasting.recipe import Recipe, recipe

__all__ = ["RUNS", "OwnData", "Recipe", "evaluate", "recipe", "tables", "train"]
