"""Timing and peak memory. Compared functions are timed alternately, so that other load affects them equally."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

Work = Callable[[], object]


def ratios(numerator: Work, denominator: Work, repeats: int) -> list[float]:
    """The time of ``numerator`` divided by that of ``denominator``, once per repeat."""
    numerator(), denominator()  # warm up caches
    return [seconds(numerator) / seconds(denominator) for _ in range(repeats)]


def seconds(work: Work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def peak_megabytes() -> float:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def median_and_range(values: list[float]) -> dict[str, Any]:
    """Median and half the range in the format of results, where the median is called mean."""
    median = sorted(values)[len(values) // 2]
    return {"mean": median, "spread": (max(values) - min(values)) / 2, "n": len(values)}
