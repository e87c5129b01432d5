"""The next-step predictor: the same recurrent network, trained only to say what x_{t+1} will be."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.distributions import Distribution
from tdvae.models.base import RecurrentModel
from tdvae.models.config import NextStepConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences


class WithPrevious(BeliefNetwork):
    """A belief network that also carries what x_t was predicted from: the code of one step before, and the action
    between, which are the last ``actions`` numbers of its inputs."""

    def __init__(self, network: BeliefNetwork, actions: int) -> None:
        super().__init__()
        self.network, self.size, self.actions = network, network.size, actions

    def initial(self, batch: int) -> Belief:
        first = self.network.initial(batch)
        return Belief(first.code, (*first.carry, F.pad(first.code, (0, self.actions))))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        codes, last = self.network.scan(Belief(belief.code, belief.carry[:-1]), inputs)
        previous = codes[:, -2] if codes.shape[1] > 1 else belief.code
        action = inputs[:, -1, inputs.shape[-1] - self.actions :]
        return codes, Belief(last.code, (*last.carry, torch.cat([previous, action], dim=-1)))


class NextStep(RecurrentModel):
    """p(x_{t+1} | x_≤t, a_{t+1}) from b_t, and by feeding its own samples back, any later observation.

    It has no latent state: z_t is the recurrent network's own, (b_t, its carry, b_{t-1} and a_t). A transition of δt
    steps draws δt observations one after another; `decode` gives the distribution that the last one was drawn from.
    """

    def __init__(
        self, config: NextStepConfig, encoder: ObservationEncoder, belief: BeliefNetwork, read: nn.Module, head: Decoder
    ) -> None:
        super().__init__(config, encoder, WithPrevious(belief, config.actions), read)
        self.head = head

    def following(self, b: Tensor, a: Tensor | None = None) -> Distribution:
        """p(x_{t+1} | b_t, a_{t+1}), for codes that were read out."""
        distribution: Distribution = self.head(Latent((b if a is None else torch.cat([b, a.to(b.dtype)], dim=-1),)))
        return distribution

    def predictions(self, sequences: Sequences) -> Distribution:
        """p(x_t | x_<t, a_≤t) of every step, (N, T)."""
        return self.following(self.read(self.filter(sequences).codes[:, :-1]), sequences.actions)

    def sample_state(self, belief: Belief, n: int) -> Latent:
        """``n`` copies: given x_≤t, nothing about the recurrent state is uncertain."""
        return Latent(tuple(part.expand(n, *part.shape) for part in (belief.code, *belief.carry)))

    def transition(self, z: Latent, dt: int | Tensor, a: Tensor | None = None) -> Latent:
        return self.step_by_step(z, dt, a, self._following_state)

    def _following_state(self, z: Latent, a: Tensor | None) -> Latent:
        lead = z.layers[0].shape[:-1]
        code, *carry = (part.reshape(-1, part.shape[-1]) for part in z.layers)
        action = None if a is None else a.reshape(-1, a.shape[-1])
        x = self.following(self.read(code), action).sample()
        after = self.update(Belief(code, tuple(carry)), x, action)
        return Latent((after.code, *after.carry)).map(lambda part: part.view(*lead, part.shape[-1]))

    def decode(self, z: Latent) -> Distribution:
        previous, action = z.layers[-1].split([self.belief.size, self.config.actions], dim=-1)
        return self.following(self.read(previous), action if self.config.actions else None)

    def predict(self, z: Latent, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(z, dt, a))
