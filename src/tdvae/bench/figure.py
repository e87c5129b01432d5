"""The benchmark's plot: how a step's cost grows with each size, and the race for a held-out loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tdvae.bench.moving_mnist import Lap
from tdvae.reporting.results import Measures


def draw(costs: Measures, laps: dict[str, Lap], path: Path) -> None:
    """How a step's cost grows with each size; and, if there was a race, held-out loss against training time."""
    names = list(dict.fromkeys(key.split("=")[0] for key in costs))
    figure, axes = plt.subplots(1, len(names) + bool(laps), figsize=(3.4 * (len(names) + bool(laps)), 3.4))
    for name, panel in zip(names, axes, strict=False):
        sizes = [int(key.split("=")[1]) for key in costs if key.startswith(f"{name}=")]
        panel.plot(sizes, [costs[f"{name}={size}"]["mean"] for size in sizes], "o-", color="#d1495b")
        panel.set(xlabel=name, ylim=(0, None))
    axes[0].set_ylabel("ms per training step")
    if laps:
        _draw_race(axes[-1], laps)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_race(axes: Axes, laps: dict[str, Lap]) -> None:
    colours: list[Any] = ["#333333", "#9fc5e8", "#2e6f95", "#d1495b"]
    for colour, (name, lap) in zip(colours, laps.items(), strict=True):
        axes.plot([t / 60 for t in lap.seconds], lap.losses, color=colour, label=name)
    axes.axhline(laps["plain"].losses[-1], color="#999999", linestyle=":", lw=1)
    axes.set(xlabel="minutes of training", ylabel="held-out nats per frame", xscale="log")
    axes.legend(frameon=False, fontsize=8)
