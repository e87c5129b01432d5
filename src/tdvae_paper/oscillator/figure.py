"""Figure 4 of the paper, sampled futures beside the exact forecaster; and how close all trainings are to its limit."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from tdvae.data import OscillatorRecord, OscillatorSettings, from_arrays
from tdvae.exact import BankPosterior, OscillatorOracle
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at, rollout
from tdvae.training.config import derive_seed
from tdvae.types import Belief
from tdvae_paper.oscillator.measures import SKIPS, START, STEPS, TEST, record

EXAMPLES = 2
FUTURES = 5  # samples per panel
OBSERVED, MODEL, EXACT = "#333333", "#d1495b", "#9fc5e8"


@torch.no_grad()
def draw(model: Model, settings: OscillatorSettings, seed: int, measures: Measures, path: Path) -> None:
    """Draw rollouts as in the paper. Below, draw the share of the attainable information of all trainings."""
    test = record(settings, EXAMPLES, seed, TEST)
    torch.manual_seed(derive_seed(seed, TEST, 2))
    oracle = OscillatorOracle(settings)
    posterior = oracle.observe(test.x[:, :START])
    belief = belief_at(model, from_arrays(test.x), START)
    figure = plt.figure(figsize=(12, 9), layout="constrained")
    grid = figure.add_gridspec(EXAMPLES + 1, 2, height_ratios=[1] * EXAMPLES + [1.8])
    for column, skip in enumerate(SKIPS):
        panels = [figure.add_subplot(grid[row, column]) for row in range(EXAMPLES)]
        _rollout_panels(panels, model, belief, oracle, posterior, test, skip)
    _share_panel(figure.add_subplot(grid[EXAMPLES, :]), measures)
    _legend(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rollout_panels(
    panels: list[Axes],
    model: Model,
    belief: Belief,
    oracle: OscillatorOracle,
    posterior: BankPosterior,
    test: OscillatorRecord,
    skip: int,
) -> None:
    end = START + skip + STEPS
    ahead = np.arange(1, skip + STEPS + 1)
    bands = [oracle.forecast(posterior, int(dt)) for dt in ahead]
    low, high = (torch.stack([band.quantile(p)[:, 0] for band in bands]) for p in (0.05, 0.95))
    states = rollout(model, model.sample_state(belief, FUTURES), [skip] + [1] * STEPS)
    futures = model.decode(states).mean[..., 0]  # (STEPS + 1, FUTURES, N)
    for row, axes in enumerate(panels):
        axes.fill_between(START + ahead, low[:, row], high[:, row], color=EXACT, alpha=0.5, linewidth=0)
        axes.plot(np.arange(1, end + 1), test.x[row, :end, 0], ".", color=OBSERVED, markersize=2.5, alpha=0.6)
        axes.plot(np.arange(1, end + 1), test.state[row, :end, 0], color=OBSERVED, linewidth=0.9)
        axes.plot(np.arange(START + skip, end + 1), futures[:, :, row], color=MODEL, linewidth=1.1, alpha=0.8)
        axes.axvline(START, color=OBSERVED, linestyle=":", linewidth=1)
        axes.set_xlim(1, end)
        axes.set_ylim(-2.4, 2.4)
        axes.set_ylabel("x")
    panels[0].set_title(f"a jump of δt = {skip} from t = {START}, then {STEPS} single steps")
    panels[-1].set_xlabel("time step")


def _share_panel(axes: Axes, measures: Measures) -> None:
    """The mean over trainings with its spread, and the worst training."""
    share, worst = measures["information_share"], measures.get("information_share_worst", {})
    horizons = [int(dt) for dt in share]
    means = [100 * entry["mean"] for entry in share.values()]
    spreads = [100 * (entry["spread"] or 0) for entry in share.values()]
    axes.axhline(100, color="#3d85c6", label="exact Bayesian inference (the limit)")
    count = next(iter(share.values()))["n"]
    label = f"TD-VAE in one jump, mean of {count} trainings ± standard deviation" if count > 1 else "TD-VAE in one jump"
    axes.errorbar(horizons, means, spreads, color=MODEL, marker="o", capsize=5, lw=2, label=label)
    if count > 1 and worst:
        lowest = [100 * entry["mean"] for entry in worst.values()]
        axes.plot(horizons, lowest, "v", color=MODEL, mfc="white", ms=8, label="the worst training")
    axes.set_xscale("log")
    axes.set_xticks(horizons, [str(dt) for dt in horizons])
    axes.minorticks_off()
    axes.set_ylim(0, 109)
    axes.set_xlabel("steps ahead", fontsize=12)
    axes.set_ylabel("% of the attainable information\n(higher is better; 0: knows nothing)", fontsize=12)
    axes.legend(frameon=False, loc="lower left", fontsize=12)


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=OBSERVED, marker=".", markersize=4, label="true signal and observations x"),
        Line2D([], [], color=MODEL, label=f"{FUTURES} futures sampled from TD-VAE"),
        Rectangle((0, 0), 1, 1, color=EXACT, alpha=0.5, label="90 % interval of exact inference"),
        Line2D([], [], color=OBSERVED, linestyle=":", label=f"last observation, t = {START}"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
