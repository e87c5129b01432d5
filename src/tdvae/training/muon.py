"""Muon: momentum with orthogonalised matrix updates, so that all directions of a weight matrix learn equally fast.

`torch.optim.Muon` updates one matrix at a time, in bfloat16. For many small matrices on a CPU that took thirty times as
long as this version, which stacks matrices of the same shape and keeps their precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor

KERNEL_NDIM = 4  # output channels, input channels, height, width


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Approximately U Vᵀ of each matrix (..., m, n), by the quintic Newton-Schulz iteration of Jordan et al. (2024)."""
    if matrices.shape[-2] > matrices.shape[-1]:  # transpose for the smaller Gram matrix
        return orthogonalise(matrices.mT, iterations).mT
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.reshape(-1, *matrices.shape[-2:])
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.reshape(matrices.shape)


class Muon(torch.optim.Optimizer):
    """Optimiser of matrices (m, n), stacks of them (R, m, n), and convolution kernels with one row per output channel.

    All other parameters need another optimiser. Every matrix of a stack is orthogonalised on its own. The step size of
    a matrix with more rows than columns is multiplied by the square root of their ratio.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for parameters in by_shape.values():
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        directions = []
        for p in parameters:
            assert p.grad is not None
            momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
            momentum.lerp_(p.grad, 1 - group["momentum"])
            direction = p.grad.lerp(momentum, group["momentum"])  # Nesterov
            directions.append(direction.flatten(1) if p.ndim == KERNEL_NDIM else direction)
        rows, columns = directions[0].shape[-2:]
        rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
        for p, update in zip(parameters, orthogonalise(torch.stack(directions)), strict=True):
            p.add_(update.view_as(p), alpha=-rate)
