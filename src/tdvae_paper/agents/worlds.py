"""The tasks, and what a policy can be given of them: one or several observations, a filter's belief, the full state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tdvae.data.spaces import batched, vector_size, vectors
from tdvae.errors import InputError

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Env = gymnasium.Env[Any, Any]

FRAMES = 8
SIGMA = 0.2  # of the noise on both positions of the cart-pole (popgym's Medium)
HIDDEN = {
    "noisy_cartpole": ("x", "x_velocity", "angle", "angular_velocity"),
    "pendulum_no_velocity": ("angular_velocity",),
}


def noisy_cartpole() -> Env:
    """POPGym's NoisyPositionOnlyCartPole: 200 steps at most, a reward of 1 / 200 for each."""
    try:
        import popgym  # noqa: F401  # registers its environments
    except ImportError as error:
        raise InputError("agents: expected popgym, which is not installed; pip install 'tdvae[agents]'") from error
    return gymnasium.make("popgym-NoisyPositionOnlyCartPoleMedium-v0", disable_env_checker=True)


class NoVelocity(gymnasium.ObservationWrapper[Floats, Any, Any]):
    """Gymnasium's pendulum, of which only cosine and sine of the angle are observed."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1", disable_env_checker=True))
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self, observation: Floats) -> Floats:
        return observation[:2]


WORLDS: dict[str, Callable[[], Env]] = {"noisy_cartpole": noisy_cartpole, "pendulum_no_velocity": NoVelocity}


def hidden_state(task: str, env: Env) -> Doubles:
    """The variables of `HIDDEN`."""
    state: Any = env.unwrapped.state  # type: ignore[attr-defined]
    return np.asarray(state, dtype=np.float64)[(1 if task == "pendulum_no_velocity" else 0) :]


class Features(gymnasium.Wrapper[Floats, Any, Any, Any]):
    """Base class: another observation, made from each observation and the action before it."""

    def __init__(self, env: Env, size: int) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def begin(self, observation: Floats) -> Floats:
        """The first one of an episode."""
        raise NotImplementedError

    def after(self, action: Any, observation: Floats) -> Floats:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, Any]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.begin(observation).astype(np.float32), info

    def step(self, action: Any) -> tuple[Floats, Any, bool, bool, Any]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.after(action, observation).astype(np.float32), reward, terminated, truncated, info


class Frames(Features):
    """The last observations, each with the action before it."""

    def __init__(self, env: Env) -> None:
        self.nothing = np.zeros(vector_size(env.action_space), np.float32)
        super().__init__(env, FRAMES * (len(self.nothing) + vector_size(env.observation_space)))

    def begin(self, observation: Floats) -> Floats:
        first = np.concatenate([observation, self.nothing])
        self.last = deque([np.zeros_like(first)] * (FRAMES - 1) + [first], FRAMES)
        return np.concatenate(self.last)

    def after(self, action: Any, observation: Floats) -> Floats:
        taken = vectors(self.action_space, batched(self.action_space, action))[0]
        self.last.append(np.concatenate([observation, taken]))
        return np.concatenate(self.last)


class FullState(Features):
    """What is hidden, too: Markov's state."""

    def __init__(self, env: Env, task: str) -> None:
        self.task = task
        super().__init__(env, vector_size(env.observation_space) + len(HIDDEN[task]))

    def begin(self, observation: Floats) -> Floats:
        return np.concatenate([observation, hidden_state(self.task, self.env)])

    def after(self, action: Any, observation: Floats) -> Floats:
        return self.begin(observation)


class CartPoleFilter(Features):
    """Mean and standard deviations of an extended Kalman filter that knows the dynamics of the cart-pole."""

    GRAVITY, POLE, HALF_LENGTH, TOTAL, FORCE, TAU = 9.8, 0.1, 0.5, 1.1, 10.0, 0.02
    FIRST = 0.05**2 / 3  # variance of each variable at the reset: uniform on ± .05
    DRIFT = 1e-8  # variance per step, for what the linearisation leaves out

    def __init__(self, env: Env) -> None:
        super().__init__(env, 8)
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE / self.TOTAL)
        turn = self.GRAVITY / inertia
        self.jacobian = np.eye(4)
        self.jacobian[0, 1] = self.jacobian[2, 3] = self.TAU
        self.jacobian[3, 2] = self.TAU * turn
        self.jacobian[1, 2] = -self.TAU * turn * self.POLE * self.HALF_LENGTH / self.TOTAL

    def begin(self, observation: Floats) -> Floats:
        self.mean, self.cov = np.zeros(4), self.FIRST * np.eye(4)
        return self._correct(observation)

    def after(self, action: Any, observation: Floats) -> Floats:
        self.mean = self._moved(self.mean, self.FORCE if action == 1 else -self.FORCE)
        self.cov = self.jacobian @ self.cov @ self.jacobian.T + self.DRIFT * np.eye(4)
        return self._correct(observation)

    def _moved(self, state: Doubles, force: float) -> Doubles:
        """One step of Gymnasium's cart-pole (Euler)."""
        _, velocity, angle, turning = state
        cos, sin, mass = np.cos(angle), np.sin(angle), self.POLE * self.HALF_LENGTH
        push = (force + mass * turning**2 * sin) / self.TOTAL
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE * cos**2 / self.TOTAL)
        turn = (self.GRAVITY * sin - cos * push) / inertia
        change = np.array([velocity, push - mass * turn * cos / self.TOTAL, turning, turn])
        return state + self.TAU * change

    def _correct(self, observation: Floats) -> Floats:
        gain = self.cov[:, [0, 2]] @ np.linalg.inv(self.cov[np.ix_([0, 2], [0, 2])] + SIGMA**2 * np.eye(2))
        self.mean = self.mean + gain @ (observation - self.mean[[0, 2]])
        self.cov = self.cov - gain @ self.cov[[0, 2]]
        return np.concatenate([self.mean, np.sqrt(np.diagonal(self.cov))])


def make_input(task: str, name: str) -> Callable[[], Env]:
    """What makes a task whose observations are an input of `experiment.INPUTS`."""
    make = WORLDS[task]
    wrapped: dict[str, Callable[[], Env]] = {
        "frames": lambda: Frames(make()),
        "full": lambda: FullState(make(), task),
        "kalman": lambda: CartPoleFilter(make()),
    }
    return wrapped.get(name, make)
