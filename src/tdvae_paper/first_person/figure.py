"""Figures 5 and 6 of the paper with plots of the measures, and an animation of rollouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from tdvae.data.windows import FrameWindows
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.first_person import measures as measuring
from tdvae_paper.first_person.experiment import LABELS

STATES, FUTURES = 3, 5  # of Fig. 5
BELIEFS, ROLLOUTS = 2, 4  # number of moments drawn
CANDIDATES = 8  # moments from which each of them is chosen
SEEN_SHOWN = 3  # observed frames drawn
MAX_LATER = 20  # upper limit of δt of the futures drawn
JUMP = 5  # δt of the rollouts drawn
GIF_SCALE, GIF_MILLISECONDS = 2, 350
COLOURS = {"tdvae": "#d1495b", "step_by_step": "#edae49", "last_frame": "#66a182", "marginal": "#2e4057"}


def draw(model: Model, test: FrameWindows, t1: int, measures: Measures, seed: int, path: Path, rollouts: Path) -> None:
    """Draw Fig. 5 and plots of the measures to ``path``, Fig. 6 to ``rollouts``."""
    later = max(dt for dt in map(int, measures["future_spread_ratio"]) if dt <= MAX_LATER)
    figure = plt.figure(figsize=(14, 12.4), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=[2.2, 1])
    torch.manual_seed(derive_seed(seed, 5))
    _draw_beliefs(figure.add_subplot(rows[0]), model, _choose_moments(test, BELIEFS, t1), t1, later)
    _draw_measures(figure, rows[1].subgridspec(1, 3), measures)
    _save(figure, path)
    figure = plt.figure(figsize=(12, 13.2), layout="constrained")
    torch.manual_seed(derive_seed(seed, 6))
    _draw_rollouts(figure.add_subplot(), model, _choose_moments(test, ROLLOUTS, t1), t1)
    _save(figure, rollouts)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def animate(model: Model, test: FrameWindows, t1: int, seed: int, path: Path) -> None:
    """Save an animation: real frames above; below, observed frames and then, under a red line, a rollout in jumps."""
    torch.manual_seed(derive_seed(seed, 7))
    part = _choose_moments(test, ROLLOUTS, t1)
    jumps, film = _max_jumps(part, t1), []
    for t in range(JUMP - 1 + t1 % JUMP, t1, JUMP):
        film.append(_film_frame(part.x[:, t], part.x[:, t], predicted=False))
    for number, frames in enumerate(measuring.rolled_frames(model, part, t1, JUMP, jumps)):
        film.append(_film_frame(part.x[:, t1 - 1 + JUMP * number], frames, predicted=True))
    pictures = [Image.fromarray((frame * 255).byte().permute(1, 2, 0).numpy()) for frame in film]
    pictures = [p.resize((p.width * GIF_SCALE, p.height * GIF_SCALE), Image.Resampling.NEAREST) for p in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=GIF_MILLISECONDS, loop=0, optimize=True)


def _choose_moments(test: FrameWindows, count: int, t1: int) -> Sequences:
    """Choose moments: of every ``CANDIDATES`` evenly spaced ones, the one whose last observed frame varies most.

    Variation is the standard deviation of brightness and colour. At many moments the agent faces a wall, and such
    frames show little about a model.
    """
    index = torch.linspace(0, len(test) - 1, CANDIDATES * count + 2).long()[1:-1]
    candidates = replace(test, starts=test.starts[index]).select(slice(None))
    variation = F.adaptive_avg_pool2d(candidates.x[:, t1 - 1], 8).flatten(2).std(-1).sum(1)
    best = variation.reshape(count, CANDIDATES).argmax(1) + CANDIDATES * torch.arange(count)
    return candidates.select(best)


def _max_jumps(part: Sequences, t1: int) -> int:
    return min(7, (part.horizon - t1) // JUMP)


@torch.no_grad()
def _draw_beliefs(axes: Axes, model: Model, part: Sequences, t1: int, dt: int) -> None:
    """Draw three rows for each belief: observed frames, a decoded z of the belief, five futures of that z."""
    z = model.sample_state(belief_at(model, part, t1), STATES)
    present = measuring.decode_median(model, z)  # (STATES, N, ...)
    futures = torch.stack([measuring.decode_median(model, model.transition(z, dt)) for _ in range(FUTURES)])
    size = part.x.shape[-1]
    lines = []
    for number in range(len(part)):
        for state in range(STATES):
            blank = torch.ones(SEEN_SHOWN + 1, 3, size, size)
            seen = part.x[number, t1 - SEEN_SHOWN : t1] if state == 0 else blank[:SEEN_SHOWN]
            real = part.x[number, t1 - 1 + dt] if state == 0 else blank[0]
            lines.append([*seen, None, present[state, number], None, *futures[:, state, number], None, real])
        lines.append([])
    _draw_mosaic(axes, lines[:-1], size)
    names = [f"t = {t1 - SEEN_SHOWN + 1 + i}" for i in range(SEEN_SHOWN)]
    names += ["z now", *[f"future {i + 1}" for i in range(FUTURES)], f"real, {dt} later"]
    _label_columns(axes, lines[0], names, size)
    axes.set_title(
        f"{STATES} states z of one belief, decoded; {FUTURES} futures of each, {dt} steps later", fontsize=13
    )


@torch.no_grad()
def _draw_rollouts(axes: Axes, model: Model, part: Sequences, t1: int) -> None:
    jumps, size = _max_jumps(part, t1), part.x.shape[-1]
    rolled = measuring.rolled_frames(model, part, t1, JUMP, jumps)
    lines = []
    for number in range(len(part)):
        real = part.x[number, t1 - 1 : t1 + jumps * JUMP : JUMP]
        lines += [list(real), list(rolled[:, number]), []]
    _draw_mosaic(axes, lines[:-1], size)
    _label_columns(axes, lines[0], ["now", *[f"+{JUMP * (i + 1)}" for i in range(jumps)]], size)
    places = [(3 * n + row) * size + n * (size // 4) + size / 2 - n * size for n in range(len(part)) for row in (0, 1)]
    axes.set_yticks(places, ["real", "rolled out"] * len(part))
    axes.set_title(
        f"rollouts in jumps of {JUMP} steps without further observations, below the real frames", fontsize=13
    )


def _draw_mosaic(axes: Axes, lines: list[list[Tensor | None]], size: int) -> None:
    """Draw rows of frames. None is a narrow gap between columns, an empty row a gap between rows."""
    rows = []
    for line in lines:
        if line:
            gap = torch.ones(3, size, size // 4)
            rows.append(torch.cat([gap if frame is None else _with_border(frame) for frame in line], dim=-1))
        else:
            rows.append(torch.ones(3, size // 4, rows[0].shape[-1]))
    axes.imshow(torch.cat(rows, dim=1).permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
    axes.set_yticks([])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _with_border(frame: Tensor) -> Tensor:
    """Replace the last row and column by white lines."""
    return F.pad(frame[:, :-1, :-1], (0, 1, 0, 1), value=1.0)


def _label_columns(axes: Axes, line: list[Tensor | None], names: list[str], size: int) -> None:
    places, x = [], 0.0
    for frame in line:
        width = size // 4 if frame is None else size
        if frame is not None:
            places.append(x + width / 2)
        x += width
    axes.set_xticks(places, names)
    axes.xaxis.tick_top()


def _film_frame(real: Tensor, shown: Tensor, predicted: bool) -> Tensor:
    """Return the frames of all moments side by side, the real ones above."""
    above, below = (torch.cat([_with_border(frame) for frame in frames], dim=-1) for frames in (real, shown))
    line = torch.tensor([0.82, 0.29, 0.36] if predicted else [1.0, 1.0, 1.0])[:, None, None].expand(
        3, 4, above.shape[-1]
    )
    return torch.cat([above, line, below.clamp(0, 1)], dim=1)


def _draw_measures(figure: Figure, grid: object, measures: Measures) -> None:
    bits, spread, moved = (figure.add_subplot(grid[0, column]) for column in range(3))  # type: ignore[index]
    for name, by_jump in measures["bits_per_dim"].items():
        _draw_curve(bits, by_jump, LABELS[name], COLOURS[name])
    bits.set(xlabel="δt", ylabel="bits per dimension of x_{t+δt}", title="density of later frames")
    spreads, data = measures["spread"], measures["spread"]["data"]["mean"]
    for name, label, colour in (
        ("future_across", "futures of different z", COLOURS["tdvae"]),
        ("future_within", "futures of one z", COLOURS["step_by_step"]),
    ):
        _draw_curve(spread, spreads[name], label, colour, 1 / data)
    present = spreads["present"]["mean"] / data
    spread.axhline(present, color=COLOURS["marginal"], linestyle=":", label="present of different z")
    spread.set(
        xlabel="δt", ylabel="distance / distance of real frames", title="spread of decoded frames", ylim=(0, None)
    )
    for name, by_jump in measures["motion_distance"].items():
        _draw_curve(moved, by_jump, LABELS[name], COLOURS.get(name, COLOURS["marginal"]))
    moved.set(xlabel="δt", ylabel="distance / mean change of the data", title="change per jump", ylim=(0, None))
    for axes in (bits, spread, moved):
        axes.set_xticks([int(dt) for dt in measures["future_spread_ratio"]])
        axes.legend(
            frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, columnspacing=1
        )


def _draw_curve(axes: Axes, by_jump: Measures, label: str, colour: str, scale: float = 1.0) -> None:
    means = [entry["mean"] * scale for entry in by_jump.values()]
    spreads = [(entry["spread"] or 0.0) * scale for entry in by_jump.values()]
    axes.errorbar([int(dt) for dt in by_jump], means, spreads, color=colour, marker="o", capsize=3, label=label)
