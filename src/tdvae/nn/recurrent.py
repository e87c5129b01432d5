"""Belief networks: what turns x_≤t into the code b_t. One body serves both the online step and the scan."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tdvae.nn.lstm_scan import lstm_scan
from tdvae.types import Belief


class BeliefNetwork(nn.Module, ABC):
    """``scan`` over a sequence is the only recurrence; an online step is a scan of length 1."""

    size: int  # width of the code b_t

    @abstractmethod
    def initial(self, batch_size: int) -> Belief:
        """The learned belief b_0, before any observation."""

    @abstractmethod
    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        """Read inputs (N, T, D): the codes after each step (N, T, size), and the belief at the end."""


def _remember_by_default(cell: nn.Module, biases: str, size: int) -> None:
    """Forget-gate bias + 1: memory, and its gradient, last longer from the first step on (gate order i, f, g, o)."""
    with torch.no_grad():
        cell.get_parameter(biases)[size : 2 * size].add_(1.0)


def full_precision(like: Tensor) -> torch.autocast:
    """Memory accumulates rounding errors, and not every processor has half-precision recurrences."""
    return torch.autocast(like.device.type, enabled=False)


class LSTMBelief(BeliefNetwork):
    """h_t, c_t = LSTM(x_t, h_{t-1}, c_{t-1}), and b_t = h_t (App. D).

    With ``input_skip`` > 0 the code also has the last inputs, b_t = [h_t, x_t, x_{t-1}, …], so that what is seen now
    need not pass through the memory first.
    """

    def __init__(self, inputs: int, size: int, input_skip: int = 0) -> None:
        super().__init__()
        self.inputs, self.input_skip = inputs, input_skip
        self.size = size + input_skip * inputs
        self.lstm = nn.LSTM(inputs, size, batch_first=True)
        _remember_by_default(self.lstm, "bias_ih_l0", size)
        self.first = nn.Parameter(torch.zeros(2, size))

    def initial(self, batch_size: int) -> Belief:
        h, c = self.first[:, None].expand(2, batch_size, -1)
        if not self.input_skip:
            return Belief(h, (h, c))
        before = h.new_zeros(batch_size, self.input_skip * self.inputs)
        return Belief(torch.cat([h, before], dim=-1), (h, c, before))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        h, c, *before = belief.carry
        with full_precision(inputs):
            codes, (hs, cs) = self.lstm(inputs.to(self.first.dtype), (h[None].contiguous(), c[None].contiguous()))
        if not self.input_skip:
            return codes, Belief(codes[:, -1], (hs[0], cs[0]))
        # The last inputs of before, then all of now: the one ``lag`` steps ago is a window of these.
        past = torch.cat([before[0].unflatten(-1, (self.input_skip, self.inputs)), inputs.to(codes.dtype)], dim=1)
        length = inputs.shape[1]
        windows = [past[:, self.input_skip - lag : self.input_skip - lag + length] for lag in range(self.input_skip)]
        codes = torch.cat([codes, *windows], dim=-1)
        return codes, Belief(codes[:, -1], (hs[0], cs[0], past[:, -self.input_skip :].flatten(1)))


class ChronoLSTMBelief(BeliefNetwork):
    r"""An LSTM that starts out remembering: its cells' time constants are spread over ``timescales`` steps.

    The forget gate's bias is log τ and the input gate's its negative (Tallec and Ollivier 2018), so that a path for the
    gradient over τ steps exists before anything is learned. Its scan can be stacked (`tdvae.stack`).
    """

    def __init__(self, inputs: int, size: int, timescales: tuple[float, float]) -> None:
        super().__init__()
        self.size = size
        # Inputs drive the gates in full: scaled down as the state's, a single number would hardly be heard.
        weight = torch.empty(size + inputs + 1, 4 * size).uniform_(-1, 1) / math.sqrt(inputs)
        for gate in weight[:size].split(size, dim=1):
            nn.init.orthogonal_(gate)
        log_memory = torch.empty(size).uniform_(*(math.log(steps) for steps in timescales))
        weight[-1] = torch.cat([-log_memory, log_memory, torch.zeros(2 * size)])
        self.weight = nn.Parameter(weight)  # rows: h, x and the bias; columns: gates i, f, o, g
        self.first = nn.Parameter(torch.zeros(2, size))

    def initial(self, batch_size: int) -> Belief:
        h, c = self.first[:, None].expand(2, batch_size, self.size)
        return Belief(h, (c,))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        with full_precision(inputs):
            codes, last = lstm_scan(inputs.to(self.first.dtype), self.weight, belief.code, belief.carry[0])
        return codes, Belief(codes[:, -1], (last,))


class DeepLSTMBelief(BeliefNetwork):
    r"""Layers with top-down links (App. C): :math:`b^l_t = RNN(b^l_{t-1}; b^{l-1}_t, b^{l+1}_{t-1}, x_t)`.

    Layer 1 receives :math:`b^L_{t-1}` as its :math:`b^0`; the top layer has none above. The code is all layers side by
    side.
    """

    def __init__(self, inputs: int, size: int, layers: int) -> None:
        super().__init__()
        self.layers, self.width, self.size = layers, size, layers * size
        self.cells = nn.ModuleList(
            nn.LSTMCell(inputs + size + (size if layer < layers - 1 else 0), size) for layer in range(layers)
        )
        for cell in self.cells:
            _remember_by_default(cell, "bias_ih", size)
        self.first = nn.Parameter(torch.zeros(2, layers * size))

    def initial(self, batch_size: int) -> Belief:
        h, c = self.first[:, None].expand(2, batch_size, self.size)
        return Belief(h, (c,))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        h, c = list(belief.code.chunk(self.layers, -1)), list(belief.carry[0].chunk(self.layers, -1))
        codes: list[Tensor] = []
        for x in inputs.unbind(1):
            below = h[-1]
            before = list(h)
            for layer, cell in enumerate(self.cells):
                above = before[layer + 1 : layer + 2]
                h[layer], c[layer] = cell(torch.cat([x, below, *above], dim=-1), (h[layer], c[layer]))
                below = h[layer]
            codes.append(torch.cat(h, dim=-1))
        return torch.stack(codes, dim=1), Belief(codes[-1], (torch.cat(c, dim=-1),))


class LinearRecurrenceBelief(BeliefNetwork):
    r"""A bank of damped rotations, :math:`h_t = \lambda \odot h_{t-1} + \mathrm{drive}(x_t)`, complex and diagonal.

    Linear in x, so a whole sequence costs a few matrix products instead of T dependent steps, and memory is a matter of
    :math:`|\lambda|`, which starts at time constants spread over ``timescales`` steps. The code is the modes, their
    magnitudes, the input itself and how long the sequence has run; what is not linear in the past is the readout's.
    """

    ages: Tensor
    AGES = (3.0, 8.0, 20.0, 50.0, 120.0)

    def __init__(self, inputs: int, modes: int, timescales: tuple[float, float], max_frequency: float) -> None:
        super().__init__()
        self.modes, self.size = modes, 3 * modes + inputs + len(self.AGES)
        shortest, longest = timescales
        self.log_decay = nn.Parameter(-torch.empty(modes).uniform_(math.log(shortest), math.log(longest)))
        self.angle = nn.Parameter(torch.linspace(0.02, max_frequency, modes))
        self.drive = nn.Linear(inputs, modes, bias=False)
        if inputs == 1:  # modes are told apart by their poles alone
            nn.init.ones_(self.drive.weight)
        self.inputs = inputs
        self.chunk = max(1, min(20, 64 // inputs))  # long chunks are few, but the matrix grows with chunk × inputs
        self.register_buffer("ages", torch.tensor(self.AGES), persistent=False)
        self.first = nn.Parameter(torch.zeros(2, modes))

    def initial(self, batch_size: int) -> Belief:
        h = torch.complex(*self.first).expand(batch_size, self.modes)
        steps = self.first.new_zeros(batch_size, 1)
        return Belief(self._code(h, self.first.new_zeros(batch_size, self.inputs), steps), (h, steps))

    def scan(self, belief: Belief, inputs: Tensor) -> tuple[Tensor, Belief]:
        first, steps = belief.carry
        length, chunk = inputs.shape[1], min(self.chunk, inputs.shape[1])
        within = self._respond(inputs, chunk)
        reach = self._powers(torch.arange(1, chunk + 1, device=inputs.device))
        h, before = first, []
        for last in within[:, :, -1].unbind(1):
            before.append(h)
            h = last + reach[-1] * h
        states = (within + reach * torch.stack(before, dim=1)[:, :, None]).flatten(1, 2)[:, :length]
        steps = steps[:, None] + torch.arange(1, length + 1, device=inputs.device)[None, :, None]
        codes = self._code(states, inputs, steps)
        return codes, Belief(codes[:, -1], (states[:, -1], steps[:, -1]))

    def _powers(self, exponents: Tensor) -> Tensor:
        """λ to the given powers, (P, modes)."""
        exponents = exponents[:, None].to(self.angle.dtype)
        return torch.polar(torch.exp(-exponents * self.log_decay.exp()), exponents * self.angle)

    def _respond(self, inputs: Tensor, chunk: int) -> Tensor:
        """Each chunk's states as if nothing had come before it, (N, J, chunk, modes): one matrix product.

        The matrix takes the chunk's inputs to its states: λ to the power of the lag, times what drives the mode.
        """
        padded = nn.functional.pad(inputs, (0, 0, 0, -inputs.shape[1] % chunk))
        lag = torch.arange(chunk, device=inputs.device)
        lag = lag - lag[:, None]  # (from, to)
        kernel = self._powers(lag.clamp(min=0).flatten()).unflatten(0, (chunk, chunk)) * (lag >= 0)[..., None]
        # A mode that remembers long sums over more steps: the root gives all of them output of about one size.
        drive = self.drive.weight.mT * torch.sqrt(2 * self.log_decay.detach().exp())  # (inputs, modes)
        matrix = torch.view_as_real(kernel)[:, None] * drive[None, :, None, :, None]
        flat = padded.reshape(len(inputs), -1, chunk * self.inputs) @ matrix.flatten(0, 1).flatten(1)
        # Mixed precision may have halved the product; complex numbers exist in full precision only.
        return torch.view_as_complex(flat.to(self.angle.dtype).unflatten(-1, (chunk, self.modes, 2)))

    def _code(self, h: Tensor, x: Tensor, steps: Tensor) -> Tensor:
        magnitude = torch.sqrt(h.real.square() + h.imag.square() + 1e-4)  # smooth at 0
        return torch.cat([h.real, h.imag, magnitude, x, torch.exp(-steps / self.ages)], dim=-1)


class ActionSummary(nn.Module):
    """All actions of a jump, a_{t1+1} … a_{t2}, as one vector: a GRU's last state, so order and number both count."""

    def __init__(self, actions: int, size: int) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.gru = nn.GRU(actions, size, batch_first=True)

    def forward(self, actions: Tensor, dt: Tensor) -> Tensor:
        """actions (..., J, A) padded at the end, of which the first ``dt`` (...) count; returns (..., size)."""
        lead = actions.shape[:-2]
        actions = actions.to(next(self.parameters()).dtype)
        with full_precision(actions):
            states, _ = self.gru(actions.flatten(0, -3) if lead else actions[None])
        last = dt.expand(lead).reshape(-1, 1, 1).clamp(min=1) - 1
        return states.gather(1, last.expand(-1, 1, self.size))[:, 0].view(*lead, self.size)


class SingleAction(nn.Module):
    """The action of a jump of one step, as it is."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.size = actions

    def forward(self, actions: Tensor, dt: Tensor) -> Tensor:
        """actions (..., 1, A) to (..., A)."""
        return actions[..., 0, :]
