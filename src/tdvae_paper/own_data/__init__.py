"""Forecasts of data sets by the recipe of `tdvae fit`, beside simple forecasters and common alternatives."""

from tdvae_paper.own_data.experiment import Lorenz, OwnDataSets

EXPERIMENT, LORENZ = OwnDataSets(), Lorenz()
