"""What can be read from frozen beliefs and states about the part of the maze that is out of sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.envs.minipacman import Recording, View
from tdvae.envs.minipacman.maze import FREE, HEIGHT, PLACE, WIDTH
from tdvae.models import TDVAE, Model, StateSpace
from tdvae.models.base import RecurrentModel
from tdvae.nn.memory import MapMemory
from tdvae.reporting.results import Measures
from tdvae.types import Latent, Sequences
from tdvae_paper.probes import fit_reader, mlp_reader

MEASURES = ("ghost_probe", "ghost_by_age", "food_probe")
SKIPPED = 10  # first frames of a game: there is nothing to remember yet
LONG_AGO = 8  # steps since a ghost was seen, and more
NEVER = 1_000_000
AGES = {"1": (1, 1), "2–5": (2, 5), "6–10": (6, 10), "> 10": (11, NEVER - 1), "never seen": (NEVER, NEVER)}
SMOOTHING = 20.0  # counts spread over all cells, of what is known without a model
AT_ONCE = 200  # games
FREE_CELLS = torch.as_tensor(FREE)
_PLACE_AMONG_FREE = torch.full((HEIGHT * WIDTH,), -1).index_put((FREE_CELLS,), torch.arange(len(FREE)))
_VIEW = View()
_SEEN_FROM = torch.as_tensor(np.stack([_VIEW.seen_from(int(cell)).reshape(-1)[FREE] for cell in FREE]))
# Where a cell is as seen from another, among all offsets around Pacman, which are counted as the places of his map
_MAP_ROWS, _MAP_COLUMNS = HEIGHT + 2, WIDTH + 2
_APART = torch.as_tensor(PLACE[FREE])[None] - torch.as_tensor(PLACE[FREE])[:, None]
_OFFSET_OF = _APART[..., 0] % _MAP_ROWS * _MAP_COLUMNS + _APART[..., 1] % _MAP_COLUMNS  # (138, 138) Pacman's and other
OFFSETS = _MAP_ROWS * _MAP_COLUMNS
READ = len(FREE) + OFFSETS  # outputs of a reader: by cell, and by offset from Pacman


def cells_read(outputs: Tensor, about: Hidden) -> Tensor:
    """A number for each free cell (M, 138), from a reader's outputs (M, READ): one for the cell, and one for where it
    is from Pacman, whose place is told. A belief can hold a thing by its place or by its direction and distance."""
    by_cell, by_offset = outputs[:, : len(FREE)], outputs[:, len(FREE) :]
    return by_cell + by_offset.gather(1, _OFFSET_OF[about.pacman])


def observed(recording: Recording) -> Sequences:
    """What the models are given: windows and actions. Rewards are left out: what Pacman eats is in the window."""
    return replace(recording.sequences(), rewards=None)


@dataclass(frozen=True)
class Hidden:
    """The truth about frames, one row each: cells are counted among the free ones."""

    seen: Tensor  # (M, 138) which free cells are in view
    ghost: Tensor  # (M,) where the ghost is, -1 if it has been eaten
    eaten: Tensor  # (M, 138) whether the food is gone
    last_seen: Tensor  # (M,) where a ghost was seen last, 138 if never
    since: Tensor  # (M,) how many steps ago, at most LONG_AGO
    time: Tensor  # (M,) number of the frame
    pacman: Tensor  # (M,) where Pacman is
    age: Tensor  # (M,) how many steps ago a ghost was seen; NEVER if it was not

    @property
    def out_of_sight(self) -> Tensor:
        """(M,) whether there is a ghost, and it is not in view."""
        shown = self.seen.gather(1, self.ghost.clamp(min=0)[:, None])[:, 0]
        return (self.ghost >= 0) & ~shown


def hidden(recording: Recording) -> Hidden:
    """Of all frames after the first ``SKIPPED``, game by game."""
    truth = recording.truth
    assert truth is not None  # recorded for probes
    pacman = number_of(torch.as_tensor(truth.pacman).long())
    ghost = number_of(torch.as_tensor(truth.ghosts).long())[..., 0]
    seen = _SEEN_FROM[pacman]
    shown = (ghost >= 0) & seen.gather(2, ghost.clamp(min=0)[..., None])[..., 0]
    last, age = torch.full_like(ghost, len(FREE)), torch.full_like(ghost, NEVER)
    for t in range(ghost.shape[1]):
        if t > 0:
            last[:, t], age[:, t] = last[:, t - 1], (age[:, t - 1] + 1).clamp(max=NEVER)
        last[:, t] = torch.where(shown[:, t], ghost[:, t], last[:, t])
        age[:, t] = torch.where(shown[:, t], 0, age[:, t])
    age = torch.where(last == len(FREE), NEVER, age)
    eaten = ~torch.as_tensor(truth.food).flatten(2)[..., FREE_CELLS]
    time = torch.arange(ghost.shape[1]).expand_as(ghost)
    parts = seen, ghost, eaten, last, age.clamp(max=LONG_AGO), time, pacman, age
    return Hidden(*(part[:, SKIPPED:].flatten(0, 1) for part in parts))


def number_of(place: Tensor) -> Tensor:
    """(row, column) → number among the free cells; -1 stays -1."""
    index = place[..., 0] * WIDTH + place[..., 1]
    return torch.where(index >= 0, _PLACE_AMONG_FREE[index.clamp(min=0)], -1)


def states(model: Model, sequences: Sequences) -> Latent:
    """A draw of z_1 … z_T (N, T, size): from TD-VAE's beliefs, or from a state-space model's encoder."""
    b = model.filter(sequences)
    codes = b.read(b.codes[:, 1:])
    if isinstance(model, TDVAE):
        return model.p_B.sample(codes)[0]
    assert isinstance(model, StateSpace)
    return model.infer(codes, sequences)


@torch.no_grad()
def features(model: Model, recording: Recording) -> dict[str, Tensor]:
    """Belief codes and drawn states of the frames that `hidden` is about, (M, size).

    A belief with a map is the code and the map; the code alone is read as well.
    """
    data = observed(recording)
    read: dict[str, list[Tensor]] = {"belief": [], "state": [], "code": []}
    for rows in torch.arange(len(data)).split(AT_ONCE):
        part = data.select(rows)
        code = model.filter(part).codes[:, 1 + SKIPPED :].flatten(0, 1)
        read["state"].append(states(model, part).flat[:, SKIPPED:].flatten(0, 1))
        if isinstance(model, RecurrentModel) and isinstance(model.memory, MapMemory):
            through = model.features_through(part)
            assert through is not None
            maps = through[:, 1 + SKIPPED :].flatten(0, 1)
            read["belief"].append(torch.cat([code, maps], dim=-1))
            read["code"].append(code)
        else:
            read["belief"].append(code)
    return {name: torch.cat(parts) for name, parts in read.items() if parts}


def ghost_loss(logits: Tensor, about: Hidden) -> Tensor:
    """−log p of the ghost's cell, (M,). That it is none of the cells in view is plain to see, and told."""
    return F.cross_entropy(logits.masked_fill(about.seen, -1e9), about.ghost, reduction="none")


