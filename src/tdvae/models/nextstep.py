"""The next-step predictor: a recurrent network trained to predict x_{t+1}."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.checks import Samples
from tdvae.distributions import Distribution
from tdvae.errors import InputError
from tdvae.models.base import RecurrentModel
from tdvae.models.config import NextStepConfig
from tdvae.models.decoders import Decoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences, State


class WithPrevious(BeliefNetwork):
    """A belief network whose carry also holds the inputs of the prediction of x_t: the previous code b_{t-1}, and what
    is given with it, the last ``given`` features of the network's inputs: the action a_t, and what a map shows."""

    def __init__(self, network: BeliefNetwork, given: int) -> None:
        super().__init__()
        self.network, self.size, self.given = network, network.size, given

    def initial(self, batch_size: int) -> Belief:
        first = self.network.initial(batch_size)
        return Belief(first.code, (*first.carry, F.pad(first.code, (0, self.given))))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        codes, last = self.network.scan(Belief(belief.code, belief.carry[:-1]), inputs)
        previous = codes[:, -2] if codes.shape[1] > 1 else belief.code
        given = inputs[:, -1, inputs.shape[-1] - self.given :]
        return codes, Belief(last.code, (*last.carry, torch.cat([previous, given], dim=-1)))


class NextStep(RecurrentModel):
    """Predicts p(x_{t+1} | x_≤t, a_{t+1}) from b_t, and later observations by feeding back its own samples.

    The model has no latent state: z_t is the state of the recurrent network (b_t and its carry), and the origin is
    (b_{t-1}, a_t). A transition of δt steps draws δt observations one after another; `decode` returns the distribution
    that the last one was drawn from.
    """

    def __init__(
        self, config: NextStepConfig, encoder: ObservationEncoder, belief: BeliefNetwork, read: nn.Module, head: Decoder
    ) -> None:
        super().__init__(config, encoder, WithPrevious(belief, config.known_size + config.actions), read)
        self.head = head

    def following(self, b: Tensor, a: Tensor | None = None, known: Tensor | None = None) -> Distribution:
        """p(x_{t+1} | b_t, a_{t+1}), for codes after the readout; ``known`` is what a map shows where a_{t+1} leads."""
        given = [part.to(b.dtype) for part in (known, a) if part is not None]
        distribution: Distribution = self.head(Latent((torch.cat([b, *given], dim=-1) if given else b,)))
        return distribution

    def predictions(self, sequences: Sequences) -> Distribution:
        """p(x_t | x_<t, a_≤t) at all time steps, (N, T)."""
        b = self.read(self.filter(sequences).codes[:, :-1])
        return self.following(b, sequences.actions, self._known(sequences))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return tuple(shape[-1] for shape in self._belief_shapes[:-1])

    def sample_state(self, belief: Belief, n: Samples) -> State:
        """``n`` copies of the recurrent state, which is a deterministic function of x_≤t."""
        self.check_belief(belief)
        return self._state(belief).map(lambda part: part.expand(n, *part.shape))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        return self.step_by_step(state, dt, a, self._sample_next_state)

    def _sample_next_state(self, state: State, a: Tensor | None) -> State:
        flat = state.map(lambda part: part.reshape(-1, part.shape[-1]))
        assert flat.origin is not None
        code, *carry = flat.z.layers
        action = None if a is None else a.reshape(-1, a.shape[-1])
        one = torch.ones(len(code), dtype=torch.long, device=code.device)
        known = self.step_features(flat.x, one, None if action is None else action[:, None]) if self.memory else None
        x = self.following(self.read(code), action, known).sample()
        after = self.update(Belief(code, (*carry, flat.origin), flat.x), x, action)
        return self._state(after).map(lambda part: part.view(*state.lead, part.shape[-1]))

    @staticmethod
    def _state(belief: Belief) -> State:
        """The state of the recurrent network; its origin holds the inputs of the prediction of x_t."""
        return State(Latent((belief.code, *belief.carry[:-1])), belief.x, belief.carry[-1])

    def check_state(self, state: State) -> None:
        super().check_state(state)
        if state.origin is None:
            raise InputError("state: expected an origin, got None; model.sample_state(belief, n) draws states")

    def decode(self, state: State) -> Distribution:
        self.check_state(state)
        assert state.origin is not None
        previous, given = state.origin.split([self.belief.size, state.origin.shape[-1] - self.belief.size], dim=-1)
        return self.following(self.read(previous), given)

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(state, dt, a))
