"""Loss functions of TD-VAE, the state-space models and the next-step predictor, and the `Learner`.

If values are missing, the likelihood of x_t is that of its observed entries; of an x_t without any, it is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from tdvae.checks import checked, checks_of
from tdvae.distributions import Distribution
from tdvae.errors import ArgumentTypeError, InputError
from tdvae.models.base import Beliefs, Model
from tdvae.models.nextstep import NextStep
from tdvae.models.ssm import StateSpace, one_action
from tdvae.models.tdvae import TDVAE
from tdvae.nn.ladder import Ladder, LadderDistribution, for_each
from tdvae.types import ELBOTerms, Latent, LossTerms, Pairs, PredictionTerms, Sequences, State, Terms, repeated

KL = Literal["closed", "sampled"]
# Gradient of log p_B(z_t2 | b_t2). Its derivative at a fixed z_t2, the score, has mean zero. "path" leaves it out: this
# keeps the expected gradient, and removes noise that grows as p_B becomes narrower (Roeder et al. 2017).
Gradient = Literal["full", "path"]


class Transition(Protocol):
    """p_T(z_t2 | s_t1, δt, actions) for given s_t1, δt and actions."""

    def sample(self) -> tuple[Latent, LadderDistribution]: ...
    def given(self, z: Latent) -> LadderDistribution: ...


class StepParts(Protocol):
    """p(s_t2 | s_t1, δt, actions) = p_T p_D."""

    @property
    def p_T(self) -> Transition: ...
    def p_D(self, z: Latent) -> Distribution: ...


class TDVAEParts(Protocol):
    """Model interface that the loss uses: the symbols of Eq. 6."""

    @property
    def p_B(self) -> Ladder: ...
    @property
    def q_S(self) -> Ladder: ...
    def step(self, s1: State, dt: Tensor, actions: Tensor | None) -> StepParts: ...
    def features_after(self, before: Tensor | None, x: Tensor, dt: Tensor, actions: Tensor | None) -> Tensor | None: ...
    def filter(self, sequences: Sequences) -> Beliefs: ...


@checked
def pair_terms(
    model: TDVAEParts, sequences: Sequences, pairs: Pairs, kl: KL = "closed", gradient: Gradient = "full"
) -> LossTerms:
    r"""Eq. 6 for every pair, each term in the shape of the pairs; Eq. 5 if t2 = t1 + 1.

    For groups of K later times that share t1 (``pairs.shared``; ours, not the paper's), one z_t1 is drawn from q_S, to
    which all K times contribute, and each term is (N, G), divided by K. K times the total bounds the negative log of
    :math:`p(x_{t2^1} \dots x_{t2^K} | x_{\le t1})`; with K = 1 it is Eq. 6.

    With ``kl="sampled"`` the total is minus the log importance weight of the sample (z_t1, z_t2) for
    :math:`p(x_{t2} | x_{\le t1})`. It has zero variance if p_B and q_S are exact.
    """
    pairs.check_within(sequences)
    beliefs = model.filter(sequences.until(pairs.last or pairs.t2.flatten(1).amax(1)))  # b_t does not depend on x_>t
    return pair_terms_from_beliefs(beliefs, model, sequences, pairs, kl, gradient)


def pair_terms_from_beliefs(
    beliefs: Beliefs,
    model: TDVAEParts,
    sequences: Sequences,
    pairs: Pairs,
    kl: KL,
    gradient: Gradient = "full",
    samples: int | None = None,
) -> LossTerms:
    """Eq. 6 for every pair, given the beliefs; with ``samples``, for that many samples of z, (samples, …)."""
    t1, t2, dt, actions = pairs.t1, pairs.t2, pairs.dt, actions_between(sequences, pairs)
    b1, b2, x1 = beliefs.at(t1), beliefs.at(t2), beliefs.memory_at(t1)
    x2, observed2 = sequences.at(t2)
    if samples is not None:
        b1, b2, dt = (value.expand(samples, *value.shape) for value in (b1, b2, dt))
        x1, actions = repeated(x1, samples), repeated(actions, samples)

    z2, p_B2 = model.p_B.sample(b2)
    if gradient == "path":
        p_B2 = p_B2.detach()
    if pairs.semi_gradient:
        z2, p_B2 = _fixed_where(dt > 1, z2, p_B2)
    if pairs.shared:
        return _shared_terms(model, z2, p_B2, b1, b2, x1, (x2, observed2), dt, actions, kl)
    z1, q_S1 = model.q_S.sample(z2, b1, b2, dt, actions)
    p_B1 = model.p_B.given(z1, b1)
    step = model.step(State(z1, x1), dt, actions)
    return LossTerms(
        smoothing=_divergence(q_S1, p_B1, z1, kl),
        transition=p_B2.log_prob(z2) - step.p_T.given(z2).log_prob(z2),
        reconstruction=-step.p_D(z2).log_prob(x2, observed2),
    )


def _shared_terms(
    model: TDVAEParts,
    z2: Latent,
    p_B2: LadderDistribution,
    b1: Tensor,
    b2: Tensor,
    x1: Tensor | None,
    target: tuple[Tensor, Tensor | None],
    dt: Tensor,
    actions: Tensor | None,
    kl: KL,
) -> LossTerms:
    """The terms of groups of K later times (..., G, K) with one z_t1, each (..., G) and divided by K."""
    k = dt.shape[-1]
    z1, q_S1 = model.q_S.sample_shared(z2, b1, b2, dt, actions)
    p_B1 = model.p_B.given(z1, b1[..., 0, :])
    step = model.step(State(z1.map(partial(for_each, k)), x1), dt, actions)
    return LossTerms(
        smoothing=_divergence(q_S1, p_B1, z1, kl) / k,
        transition=(p_B2.log_prob(z2) - step.p_T.given(z2).log_prob(z2)).mean(-1),
        reconstruction=-step.p_D(z2).log_prob(*target).mean(-1),
    )


def _divergence(q: LadderDistribution, p: LadderDistribution, z: Latent, kl: KL) -> Tensor:
    """KL(q || p), in closed form or at the sample z."""
    return q.kl(p) if kl == "closed" else q.log_prob(z) - p.log_prob(z)


def _fixed_where(chosen: Tensor, z: Latent, p: LadderDistribution) -> tuple[Latent, LadderDistribution]:
    """The same state and distribution; where ``chosen`` they receive no gradient."""

    def cut(value: Tensor) -> Tensor:
        return torch.where(chosen.view(*chosen.shape, *[1] * (value.ndim - chosen.ndim)), value.detach(), value)

    return z.map(cut), p.map(cut)


def actions_between(sequences: Sequences, pairs: Pairs) -> Tensor | None:
    """The actions of each jump, a_{t1+1} … a_{t2}, padded to the longest jump, (N, ..., J, A).

    Times that share t1 have the same actions up to δt: their dimension is expanded, so that they are summarised once.
    """
    if sequences.actions is None:
        return None
    t1 = pairs.t1[..., :1] if pairs.shared else pairs.t1
    steps = torch.arange(int(pairs.dt.max()), device=t1.device)
    index = (t1[..., None] + steps).clamp(max=sequences.horizon - 1)
    rows = torch.arange(len(index), device=index.device).view(-1, *[1] * (index.ndim - 1))
    return sequences.actions[rows, index].expand(*pairs.t1.shape, -1, -1)


@checked
def tdvae_loss(
    model: TDVAEParts, sequences: Sequences, pairs: Pairs, kl: KL = "closed", gradient: Gradient = "full"
) -> LossTerms:
    """Eq. 6, averaged over sequences and pairs."""
    return pair_terms(model, sequences, pairs, kl, gradient).mean()


@checked
def subsequence_loss(model: TDVAEParts, sequences: Sequences, pairs: Pairs, kl: KL = "closed") -> LossTerms:
    """App. A: summed over the pairs (N, K, n - 1) of each subsequence, from `jumps.Subsequences`, then averaged."""
    if pairs.t1.ndim != 3:
        raise InputError(f"pairs: expected (N, K, n - 1) from jumps.Subsequences, got shape {tuple(pairs.t1.shape)}")
    return pair_terms(model, sequences, pairs, kl).map(lambda term: term.sum(-1).mean())


@checked
def elbo_terms(model: StateSpace, sequences: Sequences, kl: KL = "closed") -> ELBOTerms:
    """Eq. 1 at each time step, each term (N, T).

    With ``kl="sampled"`` the total, summed over time, is minus the log importance weight of the sample z_1 … z_T.
    """
    return elbo_terms_from_codes(model.read(model.filter(sequences).codes[:, 1:]), model, sequences, kl)


def elbo_terms_from_codes(b: Tensor, model: StateSpace, sequences: Sequences, kl: KL) -> ELBOTerms:
    """Eq. 1 at each time step, given the codes b_1 … b_T."""
    z = model.infer(b, sequences)
    before, actions = model.before(z, sequences), one_action(sequences.actions)
    q, step = model.q.given(z, b, before, actions), model.step(before, actions)
    p_T = step.p_T.given(z)
    return ELBOTerms(
        surprise=_divergence(q, p_T, z, kl),
        reconstruction=-step.p_D(z).log_prob(sequences.x, sequences.observed),
    )


@checked
def state_space_loss(model: StateSpace, sequences: Sequences, pairs: Pairs, kl: KL = "closed") -> ELBOTerms:
    """Eq. 1, averaged over all time steps without padding; ``pairs`` are not used."""
    return elbo_terms(model, sequences, kl).map(lambda term: _masked_mean(term, sequences))


def _masked_mean(values: Tensor, sequences: Sequences) -> Tensor:
    """The mean over time steps without padding, where values may be infinite."""
    return torch.where(sequences.mask, values, 0).sum() / sequences.mask.sum()


@checked
def next_step_loss(model: NextStep, sequences: Sequences, pairs: Pairs) -> PredictionTerms:
    """-log p(x_t | x_<t, a_≤t), averaged over all time steps without padding; ``pairs`` are not used."""
    log_prob = model.predictions(sequences).log_prob(sequences.x, sequences.observed)
    return PredictionTerms(_masked_mean(-log_prob, sequences))


Objective = Callable[..., Terms]


def _check_suits(model: Model, objective: Objective) -> None:
    """Raise if the first parameter of an objective is annotated with another kind of model."""
    try:
        first = next(iter(checks_of(getattr(objective, "func", objective)).items()), None)
    except (NameError, TypeError, ValueError):
        return  # no annotations that can be read
    if first is not None and first[0] == "model":
        try:
            first[1]("model", model)
        except ArgumentTypeError as error:
            name = getattr(getattr(objective, "func", objective), "__name__", "objective")
            raise InputError(f"objective: expected one for {type(model).__name__}, got {name} ({error})") from error


DEFAULT_OBJECTIVES: dict[type, Objective] = {
    TDVAE: tdvae_loss,
    StateSpace: state_space_loss,
    NextStep: next_step_loss,
}


class Learner(nn.Module):
    """A model and its objective. Calling it returns the terms of the loss.

    The default objective is `tdvae_loss` for TD-VAE, `state_space_loss` for state-space models and `next_step_loss` for
    the next-step predictor.

    >>> import torch, tdvae
    >>> model = tdvae.models.build(tdvae.TDVAEConfig(event_shape=(3,)))
    >>> sequences = tdvae.data.from_arrays(torch.randn(4, 12, 3))
    >>> pairs = tdvae.Pairs(t1=torch.tensor([[2]] * 4), t2=torch.tensor([[5]] * 4))
    >>> terms = tdvae.Learner(model)(sequences, pairs)
    >>> list(terms.named())
    ['smoothing', 'transition', 'reconstruction']
    """

    made_by = "tdvae.Learner(model) makes one"
    stacked = False  # True if each parameter holds the parameters of several runs

    @checked
    def __init__(self, model: Model, objective: Objective | None = None) -> None:
        super().__init__()
        if objective is not None:
            _check_suits(model, objective)
        self.model = model
        self.objective = objective or self._default_objective(model)

    @staticmethod
    def _default_objective(model: Model) -> Objective:
        for kind, objective in DEFAULT_OBJECTIVES.items():
            if isinstance(model, kind):
                return objective
        known = ", ".join(kind.__name__ for kind in DEFAULT_OBJECTIVES)
        name = type(model).__name__
        raise InputError(f"objective: expected a function for {name}, got None; only {known} have a default")

    def forward(self, sequences: Sequences, pairs: Pairs) -> Terms:
        return self.objective(self.model, sequences, pairs)

    def describe(self) -> dict[str, object]:
        return self.model.describe()

    def describe_objective(self) -> str:
        """The name of the objective and its keyword arguments."""
        function = getattr(self.objective, "func", self.objective)
        name = getattr(function, "__name__", type(function).__name__)  # not repr, which contains an address
        keywords = [f"{k}={v!r}" for k, v in getattr(self.objective, "keywords", {}).items()]
        return f"{name}({', '.join(keywords)})"

    def inner_weights(self) -> list[nn.Parameter]:
        """The weights of the layers that are marked as inner, for Muon."""
        return [module.get_parameter("weight") for module in self.modules() if getattr(module, "inner", False)]

    def clip_gradients(self, norm: float) -> Tensor:
        """Clip the gradient to at most ``norm``; returns its norm before clipping."""
        return nn.utils.clip_grad_norm_(self.parameters(), norm)
