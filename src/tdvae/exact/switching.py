"""The best any belief can know about the switching oscillator: which of the first two frequencies was larger."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tdvae.data.switching import FIRST, OPENING, SwitchingSettings
from tdvae.exact.kalman import BankPosterior
from tdvae.exact.oscillator import OscillatorOracle, rotations


class SwitchingOracle:
    r"""Exact inference over the opening, by a bank of Kalman filters over a grid of :math:`(f_1, f_2)`.

    Only the first 20 observations count: given the state at their end, the later ones depend on :math:`f_3` alone
    (until the last interval gives the answer away), and tell almost nothing more about it.
    """

    def __init__(self, settings: SwitchingSettings, frequencies: int = 48, rings: int = 0) -> None:
        self.first = OscillatorOracle(settings, frequencies, rings)
        bank = self.first.bank
        grid = self.first.frequencies
        # The hypotheses of the first bank, each with every f_2, which varies max_frequency.
        self.then = replace(
            bank,
            A=rotations(grid).repeat(len(bank.A), 1, 1),
            m0=bank.m0.repeat_interleave(len(grid), dim=0),
            P0=bank.P0.repeat_interleave(len(grid), dim=0),
            log_prior=bank.log_prior.repeat_interleave(len(grid)),
        )
        f_1 = grid.repeat_interleave(len(self.then.A) // len(grid))
        f_2 = grid.repeat(len(bank.A))
        # Of a cell of the grid that both share, half the area has f_1 > f_2.
        self.larger = 0.5 * (1 + torch.sign(f_1 - f_2))

    def first_larger(self, x: Tensor) -> Tensor:
        """The probability that f_1 > f_2 given the opening of x (N, T ≥ 20, 1), (N,)."""
        opened = self.first.observe(x[:, :FIRST])
        each = len(self.first.frequencies)
        expanded = BankPosterior(
            log_weights=opened.log_weights.repeat_interleave(each, dim=1),
            log_evidence=opened.log_evidence.repeat_interleave(each, dim=1),
            mean=opened.mean.repeat_interleave(each, dim=1),
            cov=opened.cov.repeat_interleave(each, dim=0),
        )
        return self.then.filter(x[:, FIRST:OPENING], after=expanded).weights @ self.larger
