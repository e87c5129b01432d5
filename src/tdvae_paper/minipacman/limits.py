"""What exact inference reaches on the test games: the limit of every model, its parts, and references.

``python -m tdvae_paper.minipacman.limits results`` adds it to results that were measured on these games.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tdvae.envs.minipacman import Recording
from tdvae.envs.minipacman.rules import Cell
from tdvae.exact import ExactGames, Maze, MiniPacmanFilter
from tdvae.reporting.results import Measures, read_results, write_results
from tdvae.storage.files import read_json
from tdvae_paper.minipacman.games import TEST, played, probed
from tdvae_paper.minipacman.presets import PRESETS, Preset
from tdvae_paper.minipacman.probes import (
    SKIPPED,
    Hidden,
    by_age,
    fit_ghost_reader,
    ghost_loss,
    hidden,
    number_of,
    rows_of,
)

CONTENTS = (Cell.EMPTY, Cell.FOOD, Cell.PILL)


def limits(preset: Preset, seeds: Sequence[int]) -> Measures:
    """Of the test games of all seeds: the limit in nats per frame, its parts, references; and the ghost."""
    recordings = [played(preset, preset.test_games, seed, TEST, truth=True) for seed in seeds]
    maze = Maze()
    exact = [MiniPacmanFilter(maze).of_recording(r) for r in recordings]
    last_frame = [MiniPacmanFilter(maze, "last frame").of_recording(r) for r in recordings]
    nothing = [MiniPacmanFilter(maze, "nothing").of_recording(r) for r in recordings]
    known = [only_last_frame(r, e, maze) for r, e in zip(recordings, last_frame, strict=True)]
    surprise = torch.cat([e.surprise for e in exact])
    parts = {name: _entry(torch.cat([e.parts[name] for e in exact])) for name in exact[0].parts}
    return {
        "limit": _entry(surprise),
        "limit_factorised": _entry(torch.cat([e.factorised for e in exact])),
        "limit_parts": parts | {"first frame": _entry(surprise[:, :1]), "later frames": _entry(surprise[:, 1:])},
        "references": {
            "place known, last frame only": _entry(torch.cat(known)),
            "exact, the ghost from the last frame only": _entry(torch.cat([e.surprise for e in last_frame])),
            "exact, nothing known of the ghost": _entry(torch.cat([e.surprise for e in nothing])),
        },
    }


def _entry(values: Tensor) -> dict[str, Any]:
    """Mean over games and frames (N, T), with the standard error over games as spread."""
    by_game = values.double().mean(1)
    return {"mean": float(by_game.mean()), "spread": float(by_game.std() / len(by_game) ** 0.5), "n": len(by_game)}


def only_last_frame(recording: Recording, last_frame: ExactGames, maze: Maze) -> Tensor:
    """−log p(x_t) (N, T) for one who knows Pacman's place and the last frame, but nothing before it.

    A free cell that comes into view has food, a pill or nothing as often as such cells have it at this time of a game.
    """
    assert recording.truth is not None
    place, x = number_of(torch.as_tensor(recording.truth.pacman).long()), torch.as_tensor(recording.x).flatten(2).long()
    view = maze.view[place]
    seen = torch.zeros(*place.shape, maze.cells + 1, dtype=torch.bool).scatter(2, view, True)
    before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], dim=1)
    kind = torch.stack([x == cell for cell in CONTENTS], dim=-1)
    new = (~before.gather(2, view))[..., None] & kind  # (N, T, window², contents)
    counts = new.sum((0, 2)).double() + 1
    cost = -(counts / counts.sum(-1, keepdim=True)).log()
    return last_frame.parts["ghost"] + (new * cost[:, None]).sum((2, 3))


def shares(nll_by_seed: Sequence[dict[str, float]], known: Measures) -> Measures:
    """Each model's share of the attainable information. 0: place known, last frame only; 1: the exact limit."""
    nothing, limit = known["references"]["place known, last frame only"]["mean"], known["limit"]["mean"]
    entries = {}
    for model in nll_by_seed[0]:
        values = [(nothing - nll[model]) / (nothing - limit) for nll in nll_by_seed]
        spread = statistics.stdev(values) if len(values) > 1 else None
        entries[model] = {"mean": statistics.fmean(values), "spread": spread, "n": len(values)}
    return entries


def exact_ghosts(preset: Preset, seed: int) -> Measures:
    """The ghost's cell while it is out of sight: from the exact belief, and as a reader of the belief reads it."""
    fit_on, test = probed(preset, seed)
    read: list[tuple[Tensor, Hidden]] = []
    for recording in (fit_on, test):
        about = hidden(recording)
        belief = MiniPacmanFilter().of_recording(recording).ghost[:, SKIPPED:].flatten(0, 1).float()
        belief = belief.masked_fill(about.seen, 0)
        read.append((belief / belief.sum(1, keepdim=True).clamp(min=1e-9), about))
    (fitting, truth), (testing, asked) = read
    fewer = torch.arange(0, len(fitting), preset.probe_every)
    fitting, truth = fitting[fewer], rows_of(truth, fewer)
    rows = asked.out_of_sight.nonzero()[:, 0]
    ghosts = rows_of(asked, rows)
    exact = ghost_loss(testing[rows].clamp(min=1e-9).log(), ghosts)
    codes = [(belief + 1e-3).log() for belief in (fitting, testing)]
    reader = fit_ghost_reader(codes[0], truth, preset.reader_steps)
    as_read = ghost_loss(reader(codes[1][rows], ghosts), ghosts)
    return {
        "ghost_probe": {"exact": float(exact.mean()), "reader of the exact belief": float(as_read.mean())},
        "ghost_by_age": {"exact": by_age(exact, ghosts), "reader of the exact belief": by_age(as_read, ghosts)},
    }


def main(folder: Path) -> None:
    """Add the limits to the results of all comparisons that were measured on the same test games."""
    path = folder / "minipacman.json"
    blocks, by_seeds = read_json(path)["blocks"], functools.cache(lambda *seeds: limits(PRESETS["cpu"], seeds))
    for block in ("", *blocks):
        results = read_results(path, block)
        assert results is not None
        known = by_seeds(*results["seeds"])
        nll = {model: entry["mean"] for model, entry in results["measures"]["nll"].items()}
        results["measures"] |= known | {"information_share": shares([nll], known)}
        write_results(path, results, block)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
