"""Readers: networks that tell from frozen beliefs where the ghost is, or what was eaten, given Pacman's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.envs.minipacman import Cell, Recording
from tdvae.envs.minipacman.maze import FREE, HEIGHT, PLACE, WIDTH
from tdvae.exact import MiniPacmanFilter
from tdvae.models import TDVAE, Model, StateSpace
from tdvae.models.base import RecurrentModel
from tdvae.nn.memory import LivingMap, MapMemory
from tdvae.storage import checkpoint
from tdvae.types import Latent, Sequences
from tdvae_paper.minipacman.truth import FREE_CELLS, SKIPPED, Hidden, hidden, observed, rows_of
from tdvae_paper.probes import fit_reader

AT_ONCE = 200  # games
CELLS = len(FREE)
HIDDEN, LOCAL = 96, 16  # sizes of a reader's layers: of the whole maze, and of each cell
AGES = torch.tensor([0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28])  # upper edges of what a reader knows of a cell's age
# What a map shows of a cell: never seen, or one of three kinds at one of these ages
KIND_OF_CLASS = torch.tensor(
    [{Cell.FOOD: 1, Cell.PILL: 1, Cell.GHOST: 2, Cell.EDIBLE: 2}.get(cell, 0) for cell in Cell]
)
KINDS = 1 + 3 * (len(AGES) + 1)
GHOST_KINDS = 1 + 2 * (len(AGES) + 1)  # the first of those of a ghost, the last ones
LEAST = 1e-4  # probability of a cell in the logarithm of an exact belief
FAR = 24  # steps through the maze, and more
_APART = torch.as_tensor(PLACE[FREE])[None] - torch.as_tensor(PLACE[FREE])[:, None]  # (138, 138, 2) from Pacman


def _distances() -> Tensor:
    """The steps (138, 138) from each free cell to each other one, at most ``FAR``."""
    beside = (_APART.abs().sum(-1) == 1).float()
    reached, steps = torch.eye(CELLS), torch.zeros(CELLS, CELLS, dtype=torch.long)
    for _ in range(FAR):
        steps += reached == 0
        reached = (reached + reached @ beside).clamp(max=1)
    return steps


DISTANCES = _distances()


@dataclass(frozen=True, eq=False)
class Clues:
    """What a reader is given of M frames; a source of clues has one or several of the first three."""

    pacman: Tensor  # (M,) his cell, which every reader is told
    code: Tensor | None = None  # (M, C) a belief code, or a drawn state
    cells: Tensor | None = None  # (M, 138, F) numbers of each free cell
    kinds: Tensor | None = None  # (M, 138) what a map shows of each free cell, one of ``KINDS``

    def __getitem__(self, rows: Tensor) -> Clues:
        code, cells, kinds = (None if part is None else part[rows] for part in (self.code, self.cells, self.kinds))
        return Clues(self.pacman[rows], code, cells, kinds)


class Reader(nn.Module):
    """A number for each free cell (M, 138): from everything at once by an MLP, and from what is known of the cell.

    The second part is the same function for all cells. Of a map it is given what that shows of the cell, how far the
    cell is from where a ghost was seen last, how long ago that was, and how far it is from Pacman.
    """

    def __init__(self, code: int = 0, cells: int = 0, kinds: bool = False) -> None:
        super().__init__()
        self.sizes = {"code": code, "cells": cells, "kinds": kinds}
        self.place = nn.Embedding(CELLS, HIDDEN)
        self.of_code = _Standardised(code, HIDDEN) if code else None
        self.of_cells = _Standardised(cells, LOCAL) if cells else None
        self.of_kinds = nn.Embedding(KINDS, LOCAL) if kinds else None
        self.from_ghost = nn.Embedding((FAR + 1) * (len(AGES) + 2), LOCAL) if kinds else None
        self.from_pacman = nn.Embedding(FAR + 1, LOCAL) if kinds else None
        self.all_kinds = nn.EmbeddingBag(CELLS * KINDS, HIDDEN, mode="sum") if kinds else None
        self.all_cells = nn.Linear(CELLS * cells, HIDDEN) if cells else None
        self.middle, self.out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, CELLS)
        self.local = nn.Sequential(nn.ReLU(), nn.Linear(LOCAL, LOCAL), nn.ReLU(), nn.Linear(LOCAL, 1))
        self.direct = nn.Linear(max(cells, 1), 1, bias=False)
        self.register_buffer("first_kind", torch.arange(CELLS, dtype=torch.int32) * KINDS, persistent=False)
        if self.all_kinds is not None:
            nn.init.normal_(self.all_kinds.weight, std=0.1)
        for last in (self.out, self.local[-1], self.direct):  # all cells are alike at first
            for parameter in last.parameters():
                nn.init.zeros_(parameter)

    first_kind: Tensor

    def standardise(self, clues: Clues) -> None:
        """Remember mean and spread of the numbers of these frames."""
        for layer, values in ((self.of_code, clues.code), (self.of_cells, clues.cells)):
            if layer is not None and values is not None:
                layer.fit(values.float().flatten(0, -2))

    def forward(self, clues: Clues) -> Tensor:
        whole = self.place(clues.pacman)
        near, direct = whole.new_zeros(()), whole.new_zeros(())
        if self.of_code is not None:
            whole = whole + self.of_code(clues.code)
        if self.of_cells is not None and self.all_cells is not None and clues.cells is not None:
            standardised = self.of_cells.standardised(clues.cells)
            whole = whole + self.all_cells(standardised.flatten(1))
            near, direct = near + self.of_cells.linear(standardised), self.direct(standardised)[..., 0]
        if self.of_kinds is not None and self.all_kinds is not None:
            assert clues.kinds is not None
            whole = whole + self.all_kinds(clues.kinds.int() + self.first_kind)
            near = near + self._near_map(clues)
        logits: Tensor = self.out(F.relu(self.middle(F.relu(whole))))
        return logits + direct + (self.local(near)[..., 0] if near.ndim else 0.0)

    def _near_map(self, clues: Clues) -> Tensor:
        """What a map tells of each cell, (M, 138, LOCAL)."""
        assert clues.kinds is not None
        assert self.of_kinds is not None
        assert self.from_ghost is not None
        assert self.from_pacman is not None
        age, cell = (clues.kinds.int() - GHOST_KINDS).where(clues.kinds >= GHOST_KINDS, len(AGES) + 1).min(1)
        from_ghost = DISTANCES[cell] * (len(AGES) + 2) + age[:, None]
        near = self.of_kinds(clues.kinds.int()) + self.from_ghost(from_ghost)
        return near + self.from_pacman(DISTANCES[clues.pacman])


class _Standardised(nn.Module):
    """A linear layer of numbers with mean 0 and spread 1."""

    shift: Tensor
    scale: Tensor
    LARGEST = 10.0  # spreads: a number that is almost never on would be far larger

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.register_buffer("shift", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))

    def fit(self, values: Tensor) -> None:
        self.shift, self.scale = values.mean(0), values.std(0) + 1e-4

    def standardised(self, values: Tensor) -> Tensor:
        return ((values.float() - self.shift) / self.scale).clamp(-self.LARGEST, self.LARGEST)

    def forward(self, values: Tensor) -> Tensor:
        read: Tensor = self.linear(self.standardised(values))
        return read


CellLoss = Callable[[Tensor, Hidden], Tensor]  # a number for each cell and the truth → (M,)


def ghost_loss(logits: Tensor, about: Hidden) -> Tensor:
    """−log p of the ghost's cell, (M,). That it is none of the cells in view is plain to see, and told."""
    return F.cross_entropy(logits.masked_fill(about.seen, -1e9), about.ghost, reduction="none")


