"""Forecasts of users' own sequences: training, evaluation against baselines, saved runs."""

from tdvae.forecasting.own_data import RUNS, OwnData, evaluate, tables, train

__all__ = ["RUNS", "OwnData", "evaluate", "tables", "train"]
