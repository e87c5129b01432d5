"""What a belief remembers: errors of predicted frames where walls were seen before, and where they were not.

The actions are given and the maze does not change, so a frame can be predicted surely if its walls were seen. The true
maze and poses say which were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from tdvae.codec import FrameCodec
from tdvae.codes import CodeWindows
from tdvae.envs.corridors import TURNS, look, render
from tdvae.envs.corridors_walk import ACTIONS, LEFT, RIGHT, Walk, walk
from tdvae.models import Model
from tdvae.types import Sequences
from tdvae_paper.first_person.codes_measures import BATCH_SIZE, ByJump, futures


def mazes_of(windows: CodeWindows) -> list[Walk]:
    """The maze of each window, with the poses of its frames."""
    recording = windows.frames.recording
    rooms = int(recording.about["settings"]["rooms"])
    poses, walks = windows.frames.pose(slice(None)).double().numpy(), []
    episodes = np.searchsorted(recording.starts, windows.frames.starts.numpy(), side="right") - 1
    for episode, window in zip(episodes, poses, strict=True):
        maze = Walk.draw(int(recording.seeds[episode]), 2, rooms).maze
        walks.append(Walk(maze, window, np.zeros(len(window), np.int16)))
    return walks


def seen_columns(walk: Walk, t1: int, t2: int, size: int) -> Tensor:
    """Whether each column of frame t2 shows the face of a wall that a frame up to t1 has shown, (size,)."""
    shown = look(walk.maze, walk.poses[:t1], size).walls
    return torch.from_numpy(np.isin(look(walk.maze, walk.poses[t2 - 1], size).walls[0], shown))


@torch.no_grad()
def seen_and_unseen(
    model: Model, codec: FrameCodec, moments: CodeWindows, t1: int, jumps: Sequence[int], samples: int
) -> dict[str, ByJump]:
    """Mean absolute error and spread of columns whose wall was seen, and of the others, by δt, of 255."""
    walks, found = mazes_of(moments), dict[str, ByJump]()
    for dt in jumps:
        seen = torch.stack([seen_columns(one, t1, t1 + dt, codec.picture[-1]) for one in walks])
        errors, spreads = [], []
        for index in torch.arange(len(moments)).split(BATCH_SIZE):
            part = moments.select(index)
            drawn = codec.decode(futures(model, part, t1, dt, samples, 1)[:, 0])
            error, spread = _by_column(drawn, codec.decode(part.x[:, t1 + dt - 1]))
            errors.append(error)
            spreads.append(spread)
        for name, values in (("error", torch.cat(errors)), ("spread", torch.cat(spreads))):
            found.setdefault(f"seen_{name}", {})[str(dt)] = float(values[seen].mean())
            found.setdefault(f"unseen_{name}", {})[str(dt)] = float(values[~seen].mean())
    return found


def _by_column(drawn: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Mean absolute error and standard deviation of samples (S, N, 3, H, W), by column, (N, W), of 255."""
    return 255 * (drawn - truth).abs().mean((0, 2, 3)), 255 * drawn.std(0).mean((1, 2))


@torch.no_grad()
def after_a_turn(
    model: Model, codec: FrameCodec, moments: CodeWindows, turns: Sequence[int], samples: int
) -> dict[str, dict[str, ByJump]]:
    """Errors and spreads of the frame after turning right by ``turns`` steps: after a full turn to the left on the
    spot, in which it was seen, and without it. The turned frame was seen 2 · ``turns`` steps before."""
    found: dict[str, dict[str, ByJump]] = {}
    for name, before in (("turned", TURNS), ("not_turned", 0)):
        for dt in turns:
            actions = [LEFT] * before + [RIGHT] * dt
            part = _turning(codec, mazes_of(moments), actions)
            errors, spreads = [], []
            for rows in torch.arange(len(part)).split(BATCH_SIZE):
                one = part.select(rows)
                drawn = codec.decode(futures(model, one, before + 1, dt, samples, 1)[:, 0])
                error, spread = _by_column(drawn, codec.decode(one.x[:, -1]))
                errors.append(error)
                spreads.append(spread)
            for measure, values in (("error", errors), ("spread", spreads)):
                found.setdefault(name, {}).setdefault(measure, {})[str(dt)] = float(torch.cat(values).mean())
    return found


def _turning(codec: FrameCodec, walks: list[Walk], actions: list[int]) -> Sequences:
    """Sequences of codes that start at the first pose of each walk and follow ``actions``."""
    codes = []
    for one in walks:
        x, y, heading = one.poses[0].tolist()
        frames = torch.from_numpy(render(one.maze, walk((x, y, heading), actions), codec.picture[-1]))
        codes.append(codec.encode(frames.permute(0, 3, 1, 2).float().div_(255)))
    steps = one_hot(torch.tensor([0, *[action + 1 for action in actions]]), len(ACTIONS) + 1)[:, 1:].float()
    x_codes = torch.stack(codes)
    return Sequences(
        x_codes, torch.full((len(codes),), len(actions) + 1), actions=steps.expand(len(codes), *steps.shape).clone()
    )
