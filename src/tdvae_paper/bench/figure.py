"""The plot of the benchmark: cost of a training step by size, and held-out loss against training time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tdvae.reporting.results import Measures
from tdvae_paper.bench.moving_mnist import LossCurve


def draw(costs: Measures, curves: dict[str, LossCurve], path: Path) -> None:
    """Draw the cost of a training step by size and, if there are ``curves``, held-out loss against training time."""
    names = list(dict.fromkeys(key.split("=")[0] for key in costs))
    figure, axes = plt.subplots(1, len(names) + bool(curves), figsize=(3.4 * (len(names) + bool(curves)), 3.4))
    for name, panel in zip(names, axes, strict=False):
        sizes = [int(key.split("=")[1]) for key in costs if key.startswith(f"{name}=")]
        panel.plot(sizes, [costs[f"{name}={size}"]["mean"] for size in sizes], "o-", color="#d1495b")
        panel.set(xlabel=name, ylim=(0, None))
    axes[0].set_ylabel("ms per training step")
    if curves:
        _draw_loss_curves(axes[-1], curves)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_loss_curves(axes: Axes, curves: dict[str, LossCurve]) -> None:
    colours: list[Any] = ["#333333", "#9fc5e8", "#2e6f95", "#d1495b"]
    for colour, (name, curve) in zip(colours, curves.items(), strict=True):
        axes.plot([t / 60 for t in curve.seconds], curve.losses, color=colour, label=name)
    axes.axhline(curves["plain"].losses[-1], color="#999999", linestyle=":", lw=1)
    axes.set(xlabel="minutes of training", ylabel="held-out nats per frame", xscale="log")
    axes.legend(frameon=False, fontsize=8)
