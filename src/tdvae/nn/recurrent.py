"""Belief networks, which compute the code b_t from x_≤t, and summaries of the actions of a jump."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tdvae.checks import NonNegative, PositiveNumber
from tdvae.config import Config, Count, Size
from tdvae.types import Belief


class BeliefNetwork(nn.Module, ABC):
    """A recurrent network. `scan` reads a whole sequence; an online update is a scan of length 1."""

    size: int  # of the code b_t

    @abstractmethod
    def initial(self, batch_size: int) -> Belief:
        """The learned belief b_0, before any observation."""

    @abstractmethod
    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        """Read inputs (N, T, D); returns the codes after each step (N, T, size) and the last belief."""

    def step(self, belief: Belief, inputs: Tensor) -> Belief:
        """Read the inputs (N, D) of one step."""
        return self.scan(belief, inputs[:, None])[1]


@dataclass(frozen=True)
class BeliefConfig(Config, ABC):
    """Config of a belief network."""

    @abstractmethod
    def build(self, inputs: int) -> BeliefNetwork:
        """The network, for ``inputs`` numbers per time step."""


def _add_forget_bias(cell: nn.Module, biases: str, size: int) -> None:
    """Add 1 to the forget-gate bias, so that memory and gradients initially last longer (gate order i, f, g, o)."""
    with torch.no_grad():
        cell.get_parameter(biases)[size : 2 * size].add_(1.0)


def full_precision(like: Tensor) -> torch.autocast:
    """Disable autocast: recurrences accumulate rounding errors, and some processors lack them in half precision."""
    return torch.autocast(like.device.type, enabled=False)


@dataclass(frozen=True)
class LSTM(BeliefConfig):
    """Config of `LSTMBelief`."""

    size: Size = 50
    input_skip: NonNegative = 0  # number of last encoded observations in the code, beside the state of the LSTM

    def build(self, inputs: int) -> BeliefNetwork:
        return LSTMBelief(inputs, self.size, self.input_skip)


class LSTMBelief(BeliefNetwork):
    """h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1}), and b_t = h_t (App. D).

    With ``input_skip`` > 0 the code also contains the last ``input_skip`` inputs, b_t = [h_t, x_t, x_{t-1}, …], so that
    recent observations are available without passing through the LSTM.
    """

    def __init__(self, inputs: int, size: int, input_skip: int = 0) -> None:
        super().__init__()
        self.inputs, self.input_skip = inputs, input_skip
        self.size = size + input_skip * inputs
        self.lstm = nn.LSTM(inputs, size, batch_first=True)
        _add_forget_bias(self.lstm, "bias_ih_l0", size)
        self.first = nn.Parameter(torch.zeros(2, size))

    def initial(self, batch_size: int) -> Belief:
        h, c = self.first[:, None].expand(2, batch_size, -1)
        if not self.input_skip:
            return Belief(h, (h, c))
        last_inputs = h.new_zeros(batch_size, self.input_skip * self.inputs)
        return Belief(torch.cat([h, last_inputs], dim=-1), (h, c, last_inputs))

    def step(self, belief: Belief, inputs: Tensor) -> Belief:
        """One cell of the LSTM: several times faster than its scan of length 1."""
        h, c, *last_inputs = belief.carry
        with full_precision(inputs):
            h, c = torch.lstm_cell(inputs.to(self.first.dtype), (h, c), *self.lstm.all_weights[0])
        if not self.input_skip:
            return Belief(h, (h, c))
        recent = torch.cat([last_inputs[0][:, self.inputs :], inputs.to(h.dtype)], dim=-1)  # the last one last
        lagged = recent.unflatten(-1, (self.input_skip, self.inputs)).flip(1).flatten(1)
        return Belief(torch.cat([h, lagged], dim=-1), (h, c, recent))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        h, c, *last_inputs = belief.carry
        with full_precision(inputs):
            codes, (hs, cs) = self.lstm(inputs.to(self.first.dtype), (h[None].contiguous(), c[None].contiguous()))
        if not self.input_skip:
            return codes, Belief(codes[:, -1], (hs[0], cs[0]))
        # All inputs including the earlier ones; those of ``lag`` steps ago are a slice of them.
        past = torch.cat([last_inputs[0].unflatten(-1, (self.input_skip, self.inputs)), inputs.to(codes.dtype)], dim=1)
        length = inputs.shape[1]
        lagged = [past[:, self.input_skip - lag : self.input_skip - lag + length] for lag in range(self.input_skip)]
        codes = torch.cat([codes, *lagged], dim=-1)
        return codes, Belief(codes[:, -1], (hs[0], cs[0], past[:, -self.input_skip :].flatten(1)))


@dataclass(frozen=True)
class DeepLSTM(BeliefConfig):
    """Config of `DeepLSTMBelief`."""

    size: Size = 50  # of one layer
    layers: Count = 2

    def build(self, inputs: int) -> BeliefNetwork:
        return DeepLSTMBelief(inputs, self.size, self.layers)


class DeepLSTMBelief(BeliefNetwork):
    r"""LSTM layers with top-down connections (App. C): :math:`b^l_t = RNN(b^l_{t-1}; b^{l-1}_t, b^{l+1}_{t-1}, x_t)`.

    Layer 1 receives :math:`b^L_{t-1}` as its :math:`b^0`; the top layer has no layer above. The code is the
    concatenation of all layers.
    """

    def __init__(self, inputs: int, size: int, layers: int) -> None:
        super().__init__()
        self.layers, self.width, self.size = layers, size, layers * size
        self.cells = nn.ModuleList(
            nn.LSTMCell(inputs + size + (size if layer < layers - 1 else 0), size) for layer in range(layers)
        )
        for cell in self.cells:
            _add_forget_bias(cell, "bias_ih", size)
        self.first = nn.Parameter(torch.zeros(2, layers * size))

    def initial(self, batch_size: int) -> Belief:
        h, c = self.first[:, None].expand(2, batch_size, self.size)
        return Belief(h, (c,))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        h, c = list(belief.code.chunk(self.layers, -1)), list(belief.carry[0].chunk(self.layers, -1))
        codes: list[Tensor] = []
        for x in inputs.unbind(1):
            below = h[-1]
            previous = list(h)
            for layer, cell in enumerate(self.cells):
                above = previous[layer + 1 : layer + 2]
                h[layer], c[layer] = cell(torch.cat([x, below, *above], dim=-1), (h[layer], c[layer]))
                below = h[layer]
            codes.append(torch.cat(h, dim=-1))
        return torch.stack(codes, dim=1), Belief(codes[-1], (torch.cat(c, dim=-1),))


@dataclass(frozen=True)
class LinearRecurrence(BeliefConfig):
    """Config of `LinearRecurrenceBelief`."""

    size: Size = 50  # number of modes
    timescales: tuple[PositiveNumber, PositiveNumber] = (10.0, 150.0)  # range of the initial time constants, in steps
    max_frequency: PositiveNumber = math.pi  # highest initial frequency, rad/step

    def build(self, inputs: int) -> BeliefNetwork:
        return LinearRecurrenceBelief(inputs, self.size, self.timescales, self.max_frequency)


class LinearRecurrenceBelief(BeliefNetwork):
    r"""A bank of damped rotations, :math:`h_t = \lambda \odot h_{t-1} + \mathrm{drive}(x_t)`, complex and diagonal.

    The recurrence is linear in x, so a whole sequence needs a few matrix products instead of T dependent steps.
    :math:`|\lambda|` determines the memory; its initial time constants lie in the range ``timescales``, in steps. The
    code contains the modes, their magnitudes, the last input and features of the number of steps so far. Nonlinear
    functions of the past are left to the readout.
    """

    ages: Tensor
    AGES = (3.0, 8.0, 20.0, 50.0, 120.0)  # time constants of the features of the number of steps

    def __init__(self, inputs: int, modes: int, timescales: tuple[float, float], max_frequency: float) -> None:
        super().__init__()
        self.modes, self.size = modes, 3 * modes + inputs + len(self.AGES)
        shortest, longest = timescales
        self.log_decay = nn.Parameter(-torch.empty(modes).uniform_(math.log(shortest), math.log(longest)))
        self.angle = nn.Parameter(torch.linspace(0.02, max_frequency, modes))
        self.drive = nn.Linear(inputs, modes, bias=False)
        if inputs == 1:  # modes differ by their poles alone
            nn.init.ones_(self.drive.weight)
        self.inputs = inputs
        self.chunk = max(1, min(20, 64 // inputs))  # longer chunks are fewer, but the matrix has chunk × inputs rows
        self.register_buffer("ages", torch.tensor(self.AGES), persistent=False)
        self.first = nn.Parameter(torch.zeros(2, modes))

    def initial(self, batch_size: int) -> Belief:
        h = torch.complex(*self.first).expand(batch_size, self.modes)
        steps = self.first.new_zeros(batch_size, 1)
        return Belief(self._code(h, self.first.new_zeros(batch_size, self.inputs), steps), (h, steps))

    def step(self, belief: Belief, inputs: Tensor) -> Belief:
        h, steps = belief.carry
        decay = self.log_decay.exp()
        driven = self.drive(inputs).to(self.angle.dtype) * torch.sqrt(2 * decay.detach())
        h, steps = torch.polar(torch.exp(-decay), self.angle) * h + driven, steps + 1
        return Belief(self._code(h, inputs, steps), (h, steps))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        first, steps = belief.carry
        length, chunk = inputs.shape[1], min(self.chunk, inputs.shape[1])
        responses = self._chunk_responses(inputs, chunk)
        powers = self._powers(torch.arange(1, chunk + 1, device=inputs.device))
        h, chunk_starts = first, []
        for last in responses[:, :, -1].unbind(1):
            chunk_starts.append(h)
            h = last + powers[-1] * h
        states = (responses + powers * torch.stack(chunk_starts, dim=1)[:, :, None]).flatten(1, 2)[:, :length]
        steps = steps[:, None] + torch.arange(1, length + 1, device=inputs.device)[None, :, None]
        codes = self._code(states, inputs, steps)
        return codes, Belief(codes[:, -1], (states[:, -1], steps[:, -1]))

    def _powers(self, exponents: Tensor) -> Tensor:
        """λ to the given powers, (P, modes)."""
        exponents = exponents[:, None].to(self.angle.dtype)
        return torch.polar(torch.exp(-exponents * self.log_decay.exp()), exponents * self.angle)

    def _chunk_responses(self, inputs: Tensor, chunk: int) -> Tensor:
        """The states of each chunk from a zero initial state, (N, J, chunk, modes), by one matrix product.

        The matrix maps the inputs of a chunk to its states: λ to the power of the lag, times the drive of the mode.
        """
        padded = nn.functional.pad(inputs, (0, 0, 0, -inputs.shape[1] % chunk))
        lag = torch.arange(chunk, device=inputs.device)
        lag = lag - lag[:, None]  # (from, to)
        kernel = self._powers(lag.clamp(min=0).flatten()).unflatten(0, (chunk, chunk)) * (lag >= 0)[..., None]
        # Modes with long memory sum over more steps. The square root normalises all modes to about the same scale.
        drive = self.drive.weight.mT * torch.sqrt(2 * self.log_decay.detach().exp())  # (inputs, modes)
        matrix = torch.view_as_real(kernel)[:, None] * drive[None, :, None, :, None]
        flat = padded.reshape(len(inputs), -1, chunk * self.inputs) @ matrix.flatten(0, 1).flatten(1)
        # With autocast the product may be in half precision, which complex tensors do not support.
        return torch.view_as_complex(flat.to(self.angle.dtype).unflatten(-1, (chunk, self.modes, 2)))

    def _code(self, h: Tensor, x: Tensor, steps: Tensor) -> Tensor:
        magnitude = torch.sqrt(h.real.square() + h.imag.square() + 1e-4)  # smooth at 0
        return torch.cat([h.real, h.imag, magnitude, x, torch.exp(-steps / self.ages)], dim=-1)


class ActionSummary(nn.Module):
    """Summarises the actions of a jump, a_{t1+1} … a_{t2}, in one vector: the last state of a GRU."""

    def __init__(self, actions: int, size: int) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.gru = nn.GRU(actions, size, batch_first=True)

    def forward(self, actions: Tensor, dt: Tensor) -> Tensor:
        """Summarise the first ``dt`` (...) of the padded actions (..., J, A); returns (..., size)."""
        lead = actions.shape[:-2]
        if len(lead) > 1 and lead[0] > 1 and actions.stride(0) == 0 and dt.expand(lead).stride(0) == 0:
            return self(actions[0], dt.expand(lead)[0]).expand(*lead, self.size)  # the same for all samples of a state
        if lead and actions.stride(-3) == 0:
            actions = actions[..., :1, :, :]  # the same for all jumps of a group, which differ in their lengths only
        actions = actions.to(next(self.parameters()).dtype)
        with full_precision(actions):
            states, _ = self.gru(actions.flatten(0, -3) if lead else actions[None])
        last = dt.expand(lead).reshape(len(states), -1, 1).clamp(min=1) - 1
        return states.gather(1, last.expand(-1, -1, self.size)).view(*lead, self.size)


class LegendreMoments(nn.Module):
    r"""Summarises the actions of a jump by Legendre moments, which cost no recurrence.

    :math:`c_k = \frac{2k + 1}{\delta t} \sum_i P_k(\tau_i)\, a_{t1 + i}` with :math:`\tau_i = (2i - 1) / \delta t - 1`.
    c_0 is the mean action: that of a held action is the action itself. Jumps of at most ``orders`` steps lose nothing.
    """

    def __init__(self, actions: int, orders: int) -> None:
        super().__init__()
        self.orders, self.size = orders, orders * actions

    def forward(self, actions: Tensor, dt: Tensor) -> Tensor:
        """Summarise the first ``dt`` (...) of the padded actions (..., J, A); returns (..., size)."""
        dt = dt.expand(actions.shape[:-2])[..., None]
        index = torch.arange(actions.shape[-2], device=actions.device)
        tau = (2 * index + 1) / dt - 1
        basis = [torch.ones_like(tau), tau]
        for k in range(1, self.orders - 1):  # Bonnet's recursion
            basis.append(((2 * k + 1) * tau * basis[k] - k * basis[k - 1]) / (k + 1))
        norms = 2 * torch.arange(self.orders, device=tau.device) + 1
        weights = torch.stack(basis[: self.orders], dim=-2) * ((index < dt) / dt)[..., None, :] * norms[:, None]
        return (weights @ actions.to(weights.dtype)).flatten(-2)


@dataclass(frozen=True)
class SummaryConfig(Config, ABC):
    """Config of what p_T and q_S are given of the actions of a jump."""

    @abstractmethod
    def build(self, actions: int, hidden: int) -> ActionSummary | LegendreMoments:
        """The summary; ``hidden`` is the width of the maps of the model."""


@dataclass(frozen=True)
class RecurrentSummary(SummaryConfig):
    """Config of `ActionSummary`, whose size is that of the maps."""

    def build(self, actions: int, hidden: int) -> ActionSummary:
        return ActionSummary(actions, hidden)


@dataclass(frozen=True)
class LegendreSummary(SummaryConfig):
    """Config of `LegendreMoments`."""

    orders: Count = 4

    def build(self, actions: int, hidden: int) -> LegendreMoments:
        return LegendreMoments(actions, self.orders)


class SingleAction(nn.Module):
    """The unchanged action of a jump of one step."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.size = actions

    def forward(self, actions: Tensor, dt: Tensor) -> Tensor:
        """Reshape actions (..., 1, A) to (..., A)."""
        return actions[..., 0, :]
