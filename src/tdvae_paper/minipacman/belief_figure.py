"""The belief about the ghost as a picture: TD-VAE's as a reader finds it, beside the exact one, by a fixed rule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image, ImageDraw
from torch import Tensor

from tdvae.envs.minipacman.maze import FREE, HEIGHT, PLACE, WALLS, WIDTH
from tdvae_paper.experiment import TrainedRun
from tdvae_paper.minipacman.probes import Probe
from tdvae_paper.minipacman.readers import exact_belief
from tdvae_paper.minipacman.truth import FREE_CELLS, NEVER, SKIPPED, Hidden, rows_of

SHOWN_AGES = {1: "1 step since seen", 3: "3 steps", 6: "6 steps", 12: "12 steps", NEVER: "never seen"}
LEARNED, EXACT = "TD-VAE", "exact"
PIXELS = 12  # side of a cell in the film


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Probabilities of the ghost's cell (M, 138) for all frames of test games after the first ones, and the truth."""

    of: dict[str, Tensor]
    about: Hidden
    frames: int  # of each game


def read_beliefs(run: TrainedRun, probe: Probe) -> Beliefs:
    """As a reader finds them in the belief of a run's model, and exactly."""
    about, test = probe.asked, probe.recordings[1]
    learned = torch.softmax(probe.answers(run).masked_fill(about.seen, -1e9), -1)
    return Beliefs({LEARNED: learned, EXACT: exact_belief(test, about)}, about, test.x.shape[1] - SKIPPED)


def moments(about: Hidden, frames: int) -> dict[str, int]:
    """For each age the first frame with it in the first game that has one; never seen: a game's last frame."""
    chosen = {}
    for age, label in SHOWN_AGES.items():
        wanted = about.out_of_sight & (about.age == age)
        if age == NEVER:
            wanted = wanted & (about.time == int(about.time.max()))
        if bool(wanted.any()):
            chosen[label] = int(wanted.nonzero()[0])
    return chosen


def draw(beliefs: Beliefs, path: Path) -> None:
    """Two rows of mazes: the learned belief above the exact one."""
    chosen = moments(beliefs.about, beliefs.frames)
    figure, axes = plt.subplots(2, len(chosen), figsize=(3.1 * len(chosen), 5.4), layout="constrained", squeeze=False)
    for column, (label, row) in enumerate(chosen.items()):
        for line, (name, heat) in zip(axes[:, column], beliefs.of.items(), strict=True):
            _maze(line, heat[row], rows_of(beliefs.about, torch.tensor([row])))
            if column == 0:
                line.set_ylabel(f"{name}'s belief" if name == LEARNED else f"{name} belief")
        axes[0, column].set_title(label, fontsize=10)
    figure.suptitle("Where the ghost is believed to be (red); × where it is, □ where it was seen last, green: in view")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _maze(axes: Axes, heat: Tensor, moment: Hidden) -> None:
    axes.imshow(np.where(WALLS, 1.0, np.nan), cmap="Greys", vmin=0, vmax=2)
    axes.imshow(_on_map(heat, np.nan), cmap="Reds", vmin=0, vmax=max(0.05, float(heat.max())))
    y, x = PLACE[FREE[int(moment.pacman[0])]]
    axes.add_patch(Rectangle((x - 2.5, y - 2.5), 5, 5, fill=False, color="#2a9d8f", lw=2))
    axes.plot(x, y, "o", color="#2a9d8f", ms=6)
    gy, gx = PLACE[FREE[int(moment.ghost[0])]]
    axes.plot(gx, gy, "x", color="black", ms=8, mew=2)
    if int(moment.last_seen[0]) < len(FREE):
        ly, lx = PLACE[FREE[int(moment.last_seen[0])]]
        axes.plot(lx, ly, "s", mfc="none", color="black", ms=8)
    axes.set(xticks=[], yticks=[], xlim=(-0.5, WIDTH - 0.5), ylim=(HEIGHT - 0.5, -0.5))


def _on_map(values: Tensor, elsewhere: float) -> npt.NDArray[Any]:
    """Numbers of the free cells on the map (15, 19)."""
    empty = torch.full((HEIGHT * WIDTH,), elsewhere)
    return empty.index_put((FREE_CELLS,), values).view(HEIGHT, WIDTH).numpy()


def film(beliefs: Beliefs, path: Path) -> None:
    """The first game in which the ghost is out of sight for twelve steps after it was seen, frame by frame."""
    long = (beliefs.about.age == 12) & beliefs.about.out_of_sight
    game = int(long.nonzero()[0]) // beliefs.frames if bool(long.any()) else 0
    frames = [_frame(beliefs, row) for row in range(game * beliefs.frames, (game + 1) * beliefs.frames)]
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=350, loop=0, optimize=True)


def _frame(beliefs: Beliefs, row: int) -> Image.Image:
    """Both beliefs side by side; a ghost in view is where it is seen."""
    moment, panels = rows_of(beliefs.about, torch.tensor([row])), []
    for heat in beliefs.of.values():
        shown = _on_map(torch.zeros(len(FREE)) if _in_view(moment) else (heat[row] / heat[row].max()).sqrt(), 0.0)
        colours = np.stack([np.ones_like(shown), 1 - shown, 1 - shown], axis=-1)
        colours[WALLS] = 0.55
        panels.append(np.pad((255 * colours).astype(np.uint8), ((0, 0), (0, 1), (0, 0)), constant_values=255))
    big = np.concatenate(panels, axis=1).repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)
    image = Image.fromarray(np.pad(big, ((16, 0), (0, 0), (0, 0)), constant_values=255))
    pen = ImageDraw.Draw(image)
    for number, name in enumerate(beliefs.of):
        left = number * (WIDTH + 1) * PIXELS
        pen.text((left + 4, 2), f"{name}, frame {int(moment.time[0]) + 1}", fill=(0, 0, 0))
        _mark(pen, left, int(moment.pacman[0]), (42, 157, 143), 2.5)
        if int(moment.ghost[0]) >= 0:
            _mark(pen, left, int(moment.ghost[0]), (0, 0, 0), 0.5)
    return image.quantize(64)


def _in_view(moment: Hidden) -> bool:
    return bool(moment.ghost[0] >= 0) and not bool(moment.out_of_sight[0])


def _mark(pen: ImageDraw.ImageDraw, left: int, cell: int, colour: tuple[int, int, int], reach: float) -> None:
    """A square around a cell: the window around Pacman, or the ghost."""
    y, x = PLACE[FREE[cell]]
    corners = [left + (x + 0.5 - reach) * PIXELS, 16 + (y + 0.5 - reach) * PIXELS]
    corners += [left + (x + 0.5 + reach) * PIXELS - 1, 16 + (y + 0.5 + reach) * PIXELS - 1]
    pen.rectangle(corners, outline=colour, width=2)
