"""Agents: environments that raise, hang or return NaN behind a wrapper, and learning in rounds that is killed."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from tdvae.agents import BeliefObservation, Rounds, learn
from tdvae.agents.policies import PolicySettings
from tdvae.data import Recorder
from tdvae.models import LSTM, GatedMaps, Gaussian, ResidualMaps, TDVAEConfig, build
from tdvae.storage import RunFolder
from tests.campaign.outcome import Outcome, Tally, in_process, limited, run_blocks

LIMIT = 10.0
FAULTS = ("none", "raises", "raises at reset", "nan", "infinity", "shape", "type", "reward", "hangs")
STEPS, PATIENCE = 12, 0.5  # seconds of processor time until an environment that hangs is interrupted


class FaultyError(Exception):
    """What a broken environment raises."""


class Faulty(gymnasium.Env[Any, Any]):
    """A walk on a line; at one step a fault happens."""

    def __init__(self, fault: str = "none", at: int = -1) -> None:
        self.observation_space = spaces.Box(-100, 100, (1,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.fault, self.at, self.steps = fault, at, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.x = 0, float(self.np_random.normal())
        if self.fault == "raises at reset" and self.steps >= self.at >= 0:
            raise FaultyError
        return np.array([self.x], dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t, self.steps, self.x = self.t + 1, self.steps + 1, self.x + int(action) - 1
        seen: Any = np.array([self.x], dtype=np.float32)
        reward = float(self.x)
        if self.steps == self.at:
            if self.fault == "raises":
                raise FaultyError
            while self.fault == "hangs":
                pass
            values = {"nan": np.full(1, np.nan, np.float32), "infinity": np.full(1, np.inf, np.float32)}
            values |= {"shape": np.zeros(2, np.float32), "type": "text"}  # type: ignore[dict-item]
            seen, reward = values.get(self.fault, seen), float("nan") if self.fault == "reward" else reward
        return seen, reward, self.t >= 5, False, {}


def run_wrappers(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    seeds = [generator.getrandbits(32) for _ in range(cases)]
    run_blocks(tally, [lambda: [_wrapped(seed) for seed in seeds]], cases * LIMIT)


def _wrapped(seed: int) -> tuple[Outcome, str]:
    """A fault passes through the wrapper, or is refused; the belief is then the one before it."""
    generator = random.Random(seed)
    fault, at = generator.choice(FAULTS), generator.randint(1, STEPS)
    rewards = generator.random() < 0.5
    torch.manual_seed(0)
    parts: dict[str, Any] = {"layers": 1, "latent": 2, "maps": GatedMaps(3)}
    model = build(TDVAEConfig(**parts, belief=LSTM(3), decoder=Gaussian((3,)), actions=3, rewards=rewards))
    world = Faulty(fault, at)
    recorder = Recorder(world.observation_space, world.action_space) if generator.random() < 0.5 else None
    env = BeliefObservation(world, model, recorder=recorder)

    def use() -> Outcome:
        env.reset(seed=seed)
        for _ in range(2 * STEPS):
            before = env.tracker.belief.code.clone()
            try:
                features, _, terminated, *_ = env.step(generator.randrange(3))
                if terminated:
                    features, _ = env.reset()
            except FaultyError:
                return "right"  # it is the user's own
            except Exception:
                if not torch.equal(before, env.tracker.belief.code):
                    return "silent"
                raise
            if not np.isfinite(features).all():
                return "silent"
        return "right"

    outcome, description = limited(PATIENCE if fault == "hangs" else LIMIT, use)
    if fault == "hangs" and outcome == "hang":  # the environment's own; it can be interrupted and started again
        env.unwrapped.fault = "none"  # type: ignore[attr-defined]
        outcome, description = limited(LIMIT, use)
    return outcome, f"{fault} at step {at}, rewards {rewards}: {description}"


SETTINGS = Rounds(
    rounds=2,
    first_steps=40,
    policy_steps=32,
    last_policy_steps=32,
    longest_jump=2,
    fit_steps=2,
    refit_steps=2,
    model={"belief": LSTM(4), "maps": ResidualMaps(4), "layers": 1, "latent": 2},
    policy=PolicySettings(envs=2, n_steps=8, batch_size=8),
)


def run_rounds(tally: Tally, cases: int, generator: random.Random, folder: Path) -> None:
    """Learning in rounds is killed at a random change of a file, and resumed."""
    folder.mkdir()
    expected, code = in_process(600.0, partial(_learned, folder / "whole", None))
    assert code == 0, "learning without faults failed"
    for number in range(cases):
        at, run = generator.randint(1, 25), folder / f"killed-{number}"
        _, code = in_process(600.0, partial(_learned, run, at))
        found, end = in_process(600.0, partial(_learned, run, None)) if code == -signal.SIGKILL else (expected, code)
        outcome: Outcome = "hang" if end is None else "foreign" if end else "right" if found == expected else "silent"
        tally.add(outcome, f"rounds killed at rename {at}: {found}, without {expected}")


def _learned(run: Path, kill_at: int | None) -> list[Any]:
    original, calls = os.replace, 0

    def counted(*paths: Any) -> None:
        nonlocal calls
        calls += 1
        original(*paths)
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    make: Callable[[], Any] = Faulty
    os.replace = counted  # type: ignore[assignment]
    learned = learn(make, SETTINGS, run, seed=3, resume=RunFolder(run).has_run, episodes=2, say=lambda _: None)
    weights = b"".join(value.numpy().tobytes() for value in learned.model.state_dict().values())
    return [[each["return_mean"] for each in learned.history], hashlib.sha256(weights).hexdigest()]
