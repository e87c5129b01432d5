r"""An LSTM whose cells start with long memory, for one network or for a stack of networks.

.. math::
    i, f, o, g = [h_{t-1}, x_t, 1]\, W, \qquad
    c_t = \sigma(f)\, c_{t-1} + \sigma(i) \tanh(g), \qquad
    h_t = \sigma(o) \tanh(c_t)

`torch.nn.LSTM` does not support `torch.func.vmap` over stacked weights, and a loop over LSTM cells is slow with
autograd. Here a time step of a whole stack is one batched matrix product, with a hand-written backward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tdvae.checks import PositiveNumber
from tdvae.config import Size
from tdvae.nn.recurrent import BeliefConfig, BeliefNetwork, full_precision
from tdvae.types import Belief

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def lstm_scan(inputs: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """All h_t (N, T, H) and the last c, given inputs (N, T, D), weight (H + D + 1, 4 H) and initial h and c (N, H).

    Under `torch.func.vmap` the whole stack is computed together.
    """
    codes, last, *_ = _Scan.apply(inputs.transpose(0, 1)[:, None], weight[None], h[None], c[None])
    return codes[:, 0].transpose(0, 1), last[0]


class _Scan(torch.autograd.Function):
    """The scan of R stacked networks: inputs (T, R, N, D), weight (R, H + D + 1, 4 H), h and c (R, N, H).

    Returns the codes (T, R, N, H), the last c, and the tensors for the backward pass: [h_{t-1}, x_t, 1], all c, the
    gates after their nonlinearities, and tanh(c). Buffers are allocated once and filled in place, because allocating
    memory takes as long as the arithmetic.
    """

    @staticmethod
    def forward(inputs: Tensor, weight: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        (steps, runs, batch, width), size = inputs.shape, h.shape[-1]
        scaled_weight = weight.clone()
        scaled_weight[..., 3 * size :] *= 2  # tanh(a) = 2 σ(2 a) - 1: one sigmoid for all gates, faster than tanh
        gate_inputs = inputs.new_empty(steps + 1, runs, batch, size + width + 1)
        gate_inputs[:steps, ..., size : size + width] = inputs
        gate_inputs[..., -1] = 1.0
        gate_inputs[0, ..., :size] = h
        cells = inputs.new_empty(steps + 1, runs, batch, size)
        cells[0] = c
        gates = inputs.new_empty(steps, runs, batch, 4 * size)
        tanhs = inputs.new_empty(steps, runs, batch, size)
        for t in range(steps):
            cell, tanh = cells[t + 1], tanhs[t]
            i, f, o, g = torch.bmm(gate_inputs[t], scaled_weight, out=gates[t]).sigmoid_().split(size, -1)
            g.mul_(2).sub_(1)
            torch.mul(f, cells[t], out=cell).addcmul_(i, g)
            torch.mul(cell, 2, out=tanh).sigmoid_().mul_(2).sub_(1)
            torch.mul(o, tanh, out=gate_inputs[t + 1, ..., :size])
        return gate_inputs[1:, ..., :size].contiguous(), cells[-1].clone(), gate_inputs, cells, gates, tanhs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)  # else a backward pass begins by filling tensors as large as these with zeros
        ctx.save_for_backward(inputs[1], *output[2:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, gate_inputs, cells, gates, tanhs = ctx.saved_tensors
        (steps, *_, size), d_codes = tanhs.shape, grads[0]
        into_h = weight[:, :size].mT.contiguous()
        into_x = weight[:, size:-1].mT.contiguous()
        d_h = torch.zeros_like(tanhs[0])
        d_c = torch.zeros_like(d_h) if grads[1] is None else grads[1].clone()
        d_gates, scratch = torch.empty_like(gates[0]), torch.empty_like(d_h)
        d_i, d_f, d_o, d_g = d_gates.split(size, -1)
        d_weight = torch.zeros_like(weight)
        d_inputs = (
            gates.new_empty(*gate_inputs.shape[:3], into_x.shape[-1])[:steps] if ctx.needs_input_grad[0] else None
        )
        for t in reversed(range(steps)):
            i, f, o, g = gates[t].split(size, -1)
            if d_codes is not None:
                d_h += d_codes[t]
            _sigmoid_backward(torch.mul(d_h, tanhs[t], out=scratch), o, grad_input=d_o)
            d_c += _tanh_backward(d_h.mul_(o), tanhs[t], grad_input=scratch)
            _sigmoid_backward(torch.mul(d_c, g, out=scratch), i, grad_input=d_i)
            _sigmoid_backward(torch.mul(d_c, cells[t], out=scratch), f, grad_input=d_f)
            _tanh_backward(torch.mul(d_c, i, out=scratch), g, grad_input=d_g)
            d_c *= f
            torch.bmm(d_gates, into_h, out=d_h)
            d_weight.baddbmm_(gate_inputs[t].mT, d_gates)
            if d_inputs is not None:
                torch.bmm(d_gates, into_x, out=d_inputs[t])
        return d_inputs, d_weight, d_h, d_c

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Merge the mapped dimension with the stack dimension: the second of ``inputs``, the first of the others."""
        stacked = []
        for position, (tensor, dim) in enumerate(zip(args, in_dims, strict=True)):
            mapped = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            axis = 1 if position == 0 else 0
            stacked.append(mapped.movedim(0, axis).flatten(axis, axis + 1))
        codes, last, *saved = _Scan.apply(*stacked)
        shape = (info.batch_size, -1)
        outputs = (codes.unflatten(1, shape), last.unflatten(0, shape), *(part.unflatten(1, shape) for part in saved))
        return outputs, (1, 0, *(1 for _ in saved))


@dataclass(frozen=True)
class ChronoLSTM(BeliefConfig):
    """Config of `ChronoLSTMBelief`."""

    size: Size = 50
    timescales: tuple[PositiveNumber, PositiveNumber] = (10.0, 150.0)  # range of the initial time constants, in steps

    def build(self, inputs: int) -> BeliefNetwork:
        return ChronoLSTMBelief(inputs, self.size, self.timescales)


class ChronoLSTMBelief(BeliefNetwork):
    r"""An LSTM whose cells are initialised with long memory: time constants τ in the range ``timescales``, in steps.

    The initial bias of the forget gate is log τ, that of the input gate -log τ (Tallec and Ollivier 2018), so gradients
    reach back over τ steps from the start of training. This LSTM supports stacked weights (`tdvae_paper.stack`).
    """

    def __init__(self, inputs: int, size: int, timescales: tuple[float, float]) -> None:
        super().__init__()
        self.size = size
        # Input weights are scaled by the number of inputs only. With the smaller scale of the recurrent weights, a
        # single input would have almost no effect.
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
