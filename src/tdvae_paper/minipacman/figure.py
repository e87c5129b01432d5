"""What the three models reach, and what TD-VAE sees, foresees and believes."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from torch import Tensor

from tdvae.envs.minipacman import Recording
from tdvae.envs.minipacman.maze import HEIGHT, WALLS, WIDTH
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at, rollout
from tdvae_paper.experiment import TrainedRun
from tdvae_paper.minipacman.measures import COLOURS
from tdvae_paper.minipacman.presets import LABELS
from tdvae_paper.minipacman.probes import Probe
from tdvae_paper.minipacman.truth import FREE_CELLS, SKIPPED, observed, rows_of

HUES = {
    "tdvae": "#d1495b",
    "filtering": "#2e6f95",
    "mean_field": "#8d99ae",
    "next_step": "#444444",
}
SEEN, AHEAD, FUTURES = 20, 10, 4  # frames seen, then foreseen; futures drawn
MAZES = 4  # of the belief about the ghost
Curves = dict[str, tuple[list[int], list[float]]]


def draw(
    run: TrainedRun,
    probe: Probe,
    measures: Measures,
    curves: Curves,
    seed: int,
    path: Path,
) -> None:
    """Top: windows seen, what came and sampled futures. Middle: belief about the ghost. Below: the comparison."""
    figure = plt.figure(figsize=(13, 12), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=[1.35, 0.8, 1])
    torch.manual_seed(seed)
    _futures(figure.add_subplot(grid[0]), run.models[0], probe.recordings[1])
    _ghosts(figure, grid, run, probe)
    below = grid[2].subgridspec(1, 3)
    _bars(figure.add_subplot(below[0]), measures)
    _learning(figure.add_subplot(below[1]), curves)
    _convergence(figure.add_subplot(below[2]), measures)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _strip(windows: Tensor) -> Tensor:
    """Windows (T, 5, 5, 3) side by side with a gap: (7, 6 T, 3)."""
    framed = torch.full((len(windows), 7, 6, 3), 0.75)
    framed[:, 1:6, :5] = windows
    return framed.permute(1, 0, 2, 3).flatten(1, 2)


@torch.no_grad()
def _futures(axes: Axes, model: Model, test: Recording) -> None:
    """One game: its windows, and futures drawn from the belief in the middle, for the actions that were then taken."""
    data = observed(test).select(slice(0, 1))
    assert data.actions is not None
    z = model.sample_state(belief_at(model, data, SEEN), FUTURES)
    states = rollout(model, z, [1] * AHEAD, data.actions[:, SEEN : SEEN + AHEAD])
    drawn = COLOURS[model.decode(states).sample().long()][:, :, 0]  # (AHEAD, FUTURES, 5, 5, 3)
    seen, came = COLOURS[data.x[0, SEEN - AHEAD : SEEN].long()], COLOURS[data.x[0, SEEN : SEEN + AHEAD].long()]
    blank = torch.ones_like(_strip(seen))
    rows = [torch.cat([_strip(seen), _strip(came)], dim=1)]
    rows += [torch.cat([blank, _strip(drawn[:, n])], dim=1) for n in range(FUTURES)]
    axes.imshow(torch.cat(rows).numpy(), interpolation="nearest")
    axes.axvline(6 * AHEAD - 0.5, color="black", lw=1.5)
    axes.set_yticks([3 + 7 * row for row in range(1 + FUTURES)], ["what was seen", *["a future"] * FUTURES])
    axes.set_xticks([2 + 6 * t for t in range(2 * AHEAD)], [str(t - AHEAD + 1) for t in range(2 * AHEAD)])
    axes.set_title(
        f"A game's windows (Pacman green, food blue, pill cyan, ghost red): seen up to 0, then {FUTURES} futures that "
        "TD-VAE draws from its belief, given the actions",
        fontsize=10,
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _ghosts(figure: Figure, grid: GridSpec, run: TrainedRun, probe: Probe) -> None:
    """Where a reader of the belief takes the ghost to be, while it is out of sight."""
    answers, about, test = probe.answers(run), probe.asked, probe.recordings[1]
    frames = test.x.shape[1] - SKIPPED
    chosen = _moments(about.out_of_sight & (about.since > 0) & (about.since < 6), frames)
    middle = grid[1].subgridspec(1, MAZES)
    for panel, row in enumerate(chosen):
        some = rows_of(about, torch.tensor([row]))
        logits = answers[row : row + 1].masked_fill(some.seen, -1e9)
        axes = figure.add_subplot(middle[panel])
        heat = torch.full((HEIGHT * WIDTH,), torch.nan).index_put((FREE_CELLS,), torch.softmax(logits, -1)[0])
        axes.imshow(np.where(WALLS, 1.0, np.nan), cmap="Greys", vmin=0, vmax=2)
        axes.imshow(heat.view(HEIGHT, WIDTH).numpy(), cmap="Reds", vmin=0)
        assert test.truth is not None
        game, t = divmod(row, frames)
        (y, x), (gy, gx) = test.truth.pacman[game, t + SKIPPED], test.truth.ghosts[game, t + SKIPPED, 0]
        axes.add_patch(Rectangle((x - 2.5, y - 2.5), 5, 5, fill=False, color="#2a9d8f", lw=2))
        axes.plot(x, y, "o", color="#2a9d8f", ms=6)
        axes.plot(gx, gy, "x", color="black", ms=8, mew=2)
        last = int(FREE_CELLS[some.last_seen[0]])
        axes.plot(last % WIDTH, last // WIDTH, "s", mfc="none", color="black", ms=8)
        axes.set_title(f"steps since it was seen: {int(some.since[0])}", fontsize=9)
        axes.set(xticks=[], yticks=[], xlim=(-0.5, WIDTH - 0.5), ylim=(HEIGHT - 0.5, -0.5))  # a window may reach out
        if panel == 0:
            axes.set_ylabel("belief about the ghost\n× true, □ last seen", fontsize=9)


def _moments(wanted: Tensor, frames: int) -> list[int]:
    """The last wanted frame of each of the first games that have one."""
    rows: list[int] = []
    for game, of_game in enumerate(wanted.view(-1, frames)):
        if bool(of_game.any()) and len(rows) < MAZES:
            rows.append(game * frames + int(of_game.nonzero()[-1]))
    return rows


def _bars(axes: Axes, measures: Measures) -> None:
    names = {"elbo": "−ELBO", "nll": "−log p(x)", "nll_joint": "−log p(x),\nwhole games"}
    methods = list(measures["elbo"])
    width = 0.8 / len(methods)
    for offset, method in enumerate(methods):
        entries = [measures[name][method] for name in names]
        places = [index + (offset - (len(methods) - 1) / 2) * width for index in range(len(names))]
        spread = [entry["spread"] or 0 for entry in entries]
        axes.bar(
            places, [entry["mean"] for entry in entries], width, yerr=spread, color=HUES[method], label=LABELS[method]
        )
    _yardstick(axes, measures)
    axes.set_xticks(range(len(names)), list(names.values()))
    axes.set_ylabel("nats per frame")
    axes.set_title("lower is better", fontsize=10)
    axes.margins(y=0.5)  # room for the legend
    axes.legend(frameon=False, fontsize=9)


def _yardstick(axes: Axes, measures: Measures) -> None:
    """What a predictor without a state reaches."""
    value = measures["nll"]["next_step"]["mean"]
    axes.axhline(value, color=HUES["next_step"], ls=":", label=f"{LABELS['next_step']}, exact −log p(x)")


def _learning(axes: Axes, curves: Curves) -> None:
    for name, (steps, values) in curves.items():
        method = name.split(",")[0]
        style = ":" if method == "next_step" else "-"
        axes.plot(steps, values, style, color=HUES[method], lw=1)
    axes.set_xlabel("training step")
    axes.set_ylabel("loss of validation games, nats per frame")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 6)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_title("learning: −ELBO (dots: −log p(x)), one line a seed", fontsize=10)


def _convergence(axes: Axes, measures: Measures) -> None:
    for method in measures["elbo"]:
        for name, style in (("nll", "-"), ("nll_joint", "--")):
            points = measures[f"{name}_by_samples"][method]
            values = [entry["mean"] for entry in points.values()]
            axes.plot([int(n) for n in points], values, style, color=HUES[method])
    _yardstick(axes, measures)
    axes.set_xscale("log")
    axes.set_xlabel("importance samples, or particles")
    axes.set_ylabel("−log p(x), nats per frame")
    axes.set_title("convergence (dashes: whole games)", fontsize=10)
