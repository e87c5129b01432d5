"""Stop-watches: times taken in turn, so that a busy machine disturbs all that is compared alike. And peak memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

Work = Callable[[], object]


def ratios(numerator: Work, denominator: Work, repeats: int) -> list[float]:
    """How many times as long the one takes as the other."""
    numerator(), denominator()  # warm caches
    return [seconds(numerator) / seconds(denominator) for _ in range(repeats)]


def seconds(work: Work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def peak_megabytes() -> float:
    """The largest memory this process has ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def spread_of(values: list[float]) -> dict[str, Any]:
    """Median, and the lowest and highest, in the one shape of results."""
    middle = sorted(values)[len(values) // 2]
    return {"mean": middle, "spread": (max(values) - min(values)) / 2, "n": len(values)}
