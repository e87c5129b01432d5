"""Train a policy on one input of a task, at a fixed number of interactions in all, and measure it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tdvae.agents.policies import Agent, PolicySettings
from tdvae.agents.rounds import EPISODES, EVALUATE, POLICY, Rounds, learn, write_settings
from tdvae.data.episodes import Episodes
from tdvae.forecasting.fitting.recipes import NetworkKind
from tdvae.reporting.results import Measures
from tdvae.storage import RunFolder
from tdvae.storage.files import read_checked, write_checked
from tdvae.training import FitResult
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress
from tdvae_paper.agents.worlds import HIDDEN, hidden_state, make_input

LEARNED = ("belief", "next_step", "belief_random")  # inputs that a model makes; the last from random recordings only
PROBED = (*LEARNED, "kalman", "full", "last")
MEASURED = "agent.json"
POINTS = 12  # of a learning curve


@dataclass(frozen=True)
class Learning:
    """How a task is learned: the rounds, and how many episodes and steps it is measured with."""

    rounds: Rounds
    episodes: int = 100
    probed_steps: int = 4_000


def train_input(
    learning: Learning,
    task: str,
    name: str,
    seed: int,
    run_dir: Path,
    resume: bool,
    info: dict[str, Any],
    progress: Progress,
) -> FitResult:
    """Train one input, and write its measures to the run folder."""
    make_env, began = make_input(task, name), time.process_time()
    say = partial(_say, task, name, seed)
    if name in LEARNED:
        kind: NetworkKind = "next_step" if name == "next_step" else "latent"
        # The code of a TD-VAE is that of its predictor, so its belief is given as p_B's means and log σ.
        policy = replace(learning.rounds.policy, features="code" if name == "next_step" else "moments")
        rounds = replace(learning.rounds, kind=kind, only_random=name == "belief_random", policy=policy)
        learned = learn(make_env, rounds, run_dir, seed, resume, learning.episodes, say)
        agent, last = learned.agent, learned.history[-1]
        value, seconds = last["return_mean"], sum(entry["seconds"] for entry in learned.history)
        recorded = [run_dir / f"round-{number}" / EPISODES for number in range(1, rounds.rounds + 1)]
        curve = _curve([Episodes.load(path) for path in recorded], learning.rounds.first_steps)
    else:
        policy = replace(learning.rounds.policy, recurrent=name == "recurrent")
        agent = _plain(learning, make_env, policy, seed, run_dir, resume)
        seconds = time.process_time() - began
        value = float(agent.evaluate(learning.episodes, derive_seed(seed, EVALUATE)).mean())
        assert agent.recorder is not None
        curve = _curve([agent.recorder.episodes()], 0)
        say(f"return {value:.3f} after {learning.rounds.interactions:,} interactions, {seconds:.0f} s")
    measures: Measures = {
        "return": value,
        "environment_steps": learning.rounds.interactions,
        "seconds": seconds,
        "curve": curve,
    }
    if name in PROBED:
        measures["belief_r2"] = _hidden_r2(agent, task, learning.probed_steps, seed)
    write_checked(run_dir / MEASURED, {"measures": measures})
    agent.close()
    return FitResult(run_dir, learning.rounds.interactions, learning.rounds.interactions, None, seconds)


def _say(task: str, name: str, seed: int, text: str) -> None:
    print(f"{task}, {name}, seed {seed}: {text}", flush=True)


def _plain(
    learning: Learning, make_env: Callable[[], Any], policy: PolicySettings, seed: int, run_dir: Path, resume: bool
) -> Agent:
    """A policy on an input that nothing has to be learned for."""
    folder = RunFolder(run_dir)
    with folder.use(resume):
        write_settings(folder, (learning.rounds.interactions, policy), seed)
        agent = Agent(make_env, None, policy, derive_seed(seed, POLICY))
        agent.train(learning.rounds.interactions, derive_seed(seed, POLICY))
    return agent


def _curve(rounds: list[Episodes], before: int) -> dict[str, float]:
    """Mean returns of the episodes that ended in each part of the training, by interactions up to its middle."""
    ends: list[tuple[float, float]] = []
    for episodes in rounds:
        finished = [one for one in episodes.episodes if one.terminated or one.truncated]
        steps = before + np.cumsum([len(one) - 1 for one in finished])
        ends += zip(steps, (sum(one.rewards) for one in finished), strict=True)
        before += episodes.steps
    parts = np.array_split(np.array(ends), POINTS) if len(ends) >= POINTS else []
    return {str(round(part[:, 0].mean())): float(part[:, 1].mean()) for part in parts}


def _hidden_r2(agent: Agent, task: str, steps: int, seed: int) -> dict[str, float]:
    """How much of each hidden variable is linear in the features, on held-out steps of the policy's own episodes."""
    env = agent.normaliser
    env.training = False
    env.seed(derive_seed(seed, EVALUATE, 1) % 2**31)
    given: Any = env.reset()
    features: list[npt.NDArray[Any]] = []
    states: list[npt.NDArray[Any]] = []
    for _ in range(steps // env.num_envs):
        given, _, done, _ = env.step(agent.ppo.predict(given, deterministic=True)[0])
        now = np.array([hidden_state(task, one) for one in env.venv.venv.envs])  # type: ignore[attr-defined]
        features.append(given[~done])
        states.append(now[~done])
    half = len(features) // 2
    halves = [np.concatenate(part) for part in (features[:half], states[:half], features[half:], states[half:])]
    return dict(zip(HIDDEN[task], _r2(*halves).tolist(), strict=True))


def _r2(x: npt.NDArray[Any], y: npt.NDArray[Any], new_x: npt.NDArray[Any], new_y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """R² of ridge regression, for each column of y."""
    x, new_x = (np.c_[part.astype(np.float64), np.ones(len(part))] for part in (x, new_x))
    weights = np.linalg.solve(x.T @ x + 1e-2 * np.eye(x.shape[1]), x.T @ y)
    r2: npt.NDArray[Any] = 1 - np.square(new_y - new_x @ weights).sum(0) / np.square(new_y - new_y.mean(0)).sum(0)
    return r2


def measured(run_dir: Path) -> Measures:
    """What `train_input` wrote."""
    measures: Measures = read_checked(run_dir / MEASURED, ("measures",))["measures"]
    return measures
