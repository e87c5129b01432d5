"""Probes: small models fitted to frozen belief codes. Their accuracy measures what information a belief contains.

`probe` fits a binary classifier to the codes of each of R runs, (R, N, B). `fit_reader` fits any network with any loss,
and `linear_fit` a ridge regression.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.errors import InputError

RIDGE = 1e-3  # keeps the logistic weights finite if the classes are separable
NEWTON_STEPS = 12
MLP_HIDDEN, MLP_STEPS, MLP_BATCH, MLP_RATE = 64, 400, 512, 0.01

READER_BATCH, READER_RATE = 512, 1e-2
READER_CHECKS, READER_FOLDS = 20, 5  # number of validations during a fit; one fold of the rows, a fifth, is held out
READER_HELD_OUT = 4_000  # held-out rows of a validation, about
R = TypeVar("R", bound=nn.Module)

Logits = Callable[[Tensor], Tensor]  # codes (R, M, B) → (R, M)


def probe(kind: str, codes: Tensor, labels: Tensor, test_codes: Tensor, test_labels: Tensor) -> Tensor:
    """Fit a classifier of this kind to (codes, labels) and return its accuracy on the test codes, (R,)."""
    if kind not in PROBES:
        raise InputError(f"probe: expected one of {sorted(PROBES)}, got {kind!r}")
    for name, inputs, targets in (("codes", codes, labels), ("test_codes", test_codes, test_labels)):
        if inputs.ndim != 3 or targets.shape != inputs.shape[1:2]:
            expected = "(R, N, B) with labels (N,)"
            raise InputError(f"{name}: expected {expected}, got {tuple(inputs.shape)} with {tuple(targets.shape)}")
    shift, scale = codes.mean(1, keepdim=True), codes.std(1, keepdim=True) + 1e-4
    logits = PROBES[kind]((codes - shift) / scale, labels)
    return ((logits((test_codes - shift) / scale) > 0) == test_labels).float().mean(-1)


def _fit_logistic(codes: Tensor, labels: Tensor) -> Logits:
    """Fit a ridge logistic regression by Newton's method, starting at zero."""

    def with_bias(codes: Tensor) -> Tensor:
        return F.pad(codes.double(), (0, 1), value=1.0)

    x, y = with_bias(codes), labels.double()[:, None]
    weight = x.new_zeros(len(x), x.shape[-1], 1)
    ridge = RIDGE * torch.eye(x.shape[-1], dtype=x.dtype)
    for _ in range(NEWTON_STEPS):
        p = torch.sigmoid(x @ weight)
        gradient = x.mT @ (p - y) / x.shape[1] + RIDGE * weight
        curvature = (x * (p * (1 - p))).mT @ x / x.shape[1] + ridge
        weight = weight - torch.linalg.solve(curvature, gradient)
    return lambda codes: (with_bias(codes) @ weight)[..., 0]


@torch.enable_grad()
def _fit_mlp(codes: Tensor, labels: Tensor) -> Logits:
    """Fit an MLP with one hidden ReLU layer by AdamW. Batches and initial weights are the same in every call."""
    runs, count, size = codes.shape
    generator = torch.Generator().manual_seed(0)

    def layer(inputs: int, outputs: int) -> list[nn.Parameter]:
        weight = torch.rand(runs, inputs, outputs, generator=generator) * 2 - 1
        return [nn.Parameter(weight / math.sqrt(inputs)), nn.Parameter(torch.zeros(runs, 1, outputs))]

    weights = [*layer(size, MLP_HIDDEN), *layer(MLP_HIDDEN, 1)]

    def logits(codes: Tensor) -> Tensor:
        w, b, v, c = weights
        return torch.baddbmm(c, F.relu(torch.baddbmm(b, codes, w)), v)[..., 0]

    optimizer = torch.optim.AdamW(weights, lr=MLP_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, MLP_STEPS)
    for _ in range(MLP_STEPS):
        rows = torch.randint(count, (MLP_BATCH,), generator=generator)
        target = labels[rows].to(codes.dtype).expand(runs, -1)
        loss = F.binary_cross_entropy_with_logits(logits(codes[:, rows]), target, reduction="none")
        optimizer.zero_grad()
        loss.mean(1).sum().backward()
        optimizer.step()
        schedule.step()
    return lambda codes: logits(codes).detach()


PROBES: dict[str, Callable[[Tensor, Tensor], Logits]] = {"logistic": _fit_logistic, "mlp": _fit_mlp}


@torch.enable_grad()
def fit_reader(make: Callable[[], R], count: int, loss: Callable[[R, Tensor], Tensor], steps: int) -> R:
    """Make a network and fit it to ``count`` rows; ``loss(network, rows)`` is that of a batch.

    Batches and initial weights are the same in every call. The last fifth of the rows is held out, and the weights with
    the lowest loss on it, or on so many of them that are evenly chosen, are returned. Without this a large network
    overfits: codes identify the sequence they come from. Rows of one sequence should therefore be contiguous.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = make()
    optimizer = torch.optim.AdamW(network.parameters(), lr=READER_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    train_rows = count - count // READER_FOLDS
    held_out = torch.arange(train_rows, count)[:: max(1, (count - train_rows) // READER_HELD_OUT)]
    best, best_loss = network, math.inf
    for step in range(steps + 1):
        if step % max(1, steps // READER_CHECKS) == 0:  # also before the first step
            with torch.no_grad():
                validation_loss = float(loss(network, held_out))
            if validation_loss < best_loss:
                best, best_loss = copy.deepcopy(network), validation_loss
        rows = torch.randint(train_rows, (READER_BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(network, rows).backward()
        optimizer.step()
        schedule.step()
    return best.requires_grad_(False)


def linear_fit(codes: Tensor, targets: Tensor, ridge: float) -> Callable[[Tensor], Tensor]:
    """Fit a ridge regression of targets (M, A) on standardised codes (M, B) in closed form, and return it."""
    shift, scale = codes.mean(0).double(), codes.std(0).double() + 1e-4
    mean = targets.double().mean(0)
    x = (codes.double() - shift) / scale
    gram = x.T @ x / len(x) + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(gram, x.T @ (targets.double() - mean) / len(x))
    return lambda codes: (((codes.double() - shift) / scale) @ weight + mean).to(targets.dtype)
