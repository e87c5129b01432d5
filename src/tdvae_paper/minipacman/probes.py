"""What can be read from frozen beliefs and states about the part of the maze that is out of sight.

Controls stand beside every number: the map alone, without anything learned; a model that was not trained; the table of
where the ghost was last seen; exact inference, and what a reader makes of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tdvae.envs.minipacman import Recording
from tdvae.envs.minipacman.maze import FREE
from tdvae.models import Model
from tdvae.reporting.results import Measures
from tdvae_paper.experiment import TrainedRun
from tdvae_paper.minipacman import readers
from tdvae_paper.minipacman.readers import Clues, Reader, food_loss, ghost_loss
from tdvae_paper.minipacman.truth import LONG_AGO, NEVER, Hidden, hidden, rows_of

MEASURES = ("ghost_probe", "ghost_by_age", "food_probe")
AGES = {"1": (1, 1), "2–5": (2, 5), "6–10": (6, 10), "> 10": (11, NEVER - 1), "never seen": (NEVER, NEVER)}
SMOOTHING = 20.0  # counts spread over all cells, of what is known without a model


class Probe:
    """Games to fit readers to, every few frames of them, and games to test them on."""

    def __init__(self, fit_on: Recording, test: Recording, steps: int, every: int) -> None:
        self.recordings, self.steps = (fit_on, test), steps
        self.truth, self.asked = hidden(fit_on), hidden(test)
        self.rows = torch.arange(0, len(self.truth.ghost), every), torch.arange(len(self.asked.ghost))
        self.some = rows_of(self.truth, self.rows[0])
        self.ghost_rows = self.asked.out_of_sight.nonzero()[:, 0]
        self.ghosts = rows_of(self.asked, self.ghost_rows)

    def clues(self, model: Model) -> list[dict[str, Clues]]:
        """By source, of the frames to fit readers to and of those to test them on."""
        games = zip(self.recordings, (self.truth, self.asked), self.rows, strict=True)
        return [readers.clues_of(model, recording, about, rows) for recording, about, rows in games]

    def ghost(self, fit_on: Clues, test: Clues) -> Measures:
        """What a reader of the ghost's cell costs, in nats per frame; also by age."""
        reader = readers.fit(fit_on, self.some, ghost_loss, self.steps)
        return self.of_ghosts(ghost_loss(readers.answers(reader, test[self.ghost_rows]), self.ghosts))

    def saved_reader(self, run: TrainedRun) -> Reader:
        """The reader of the ghost in the belief of a run. It is fitted once, and kept in the run folder."""
        path = run.folder / "ghost_reader"
        if not path.exists():
            fitting = readers.clues_of(run.models[0], self.recordings[0], self.truth, self.rows[0])["belief"]
            readers.save(readers.fit(fitting, self.some, ghost_loss, self.steps), path)
        return readers.load(path)

    def answers(self, run: TrainedRun) -> Tensor:
        """What this reader answers for all frames of the test games, (M, 138)."""
        clues = readers.clues_of(run.models[0], self.recordings[1], self.asked, self.rows[1])["belief"]
        return readers.answers(self.saved_reader(run), clues)

    def of_ghosts(self, loss: Tensor) -> Measures:
        """The mean of the loss of the frames with a ghost out of sight, and the means by age."""
        return {"ghost_probe": float(loss.mean()), "ghost_by_age": by_age(loss, self.ghosts)}

    def food(self, fit_on: Clues, test: Clues) -> Measures:
        """What a reader of the eaten food costs, in nats per cell out of view."""
        reader = readers.fit(fit_on, self.some, food_loss, self.steps)
        return {"food_probe": float(food_loss(readers.answers(reader, test), self.asked).mean())}

    def exact(self) -> dict[str, Measures]:
        """What exact inference knows of the ghost, and what a reader finds of it: the reader's own limit."""
        fitting, testing = map(readers.exact_belief, self.recordings, (self.truth, self.asked))
        exact = ghost_loss(testing[self.ghost_rows].clamp(min=1e-9).log(), self.ghosts)
        clues = readers.exact_clues(fitting[self.rows[0]], self.some), readers.exact_clues(testing, self.asked)
        return {"exact": self.of_ghosts(exact), "reader of the exact belief": self.ghost(*clues)}

    def without(self) -> dict[str, Measures]:
        """What is known without a model, from counts."""
        nothing = torch.zeros(len(self.ghost_rows), len(FREE))
        last_seen = self.of_ghosts(ghost_loss(_by_last_seen(self.truth, self.ghosts), self.ghosts))
        return {
            "uniform": {"ghost_probe": float(ghost_loss(nothing, self.ghosts).mean())},
            "last seen": last_seen,
            "time alone": {"food_probe": float(food_loss(_by_time(self.truth, self.asked), self.asked).mean())},
        }


def measure_probes(model: Model, probe: Probe, untrained: Model | None = None) -> Measures:
    """What readers find in the sources of a model, and without one. With an ``untrained`` model like it, also what they
    find in that one's belief, in the map alone, and in the exact belief; without, of a model with a map only what is
    the model's own: its code and its state."""
    fitting, testing = probe.clues(model)
    sources = [name for name in fitting if name != "map" and (untrained or "map" not in fitting or name != "belief")]
    own = {}
    for name in sources:
        clues = fitting[name], testing[name]
        own[name] = probe.ghost(*clues) | ({} if name == "learned states" else probe.food(*clues))
    others = probe.without()
    if untrained is not None:
        if "map" in fitting:
            clues = fitting["map"], testing["map"]
            others["map alone"] = probe.ghost(*clues) | probe.food(*clues)
        of_untrained = [of["belief"] for of in probe.clues(untrained)]
        others["belief of an untrained model"] = probe.ghost(*of_untrained)
        others |= probe.exact()
    return {name: {"read from": _of(name, own), "without a model": _of(name, others)} for name in MEASURES}


def _of(measure: str, by_source: dict[str, Measures]) -> Measures:
    return {source: measures[measure] for source, measures in by_source.items() if measure in measures}


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
