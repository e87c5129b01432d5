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
from tdvae_paper.minipacman.games import TEST, played
from tdvae_paper.minipacman.presets import PRESETS, Preset
from tdvae_paper.minipacman.truth import number_of

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
