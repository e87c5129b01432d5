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
from tdvae.types import Belief, Latent, Sequences, State


class WithPrevious(BeliefNetwork):
    """A belief network that also carries what x_t was predicted from: the code of one step before, and the action
    between, which are the last ``actions`` numbers of its inputs."""

    def __init__(self, network: BeliefNetwork, actions: int) -> None:
        super().__init__()
        self.network, self.size, self.actions = network, network.size, actions

    def initial(self, batch_size: int) -> Belief:
        first = self.network.initial(batch_size)
        return Belief(first.code, (*first.carry, F.pad(first.code, (0, self.actions))))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        codes, last = self.network.scan(Belief(belief.code, belief.carry[:-1]), inputs)
        previous = codes[:, -2] if codes.shape[1] > 1 else belief.code
        action = inputs[:, -1, inputs.shape[-1] - self.actions :]
        return codes, Belief(last.code, (*last.carry, torch.cat([previous, action], dim=-1)))


class NextStep(RecurrentModel):
    """p(x_{t+1} | x_≤t, a_{t+1}) from b_t, and by feeding its own samples back, any later observation.

    It has no latent state: z_t is the recurrent network's own, (b_t, its carry), and the origin is (b_{t-1}, a_t). A
    transition of δt steps draws δt observations one after another; `decode` gives the distribution that the last one
    was drawn from.
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

    def sample_state(self, belief: Belief, n: int) -> State:
        """``n`` copies: given x_≤t, nothing about the recurrent state is uncertain."""
        return self._state(belief).map(lambda part: part.expand(n, *part.shape))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        return self.step_by_step(state, dt, a, self._following_state)

    def _following_state(self, state: State, a: Tensor | None) -> State:
        flat = state.map(lambda part: part.reshape(-1, part.shape[-1]))
        assert flat.origin is not None
        code, *carry = flat.z.layers
        action = None if a is None else a.reshape(-1, a.shape[-1])
        x = self.following(self.read(code), action).sample()
        after = self.update(Belief(code, (*carry, flat.origin)), x, action)
        return self._state(after).map(lambda part: part.view(*state.lead, part.shape[-1]))

    @staticmethod
    def _state(belief: Belief) -> State:
        """The recurrent network's state, and as its origin what x_t was predicted from."""
        return State(Latent((belief.code, *belief.carry[:-1])), origin=belief.carry[-1])

    def decode(self, state: State) -> Distribution:
        assert state.origin is not None
        previous, action = state.origin.split([self.belief.size, self.config.actions], dim=-1)
        return self.following(self.read(previous), action if self.config.actions else None)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(state, dt, a))
