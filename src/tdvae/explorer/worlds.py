"""Models of simulated worlds: MiniPacman, corridors, a pendulum. Their held-out sequences are simulated anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch.nn.functional import one_hot

from tdvae.data import from_arrays
from tdvae.envs import corridors_walk
from tdvae.envs.minipacman import PALETTE
from tdvae.envs.minipacman import record as play_games
from tdvae.envs.minipacman.maze import ACTIONS as GAME_ACTIONS
from tdvae.envs.pendulum import record_pendulum
from tdvae.errors import InputError
from tdvae.explorer.maze import GhostBeliefs
from tdvae.explorer.subjects import Input, PictureLayout, Subject, Units
from tdvae.saved import SavedModel
from tdvae.training.config import derive_seed
from tdvae_paper.minipacman import readers

GAMES, MOTIONS, MOTION_STEPS = 24, 32, 80
PENDULUM_STEP = 0.05  # seconds
WALKS, WALK_STEPS = 12, 80
HELD_OUT = 503  # purpose of the seed of held-out sequences, none of which is used in training
WINDOW = 5  # cells
LONGEST_WALK = 40  # steps of the longest trained jump


def minipacman(found: SavedModel, name: str) -> Subject:
    """Games seen through a window of 5 × 5 cells around Pacman."""
    recording = play_games(GAMES, int(found.info.get("frames", 60)), derive_seed(0, HELD_OUT) % 2**62)
    truth = recording.truth
    assert truth is not None
    # A reader of the belief about the ghost, if one was saved with the model.
    folder, learned = found.folder / "ghost_reader", None
    if folder.is_dir():
        learned = readers.ghost_beliefs(found.model, readers.load(folder), recording)
    classes = (*PALETTE[:6], PALETTE[-1])  # the last is a ghost that can be eaten
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
        inputs=(_choices("action", GAME_ACTIONS),),
        quantities={
            "Pacman's row": truth.pacman[..., 0],
            "Pacman's column": truth.pacman[..., 1],
            "food left": truth.food.sum((2, 3)),
            "power": truth.power,
        },
        maze=GhostBeliefs(recording, learned),
        picture=PictureLayout(
            WINDOW, WINDOW, 3, palette=tuple((int(red), int(green), int(blue)) for red, green, blue in classes)
        ),
    )


def corridors(found: SavedModel, name: str) -> Subject:
    """Walks through mazes that were not trained on. The model is given codes."""
    codec = found.codec
    if codec is None:
        raise InputError(f"run: expected a codec in the folder of {found.source}, found none")
    _, rows, columns = codec.picture
    walks = [corridors_walk.Walk.draw(derive_seed(0, HELD_OUT, i) % 2**62, WALK_STEPS) for i in range(WALKS)]
    frames = np.stack([walk.frames(columns) for walk in walks])
    with torch.no_grad():
        codes = codec.encode(torch.from_numpy(frames).flatten(0, 1).permute(0, 3, 1, 2).float() / 255)
    actions = torch.from_numpy(np.stack([walk.actions for walk in walks]).astype(np.int64))
    given = found.model.config.actions > 0
    poses = np.stack([walk.poses for walk in walks])
    return Subject(
        name=name,
        title="Corridors",
        about="A walk through a maze that the model has never been in, seen by who walks. Each direction has a colour."
        + (" Its steps and turns are known." if given else ""),
        kind="picture",
        model=found.model,
        sequences=from_arrays(
            codes.unflatten(0, (WALKS, WALK_STEPS)),
            actions=one_hot(actions + 1, len(corridors_walk.ACTIONS) + 1)[..., 1:].float() if given else None,
        ),
        channels=("view",),
        units=Units.same(codec.size),
        longest_jump=int(found.info.get("longest_jump", LONGEST_WALK)),
        inputs=(_choices("action", corridors_walk.ACTIONS),) if given else (),
        quantities={
            "heading in degrees": np.degrees(poses[..., 2]).round() % 360,
            "place from west to east": poses[..., 0],
            "place from south to north": poses[..., 1],
        },
        picture=PictureLayout(rows, columns, 3, channels_first=True, codec=codec),
        frames=frames,
    )


def pendulum(found: SavedModel, name: str) -> Subject:
    """A pendulum under random torques, of which the angle is seen and the velocity is not."""
    motions = record_pendulum(MOTIONS, MOTION_STEPS, seed=derive_seed(0, HELD_OUT) % 2**20)
    angle = torch.atan2(motions.x[..., 1], motions.x[..., 0]).numpy()
    velocity = np.gradient(np.unwrap(angle, axis=1), PENDULUM_STEP, axis=1)
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
        quantities={"hidden velocity": velocity, "angle in degrees": np.degrees(angle)},
    )


def _choices(name: str, labels: tuple[str, ...]) -> Input:
    """An input that is one of several."""
    return Input(name, 0, tuple(map(float, range(len(labels)))), labels)
