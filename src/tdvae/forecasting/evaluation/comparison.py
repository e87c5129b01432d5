"""Whether a model is worth using, in words: its score compared with that of the best other forecaster, by horizon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdvae.forecasting.predictors import LEAST_BLOCKS
from tdvae.reporting.results import Measures

LABELS = {
    "combination": "the combination",
    "tdvae": "TD-VAE",
    "latent": "TD-VAE (latent state)",
    "observed": "TD-VAE (observed state)",
    "next_step": "the next-step predictor",
    "linear": "linear regression",
    "seasonal_naive": "the seasonal naive forecast",
    "naive": "the naive forecast",
    "climatology": "climatology",
}
NOT_COMPARED = ("combination", "tdvae")
SIMPLE = ("linear", "seasonal_naive", "naive", "climatology")


@dataclass(frozen=True)
class Comparison:
    """The score of the model minus that of the best other, its standard error, and from how many blocks that is.

    ``simple`` is the score of the best forecaster without a network, minus that of the model.
    """

    other: str
    difference: float
    error: float
    blocks: float = math.inf
    simple: float = 0.0

    @property
    def better(self) -> bool:
        return self.difference < -2 * self.error

    @property
    def worse(self) -> bool:
        return self.difference > 2 * self.error

    def clause(self) -> str:
        """What is said about a horizon at which the model is not clearly better."""
        alone = "" if self.other in SIMPLE else " alone"  # it is a member of the combination
        return f"{LABELS.get(self.other, self.other)}{alone} {'is better' if self.worse else 'serves as well'}"


def comparisons(scores: Measures, measures: Measures, main: str = "nll") -> dict[int, Comparison]:
    """The comparisons by the scores called ``main``, from summarised measures of `Evaluation.with_differences`."""
    others = {name: of for name, of in scores.items() if name not in NOT_COMPARED and name in LABELS}
    return {
        int(h): Comparison(
            min(others, key=lambda name: others[name][h]["mean"]),
            difference["mean"],
            measures[f"{main}_difference_error"][h]["mean"],
            measures[f"{main}_difference_blocks"][h]["mean"],
            min(scores[name][h]["mean"] for name in SIMPLE if name in scores) - scores["combination"][h]["mean"],
        )
        for h, difference in measures[f"{main}_difference"].items()
    }


def verdict(
    comparisons: Mapping[int, Comparison],
    origins: Mapping[int, int] | None = None,
    unit: str = "nats per dimension",
    score: str = "NLL",
) -> str:
    """The comparison in words. A difference counts if it is above two standard errors, which need some blocks."""
    text = _verdict(comparisons, unit, score)
    if origins is None:
        return text
    blocks, counts = [int(each.blocks) for each in comparisons.values()], list(origins.values())
    return f"{text} ({_range(counts)} origins in {_range(blocks)} blocks.)"


def _verdict(comparisons: Mapping[int, Comparison], unit: str, score: str) -> str:
    short = [h for h, each in comparisons.items() if each.blocks < LEAST_BLOCKS]
    told = {h: each for h, each in comparisons.items() if h not in short}
    if not told:
        return "The test part is too short to tell whether the combination is worth using."
    better = [h for h, each in told.items() if each.better]
    others: dict[str, list[int]] = {}
    for h, each in told.items():
        if not each.better:
            others.setdefault(each.clause(), []).append(h)
    clauses = [f"at {list_steps(hs)} {clause}" for clause, hs in others.items()]
    if short:
        clauses.append(f"at {list_steps(short)} the test part is too short to tell")
    if not better and any(each.other in SIMPLE for each in told.values()):
        return f"The combination is not worth its training on these data: {', '.join(clauses)}."
    if not better:
        gains = _amount([each.simple for each in told.values()])
        return f"Forecasters without a network are {gains} {unit} worse than the combination; {', '.join(clauses)}."
    amount = _amount([-told[h].difference for h in better])
    text = (
        f"The combination is worth using at {list_steps(better)}: its {score} is {amount} {unit} below the best "
        "other forecaster."
    )
    return text if not clauses else f"{text} {_capital(', '.join(clauses))}."


def _amount(gains: Sequence[float]) -> str:
    return f"{min(gains):.2f}" if len(gains) == 1 else f"{min(gains):.2f} to {max(gains):.2f}"


def _range(numbers: Sequence[int]) -> str:
    return str(min(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def list_steps(horizons: Sequence[int]) -> str:
    """Horizons in words."""
    if list(horizons) == [1]:
        return "1 step"
    return f"{', '.join(map(str, horizons))} steps"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
