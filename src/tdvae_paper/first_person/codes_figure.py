"""Figures of the corridors: several futures at a junction (Fig. 5), rollouts under the truth (Fig. 6), an animation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from tdvae.codec import FrameCodec
from tdvae.codes import CodeWindows
from tdvae.envs.corridors import CELL, look
from tdvae.envs.corridors_walk import Walk
from tdvae.models import Model
from tdvae.rollouts import belief_at, rollout
from tdvae.training.config import derive_seed
from tdvae.types import Sequences
from tdvae_paper.first_person.codes_data import coded, moments
from tdvae_paper.first_person.codes_measures import actions_after, gradient
from tdvae_paper.first_person.codes_memory import mazes_of, seen_columns

if TYPE_CHECKING:
    from tdvae_paper.first_person.codes import Preset

STATES, FUTURES = 3, 5  # of Fig. 5
JUNCTIONS, STRIPS, FILMS = 2, 4, 4  # moments drawn
CANDIDATES = 200  # moments from which they are chosen
LATER = 12  # δt of Fig. 5: to a junction, a turn, and some steps
JUMP = 4  # δt of the rollouts of Fig. 6
FILM_STEPS = 24  # imagined steps of the animation
GIF_SCALE, GIF_MILLISECONDS, GIF_COLOURS = 2, 160, 48  # few colours without dithering compress well
GAP = 5  # pixels between groups of frames
RED, BLUE, GREY = "#d1495b", "#2e6f95", "#8d99ae"


def draw(preset: Preset, models: dict[str, Model], folder: Path, seed: int) -> list[Path]:
    """Draw all figures for which there is a model, and return their paths."""
    names = {"actions": "first_person_junction.png", "film": "first_person_corridors.gif"}
    names |= {"paper": "first_person_beliefs.png", "rollouts": "first_person_strips.png"}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for variant, trained in models.items():
        path, data = folder / names[variant], coded(preset.world, variant == "actions")
        torch.manual_seed(derive_seed(seed, 5))
        if variant == "rollouts":
            _strips(trained, data.codec, data.test, preset, path)
        else:
            _junctions(trained, data.codec, data.test, preset, path, with_actions=variant == "actions")
        paths.append(path)
        if variant == "actions":
            _film(trained, data.codec, data.test, preset, folder / names["film"])
            paths.append(folder / names["film"])
    return paths


# Fig. 5


def _junctions(
    model: Model, codec: FrameCodec, test: CodeWindows, preset: Preset, path: Path, with_actions: bool
) -> None:
    t1, dt = preset.seen, min(LATER, max(preset.measured))
    chosen = choose(test, codec, t1, dt, JUNCTIONS)
    figure = plt.figure(figsize=(15, 0.5 + 3.7 * len(chosen)), layout="constrained")
    grid = figure.add_gridspec(len(chosen), 2, width_ratios=[1, 3.4])
    for row, one in enumerate(mazes_of(chosen)):
        part, frames = chosen.select(torch.tensor([row])), chosen.frames.select(torch.tensor([row])).x[0]
        draw_map(figure.add_subplot(grid[row, 0]), one, t1, dt)
        _draw_futures(figure.add_subplot(grid[row, 1]), model, codec, part, frames, t1, dt)
    given = "the same actions given" if with_actions else "no actions given"
    figure.suptitle(f"Three states z of one belief, five futures of each, {dt} steps later; {given}", fontsize=14)
    _save(figure, path)


def choose(test: CodeWindows, codec: FrameCodec, t1: int, dt: int, count: int) -> CodeWindows:
    """Choose moments, of different mazes, after which the agent looks into a corridor that was not seen.

    Of evenly spaced moments, those whose later frame shows most walls that no frame up to t1 has shown, weighted by
    how much there is to see in it.
    """
    candidates = moments(test, CANDIDATES)
    walks = mazes_of(candidates)
    unseen = torch.tensor([1 - float(seen_columns(one, t1, t1 + dt, 64).float().mean()) for one in walks])
    steps = candidates.frames.starts + t1 - 1
    later, now = (gradient(codec.decode(candidates.codes[step])) for step in (steps + dt, steps))
    score = unseen * later.clamp(max=later.median() * 2) * (now > now.median())
    order, kept, mazes = score.argsort(descending=True), [], set()
    episodes = np.searchsorted(test.frames.recording.starts, candidates.frames.starts.numpy(), side="right")
    for index in order.tolist():
        if episodes[index] not in mazes:
            mazes.add(episodes[index])
            kept.append(index)
    starts = candidates.frames.starts[torch.tensor(kept[:count])]
    return replace(test, frames=replace(test.frames, starts=starts))


@torch.no_grad()
def _draw_futures(
    axes: Axes, model: Model, codec: FrameCodec, part: Sequences, frames: Tensor, t1: int, dt: int
) -> None:
    """Three rows: observed frames, a state of the belief decoded now, its five futures, and the real frame."""
    z = model.sample_state(belief_at(model, part, t1), STATES)
    present = codec.decode(model.decode(z).mean)[:, 0]
    actions = actions_after(part, t1, dt)
    futures = [codec.decode(model.decode(model.transition(z, dt, actions)).mean)[:, 0] for _ in range(FUTURES)]
    seen = frames[[max(0, t1 - 1 - before) for before in (8, 4, 0)]]
    real, blank = frames[t1 + dt - 1], torch.ones(codec.picture)
    rows = []
    for state in range(STATES):
        left = list(seen) if state == 0 else [blank] * 3
        right = real if state == 0 else blank
        rows.append([*left, None, present[state], None, *[one[state] for one in futures], None, right])
    names = ["8 before", "4 before", "last seen", "z now", *[f"future {n + 1}" for n in range(FUTURES)], "real"]
    _mosaic(axes, rows, names)


def draw_map(axes: Axes, one: Walk, t1: int, dt: int) -> None:
    """The maze from above: walls that were seen, the way until now, and the way that the actions take."""
    walls = one.maze.walls
    side = len(walls) * CELL
    axes.imshow(walls.T, origin="lower", extent=(0, side, 0, side), cmap="Greys", vmin=-0.2, vmax=2.2)
    sight = look(one.maze, one.poses[:t1], 64)
    for x, y, face in np.unique(np.concatenate([sight.cell, sight.face[..., None]], -1).reshape(-1, 3), axis=0):
        ends = np.array([((1, 0), (1, 1)), ((0, 1), (1, 1)), ((0, 0), (0, 1)), ((0, 0), (1, 0))][face])
        axes.plot((x + ends[:, 0]) * CELL, (y + ends[:, 1]) * CELL, color=BLUE, lw=3)
    before, after = one.poses[:t1], one.poses[t1 - 1 : t1 + dt]
    axes.plot(before[:, 0], before[:, 1], color=GREY, lw=2)
    axes.plot(after[:, 0], after[:, 1], color=RED, lw=2, ls=":")
    for pose, colour in ((before[-1], GREY), (after[-1], RED)):
        axes.annotate(
            "",
            xy=(pose[0] + 1.8 * np.cos(pose[2]), pose[1] + 1.8 * np.sin(pose[2])),
            xytext=(pose[0], pose[1]),
            arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2},
        )
    axes.set(xticks=[], yticks=[], title="blue: walls seen; grey: now; red: later")
    axes.title.set_fontsize(10)


# Fig. 6


@torch.no_grad()
def _strips(model: Model, codec: FrameCodec, test: CodeWindows, preset: Preset, path: Path) -> None:
    t1 = preset.seen
    jumps = min(8, (preset.world.window - t1) // JUMP)
    chosen = choose(test, codec, t1, JUMP, STRIPS)
    part, real_frames = chosen.select(slice(None)), chosen.frames.select(slice(None)).x
    frames = imagined(model, codec, part, t1, [JUMP] * jumps)
    rows: list[list[Tensor | None]] = []
    for number in range(len(part)):
        real = real_frames[number, t1 - 1 : t1 + jumps * JUMP : JUMP]
        rows += [list(real), list(frames[:, number]), []]
    figure = plt.figure(figsize=(1.5 * (jumps + 1), 3.3 * STRIPS), layout="constrained")
    axes = figure.add_subplot()
    _mosaic(axes, rows[:-1], ["now", *[f"+{JUMP * (n + 1)}" for n in range(jumps)]])
    size = codec.picture[-1]
    places = [number * (2 * size + GAP) + row * size + size / 2 for number in range(len(part)) for row in (0, 1)]
    axes.set_yticks(places, ["real", "imagined"] * len(part))
    axes.set_title(f"rollouts in jumps of {JUMP} steps, without observations or actions, under the real frames")
    _save(figure, path)


@torch.no_grad()
def imagined(model: Model, codec: FrameCodec, part: Sequences, t1: int, jumps: list[int]) -> Tensor:
    """Decode a state of the belief at t1, now and after each of ``jumps``, (jumps + 1, N, 3, H, W)."""
    z = model.sample_state(belief_at(model, part, t1), 1)
    later = rollout(model, z, jumps, actions_after(part, t1, sum(jumps)))
    return torch.cat([codec.decode(model.decode(z).mean), codec.decode(model.decode(later).mean)[:, 0]])


# The animation


@torch.no_grad()
def _film(model: Model, codec: FrameCodec, test: CodeWindows, preset: Preset, path: Path) -> None:
    """Real frames above; below, what was observed and then, under a red line, what the model imagines."""
    t1, steps = preset.seen, min(FILM_STEPS, preset.world.window - preset.seen)
    chosen = choose(test, codec, t1, min(LATER, max(preset.measured)), FILMS)
    part, real = chosen.select(slice(None)), chosen.frames.select(slice(None)).x.transpose(0, 1)
    dreamt = imagined(model, codec, part, t1, [1] * steps)[1:]
    film = [_film_frame(frames, frames, False) for frames in real[t1 // 2 : t1]]
    film += [_film_frame(*pair, True) for pair in zip(real[t1 : t1 + steps], dreamt, strict=True)]
    pictures = [Image.fromarray((frame * 255).byte().permute(1, 2, 0).numpy()) for frame in film]
    pictures = [p.resize((p.width * GIF_SCALE, p.height * GIF_SCALE), Image.Resampling.NEAREST) for p in pictures]
    pictures = [p.quantize(GIF_COLOURS, dither=Image.Dither.NONE) for p in pictures]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=GIF_MILLISECONDS, loop=0, optimize=True)


def _film_frame(real: Tensor, shown: Tensor, predicted: bool) -> Tensor:
    """The frames of all moments side by side, the real ones above; a red line marks imagined ones."""
    above, below = (torch.cat([F.pad(one, (0, 3), value=1.0) for one in frames], -1) for frames in (real, shown))
    colour = torch.tensor([0.82, 0.29, 0.36] if predicted else [1.0, 1.0, 1.0])
    line = colour[:, None, None].expand(3, 3, above.shape[-1])
    return torch.cat([above, line, below], dim=1).clamp(0, 1)


# Parts


def _mosaic(axes: Axes, rows: list[list[Tensor | None]], names: list[str]) -> None:
    """Draw rows of frames. None is a gap between columns, an empty row a gap between rows."""
    first = next(frame for frame in rows[0] if frame is not None)
    size, lines = first.shape[-1], []
    for row in rows:
        if row:
            blank = torch.ones(3, size, GAP)
            lines.append(torch.cat([blank if one is None else _bordered(one) for one in row], -1))
        else:
            lines.append(torch.ones(3, GAP, lines[0].shape[-1]))
    axes.imshow(torch.cat(lines, 1).permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
    places, x = [], 0
    for frame in rows[0]:
        width = GAP if frame is None else size
        places += [] if frame is None else [x + width / 2]
        x += width
    axes.set_xticks(places, names)
    axes.xaxis.tick_top()
    axes.set_yticks([])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _bordered(frame: Tensor) -> Tensor:
    return F.pad(frame[:, :-1, :-1], (0, 1, 0, 1), value=1.0)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=90)
    plt.close(figure)
