"""Whether a model is worth using, in words: its NLL compared with that of the best simple forecaster, by δt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tdvae.forecasting.origins import LEAST_BLOCKS
from tdvae.reporting.results import Measures

LABELS = {
    "tdvae": "the model",
    "last_value": "the last value",
    "seasonal": "the last season",
    "linear": "linear regression",
    "marginal": "the marginal distribution",
}


@dataclass(frozen=True)
class Comparison:
    """The NLL of the model minus that of the best baseline, its standard error, and from how many blocks that is."""

    baseline: str
    difference: float
    error: float
    blocks: float = math.inf

    @property
    def better(self) -> bool:
        return self.difference < -2 * self.error

    @property
    def worse(self) -> bool:
        return self.difference > 2 * self.error

    @property
    def perhaps_better(self) -> bool:
        """Whether the model is ahead, but there are too few blocks for a standard error."""
        return self.difference < 0 and self.blocks < LEAST_BLOCKS

    def clause(self) -> str:
        """What is said about a δt at which the model is not clearly better."""
        label = LABELS.get(self.baseline, self.baseline)
        if self.perhaps_better:
            return f"it is ahead of {label}, perhaps by chance"
        return f"{label} {'is better' if self.worse else 'serves as well'}"


def comparisons(nll: Measures, measures: Measures) -> dict[int, Comparison]:
    """The comparisons, from summarised measures of `Evaluation.with_differences`."""
    others = {name: of for name, of in nll.items() if name != "tdvae" and name in LABELS}
    return {
        int(dt): Comparison(
            min(others, key=lambda name: others[name][dt]["mean"]),
            difference["mean"],
            measures["nll_difference_error"][dt]["mean"],
            measures["nll_difference_blocks"][dt]["mean"],
        )
        for dt, difference in measures["nll_difference"].items()
    }


def verdict(comparisons: dict[int, Comparison]) -> str:
    """The comparison in words. A difference counts if it is above two standard errors, which need some blocks."""
    better = [dt for dt, each in comparisons.items() if each.better]
    rest = {dt: each for dt, each in comparisons.items() if not each.better}
    others: dict[str, list[int]] = {}
    for dt, each in rest.items():
        others.setdefault(each.clause(), []).append(dt)
    clauses = [f"at {list_dt(dts)} {clause}" for clause, dts in others.items()]
    if not better and any(each.perhaps_better for each in rest.values()):
        return f"The test part is too short to tell whether the model is worth using: {', '.join(clauses)}."
    if not better:
        return f"The model is not worth using on these data: {', '.join(clauses)}."
    gains = [-comparisons[dt].difference for dt in better]
    amount = f"{min(gains):.2f}" if len(gains) == 1 else f"{min(gains):.2f} to {max(gains):.2f}"
    text = (
        f"The model is worth using at {list_dt(better)}: its NLL is {amount} nats per dimension below the best simple "
        "forecaster."
    )
    return text if not rest else f"{text} {_capital(', '.join(clauses))}."


def list_dt(dts: Sequence[int]) -> str:
    """Jump lengths in words."""
    return "δt = " + ", ".join(map(str, dts))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
