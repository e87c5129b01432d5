"""Evaluation: scores of held-out forecasts by horizon, a comparison with simple forecasters in words, and a figure."""

from tdvae.forecasting.evaluation.comparison import LABELS, Comparison, comparisons, list_steps, verdict
from tdvae.forecasting.evaluation.figure import draw, draw_calibration, draw_fan, draw_scores
from tdvae.forecasting.evaluation.pictures import distances, energy_score
from tdvae.forecasting.evaluation.scores import (
    ENERGY_WORDS,
    MODEL,
    Evaluation,
    Scores,
    density_scores,
    evaluate,
    evaluation_origins,
    sample_crps,
)

__all__ = [
    "ENERGY_WORDS",
    "LABELS",
    "MODEL",
    "Comparison",
    "Evaluation",
    "Scores",
    "comparisons",
    "density_scores",
    "distances",
    "draw",
    "draw_calibration",
    "draw_fan",
    "draw_scores",
    "energy_score",
    "evaluate",
    "evaluation_origins",
    "list_steps",
    "sample_crps",
    "verdict",
]
