"""The next-step predictor: a recurrent network trained to predict x_{t+1}."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.checks import Samples
from tdvae.distributions import Distribution
from tdvae.errors import InputError
from tdvae.models.arguments import check_belief, check_state
from tdvae.models.base import RecurrentModel
from tdvae.models.config import RecurrentConfig
from tdvae.models.decoders import Coordinates, Decoder
from tdvae.nn.dense import ObservationEncoder
from tdvae.nn.recurrent import BeliefNetwork
from tdvae.types import Belief, Latent, Sequences, State


class WithPrevious(BeliefNetwork):
    """A belief network whose carry also holds the inputs of the prediction of x_t: the previous code b_{t-1}, and what
    is given with it, the last ``given`` features of the network's inputs: what a map shows, and the action a_t."""

    def __init__(self, network: BeliefNetwork, given: int) -> None:
        super().__init__()
        self.network, self.size, self.given = network, network.size, given

    def initial(self, batch_size: int) -> Belief:
        first = self.network.initial(batch_size)
        return Belief(first.code, (*first.carry, F.pad(first.code, (0, self.given))))

    def step(self, belief: Belief, inputs: Tensor) -> Belief:
        after = self.network.step(Belief(belief.code, belief.carry[:-1]), inputs)
        given = inputs[:, inputs.shape[-1] - self.given :]
        return Belief(after.code, (*after.carry, torch.cat([belief.code, given], dim=-1)))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        codes, last = self.network.scan(Belief(belief.code, belief.carry[:-1]), inputs)
        previous = codes[:, -2] if codes.shape[1] > 1 else belief.code
        given = inputs[:, -1, inputs.shape[-1] - self.given :]
        return codes, Belief(last.code, (*last.carry, torch.cat([previous, given], dim=-1)))


@dataclass(frozen=True)
class NextStepConfig(RecurrentConfig):
    """Config of a next-step predictor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.decoder, Coordinates):
            raise InputError("decoder: expected one that needs no latent state z, got Coordinates")
        if self.rewards:
            raise InputError(
                "rewards: expected False, since a next-step predictor feeds back its predictions of x only, got True"
            )

    def build(self) -> NextStep:
        encoder, belief, read, code = self.parts()
        head = self.decoder.build(code + self.map_features + self.actions, self.event_shape)
        return NextStep(self, encoder, belief, read, head)


class NextStep(RecurrentModel):
    """Predicts p(x_{t+1} | x_≤t, a_{t+1}) from b_t, and later observations by feeding back its own samples.

    The model has no latent state: z_t is the state of the recurrent network, b_t and its carry, whose last part is
    (b_{t-1}, a_t), with what a map showed between them. A transition of δt steps draws δt observations one after
    another; `decode` returns the distribution that the last one was drawn from.
    """

    def __init__(
        self, config: NextStepConfig, encoder: ObservationEncoder, belief: BeliefNetwork, read: nn.Module, head: Decoder
    ) -> None:
        super().__init__(config, encoder, WithPrevious(belief, config.map_features + config.actions), read)
        self.head = head

    def following(self, b: Tensor, a: Tensor | None = None, known: Tensor | None = None) -> Distribution:
        """p(x_{t+1} | b_t, a_{t+1}), for codes after the readout; ``known`` is what a map shows where a_{t+1} leads."""
        given = [part.to(b.dtype) for part in (known, a) if part is not None]
        distribution: Distribution = self.head(Latent((torch.cat([b, *given], dim=-1) if given else b,)))
        return distribution

    def predictions(self, sequences: Sequences) -> Distribution:
        """p(x_t | x_<t, a_≤t) at all time steps, (N, T)."""
        beliefs = self.filter(sequences)
        known = self.known_through(sequences, beliefs.memories)
        return self.following(self.read(beliefs.codes[:, :-1]), sequences.actions, known)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return tuple(shape[-1] for shape in self.belief_shapes)

    def sample_state(self, belief: Belief, n: Samples) -> State:
        """``n`` copies of the recurrent state, which is a deterministic function of x_≤t."""
        check_belief(self, belief)
        return State(Latent((belief.code, *belief.carry)), belief.x).map(lambda part: part.expand(n, *part.shape))

    def transition(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> State:
        return self.step_by_step(state, dt, a, self._sample_next_state)

    def _sample_next_state(self, state: State, a: Tensor | None) -> State:
        flat = state.map(lambda part: part.reshape(-1, part.shape[-1]))
        code, *carry = flat.z.layers
        action = None if a is None else a.reshape(-1, a.shape[-1])
        known = self.known(flat.x, None if action is None else action[:, None])
        x = self.following(self.read(code), action, known).sample()
        after = self._update(Belief(code, tuple(carry), flat.x), x, None, action)
        drawn = State(Latent((after.code, *after.carry)), after.x)
        return drawn.map(lambda part: part.view(*state.lead, part.shape[-1]))

    def decode(self, state: State) -> Distribution:
        check_state(self, state)
        last = state.z.layers[-1]
        return self.following(self.read(last[..., : self.belief.size]), last[..., self.belief.size :])

    def predict(self, state: State, dt: int | Tensor, a: Tensor | None = None) -> Distribution:
        return self.decode(self.transition(state, dt, a))
