"""Fitting: networks are trained by one recipe, combined with linear forecasters, and written to a run folder."""

from tdvae.forecasting.fitting.fit import FOLDER, fit_forecaster
from tdvae.forecasting.fitting.recipes import Recipe, recipe

__all__ = ["FOLDER", "Recipe", "fit_forecaster", "recipe"]
