"""Figure 3 of the paper, also as an animation: observed frames and rollouts in jumps."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Tensor

from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.training.config import derive_seed
from tdvae_paper.moving_mnist.measures import JUMPS, LONGEST, Rollouts, roll
from tdvae_paper.moving_mnist.moving_digits import MovingSequences

ROWS = 8
SEEN = 12  # frames filtered before the drawn rollouts
SHOWN = 6  # number of these that are drawn: every other one, up to the last
GIF_SCALE, GIF_MILLISECONDS = 3, 450
MODEL, DATA = "#d1495b", "#9fc5e8"


@torch.no_grad()
def draw(model: Model, test: MovingSequences, measures: Measures, seed: int, path: Path) -> None:
    """Draw rows of observed frames, the decoded belief and six jumps; below, displacements and digit accuracy."""
    rollouts = _examples(model, test, seed)
    seen = test.select(torch.arange(ROWS)).x[:, :SEEN]
    figure = plt.figure(figsize=(12, 12), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[3.1, 1])
    _draw_frames(figure.add_subplot(grid[0, :]), seen, rollouts.frames.transpose(0, 1))
    _draw_displacements(figure.add_subplot(grid[1, 0]), measures)
    _draw_digit_accuracy(figure.add_subplot(grid[1, 1]), measures)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


@torch.no_grad()
def animate(model: Model, test: MovingSequences, seed: int, path: Path) -> None:
    """Save an animation of the observed frames, then of the rollouts, which are marked by a bright line."""
    rollouts = _examples(model, test, seed)
    seen = test.select(torch.arange(ROWS)).x[:, :SEEN].transpose(0, 1)
    film = [_tile(frames, mark=0.0) for frames in seen] + [_tile(frames, mark=1.0) for frames in rollouts.frames]
    pictures = [Image.fromarray((frame * 255).byte().numpy()) for frame in film]
    pictures = [p.resize((p.width * GIF_SCALE, p.height * GIF_SCALE), Image.Resampling.NEAREST) for p in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=GIF_MILLISECONDS, loop=0, optimize=True)


def _examples(model: Model, test: MovingSequences, seed: int) -> Rollouts:
    first = MovingSequences(test.digits, test.image[:ROWS], test.start[:ROWS], test.direction[:ROWS], test.length)
    torch.manual_seed(derive_seed(seed, 2))
    return roll(model, first, SEEN, given_dt=False)


def _draw_frames(axes: Axes, seen: Tensor, rollouts: Tensor) -> None:
    """Draw observed frames (ROWS, SEEN, 28, 28) on the left and rollouts (ROWS, 1 + JUMPS, 28, 28) on the right."""
    left = torch.cat([_cell(frame) for frame in seen[:, SEEN - 2 * SHOWN + 1 :: 2].transpose(0, 1)], dim=-1)
    right = torch.cat([_cell(frame) for frame in rollouts.transpose(0, 1)], dim=-1)
    gap = torch.ones(ROWS, left.shape[1], 8)
    picture = torch.cat([left, gap, right], dim=-1).flatten(0, 1)
    axes.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1, aspect="equal")
    side = left.shape[1]
    times = [f"t = {SEEN - 2 * (SHOWN - 1 - i)}" for i in range(SHOWN)]
    places = [side * (i + 0.5) for i in range(SHOWN)] + [left.shape[2] + 8 + side * (i + 0.5) for i in range(1 + JUMPS)]
    axes.set_xticks(places, times + ["belief"] + [f"jump {i + 1}" for i in range(JUMPS)])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    axes.set_title("observed (every other frame), then rolled out without further observations")


def _cell(frames: Tensor) -> Tensor:
    """Add a grey border."""
    return torch.nn.functional.pad(frames, (1, 1, 1, 1), value=0.35)


def _tile(frames: Tensor, mark: float) -> Tensor:
    """Return the frames of all rows side by side. A line below them has brightness ``mark``."""
    row = torch.cat(list(_cell(frames)), dim=-1)
    return torch.cat([row, torch.full((3, row.shape[-1]), mark)])


def _draw_displacements(axes: Axes, measures: Measures) -> None:
    shares = measures["displacement_law"]
    places = torch.arange(1, LONGEST + 1)
    axes.bar(places - 0.2, [shares[str(int(p))]["mean"] for p in places], 0.4, color=MODEL, label="model")
    axes.bar(places + 0.2, [1 / LONGEST] * LONGEST, 0.4, color=DATA, label="data")
    axes.set_xticks(places.tolist())
    axes.set(xlabel="pixels that one jump moves the digit", ylabel="share of jumps", ylim=(0, 0.4))
    axes.legend(frameon=False)


def _draw_digit_accuracy(axes: Axes, measures: Measures) -> None:
    kept = measures["digit_kept"]
    counts = [int(n) for n in kept]
    means, spreads = ([kept[str(n)][key] or 0.0 for n in counts] for key in ("mean", "spread"))
    axes.errorbar(counts, means, spreads, color=MODEL, marker="o", capsize=3, label="rollouts")
    axes.axhline(measures["classifier_accuracy"]["mean"], color="#333333", linestyle=":", label="real frames")
    axes.set(xlabel="jumps after the belief", ylabel="accuracy of the digit classifier", ylim=(0.5, 1.02))
    axes.legend(frameon=False, loc="lower left")