def food_loss(logits: Tensor, about: Hidden) -> Tensor:
    """−log p of whether each cell out of view has been eaten, the mean over cells, (M,)."""
    each = F.binary_cross_entropy_with_logits(logits, about.eaten.to(logits.dtype), reduction="none")
    return (each * ~about.seen).sum(1) / (~about.seen).sum(1)


def fit(clues: Clues, about: Hidden, loss: CellLoss, steps: int) -> Reader:
    """A reader of these clues. A reader of the ghost is fitted to frames whose ghost is out of sight."""
    if loss is ghost_loss:
        chosen = about.out_of_sight.nonzero()[:, 0]
        clues, about = clues[chosen], rows_of(about, chosen)

    def make() -> Reader:
        code, cells = (0 if part is None else part.shape[-1] for part in (clues.code, clues.cells))
        reader = Reader(code, cells, clues.kinds is not None)
        reader.standardise(clues)
        return reader

    def of_rows(reader: nn.Module, rows: Tensor) -> Tensor:
        return loss(reader(clues[rows]), rows_of(about, rows)).mean()

    return fit_reader(make, len(clues.pacman), of_rows, steps)


@torch.no_grad()
def answers(reader: Reader, clues: Clues) -> Tensor:
    """The reader's number for each cell of every frame, (M, 138)."""
    return torch.cat([reader(clues[rows]) for rows in torch.arange(len(clues.pacman)).split(AT_ONCE * 10)])


def save(reader: Reader, path: Path) -> None:
    """Save a reader as a folder, in half precision."""
    weights = {name: value.half() for name, value in reader.state_dict().items()}
    checkpoint.save(path, {"weights": weights}, {"reader": reader.sizes})


