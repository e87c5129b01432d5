"""Models of simulated worlds: MiniPacman and the pendulum. Their held-out games and motions are simulated anew."""

from __future__ import annotations

from dataclasses import replace

from tdvae.explorer.library import (
    GAME_ACTIONS,
    GAME_PALETTE,
    SavedModel,
    derive_seed,
    play_games,
    record_pendulum,
)
from tdvae.explorer.subjects import Input, PictureLayout, Subject, Units

GAMES, MOTIONS, MOTION_STEPS = 24, 32, 80
TEST_GAMES = 503  # purpose of the seed of held-out games, as in their evaluation
WINDOW = 5  # cells


def minipacman(found: SavedModel, name: str) -> Subject:
    """Games seen through a window of 5 × 5 cells around Pacman.

    Whoever has an exact filter of the ghost gives it to the subject as its ``maze``.
    """
    recording = play_games(GAMES, int(found.info.get("frames", 60)), derive_seed(0, TEST_GAMES) % 2**62)
    truth = recording.truth
    assert truth is not None
    classes = (*GAME_PALETTE[:6], GAME_PALETTE[-1])  # the last is a ghost that can be eaten
    return Subject(
        name=name,
        title="MiniPacman",
        about="Pacman in a maze. The model sees the 5 × 5 cells around him, and must remember the rest.",
        kind="picture",
        model=found.model,
        sequences=replace(recording.sequences(), rewards=None),
        channels=("window",),
        units=Units.same(WINDOW * WINDOW),
        longest_jump=int(found.info.get("longest_jump", 8 if "jumps" in str(found.info["experiment"]) else 1)),
        inputs=(Input("action", 0, tuple(map(float, range(len(GAME_ACTIONS)))), GAME_ACTIONS),),
        quantities={
            "Pacman's row": truth.pacman[..., 0],
            "Pacman's column": truth.pacman[..., 1],
            "food left": truth.food.sum((2, 3)),
            "power": truth.power,
        },
        picture=PictureLayout(
            WINDOW, WINDOW, 3, palette=tuple((int(red), int(green), int(blue)) for red, green, blue in classes)
        ),
    )


def pendulum(found: SavedModel, name: str) -> Subject:
    """A pendulum under random torques, of which the angle is seen and the velocity is not."""
    motions = record_pendulum(MOTIONS, MOTION_STEPS, seed=derive_seed(0, TEST_GAMES) % 2**20)
    return Subject(
        name=name,
        title="Pendulum",
        about="A pendulum that a motor pushes. The model sees its angle, not its velocity, and knows the torque.",
        kind="signal",
        model=found.model,
        sequences=motions,
        channels=("cosine of the angle", "sine of the angle"),
        units=Units.same(2),
        longest_jump=int(found.info.get("longest_jump", 10)),
        inputs=(Input("torque", 0),),
    )