def food_loss(logits: Tensor, about: Hidden) -> Tensor:
    """−log p of whether each cell out of view has been eaten, the mean over cells, (M,)."""
    each = F.binary_cross_entropy_with_logits(logits, about.eaten.to(logits.dtype), reduction="none")
    return (each * ~about.seen).sum(1) / (~about.seen).sum(1)


def rows_of(about: Hidden, rows: Tensor) -> Hidden:
    return Hidden(*(getattr(about, name)[rows] for name in Hidden.__dataclass_fields__))


class MapReader(nn.Module):
    """Reads a map with two convolutions, the same around every place: what is where from Pacman."""

    CHANNELS, REACH = 6, 4

    def __init__(self, memory: MapMemory, inputs: int, outputs: int) -> None:
        super().__init__()
        self.usual = nn.Parameter(torch.zeros(outputs))
        self.each = nn.Conv2d(memory.features_of.shape[1], self.CHANNELS, 1)
        # The edges of the map are joined.
        self.near = nn.Conv2d(self.CHANNELS, 1, 2 * self.REACH + 1, padding=self.REACH, padding_mode="circular")
        self._features = memory.classes_and_ages

    def forward(self, maps: Tensor) -> Tensor:
        by_offset = self.near(F.relu(self.each(self._features(maps))))[:, 0].flatten(1)
        return self.usual + F.pad(by_offset, (len(FREE), 0))


def _silent_reader(inputs: int, outputs: int) -> nn.Module:
    """An MLP whose outputs are zero at first, to be added to those of another reader."""
    network = mlp_reader(inputs, outputs)
    for parameter in network[-1].parameters():  # type: ignore[index]
        nn.init.zeros_(parameter)
    return network


Reader = Callable[[Tensor, Hidden], Tensor]  # codes and what is told → a number for each cell


def fit_ghost_reader(codes: Tensor, about: Hidden, steps: int, memory: MapMemory | None = None) -> Reader:
    """Logits over the free cells, from codes; fitted to frames whose ghost is out of sight.

    With a ``memory``, the codes end with its maps.
    """
    chosen = about.out_of_sight.nonzero()[:, 0]
    return _fit(codes[chosen], rows_of(about, chosen), ghost_loss, steps, memory)


def fit_food_reader(codes: Tensor, about: Hidden, steps: int, memory: MapMemory | None = None) -> Reader:
    """Log odds that each cell's food was eaten, from codes."""
    return _fit(codes, about, food_loss, steps, memory)


