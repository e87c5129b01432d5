"""The recorded games that are trained, measured and probed on."""

from __future__ import annotations

from tdvae.envs.minipacman import Recording, record
from tdvae.training.config import derive_seed
from tdvae_paper.minipacman.presets import Preset
from tdvae_paper.minipacman.probes import Probe

TRAIN, VALIDATION, TEST, PROBE, WEIGHTS = 501, 502, 503, 504, 505  # purposes of derived seeds


def played(preset: Preset, games: int, seed: int, *purpose: int, truth: bool = False) -> Recording:
    """Recorded games, the same for every model; all are of one length, since nobody dies so early in level 1."""
    return record(games, preset.frames, derive_seed(seed, *purpose) % 2**62, truth=truth)


def probed(preset: Preset, seed: int) -> Probe:
    """Games to fit readers to, and others to test them on."""
    games = preset.probe_games, preset.probe_test or preset.probe_games
    fit_on, test = (played(preset, games[part], seed, PROBE, part, truth=True) for part in range(2))
    return Probe(fit_on, test, preset.reader_steps, preset.probe_every)
