"""Gymnasium's pendulum with its velocity hidden: the observation is the angle as cosine and sine."""

from __future__ import annotations

import numpy as np
import torch

from tdvae.errors import InputError
from tdvae.types import Sequences

ENV = "Pendulum-v1"
LARGEST_TORQUE = 2.0


def record_pendulum(sequences: int, steps: int, seed: int) -> Sequences:
    """Sequences (N, T, 2) with random torques as actions (N, T, 1). The action a_t precedes x_t."""
    import gymnasium

    for name, value in (("sequences", sequences), ("steps", steps)):
        if value < 1:
            raise InputError(f"{name}: expected at least 1, got {value}")
    torques = np.random.default_rng(seed).uniform(-LARGEST_TORQUE, LARGEST_TORQUE, (sequences, steps, 1))
    torques = torques.astype(np.float32)
    x = np.empty((sequences, steps, 2), dtype=np.float32)
    env = gymnasium.make(ENV)
    for row, actions in enumerate(torques):
        env.reset(seed=seed * sequences + row)
        for t, action in enumerate(actions):
            x[row, t] = env.step(action)[0][:2]
    env.close()
    return Sequences(torch.from_numpy(x), torch.full((sequences,), steps), torch.from_numpy(torques))
