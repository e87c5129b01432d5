"""Figure 4 of the paper: the signal, sampled futures after a jump, and the interval of the exact forecaster."""

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
from tdvae.likelihood import forecast
from tdvae.models import Model
from tdvae.rollouts import belief_at, rollout
from tdvae.training.config import derive_seed
from tdvae.types import Belief
from tdvae_paper.oscillator.measures import SAMPLES, SKIPS, START, STEPS, TEST, record

EXAMPLES = 3
FUTURES = 5  # samples per panel
CURVE_HORIZONS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 100, 120)
CURVE_SEQUENCES = 500
OBSERVED, MODEL, EXACT, MARGINAL = "#333333", "#d1495b", "#9fc5e8", "#999999"


@torch.no_grad()
def draw(model: Model, settings: OscillatorSettings, seed: int, path: Path) -> None:
    """Draw rollouts as in the paper. Below, draw the NLL against δt of forecasts, the marginal and exact inference."""
    test = record(settings, max(CURVE_SEQUENCES, EXAMPLES), seed, TEST)
    torch.manual_seed(derive_seed(seed, TEST, 2))
    oracle = OscillatorOracle(settings)
    posterior = oracle.observe(test.x[:, :START])
    example_posterior = oracle.observe(test.x[:EXAMPLES, :START])
    belief = belief_at(model, from_arrays(test.x), START)
    figure = plt.figure(figsize=(12, 10), layout="constrained")
    grid = figure.add_gridspec(EXAMPLES + 1, 2, height_ratios=[1] * EXAMPLES + [1.5])
    for column, skip in enumerate(SKIPS):
        panels = [figure.add_subplot(grid[row, column]) for row in range(EXAMPLES)]
        _rollout_panels(panels, model, belief, oracle, example_posterior, test, skip)
    _curve_panel(figure.add_subplot(grid[EXAMPLES, :]), model, belief, oracle, posterior, test)
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


def _curve_panel(
    axes: Axes,
    model: Model,
    belief: Belief,
    oracle: OscillatorOracle,
    posterior: BankPosterior,
    test: OscillatorRecord,
) -> None:
    curves: dict[str, list[float]] = {"model": [], "exact": [], "marginal": []}
    for dt in CURVE_HORIZONS:
        future = test.x[:, START + dt - 1]
        curves["model"].append(-float(forecast(model, belief, dt, SAMPLES).log_prob(future).mean()))
        curves["exact"].append(-float(oracle.forecast(posterior, dt).log_prob(future.double()).mean()))
        curves["marginal"].append(-float(oracle.marginal(START + dt - 1).log_prob(future.double()).mean()))
    axes.plot(CURVE_HORIZONS, curves["marginal"], color=MARGINAL, linestyle="--", label="marginal")
    axes.plot(CURVE_HORIZONS, curves["model"], color=MODEL, marker="o", markersize=4, label="TD-VAE, one jump")
    axes.plot(CURVE_HORIZONS, curves["exact"], color="#3d85c6", label="exact inference (the limit)")
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.set_xlabel("δt, steps ahead")
    axes.set_ylabel("NLL of x, nats (lower is better)")
    axes.legend(frameon=False)


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=OBSERVED, marker=".", markersize=4, label="true signal and observations x"),
        Line2D([], [], color=MODEL, label=f"{FUTURES} futures sampled from TD-VAE"),
        Rectangle((0, 0), 1, 1, color=EXACT, alpha=0.5, label="exact forecaster, 90 % interval of x"),
        Line2D([], [], color=OBSERVED, linestyle=":", label=f"last observation, t = {START}"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
