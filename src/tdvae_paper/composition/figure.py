"""The NLL of forecasts against how they are composed, for each data set and kind of state."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

COLOURS = ("#d1495b", "#2e6f95")  # of the kinds of state
STYLES: dict[str, tuple[Literal["-", "--"], str]] = {
    "nll": ("-", "mean over sequences"),
    "nll_median": ("--", "median"),
}


def draw(measures: dict[str, Any], sets: dict[str, str], states: dict[str, str], path: Path) -> None:
    """Draw a panel for each data set, with the mean and the median over sequences."""
    figure, axes = plt.subplots(1, len(sets), figsize=(10, 3.4), layout="constrained", squeeze=False)
    for panel, (name, title) in zip(axes[0], sets.items(), strict=True):
        for colour, state in zip(COLOURS, states, strict=True):
            for measure, (style, _) in STYLES.items():
                by_way = measures[measure][name][state]
                panel.plot(list(by_way), [entry["mean"] for entry in by_way.values()], style, color=colour, marker="o")
        panel.set_title(title, fontsize=10)
        panel.set_ylabel("NLL 20 steps ahead, nats")
        panel.margins(x=0.1)
    handles = [Line2D([], [], color=colour) for colour in COLOURS]
    handles += [Line2D([], [], color="black", linestyle=style) for style, _ in STYLES.values()]
    labels = [*states.values(), *(label for _, label in STYLES.values())]
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
