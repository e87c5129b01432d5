"""A PPO agent of Stable-Baselines3 on beliefs, or on plain observations; saved without pickles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from tdvae.agents.extra import (
    PPO,
    DummyVecEnv,
    OnPolicyAlgorithm,
    RunningMeanStd,
    VecNormalize,
    evaluate_policy,
    set_random_seed,
)
from tdvae.agents.vector import VecBelief
from tdvae.checks import Positive, check_fields
from tdvae.data.episodes import Recorder
from tdvae.models import Model
from tdvae.models.base import FeatureKind
from tdvae.storage import checkpoint

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
EVALUATION_ENVS = 8


@dataclass(frozen=True)
class PolicySettings:
    """Settings of PPO. Observations and rewards are normalised by their running mean and spread."""

    envs: Positive = 8
    n_steps: Positive = 128  # of one environment between updates
    batch_size: Positive = 256
    learning_rate: float = 1e-3
    gamma: float = 0.99
    features: FeatureKind = "code"  # of the belief
    recurrent: bool = False  # an LSTM policy (sb3-contrib's RecurrentPPO)
    further: dict[str, Any] = field(default_factory=dict)  # arguments of PPO

    def __post_init__(self) -> None:
        check_fields(self)


class Agent:
    """A policy with the environments it learns in. With ``model=None`` it is given the plain observations."""

    def __init__(
        self, make_env: MakeEnv, model: Model | None, settings: PolicySettings, seed: int, record: bool = True
    ) -> None:
        self.make_env, self.model, self.settings = make_env, model, settings
        plain = DummyVecEnv([make_env] * settings.envs)
        spaces = plain.observation_space, plain.action_space
        self.recorder = Recorder(*spaces, settings.envs) if record else None
        beliefs = VecBelief(plain, model, settings.features, recorder=self.recorder)
        self.normaliser = VecNormalize(beliefs, norm_obs=True, norm_reward=True, gamma=settings.gamma)
        self.ppo = self._algorithm(seed)

    def _algorithm(self, seed: int) -> OnPolicyAlgorithm:
        settings = self.settings
        arguments: dict[str, Any] = {
            "n_steps": settings.n_steps,
            "batch_size": settings.batch_size,
            "learning_rate": settings.learning_rate,
            "gamma": settings.gamma,
            "seed": seed % 2**32,
            "device": "cpu",
            **settings.further,
        }
        if not settings.recurrent:
            return PPO("MlpPolicy", self.normaliser, **arguments)
        from sb3_contrib import RecurrentPPO

        hidden = {"lstm_hidden_size": 64}
        return RecurrentPPO("MlpLstmPolicy", self.normaliser, policy_kwargs=hidden, **arguments)

    def train(self, steps: int, seed: int) -> None:
        """So many steps of all environments together. The result depends on the weights and the seed only."""
        set_random_seed(seed % 2**32)
        self.normaliser.seed(seed % 2**31)
        self.ppo._last_obs = None  # begin with new episodes
        self.ppo.learn(steps, reset_num_timesteps=True)

    def evaluate(self, episodes: int, seed: int) -> npt.NDArray[np.float64]:
        """The returns of episodes with the most likely actions, in environments of their own."""
        plain = DummyVecEnv([self.make_env] * EVALUATION_ENVS)
        env = VecNormalize(VecBelief(plain, self.model, self.settings.features), training=False, norm_reward=False)
        env.obs_rms = self.normaliser.obs_rms
        env.seed(seed % 2**31)
        returns, _ = evaluate_policy(self.ppo, env, episodes, return_episode_rewards=True, warn=False)
        env.close()
        return np.array(returns, dtype=np.float64)

    def save(self, path: Path) -> None:
        """Write the policy and the normalisation as safetensors."""
        optimizer = checkpoint.optimizer_tensors(self.ppo.policy.optimizer)
        means = self.normaliser.obs_rms, self.normaliser.ret_rms
        statistics = {
            f"{name}.{part}": torch.as_tensor(np.asarray(getattr(rms, part)))
            for name, rms in zip(("observation", "return"), means, strict=True)
            for part in ("mean", "var", "count")
        }
        policy = dict(self.ppo.policy.state_dict())
        checkpoint.save(path, {"policy": policy, "optimizer": optimizer, "statistics": statistics}, {})

    def restore(self, path: Path) -> None:
        """Take over what `save` wrote."""
        saved = checkpoint.load(path).tensors
        self.ppo.policy.load_state_dict(saved["policy"])
        checkpoint.restore_optimizer(self.ppo.policy.optimizer, saved["optimizer"])
        for name in ("observation", "return"):
            rms = RunningMeanStd()
            rms.mean, rms.var, count = (
                saved["statistics"][f"{name}.{part}"].numpy() for part in ("mean", "var", "count")
            )
            rms.count = float(count)
            setattr(self.normaliser, {"observation": "obs_rms", "return": "ret_rms"}[name], rms)

    def close(self) -> None:
        self.normaliser.close()
