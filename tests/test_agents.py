"""Beliefs for agents: recording, wrappers, imagined environments, rewards and ends, planning, learning in rounds."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from torch import Tensor

import tdvae
from tdvae.agents import (
    BeliefObservation,
    BeliefTracker,
    ImaginedEnv,
    Outcomes,
    Planner,
    Rounds,
    VecBelief,
    fit_outcomes,
    learn,
)
from tdvae.agents.extra import PPO, DummyVecEnv
from tdvae.agents.outcomes import OutcomeLearner, _past_the_end, load_outcomes
from tdvae.agents.planning import Proposals, cross_entropy
from tdvae.agents.policies import Agent, PolicySettings
from tdvae.data import Episodes, Recorder, from_minari, record
from tdvae.data.spaces import observations, to_x, vector_size, vectors
from tdvae.errors import InputError
from tdvae.jumps import SemiGradient, Uniform, WithinSequence
from tdvae.models import LSTM, Gaussian, LegendreSummary, Model, NextStepConfig, ResidualMaps, build
from tdvae.nn.recurrent import LegendreMoments
from tdvae.types import Pairs, Sequences

Env = gymnasium.Env[Any, Any]
SMALL: dict[str, Any] = {"belief": LSTM(6), "maps": ResidualMaps(6), "layers": 1, "latent": 3}


class Counting(gymnasium.Env[npt.NDArray[np.float32], Any]):
    """The observation counts the steps of an episode, and the reward is the action; it ends after ``length`` steps."""

    def __init__(self, length: int = 4, terminates: bool = True, fails_at: int | None = None) -> None:
        self.observation_space = spaces.Box(0, 100, (1,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.length, self.terminates, self.fails_at, self.total = length, terminates, fails_at, 0

    def _observe(self) -> npt.NDArray[np.float32]:
        return np.array([self.t], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.t, self.total = self.t + 1, self.total + 1
        if self.total == self.fails_at:
            raise RuntimeError("the simulator broke")
        over = self.t == self.length
        return self._observe(), float(action), over and self.terminates, over and not self.terminates, {}


def small_model(actions: int = 3, event: int = 1, **choices: Any) -> Any:
    torch.manual_seed(0)
    data = tdvae.data.from_arrays(torch.randn(4, 6, event), actions=torch.zeros(4, 6, actions) if actions else None)
    settings: dict[str, Any] = {**SMALL, "state": "latent", "readout": None, "drift": "residual", **choices}
    return tdvae.models.for_data(data, **settings).eval()


# Spaces


@pytest.mark.parametrize(
    ("space", "value", "vector"),
    [
        (spaces.Discrete(3, start=1), 3, [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
        (spaces.Box(-1, 1, (2, 1)), [[0.5], [-0.5]], [0.5, -0.5]),
    ],
)
def test_actions_become_vectors(space: Any, value: Any, vector: list[float]) -> None:
    assert vectors(space, np.array([value])).tolist() == [vector]
    assert vector_size(space) == len(vector)


def test_entries_of_a_dict_stand_in_a_row() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,))})
    assert vectors(space, {"a": np.array([1]), "b": np.array([[0.25]])}).tolist() == [[0, 1, 0.25]]


def test_pictures_are_recorded_as_bytes_and_given_to_models_as_numbers() -> None:
    space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    recorded = observations(space, np.full((2, 4, 5, 3), 255))
    assert recorded.dtype == np.uint8
    assert to_x(recorded).shape == (2, 3, 4, 5)
    assert float(to_x(recorded).max()) == 1.0


def test_windows_of_classes_stay_integers() -> None:
    assert observations(spaces.MultiDiscrete(np.full((2, 2), 7)), np.ones((1, 2, 2))).dtype == np.int64


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)])])
def test_other_spaces_are_refused(space: Any) -> None:
    with pytest.raises(InputError, match="space: expected Box, Discrete, MultiDiscrete or a Dict"):
        vector_size(space)


# Recording


def test_action_at_an_index_led_to_the_observation_there() -> None:
    episodes = record(Counting(), lambda observation: int(observation[0]) % 3, steps=8)
    assert [len(one) for one in episodes.episodes] == [5, 5]
    first = episodes.episodes[0]
    assert np.concatenate(first.x).tolist() == [0, 1, 2, 3, 4]
    assert first.actions[0].tolist() == [0, 0, 0]  # none before the first observation
    assert [int(action.argmax()) for action in first.actions[1:]] == [0, 1, 2, 0]
    assert first.rewards == [0, 0, 1, 2, 0]
    assert episodes.steps == 8


@pytest.mark.parametrize("terminates", [True, False])
def test_terminated_and_truncated_are_apart(terminates: bool) -> None:
    episodes = record(Counting(terminates=terminates), steps=6)
    ends = [(one.terminated, one.truncated) for one in episodes.episodes]
    assert ends == [(terminates, not terminates), (False, False)]  # the last one was cut
    ended = episodes.sequences(ends=True).ended
    assert ended is not None
    assert ended.nonzero().tolist() == ([[0, 4]] if terminates else [])


def _vector_envs() -> Iterator[Any]:
    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    yield gymnasium.vector.SyncVectorEnv([Counting, lambda: Counting(3)], autoreset_mode=same_step)
    yield DummyVecEnv([Counting, lambda: Counting(3)])


@pytest.mark.parametrize("env", list(_vector_envs()), ids=["gymnasium", "stable-baselines3"])
def test_vector_environments_are_recorded_like_single_ones(env: Any) -> None:
    episodes = record(env, lambda given: np.ones(2, dtype=np.int64), steps=24)
    for one in episodes.episodes:
        assert np.concatenate(one.x).tolist() == list(range(len(one)))
    assert sorted(len(one) for one in episodes.episodes if one.terminated) == [4] * 4 + [5] * 3
    env.close()


def test_other_autoreset_modes_are_refused() -> None:
    with pytest.raises(InputError, match="SAME_STEP, got NEXT_STEP"):
        record(gymnasium.vector.SyncVectorEnv([Counting]))


def test_seed_gives_the_same_recording() -> None:
    first, again, other = (record("CartPole-v1", steps=50, seed=seed).sequences().x for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_error_of_the_environment_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the simulator broke"):
        record(Counting(fails_at=7), steps=100, out=tmp_path / "part.npz")
    assert Episodes.load(tmp_path / "part.npz").steps == 6


def test_saved_episodes_are_the_same_and_fit_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "episodes.npz"
    episodes = record(Counting(3), steps=30, out=path)
    loaded = Episodes.load(path)
    for name, value in episodes.sequences(True, True).named().items():
        assert torch.equal(value, loaded.sequences(True, True).named()[name])
    assert len(tdvae.prepare(path, longest_jump=2).train) > 0
    with pytest.raises(InputError, match="out: expected a new file"):
        record(Counting(), steps=3, out=path)


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match="file: expected episodes of `tdvae record`"):
        Episodes.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("env", "policy", "message"),
    [
        ("NoSuchEnv-v0", "random", "env: expected the id of a Gymnasium environment, got 'NoSuchEnv-v0'"),
        (3, "random", "env: expected a Gymnasium environment"),
        (Counting(), "greedy", "policy: expected 'random'"),
    ],
)
def test_what_cannot_be_recorded_is_refused(env: Any, policy: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        record(env, policy)


def test_minari_episodes_have_the_actions_that_led_to_their_observations() -> None:
    one = SimpleNamespace(
        observations=np.arange(3.0)[:, None],
        actions=np.array([2, 0]),
        rewards=np.array([0.5, 1.0]),
        terminations=np.array([False, True]),
        truncations=np.array([False, False]),
    )
    dataset = SimpleNamespace(
        observation_space=spaces.Box(0, 9, (1,)), action_space=spaces.Discrete(3), iterate_episodes=lambda: [one]
    )
    (episode,) = from_minari(dataset).episodes
    assert np.stack(episode.actions).tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert (episode.rewards, episode.terminated, episode.truncated) == ([0, 0.5, 1], True, False)
    if importlib.util.find_spec("minari") is None:
        with pytest.raises(InputError, match="dataset: expected the package minari"):
            from_minari("cartpole/random-v0")


# Short episodes


def test_jumps_are_limited_to_their_sequence() -> None:
    lengths = torch.tensor([1, 3, 20])
    pairs = WithinSequence(Uniform(1, 8)).sample(lengths, 400, torch.Generator().manual_seed(0))
    assert bool((pairs.t2 <= lengths[:, None]).all() & (pairs.dt >= 1).all() & (pairs.t1 >= 0).all())
    assert pairs.dt.amax(1).tolist() == [1, 3, 8]


def test_long_sequences_have_the_same_pairs_as_without_the_limit() -> None:
    lengths = torch.full((4,), 30)
    limited, plain = (
        jumps.sample(lengths, 50, torch.Generator().manual_seed(1)).dt
        for jumps in (SemiGradient(WithinSequence(Uniform(1, 8))), SemiGradient(Uniform(1, 8)))
    )
    assert torch.equal(limited, plain)


# Actions of a jump


def test_a_held_action_is_the_same_as_its_repetitions() -> None:
    model = small_model(summary=LegendreSummary(3))
    state, a = model.sample_state(model.initial(2), 3), torch.eye(3)[:2]
    drawn = []
    for actions in (a[:, None], a[:, None].expand(2, 4, 3)):
        torch.manual_seed(0)
        drawn.append(model.transition(state, 4, actions.expand(3, *actions.shape)).z.flat)
    assert torch.equal(*drawn)


def test_legendre_moments_lose_nothing_of_jumps_up_to_their_order() -> None:
    moments, dt = LegendreMoments(1, 4), torch.tensor([4])
    matrix = torch.cat([moments(row[None, :, None], dt) for row in torch.eye(4)])
    assert int(torch.linalg.matrix_rank(matrix)) == 4
    held = moments(torch.full((1, 4, 1), 2.5), dt)[0]
    assert float(held[0]) == pytest.approx(2.5)  # the mean
    padded = moments(torch.cat([torch.full((1, 4, 1), 2.5), torch.full((1, 3, 1), 9.0)], dim=1), dt)[0]
    assert torch.allclose(padded, held)


# Beliefs


@pytest.mark.filterwarnings("ignore:.*(infinity|unwrapped):UserWarning")  # no bounds; it is a wrapper
@pytest.mark.parametrize("kind", ["code", "moments"])
def test_wrapped_environment_passes_the_check(kind: Any) -> None:
    gymnasium.register("tdvae-test/Counting-v0", lambda **_: Counting())
    try:
        check_env(BeliefObservation(gymnasium.make("tdvae-test/Counting-v0"), small_model(), kind))
    finally:
        gymnasium.registry.pop("tdvae-test/Counting-v0")


def test_the_features_are_those_of_updates_by_hand() -> None:
    model = small_model()
    env = BeliefObservation(Counting(), model)
    given = [env.reset(seed=0)[0], env.step(2)[0]]
    belief = model.update(model.initial(1), torch.zeros(1, 1), torch.zeros(1, 3))
    expected = [model.belief_features(belief)]
    belief = model.update(belief, torch.ones(1, 1), torch.tensor([[0.0, 0.0, 1.0]]))
    expected.append(model.belief_features(belief))
    assert np.array_equal(np.stack(given), torch.cat(expected).numpy())


def test_vector_beliefs_are_those_of_single_environments() -> None:
    """With resets and final observations, at different times in each environment."""
    model, lengths = small_model(), (3, 4)
    recorder = Recorder(Counting().observation_space, Counting().action_space, 2)
    together = VecBelief(DummyVecEnv([lambda n=n: Counting(n) for n in lengths]), model, recorder=recorder)  # type: ignore[misc]
    alone = [BeliefObservation(Counting(n), model) for n in lengths]
    given, single = together.reset(), [env.reset()[0] for env in alone]
    for t in range(9):
        assert np.allclose(given, np.stack(single), atol=1e-6)
        given, _, done, infos = together.step(np.array([t % 3, 1]))
        for row, env in enumerate(alone):
            single[row], _, terminated, _, _ = env.step((t % 3, 1)[row])
            assert done[row] == terminated
            if terminated:
                assert np.allclose(infos[row]["terminal_observation"], single[row], atol=1e-6)
                single[row] = env.reset()[0]
    assert recorder.episodes().steps == 18
    assert sum(one.terminated for one in recorder.episodes().episodes) == 3 + 2


def test_nan_is_refused_and_the_belief_is_as_before() -> None:
    model, env = small_model(), Counting()
    tracker = BeliefTracker(model, env.observation_space, env.action_space, 2)
    tracker.begin(np.zeros((2, 1)))
    before = tracker.belief
    with pytest.raises(InputError, match="x: expected finite numbers"):
        tracker.step(np.array([0, 1]), np.array([[1.0], [np.nan]]), np.zeros(2))
    assert tracker.belief is before
    tracker.step(np.array([0, 1]), np.ones((2, 1)), np.zeros(2))


def test_without_observation_a_model_is_told_so_or_given_its_own_forecast() -> None:
    env = Counting(20)
    for model in (
        small_model(decoder=Gaussian(noise="predicted", missing_values=True)),
        small_model(),
        build(NextStepConfig(actions=3, belief=LSTM(4))),
    ):
        trackers = [BeliefTracker(model, env.observation_space, env.action_space, observe_every=k) for k in (3, 3, 1)]
        features = []
        for number, tracker in enumerate(trackers):
            torch.manual_seed(0)
            tracker.begin(np.zeros((1, 1)))
            unseen = [tracker.step(np.zeros(1), np.full((1, 1), 5.0 * number), np.zeros(1)) for _ in range(2)]
            features.append(np.concatenate([*unseen, tracker.step(np.zeros(1), np.ones((1, 1)), np.zeros(1))]))
        assert np.array_equal(features[0], features[1])  # what was not observed has no effect
        assert not np.array_equal(features[0], features[2])


def test_models_can_be_swapped() -> None:
    first, second = small_model(), small_model()
    with torch.no_grad():
        second.belief.first.add_(1.0)
    env = BeliefObservation(Counting(), first)
    before = env.reset()[0]
    env.use(second)
    assert not np.array_equal(before, env.reset()[0])


@pytest.mark.parametrize(("actions", "event"), [(2, 1), (3, 2)])
def test_a_model_of_other_spaces_is_refused(actions: int, event: int) -> None:
    with pytest.raises(InputError, match=r"env: expected observations .* as in the model"):
        BeliefObservation(Counting(), small_model(actions, event))


# Rewards and ends


def outcome_data() -> tuple[Any, Sequences]:
    """Every episode ends after four steps; the reward is the action."""
    episodes = record(Counting(), lambda observation: int(observation[0]) % 3, steps=40)
    model = small_model(summary=LegendreSummary(3))
    return model, episodes.sequences(rewards=True, ends=True)


def test_jumps_beyond_the_end_sum_the_rewards_up_to_it() -> None:
    model, data = outcome_data()
    longer = _past_the_end(data, 3)
    assert longer.lengths.tolist() == [8] * 10
    assert longer.rewards is not None
    assert longer.rewards[0].tolist() == [0, 0, 1, 2, 0, 0, 0, 0]

    class Known(Outcomes):
        """Predicts 3 for sure, and an end for sure."""

        def forward(self, step: Any, z2: Any, dt: Tensor) -> Any:
            mean = torch.full((*dt.shape, 1), 3.0)
            return tdvae.distributions.DiagonalNormal(mean, torch.zeros_like(mean)), torch.full_like(mean, -50.0)

    learner = OutcomeLearner(model, Known(model))
    one = longer.select(slice(0, 1))
    into, beyond = (learner(one, Pairs(torch.tensor([[1]]), torch.tensor([[t2]]))) for t2 in (5, 8))
    assert float(into.reward) == float(beyond.reward) == pytest.approx(0.5 * np.log(2 * np.pi))  # 0 + 1 + 2 + 0
    assert float(beyond.ending) < 1e-6
    goes_on = learner(one, Pairs(torch.tensor([[1]]), torch.tensor([[4]])))
    assert float(goes_on.ending) > 40
    after = learner(one, Pairs(torch.tensor([[5]]), torch.tensor([[8]])))  # begins when all is over
    assert float(after.total) == 0


def test_outcomes_are_learned_saved_and_loaded(tmp_path: Path) -> None:
    model, data = outcome_data()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    outcomes = fit_outcomes(model, data, 3, tmp_path / "run", steps=3)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights.items())
    loaded = load_outcomes(model, tmp_path / "run")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in outcomes.state_dict().items())
    with pytest.raises(InputError, match="data: expected rewards and ends"):
        fit_outcomes(model, Sequences(data.x, data.lengths, data.actions), 3, tmp_path / "other")


def test_imagined_environment_passes_the_check_and_follows_its_seed() -> None:
    model = small_model(summary=LegendreSummary(3))
    env = ImaginedEnv(model, Outcomes(model), spaces.Discrete(3), dt=4, length=5)
    histories = []
    for _ in range(2):
        first, _ = env.reset(seed=3)
        histories.append(np.stack([first, *(env.step(action)[0] for action in (0, 2, 1))]))
    assert np.array_equal(histories[0], histories[1])
    steps = [env.step(0) for _ in range(2)]
    assert steps[-1][3]  # truncated after five steps
    assert all(np.isfinite(step[1]) for step in steps)
    with pytest.raises(InputError, match="action_space: expected 3 numbers"):
        ImaginedEnv(model, Outcomes(model), spaces.Discrete(2))


# Planning


@pytest.mark.parametrize("space", [spaces.Box(-2, 2, (1,)), spaces.Discrete(4)])
def test_cross_entropy_finds_the_best_plan(space: Any) -> None:
    target = torch.tensor([1.5]) if isinstance(space, spaces.Box) else torch.eye(4)[2]
    search = {"candidates": 200, "iterations": 6, "elites": 10}

    def score(plans: Tensor) -> Tensor:
        return -(plans - target).square().sum((-1, -2))

    proposals = Proposals(space, 3, 2)
    first = cross_entropy(score, proposals, torch.Generator().manual_seed(0), **search)
    assert first.shape == (3, len(target))
    assert torch.allclose(first, target.expand(3, -1), atol=0.1)


def test_planner_returns_actions_of_the_environment() -> None:
    model = small_model(summary=LegendreSummary(3))
    settings = {"candidates": 6, "iterations": 1, "elites": 2, "horizon": 2}
    for single_steps in (False, True):
        planner = Planner(model, Outcomes(model), spaces.Discrete(3), 4, single_steps=single_steps, **settings)
        actions = planner(model.initial(5))
        assert actions.shape == (5,)
        assert set(actions.tolist()) <= {0, 1, 2}


# Policies and rounds


def test_restored_agent_is_the_saved_one(tmp_path: Path) -> None:
    settings = PolicySettings(envs=2, n_steps=8, batch_size=8)
    agent, other = (Agent(Counting, small_model(), settings, seed) for seed in (0, 1))
    agent.train(32, seed=0)
    agent.save(tmp_path / "agent")
    other.restore(tmp_path / "agent")
    assert agent.evaluate(4, seed=1).tolist() == other.evaluate(4, seed=1).tolist()


ROUNDS = Rounds(
    rounds=2,
    first_steps=40,
    policy_steps=32,
    last_policy_steps=32,
    longest_jump=6,  # longer than an episode
    fit_steps=2,
    refit_steps=2,
    model=SMALL,
    policy=PolicySettings(envs=2, n_steps=16, batch_size=16),
)


def weights_of(model: Model) -> Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_interrupted_rounds_go_on_to_the_same_result(tmp_path: Path) -> None:
    said: list[str] = []
    whole = learn(Counting, ROUNDS, tmp_path / "whole", 3, episodes=3, say=said.append)
    assert [round(entry["interactions"]) for entry in whole.history] == [72, 104]
    assert len(said) == 2

    class StopError(Exception):
        pass

    def stop(text: str) -> None:
        raise StopError

    with pytest.raises(StopError):
        learn(Counting, ROUNDS, tmp_path / "parts", 3, episodes=3, say=stop)
    parts = learn(Counting, ROUNDS, tmp_path / "parts", 3, resume=True, episodes=3, say=said.append)
    assert torch.equal(weights_of(whole.model), weights_of(parts.model))
    assert [entry["return_mean"] for entry in whole.history] == [entry["return_mean"] for entry in parts.history]
    with pytest.raises(InputError, match="resume: expected the settings"):
        learn(Counting, ROUNDS, tmp_path / "parts", 4, resume=True)


def test_what_was_recorded_before_an_error_is_kept(tmp_path: Path) -> None:
    broken = [Counting(fails_at=None), Counting(fails_at=10)]  # the first one is for the random recording
    with pytest.raises(RuntimeError, match="the simulator broke"):
        learn(lambda: broken.pop(0) if broken else Counting(), ROUNDS, tmp_path / "run", say=lambda text: None)
    assert Episodes.load(tmp_path / "run" / "round-1" / "episodes.npz").steps > 0


def test_ppo_learns_on_beliefs_through_the_wrapper() -> None:
    env = VecBelief(DummyVecEnv([Counting] * 2), small_model())
    policy = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu", seed=0)
    before = [value.clone() for value in policy.policy.parameters()]
    policy.learn(16)
    assert policy.num_timesteps == 16
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.policy.parameters(), strict=True))


# The experiment


def test_smoke_preset_of_the_experiment_measures_every_input_and_planner(tmp_path: Path) -> None:
    from tdvae_paper.agents import EXPERIMENT
    from tdvae_paper.runner import run

    run(EXPERIMENT, "smoke", None, tmp_path / "run", tmp_path, resume=False)
    measures = json.loads((tmp_path / "agents.json").read_text())["measures"]
    inputs = set(EXPERIMENT.presets["smoke"].inputs["noisy_cartpole"])
    for measure in ("return", "environment_steps", "seconds"):
        assert set(measures[measure]["noisy_cartpole"]) == inputs
    steps = {entry["mean"] for entry in measures["environment_steps"]["noisy_cartpole"].values()}
    assert steps == {64 + 128 + 128}  # equal for all inputs
    assert set(measures["planning_return"]) == set(measures["planning_seconds"]) == {"jumps", "steps", "true"}
    hidden = measures["belief_r2"]["noisy_cartpole"]["kalman"]
    assert hidden["x_velocity"]["mean"] > 0.5  # the filter knows the velocity, which a single observation does not show
    assert measures["belief_r2"]["noisy_cartpole"]["last"]["x_velocity"]["mean"] < 0.3


def test_the_filter_follows_the_cart_pole_when_it_is_told_the_truth() -> None:
    """Without noise in the observations its mean is the state: it has the dynamics of the environment."""
    from tdvae_paper.agents.worlds import CartPoleFilter, noisy_cartpole

    filtered = CartPoleFilter(noisy_cartpole())
    state = np.array([0.03, 0.2, -0.02, 0.1])
    env: Any = filtered.unwrapped
    filtered.reset(seed=0)
    env.state, filtered.mean, filtered.cov = state, state.copy(), np.zeros((4, 4))
    for action in (0, 1, 1, 0):
        filtered.mean = filtered._moved(filtered.mean, 10.0 if action else -10.0)
        env.step(action)
        assert np.allclose(filtered.mean, env.state, atol=1e-9)
