"""Predictors: forecasters of encoded sequences, from any origins, as densities by horizon; and their combination."""

from tdvae.forecasting.predictors.combine import Stack, fit_stack, log_prob
from tdvae.forecasting.predictors.density import (
    SAMPLES,
    CorrelatedNormal,
    Density,
    MixtureDensity,
    Normals,
    Predictor,
    quantile,
    seeded,
)
from tdvae.forecasting.predictors.gaps import fill, takes_gaps
from tdvae.forecasting.predictors.linear import Linear
from tdvae.forecasting.predictors.networks import Network, actions_after, beliefs_at, compose
from tdvae.forecasting.predictors.origins import (
    LEAST_BLOCKS,
    Origins,
    held_out_origins,
    mean_and_error,
    observed,
    scored_horizons,
    targets,
)
from tdvae.forecasting.predictors.regression import climatology, fit_linear, naive

__all__ = [
    "LEAST_BLOCKS",
    "SAMPLES",
    "CorrelatedNormal",
    "Density",
    "Linear",
    "MixtureDensity",
    "Network",
    "Normals",
    "Origins",
    "Predictor",
    "Stack",
    "actions_after",
    "beliefs_at",
    "climatology",
    "compose",
    "fill",
    "fit_linear",
    "fit_stack",
    "held_out_origins",
    "log_prob",
    "mean_and_error",
    "naive",
    "observed",
    "quantile",
    "scored_horizons",
    "seeded",
    "takes_gaps",
    "targets",
]
