"""Rewards and ends: the sum of rewards over a jump, and whether the episode goes on, predicted from the state.

They are learned after the model, whose weights stay as they are: a reward then cannot make the belief forget what
predicts observations, and one model serves several tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.checks import Positive, Seed, checked
from tdvae.distributions import DiagonalNormal
from tdvae.errors import CheckpointError, InputError
from tdvae.jumps import Jumps, Mixture, Uniform, WithinSequence
from tdvae.models import TDVAE, arguments
from tdvae.models.base import Step
from tdvae.models.tdvae import TransitionLadder
from tdvae.nn.dense import ResidualMap
from tdvae.objectives import Learner, actions_between
from tdvae.storage import RunFolder, checkpoint
from tdvae.training import TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.types import Pairs, Sequences, State, Terms

INITIAL_WEIGHTS = 805  # purpose of a derived seed
LEAST_LOG_SIGMA = -4.0  # of a reward, in its own spread: rewards may be deterministic
HIDDEN = 64


@dataclass(frozen=True)
class OutcomeTerms(Terms):
    """Negative log likelihoods of the rewards of a jump, and of whether the episode goes on."""

    reward: Tensor
    ending: Tensor


class Outcomes(nn.Module):
    """p(R, c | s_t1, s_t2, δt, a): R = r_{t1+1} + … + r_{t2} is normal, and c, that no end came by t2, Bernoulli."""

    scale: Tensor

    def __init__(self, model: TDVAE, hidden: int = HIDDEN) -> None:
        super().__init__()
        if not isinstance(model.p_T, TransitionLadder):
            raise InputError(f"model: expected a TD-VAE of vectors, got one of {model.config.event_shape}")
        observed = 0 if model.memory is None else model.memory.size
        self.map = ResidualMap(model.p_T.features_size + sum(model.state_sizes) + observed, 3, hidden, blocks=2)
        self.register_buffer("scale", torch.tensor([0.0, 1.0]))  # mean and spread of one reward

    def forward(self, step: Step, after: State, dt: Tensor) -> tuple[DiagonalNormal, Tensor]:
        """The distribution of R, and the logit of c, each (..., 1)."""
        features = [step.p_T.context.features, after.z.flat, *([] if after.x is None else [after.x])]
        mean, log_sigma, logit = self.map(torch.cat(features, dim=-1)).split(1, dim=-1)
        steps = dt[..., None].to(mean.dtype)
        log_scale = (self.scale[1] * steps).log()
        log_sigma = LEAST_LOG_SIGMA + F.softplus(log_sigma - LEAST_LOG_SIGMA)
        return DiagonalNormal(steps * (self.scale[0] + self.scale[1] * mean), log_sigma + log_scale), logit


class OutcomeLearner(Learner):
    """A trained model, whose weights are fixed, and the outcomes that are learned."""

    def __init__(self, model: TDVAE, outcomes: Outcomes) -> None:
        super().__init__(model)
        self.outcomes = outcomes
        model.requires_grad_(False)

    def forward(self, sequences: Sequences, pairs: Pairs) -> OutcomeTerms:
        model, actions = self.model, actions_between(sequences, pairs)
        assert isinstance(model, TDVAE)
        assert sequences.rewards is not None
        assert sequences.ended is not None
        with torch.no_grad():
            plain = Sequences(sequences.x, sequences.lengths, sequences.actions, observed=sequences.observed)
            z1, _ = model.p_B.sample(model.filter(plain).at(pairs.t1))
            before = State(z1, model.features_at(plain, pairs.t1))
            step = model.step(before, pairs.dt, actions)
            after = model.after_step(step, before, pairs.dt, actions)
        rewards, logit = self.outcomes(step, after, pairs.dt)
        total, ends = (_between(value, pairs) for value in (sequences.rewards, sequences.ended.float()))
        earlier = _between(sequences.ended.float(), Pairs(torch.zeros_like(pairs.t1), pairs.t1))
        alive = (earlier == 0).float()  # jumps that begin after the end count for nothing
        ending = F.binary_cross_entropy_with_logits(logit[..., 0], (ends == 0).float(), reduction="none")
        count = alive.sum().clamp(min=1)
        return OutcomeTerms((-rewards.log_prob(total[..., None]) * alive).sum() / count, (ending * alive).sum() / count)

    def describe_objective(self) -> str:
        return "outcomes"


def _between(values: Tensor, pairs: Pairs) -> Tensor:
    """The sums of values (N, T) over t1 < t ≤ t2."""
    sums = F.pad(values.cumsum(1), (1, 0))
    rows = torch.arange(len(sums))[:, None]
    return sums[rows, pairs.t2] - sums[rows, pairs.t1]


def _past_the_end(data: Sequences, steps: int) -> Sequences:
    """Sequences that ended for good, continued for some steps without reward: jumps may go beyond the end."""
    assert data.ended is not None
    more = torch.where(data.ended.any(1), steps, 0)
    horizon = int((data.lengths + more).max())
    source = torch.minimum(torch.arange(horizon), data.lengths[:, None] - 1)
    rows = torch.arange(len(data))[:, None]
    named = {name: value[rows, source] if value.ndim > 1 else value + more for name, value in data.named().items()}
    beyond = torch.arange(horizon) >= data.lengths[:, None]
    for name in ("rewards", "ended"):
        named[name] = named[name].masked_fill(beyond, 0)
    return Sequences(**named)


@checked
def fit_outcomes(
    model: TDVAE,
    data: Sequences,
    longest_jump: Positive,
    run_dir: str | Path,
    steps: Positive = 1_000,
    seed: Seed = 0,
    resume: bool = False,
) -> Outcomes:
    """Learn rewards and ends for a trained model, from `Episodes.sequences(rewards=True, ends=True)`."""
    if data.rewards is None or data.ended is None:
        raise InputError("data: expected rewards and ends, as episodes.sequences(rewards=True, ends=True) gives them")
    if model.config.rewards:
        raise InputError("model: expected one that is not given rewards, got rewards=True")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, INITIAL_WEIGHTS))
        outcomes = Outcomes(model)
    real = data.rewards[data.mask]
    spread = float(real.std()) if len(real) > 1 else 0.0
    outcomes.scale.copy_(torch.tensor([float(real.mean()), spread or 1.0]))
    jumps: Jumps = WithinSequence(Mixture((Uniform(1, 1), Uniform(1, longest_jump)), (0.5, 0.5)))
    config = TrainConfig(
        steps=steps,
        pairs=16,
        learning_rate=3e-3,
        schedule="cosine",
        clip=1.0,
        seed=seed,
        validate_every=steps,
        checkpoint_every=steps,
        accelerator="cpu",
    )
    learner = OutcomeLearner(model, outcomes)
    fit(learner, _past_the_end(data, longest_jump), jumps, config, run_dir, resume=resume, progress="none")
    return outcomes.eval().requires_grad_(False)


def load_outcomes(model: TDVAE, run_dir: str | Path) -> Outcomes:
    """The outcomes that `fit_outcomes` wrote for this model."""
    RunFolder(run_dir).read_config()
    weights = checkpoint.best_or_newest(Path(run_dir) / "checkpoints").tensors["weights"]
    outcomes = Outcomes(model)
    try:
        outcomes.load_state_dict(
            {k.removeprefix("outcomes."): v for k, v in weights.items() if k.startswith("outcomes.")}
        )
    except RuntimeError as error:
        raise CheckpointError(f"{run_dir}: expected outcomes of this model") from error
    return outcomes.eval().requires_grad_(False)


@torch.no_grad()
def jump(model: TDVAE, outcomes: Outcomes, state: State, dt: int, a: Tensor | None) -> tuple[State, Tensor, Tensor]:
    """Draw a state ``dt`` steps later; with the mean of the rewards and the probability to go on, both (...).

    A single action (..., 1, A) is held for the whole jump.
    """
    steps, a = arguments.check_jump(model, state, dt, a)
    step = model.step(state, steps, a)
    after = model.after_step(step, state, steps, a)
    rewards, logit = outcomes(step, after, steps)
    return after, rewards.mean[..., 0], torch.sigmoid(logit[..., 0])