def _fit(
    codes: Tensor, about: Hidden, loss: Callable[[Tensor, Hidden], Tensor], steps: int, memory: MapMemory | None
) -> Reader:
    def of_rows(outputs: Tensor, rows: Tensor) -> Tensor:
        some = rows_of(about, rows)
        return loss(cells_read(outputs, some), some).mean()

    if memory is None:
        read = fit_reader(codes, READ, of_rows, steps)
        return lambda codes, told: cells_read(read(codes), told)
    maps, size = codes[:, -2 * memory.places :], 2 * memory.places
    of_map = _in_parts(fit_reader(maps, READ, of_rows, steps, partial(MapReader, memory), size))
    known = of_map(maps)
    # Then the code, which adds what the map does not hold.
    more = fit_reader(codes[:, :-size], READ, lambda out, rows: of_rows(known[rows] + out, rows), steps, _silent_reader)
    return lambda codes, told: cells_read(of_map(codes[:, -size:]) + more(codes[:, :-size]), told)


def _in_parts(read: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda codes: torch.cat([read(part) for part in codes.split(AT_ONCE * 50)])


def map_of(model: Model, source: str) -> MapMemory | None:
    """The map that follows the code in what is read from this source."""
    memory = model.memory if isinstance(model, RecurrentModel) else None
    return memory if isinstance(memory, MapMemory) and source == "belief" else None


def measure_probes(
    model: Model, fit_on: Recording, test: Recording, steps: int, every: int = 1, with_map: bool = True
) -> Measures:
    """Nats per frame for the ghost, also by how long ago it was seen, and nats per cell for the food, read from the
    model; and what is known without one. Readers are fitted to ``every`` so many frames. Of a model with a map only the
    code and the state are read if not ``with_map``: the maps of all models are the same."""
    truth, asked = hidden(fit_on), hidden(test)
    ghost_rows = asked.out_of_sight.nonzero()[:, 0]
    ghosts = rows_of(asked, ghost_rows)
    read: dict[str, Measures] = {name: {} for name in MEASURES}
    fitting, testing = features(model, fit_on), features(model, test)
    fewer = torch.arange(0, len(truth.ghost), every)
    some = rows_of(truth, fewer)
    for source, codes in fitting.items():
        memory = map_of(model, source)
        if memory is not None and not with_map:
            continue
        ghost = fit_ghost_reader(codes[fewer], some, steps, memory)(testing[source][ghost_rows], ghosts)
        food = fit_food_reader(codes[fewer], some, steps, memory)(testing[source], asked)
        read["ghost_by_age"][source] = by_age(ghost_loss(ghost, ghosts), ghosts)
        read["ghost_probe"][source] = float(ghost_loss(ghost, ghosts).mean())
        read["food_probe"][source] = float(food_loss(food, asked).mean())
    last_seen = ghost_loss(_by_last_seen(truth, ghosts), ghosts)
    without: dict[str, Measures] = {
        "ghost_probe": {
            "uniform": float(ghost_loss(torch.zeros(len(ghost_rows), len(FREE)), ghosts).mean()),
            "last seen": float(last_seen.mean()),
        },
        "ghost_by_age": {"last seen": by_age(last_seen, ghosts)},
        "food_probe": {"time alone": float(food_loss(_by_time(truth, asked), asked).mean())},
    }
    return {name: {"read from": read[name], "without a model": without[name]} for name in MEASURES}


def by_age(loss: Tensor, about: Hidden) -> Measures:
    """The mean of a loss (M,) by the number of steps since the ghost was seen; ages that do not occur are left out."""
    chosen = {name: (about.age >= first) & (about.age <= last) for name, (first, last) in AGES.items()}
    return {name: float(loss[rows].mean()) for name, rows in chosen.items() if bool(rows.any())}


def _by_last_seen(fit_on: Hidden, asked: Hidden) -> Tensor:
    """Log of how often the ghost was in each cell, by where and how long ago it was seen, smoothed."""
    rows = rows_of(fit_on, fit_on.out_of_sight.nonzero()[:, 0])
    key = rows.last_seen * (LONG_AGO + 1) + rows.since
    counts = torch.zeros((len(FREE) + 1) * (LONG_AGO + 1), len(FREE))
    counts.index_put_((key, rows.ghost), torch.ones(len(key)), accumulate=True)
    anywhere = (counts.sum(0) + 1) / (counts.sum() + len(FREE))
    smoothed = counts + SMOOTHING * anywhere
    return smoothed[asked.last_seen * (LONG_AGO + 1) + asked.since].log()


def _by_time(fit_on: Hidden, asked: Hidden) -> Tensor:
    """Log odds of each cell's having been eaten by a frame's number."""
    frames = int(fit_on.time.max()) + 1
    total = torch.zeros(frames, 1).index_add(0, fit_on.time, torch.ones(len(fit_on.time), 1))
    eaten = torch.zeros(frames, len(FREE)).index_add(0, fit_on.time, fit_on.eaten.float())
    return torch.logit((eaten + 1) / (total + 2))[asked.time]
