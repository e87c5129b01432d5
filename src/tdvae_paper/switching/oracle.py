"""Exact inference for the switching oscillator: which of the first two frequencies is larger."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from tdvae.checks import Range, checked
from tdvae.errors import InputError
from tdvae.exact.kalman import BankPosterior
from tdvae.exact.oscillator import OscillatorOracle, rotations
from tdvae_paper.switching.simulation import FIRST, OPENING, SwitchingSettings


class SwitchingOracle:
    r"""Exact inference from the first two intervals, by a bank of Kalman filters over a grid of :math:`(f_1, f_2)`.

    Only the first 20 observations are used. Given the state at their end, the later ones depend on :math:`f_3` alone
    (until the last interval, which reveals the answer), and contain almost no further information.
    """

    @checked
    def __init__(
        self,
        settings: SwitchingSettings,
        frequencies: Annotated[int, Range(1, 100_000)] = 48,
        rings: Annotated[int, Range(0, 100)] = 0,
    ) -> None:
        self.first_oracle = OscillatorOracle(settings, frequencies, rings)
        bank = self.first_oracle.bank
        grid = self.first_oracle.frequencies
        # The hypotheses of the first bank, each combined with every f_2; f_2 varies fastest.
        self.second_bank = replace(
            bank,
            A=rotations(grid).repeat(len(bank.A), 1, 1),
            m0=bank.m0.repeat_interleave(len(grid), dim=0),
            P0=bank.P0.repeat_interleave(len(grid), dim=0),
            log_prior=bank.log_prior.repeat_interleave(len(grid)),
        )
        f_1 = grid.repeat_interleave(len(self.second_bank.A) // len(grid))
        f_2 = grid.repeat(len(bank.A))
        # In grid cells with equal f_1 and f_2, half of the area has f_1 > f_2.
        self.first_is_larger = 0.5 * (1 + torch.sign(f_1 - f_2))

    @checked
    def first_larger(self, x: Tensor) -> Tensor:
        """The probability that f_1 > f_2, given the first two intervals of x (N, T ≥ 20, 1), (N,)."""
        if x.ndim != 3 or x.shape[1] < OPENING:
            raise InputError(f"x: expected shape (N, T >= {OPENING}, 1), got {tuple(x.shape)}")
        posterior = self.first_oracle.observe(x[:, :FIRST])
        count = len(self.first_oracle.frequencies)
        expanded = BankPosterior(
            log_weights=posterior.log_weights.repeat_interleave(count, dim=1),
            log_evidence=posterior.log_evidence.repeat_interleave(count, dim=1),
            mean=posterior.mean.repeat_interleave(count, dim=1),
            cov=posterior.cov.repeat_interleave(count, dim=-3),
        )
        return self.second_bank.filter(x[:, FIRST:OPENING], after=expanded).weights @ self.first_is_larger
