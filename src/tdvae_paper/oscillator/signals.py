"""Estimate frequency and amplitude of a short signal."""

from __future__ import annotations

import torch
from torch import Tensor

GRID = (
    0.05,
    0.8,
    301,
)  # low, high (rad/step), points: wider than the reference range, finer than 21 points can resolve


def fit_sinusoid(signal: Tensor) -> tuple[Tensor, Tensor]:
    """Fit sinusoids to signals (..., T) by least squares over a grid. Return frequencies and amplitudes (...)."""
    frequencies = torch.linspace(*GRID[:2], GRID[2], dtype=torch.float64)
    time = torch.arange(signal.shape[-1], dtype=torch.float64)
    angles = frequencies[:, None] * time
    basis = torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1)  # (F, T, 2)
    q, r = torch.linalg.qr(basis)
    projections = torch.einsum("...t,ftc->...fc", signal.double(), q)
    best = projections.square().sum(-1).argmax(-1)
    chosen = projections.gather(-2, best[..., None, None].expand(*best.shape, 1, 2))
    coefficients = torch.linalg.solve_triangular(r[best], chosen.mT, upper=True)
    return frequencies[best], coefficients.squeeze(-1).norm(dim=-1)
