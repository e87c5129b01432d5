"""Planning on the pendulum without velocity: in jumps, in single steps, and with the true dynamics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdvae.agents.models import fit_model
from tdvae.agents.outcomes import fit_outcomes
from tdvae.agents.planning import Planner, Proposals, cross_entropy
from tdvae.agents.tracking import BeliefTracker
from tdvae.data.episodes import record
from tdvae.models import LSTM, TDVAE, LegendreSummary, ResidualMaps
from tdvae.reporting.results import Measures
from tdvae.storage import RunFolder
from tdvae.storage.files import read_checked, write_checked
from tdvae.training import FitResult
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae.types import Belief
from tdvae_paper.agents.worlds import Env, NoVelocity

RECORD, PLAN = 811, 812  # purposes of derived seeds
OUTCOMES, MEASURED = "outcomes", "planning.json"
Act = Callable[[Belief, Sequence[Env]], Any]  # the actions of all environments
LONGEST_HOLD = 10  # steps for which a random torque is held in the recordings


@dataclass(frozen=True)
class Planning:
    """Settings of the recording, the model, the search and its evaluation."""

    steps: int = 20_000
    fit_steps: int = 800
    outcome_steps: int = 600
    jump: int = 5
    search: dict[str, Any] = field(
        default_factory=lambda: {"horizon": 6, "candidates": 100, "iterations": 3, "elites": 10}
    )
    episodes: int = 24
    length: int = 200
    hidden: int = 64


class HeldTorques:
    """Random torques, each held for a random number of steps."""

    def __init__(self, env: Env, seed: int) -> None:
        self.space, self.random, self.left = env.action_space, np.random.default_rng(seed), 0
        self.space.seed(seed)

    def __call__(self, observation: Any) -> Any:
        if self.left == 0:
            self.left, self.action = int(self.random.integers(1, LONGEST_HOLD + 1)), self.space.sample()
        self.left -= 1
        return self.action


def train_planning(
    settings: Planning, seed: int, run_dir: Path, resume: bool, info: dict[str, Any], progress: Progress
) -> FitResult:
    """Record, fit the model and its rewards, plan in all ways; write the measures to the run folder."""
    began, env = time.process_time(), NoVelocity()
    number = derive_seed(seed, RECORD) % 2**31
    with RunFolder(run_dir).use(resume):
        RunFolder(run_dir).write_config({"model": {}, "info": {**info, "settings": repr(settings), "seed": seed}})
        episodes = record(env, HeldTorques(env, number), settings.steps, number)
        model = fit_model(
            episodes.sequences(),
            run_dir,
            settings.jump,
            settings.fit_steps,
            seed,
            "observed",
            progress=progress,
            batch_size=16,
            belief=LSTM(settings.hidden),
            maps=ResidualMaps(settings.hidden),
            latent=4,
            summary=LegendreSummary(settings.jump),
        )
        assert isinstance(model, TDVAE)
        data, folder = episodes.sequences(rewards=True, ends=True), run_dir / OUTCOMES
        outcomes = fit_outcomes(
            model, data, settings.jump, folder, settings.outcome_steps, seed, RunFolder(folder).has_run
        )
        seconds = time.process_time() - began
        plan = partial(Planner, model, outcomes, env.action_space, settings.jump, **settings.search, seed=seed)
        jumps, steps = plan(), plan(single_steps=True)
        ways: dict[str, Act] = {
            "jumps": lambda belief, _: jumps(belief),
            "steps": lambda belief, _: steps(belief),
            "true": lambda _, envs: _plan_exactly(settings, envs),
        }
        measures: Measures = {"planning_return": {}, "planning_seconds": {}}
        for name, act in ways.items():
            played = _play(settings, seed, model, act)
            measures["planning_return"][name], measures["planning_seconds"][name] = played
        write_checked(run_dir / MEASURED, {"measures": measures})
    return FitResult(run_dir, settings.fit_steps, settings.fit_steps, None, seconds)


def _play(settings: Planning, seed: int, model: TDVAE, act: Act) -> tuple[float, float]:
    """The mean return of episodes that are the same for all ways, and the processor time of a decision."""
    envs = [NoVelocity() for _ in range(settings.episodes)]
    first = derive_seed(seed, PLAN) % 2**30
    tracker = BeliefTracker(model, envs[0].observation_space, envs[0].action_space, len(envs))
    tracker.begin(np.stack([env.reset(seed=first + row)[0] for row, env in enumerate(envs)]))
    total, spent, decisions = np.zeros(len(envs)), 0.0, 0
    torch.manual_seed(first)
    for t in range(settings.length):
        if t % settings.jump == 0:  # an action is held for a jump, as in the plan
            began = time.process_time()
            actions = act(tracker.belief, envs)
            spent, decisions = spent + time.process_time() - began, decisions + 1
        stepped = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        rewards = np.array([one[1] for one in stepped])
        tracker.step(actions, np.stack([one[0] for one in stepped]), rewards)
        total += rewards
    return float(total.mean()), spent / decisions / len(envs)


def _plan_exactly(settings: Planning, envs: Sequence[Env]) -> Any:
    """The same search with the true state and the true dynamics."""
    space = envs[0].action_space
    states = torch.tensor(np.array([env.unwrapped.state for env in envs]), dtype=torch.float32)  # type: ignore[attr-defined]

    def score(plans: Tensor) -> Tensor:
        angle, speed = (part.expand(plans.shape[:2]) for part in states.T)
        total = torch.zeros(plans.shape[:2])
        for torque in plans[..., 0].unbind(2):
            for _ in range(settings.jump):
                around = torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
                total = total - around.square() - 0.1 * speed.square() - 0.001 * torque.square()
                speed = (speed + (15 * angle.sin() + 3 * torque) * 0.05).clamp(-8, 8)  # g = 10, m = l = 1
                angle = angle + speed * 0.05
        return total

    search = {name: value for name, value in settings.search.items() if name != "horizon"}
    proposals = Proposals(space, len(envs), settings.search["horizon"])
    chosen = cross_entropy(score, proposals, torch.default_generator, **search)
    return chosen.numpy().reshape(-1, *(space.shape or ()))


def measured(run_dir: Path) -> Measures:
    """What `train_planning` wrote."""
    measures: Measures = read_checked(run_dir / MEASURED, ("measures",))["measures"]
    return measures
