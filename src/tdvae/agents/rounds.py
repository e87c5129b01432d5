"""Learning in rounds: record, fit the model, train a policy on its beliefs, record with that policy, and so on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium

from tdvae.agents.models import fit_model
from tdvae.agents.policies import Agent, MakeEnv, PolicySettings
from tdvae.checks import Positive, Seed, check_fields, checked
from tdvae.data.episodes import Episodes, record
from tdvae.errors import InputError
from tdvae.forecasting.fitting.recipes import NetworkKind
from tdvae.models import LSTM, Model, ResidualMaps
from tdvae.storage import RunFolder
from tdvae.storage.files import read_checked, write_checked
from tdvae.training.config import derive_seed

RECORD, FIT, POLICY, EVALUATE = 801, 802, 803, 804  # purposes of derived seeds
EPISODES, AGENT, DONE = "episodes.npz", "agent", "round.json"


@dataclass(frozen=True)
class Rounds:
    """Settings of `learn`."""

    rounds: Positive = 2
    first_steps: Positive = 10_000  # recorded at random before the first round
    policy_steps: Positive = 20_480  # interactions of the policy in each round; they are recorded, too
    last_policy_steps: Positive = 61_440  # in the last round
    kind: NetworkKind = "latent"
    longest_jump: Positive = 24
    fit_steps: Positive = 300  # training steps of the model in the first round
    refit_steps: Positive = 200  # in each later one, from the weights of the one before
    only_random: bool = False  # control: as many interactions are recorded, all at random
    model: dict[str, Any] = field(
        default_factory=lambda: {"belief": LSTM(64), "maps": ResidualMaps(64), "layers": 2, "latent": 8}
    )
    policy: PolicySettings = field(default_factory=PolicySettings)

    def __post_init__(self) -> None:
        check_fields(self)

    def policy_steps_in(self, number: int) -> int:
        """The interactions of the policy in a round, counted from 1."""
        return self.policy_steps if number < self.rounds else self.last_policy_steps

    @property
    def interactions(self) -> int:
        """With the environment, in all rounds."""
        return self.first_steps + sum(map(self.policy_steps_in, range(1, self.rounds + 1)))


@dataclass(frozen=True)
class Learned:
    """What `learn` has learned: the last model, its agent, and one entry for each round."""

    model: Model
    agent: Agent
    history: list[dict[str, float]]  # interactions, return_mean, return_error and seconds of each round
    run_dir: Path


@checked
def learn(
    env: str | Callable[[], Any],
    settings: Rounds | None = None,
    run_dir: str | Path = "runs/agent",
    seed: Seed = 0,
    resume: bool = False,
    episodes: Positive = 100,
    say: Callable[[str], None] = print,
) -> Learned:
    """Learn a world model and a policy on its beliefs, in rounds.

    Args:
        env: the id of a Gymnasium environment, or a function that makes one.
        settings: sizes and budgets.
        run_dir: what each round has recorded and learned. Nothing of a finished stage is lost if the process ends.
        seed: of everything; the same seed gives the same result, also after a resumed run.
        resume: continue the run in ``run_dir``.
        episodes: for the evaluation after each round.
        say: called with one line after each round.
    """
    settings = settings or Rounds()
    make_env: MakeEnv = (lambda: gymnasium.make(env)) if isinstance(env, str) else env
    folder = Path(run_dir)
    with RunFolder(folder).use(resume):
        write_settings(RunFolder(folder), settings, seed)
        return _Learning(make_env, settings, folder, seed, episodes, say).run()


def write_settings(folder: RunFolder, settings: object, seed: int) -> None:
    """Write the settings of a new run to its config.json; raise if a run to resume had others."""
    now = {"seed": seed, "settings": repr(settings)}
    if folder.has_run and (before := folder.read_config()["info"]) != now:
        raise InputError(f"resume: expected the settings of {folder.path}, {before}, got {now}")
    folder.write_config({"model": {}, "info": now})


class _Learning:
    def __init__(
        self, make_env: MakeEnv, settings: Rounds, folder: Path, seed: int, episodes: int, say: Callable[[str], None]
    ) -> None:
        self.make_env, self.settings, self.folder, self.seed = make_env, settings, folder, seed
        self.episodes, self.say = episodes, say

    def run(self) -> Learned:
        settings, history = self.settings, []
        recorded = self._recorded(self.folder / "round-0", settings.first_steps, 0)
        for number in range(1, settings.rounds + 1):
            folder, began = self.folder / f"round-{number}", time.process_time()
            model = self._fitted(number, recorded)
            agent = Agent(self.make_env, model, settings.policy, self._derived(POLICY, number))
            if not (folder / DONE).exists():
                self._train(folder, agent, number, began)
            agent.restore(folder / AGENT)
            history.append(read_checked(folder / DONE, ("measures",))["measures"])
            if number == settings.rounds:
                break
            if settings.only_random:
                recorded += self._recorded(folder, settings.policy_steps, number)
            else:
                recorded += Episodes.load(folder / EPISODES)
        return Learned(model, agent, history, self.folder)

    def _derived(self, purpose: int, number: int) -> int:
        return derive_seed(self.seed, purpose, number)

    def _recorded(self, folder: Path, steps: int, number: int) -> Episodes:
        """Random episodes, recorded once."""
        path = folder / f"random-{EPISODES}"
        if not path.exists():
            folder.mkdir(exist_ok=True)
            env = self.make_env()
            record(env, "random", steps, self._derived(RECORD, number) % 2**31, path)
            env.close()
        return Episodes.load(path)

    def _fitted(self, number: int, recorded: Episodes) -> Model:
        """The model of a round: that of the round before, trained on everything recorded so far."""
        settings, folder = self.settings, self.folder / f"round-{number}"
        return fit_model(
            recorded.sequences(),
            folder,
            settings.longest_jump,
            settings.fit_steps if number == 1 else settings.refit_steps,
            self._derived(FIT, number),
            settings.kind,
            self.folder / f"round-{number - 1}" if number > 1 else None,
            **settings.model,
        )

    def _train(self, folder: Path, agent: Agent, number: int, began: float) -> None:
        settings, steps = self.settings, self.settings.policy_steps_in(number)
        try:
            agent.train(steps, self._derived(POLICY, number))
        finally:  # an environment that raises an error loses nothing that was recorded
            assert agent.recorder is not None
            if len(found := agent.recorder.episodes()):
                found.save(folder / EPISODES)
        returns = agent.evaluate(self.episodes, self._derived(EVALUATE, number))
        agent.save(folder / AGENT)
        measures = {
            "interactions": settings.interactions
            if number == settings.rounds
            else settings.first_steps + number * steps,
            "return_mean": float(returns.mean()),
            "return_error": float(returns.std() / len(returns) ** 0.5),
            "seconds": time.process_time() - began,
        }
        write_checked(folder / DONE, {"measures": measures})
        self.say(
            f"round {number}: return {measures['return_mean']:.3f} ± {measures['return_error']:.3f} after "
            f"{measures['interactions']:,} interactions, {measures['seconds']:.0f} s"
        )
