"""Episodes of Gymnasium environments: recorded with any policy, saved as .npz, given to training as sequences."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from tdvae.checks import Positive, Seed, checked
from tdvae.data.arrays import from_arrays
from tdvae.data.lanes import lanes_of
from tdvae.data.recording import check_new_file
from tdvae.data.spaces import batched, observations, to_x, vector_size, vectors
from tdvae.errors import InputError
from tdvae.storage.files import check_content, open_regular, temporary_path
from tdvae.types import Sequences

if TYPE_CHECKING:
    from gymnasium import Space

Array = npt.NDArray[Any]
Policy = Callable[[Any], Any]
ENDS = ("terminated", "truncated")  # how an episode ended: arrays of a file beside those of a data set


@dataclass
class Episode:
    """Lists of what happened, in order of time: the action at index t led to the observation at index t."""

    x: list[Array] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)  # of zeros before the first observation
    rewards: list[float] = field(default_factory=list)  # 0 with the first observation
    terminated: bool = False
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Episodes:
    """Recorded episodes. One that was neither terminated nor truncated was cut by the end of the recording."""

    episodes: tuple[Episode, ...]

    def __len__(self) -> int:
        return len(self.episodes)

    def __add__(self, other: Episodes) -> Episodes:
        return Episodes(self.episodes + other.episodes)

    @property
    def steps(self) -> int:
        """The number of interactions with the environment: a reset is none."""
        return sum(len(one) - 1 for one in self.episodes)

    @property
    def returns(self) -> npt.NDArray[np.float64]:
        """The sum of the rewards of each finished episode."""
        return np.array([sum(one.rewards) for one in self.episodes if one.terminated or one.truncated])

    def sequences(self, rewards: bool = False, ends: bool = False) -> Sequences:
        """The episodes as training data; without rewards and ends they are what a belief is learned from."""
        if not self.episodes:
            raise InputError("episodes: expected at least one, got none")
        data = from_arrays(
            [to_x(np.stack(one.x)) for one in self.episodes],
            actions=[np.stack(one.actions) for one in self.episodes],
            rewards=[np.array(one.rewards, dtype=np.float32) for one in self.episodes] if rewards else None,
        )
        if not ends:
            return data
        ended = torch.zeros(len(data), data.horizon, dtype=torch.bool)
        ended[torch.arange(len(data)), data.lengths - 1] = torch.tensor([one.terminated for one in self.episodes])
        return Sequences(**{**data.named(), "ended": ended})

    def save(self, path: str | Path) -> None:
        """Write a .npz file that `load` and `tdvae fit` read: padded arrays, and how each episode ended."""
        if not self.episodes:
            raise InputError("episodes: expected at least one, got none")
        lengths = np.array([len(one) for one in self.episodes])
        arrays: dict[str, Any] = {
            name: _padded([np.stack(getattr(one, name)) for one in self.episodes], lengths.max())
            for name in ("x", "actions")
        }
        arrays["rewards"] = _padded([np.array(one.rewards, np.float32) for one in self.episodes], lengths.max())
        for name in ENDS:
            arrays[name] = np.array([getattr(one, name) for one in self.episodes])
        path = Path(path)
        temporary = temporary_path(path)
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, lengths=lengths, **arrays)
        temporary.replace(path)

    @staticmethod
    def load(path: str | Path) -> Episodes:
        """Read what `save` wrote."""
        names = ("x", "actions", "rewards", "lengths", *ENDS)
        try:
            with open_regular(Path(path), follow=True) as file:
                with zipfile.ZipFile(file) as found:
                    check_content(Path(path), sum(entry.file_size for entry in found.infolist()))
                file.seek(0)
                arrays = dict(np.load(file, allow_pickle=False))
            x, actions, rewards, lengths, terminated, truncated = (arrays[name] for name in names)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"file: expected episodes of `tdvae record`, got {path} ({error})") from error
        return Episodes(
            tuple(
                Episode(list(x[i, :n]), list(actions[i, :n]), rewards[i, :n].tolist(), *map(bool, ends))
                for i, (n, *ends) in enumerate(zip(lengths, terminated, truncated, strict=True))
            )
        )


def _padded(parts: Sequence[Array], length: int) -> Array:
    padded = np.zeros((len(parts), length, *parts[0].shape[1:]), parts[0].dtype)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


class Recorder:
    """Collects the episodes of ``n`` environments side by side. What it has collected is never lost."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], n: int = 1) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.nothing = np.zeros(vector_size(action_space), np.float32)
        self.finished: list[Episode] = []
        self.current = [Episode() for _ in range(n)]

    def begin(self, x: Array, rows: Sequence[int] | Array) -> None:
        """First observations (N, …) of new episodes in some rows; what was not finished there is cut."""
        for row in rows:
            self._put(row)
            self.current[row] = Episode([x[row]], [self.nothing], [0.0])

    def step(self, actions: Array, x: Array, rewards: Array, terminated: Array, truncated: Array, rows: Array) -> None:
        """One step of some rows; all arrays are (N, …). Ended rows wait for `begin`."""
        for row in rows:
            episode = self.current[row]
            episode.x.append(x[row])
            episode.actions.append(actions[row])
            episode.rewards.append(float(rewards[row]))
            episode.terminated, episode.truncated = bool(terminated[row]), bool(truncated[row])

    def _put(self, row: int) -> None:
        if len(self.current[row]) > 1:  # a first observation alone is no interaction
            self.finished.append(self.current[row])

    def episodes(self) -> Episodes:
        """All episodes so far; those under way are cut and begin anew at the next observation."""
        return Episodes((*self.finished, *(one for one in self.current if len(one) > 1)))