def load(path: Path) -> Reader:
    """Load what `save` has written."""
    saved = checkpoint.load(path)
    sizes = saved.state["reader"]
    reader = Reader(int(sizes["code"]), int(sizes["cells"]), bool(sizes["kinds"]))
    reader.load_state_dict({name: value.float() for name, value in saved.tensors["weights"].items()})
    return reader.eval()


@torch.no_grad()
def ghost_beliefs(model: Model, reader: Reader, games: Recording) -> Tensor:
    """Where a reader of the model's belief takes the ghost to be after each frame, (N, T, rows, columns).

    A ghost in view is plain to see, so these are probabilities of the free cells out of view.
    """
    about = hidden(games, skipped=0)
    clues = clues_of(model, games, about, torch.arange(len(about.pacman)))["belief"]
    probabilities = torch.softmax(answers(reader, clues).masked_fill(about.seen, -torch.inf), -1)
    maze = torch.zeros(len(probabilities), HEIGHT * WIDTH).index_copy(1, FREE_CELLS, probabilities)
    return maze.view(*games.x.shape[:2], HEIGHT, WIDTH)


def states(model: Model, sequences: Sequences) -> Latent:
    """A draw of z_1 … z_T (N, T, size): from TD-VAE's beliefs, or from a state-space model's encoder."""
    b = model.filter(sequences)
    codes = b.read(b.codes[:, 1:])
    if isinstance(model, TDVAE):
        return model.p_B.sample(codes)[0]
    assert isinstance(model, StateSpace)
    return model.infer(codes, sequences)


@torch.no_grad()
def clues_of(model: Model, recording: Recording, about: Hidden, rows: Tensor) -> dict[str, Clues]:
    """What can be read of these rows of ``about``: a belief, and its parts if it has several.

    A belief with a map is the code and the map, and the learned states of the map's places if it has such.
    """
    data, frames = observed(recording), len(about.pacman) // len(recording.x)
    skipped = recording.x.shape[1] - frames
    parts: dict[str, list[Tensor]] = {"code": [], "state": [], "kinds": [], "cells": []}
    for games in torch.arange(len(data)).split(AT_ONCE):
        wanted = rows[(rows >= games[0] * frames) & (rows < (games[-1] + 1) * frames)]
        game, t = wanted // frames - games[0], wanted % frames + skipped
        part = data.select(games)
        beliefs = model.filter(part)
        parts["code"].append(beliefs.codes[game, t + 1])
        parts["state"].append(states(model, part).flat[game, t])
        if isinstance(model, RecurrentModel) and isinstance(model.memory, MapMemory):
            assert beliefs.memories is not None
            shown, learned = _of_map(model.memory, beliefs.memories[game, t + 1], about.pacman[wanted])
            parts["kinds"].append(shown)
            parts["cells"].extend(learned)
    read = {name: torch.cat(values) for name, values in parts.items() if values}
    code, state, kinds, cells = (read.get(name) for name in parts)
    pacman = about.pacman[rows]
    sources = {"belief": Clues(pacman, code, cells, kinds), "state": Clues(pacman, state)}
    if kinds is not None:
        sources |= {"code": Clues(pacman, code), "map": Clues(pacman, kinds=kinds)}
    if cells is not None:
        sources["learned states"] = Clues(pacman, cells=cells)
    return sources


def _of_map(memory: MapMemory, maps: Tensor, pacman: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Maps (M, size) as the free cells of the maze: kinds (M, 138), and learned states (M, 138, channels) if any."""
    index = memory.place(_APART[pacman])
    board, age = (maps[:, start : start + memory.places].gather(1, index).long() for start in (0, memory.places))
    known = 1 + KIND_OF_CLASS[board.clamp(max=len(Cell) - 1)] * (len(AGES) + 1) + torch.bucketize(age, AGES)
    kinds = torch.where(board < len(Cell), known, 0).to(torch.int16)
    if not isinstance(memory, LivingMap):
        return kinds, []
    cells = memory.states(maps).gather(1, index[..., None].expand(-1, -1, memory.channels))
    return kinds, [cells.half()]


def exact_belief(recording: Recording, about: Hidden) -> Tensor:
    """The exact probabilities of the ghost's cell (M, 138), none of which is in view."""
    belief = MiniPacmanFilter().of_recording(recording).ghost[:, SKIPPED:].flatten(0, 1).float()
    belief = belief.masked_fill(about.seen, 0)
    return belief / belief.sum(1, keepdim=True).clamp(min=1e-9)


def exact_clues(belief: Tensor, about: Hidden) -> Clues:
    """An exact belief, as it is given to a reader."""
    return Clues(about.pacman, cells=(belief + LEAST).log()[..., None])
