"""The state in two dimensions: belief samples of many sequences and times, projected on their principal components."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tdvae.explorer.futures import moments
from tdvae.explorer.pictures import packed
from tdvae.explorer.subjects import Array, Subject, rows_of
from tdvae.types import State

POINTS, PICTURE_POINTS = 600, 240


class Projection:
    """Principal components of sampled states, and the cloud of these states."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        count = POINTS if subject.kind == "signal" else PICTURE_POINTS
        generator = torch.Generator().manual_seed(0)
        lengths = subject.sequences.lengths
        self.sequence = torch.arange(count) % len(lengths)
        drawn = torch.rand(count, generator=generator)
        self.t = 1 + (drawn * lengths[self.sequence]).long()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            parts = [
                subject.model.sample_state(rows_of(subject.beliefs[int(t)], self.sequence[index : index + 1]), 1)
                for index, t in enumerate(self.t)
            ]
        self._states = parts
        z = torch.cat([_flat(state)[0] for state in parts])
        self._mean = z.mean(0)
        _, sizes, directions = torch.linalg.svd(z - self._mean, full_matrices=False)
        self._basis = directions[:2].T
        self.explained = (sizes[:2].square() / sizes.square().sum()).tolist()
        self.points = ((z - self._mean) @ self._basis).numpy()

    def of(self, state: State) -> Array:
        """States (S, 1, size) in two dimensions, (S, 2)."""
        return np.asarray(((_flat(state)[:, 0] - self._mean) @ self._basis).numpy())

    def view(self) -> dict[str, Any]:
        """The cloud: points, the quantities to colour them by, and what is observed in each state."""
        subject = self._subject
        rows, steps = self.sequence.numpy(), self.t.numpy() - 1
        colours: dict[str, Array] = {}
        for name, values in subject.quantities.items():
            colours[name] = values[rows] if values.ndim == 1 else values[rows, steps]
        colours["time"] = self.t.numpy()
        with torch.no_grad():
            densities = [subject.model.decode(state) for state in self._states]
        if subject.picture is not None:
            pictures = torch.cat([density.mean[:, 0] for density in densities])
            decoded: dict[str, Any] = {"pictures": packed(subject.picture.bytes_of(pictures))}
        else:
            for index, name in enumerate(subject.channels):
                colours[f"observed {name}"] = subject.observed[rows, steps, index]
            means = torch.cat([moments(density, len(subject.channels))[0][:, 0] for density in densities])
            decoded = {"values": np.stack([subject.in_units(means, each) for each in range(len(subject.channels))], 1)}
        return {
            "points": self.points,
            "sequence": rows,
            "explained": self.explained,
            "colours": colours,
            "decoded": decoded,
        }


def _flat(state: State) -> Tensor:
    """z as real numbers, (S, N, size)."""
    z = state.z.flat
    return torch.view_as_real(z).flatten(-2) if z.is_complex() else z