def from_minari(dataset: Any) -> Episodes:
    """The episodes of a Minari data set, given as `minari.load_dataset` returns it, or by its id."""
    if isinstance(dataset, str):
        try:
            import minari
        except ImportError as error:
            raise InputError(
                "dataset: expected the package minari, which is not installed; pip install minari"
            ) from error
        dataset = minari.load_dataset(dataset)
    nothing = np.zeros(vector_size(dataset.action_space), np.float32)
    return Episodes(
        tuple(
            Episode(
                list(observations(dataset.observation_space, one.observations)),
                [nothing, *vectors(dataset.action_space, one.actions)],
                [0.0, *np.asarray(one.rewards, dtype=np.float32).tolist()],
                bool(one.terminations[-1]),
                bool(one.truncations[-1]),
            )
            for one in dataset.iterate_episodes()
        )
    )


@checked
def record(
    env: Any,
    policy: Any = "random",
    steps: Positive = 10_000,
    seed: Seed = 0,
    out: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Episodes:
    """Record at least ``steps`` steps of an environment.

    Args:
        env: a Gymnasium environment or its id; a Gymnasium or Stable-Baselines3 vector environment. Spaces may be Box,
            Discrete, MultiDiscrete or a Dict of these.
        policy: "random"; a function from the observation to an action, with a first dimension of environments if
            there are several; or a Stable-Baselines3 model.
        steps: interactions of all environments together.
        seed: of the environment and of random actions.
        out: a new .npz file. It is also written if the environment raises an error on the way.
        progress: called with the number of steps so far.

    >>> import tdvae
    >>> episodes = tdvae.data.record("CartPole-v1", steps=100, seed=1)
    >>> episodes.sequences().actions.shape[-1]
    2
    """
    path = None if out is None else check_new_file(out)
    lanes = lanes_of(env)
    recorder = Recorder(lanes.observation_space, lanes.action_space, lanes.count)
    try:
        _record(lanes, recorder, _actor(policy, lanes, seed), steps, seed, progress)
    finally:
        if path is not None and len(recorder.episodes()):
            recorder.episodes().save(path)
        lanes.close()
    return recorder.episodes()


def _record(
    lanes: Any, recorder: Recorder, act: Policy, steps: int, seed: int, progress: Callable[[int], None] | None
) -> None:
    rows = np.arange(lanes.count)
    given = lanes.reset(seed)
    recorder.begin(observations(lanes.observation_space, given), rows)
    done = 0
    while done < steps:
        actions = act(given)
        stepped = lanes.step(actions)
        x = observations(lanes.observation_space, stepped.final)
        taken = vectors(lanes.action_space, actions)
        recorder.step(taken, x, stepped.rewards, stepped.terminated, stepped.truncated, rows)
        given = stepped.given
        if len(ended := np.flatnonzero(stepped.terminated | stepped.truncated)):
            recorder.begin(observations(lanes.observation_space, given), ended)
        done += lanes.count
        if progress is not None:
            progress(done)


def _actor(policy: Any, lanes: Any, seed: int) -> Policy:
    """A function from a batch of observations to a batch of actions."""
    if policy == "random":
        lanes.action_space.seed(seed)
        return lambda given: np.stack([lanes.action_space.sample() for _ in range(lanes.count)])
    if hasattr(policy, "predict"):
        return lambda given: policy.predict(given, deterministic=False)[0]
    if not callable(policy):
        raise InputError(f"policy: expected 'random', a function or a Stable-Baselines3 model, got {policy!r}")
    if lanes.several:
        return policy
    return lambda given: batched(lanes.action_space, policy(lanes.first(given)))
