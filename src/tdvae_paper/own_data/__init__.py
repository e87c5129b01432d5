"""Forecasts of five data sets by the recipe of `tdvae fit`, beside simple forecasters and what else one might use."""

from tdvae_paper.own_data.experiment import OwnDataSets

EXPERIMENT = OwnDataSets()
