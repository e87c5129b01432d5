"""Probes: small classifiers that read a frozen belief, and by their accuracy tell what it knows.

`probe` takes the codes of several runs at once, (R, N, B), and fits each run its own classifier of a yes or no;
`fit_reader` reads anything else from one model's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tdvae.errors import InputError

RIDGE = 1e-3  # keeps the logistic classifier finite where classes can be separated
NEWTON_STEPS = 12
MLP_HIDDEN, MLP_STEPS, MLP_BATCH, MLP_RATE = 64, 400, 512, 0.01

READER_HIDDEN, READER_BATCH, READER_RATE = 256, 512, 3e-3
READER_CHECKS, READER_KEPT_BACK = 20, 5  # how often a reader is judged, and on which part of the rows: a fifth

Logits = Callable[[Tensor], Tensor]  # codes (R, M, B) → (R, M)


def probe(kind: str, codes: Tensor, labels: Tensor, test_codes: Tensor, test_labels: Tensor) -> Tensor:
    """Fit a classifier of the named kind to (codes, labels), and give its accuracy on the test codes, (R,)."""
    if kind not in PROBES:
        raise InputError(f"probe: expected one of {sorted(PROBES)}, got {kind!r}")
    for name, given, answers in (("codes", codes, labels), ("test_codes", test_codes, test_labels)):
        if given.ndim != 3 or answers.shape != given.shape[1:2]:
            expected = "(R, N, B) with labels (N,)"
            raise InputError(f"{name}: expected {expected}, got {tuple(given.shape)} with {tuple(answers.shape)}")
    shift, scale = codes.mean(1, keepdim=True), codes.std(1, keepdim=True) + 1e-4
    logits = PROBES[kind]((codes - shift) / scale, labels)
    return ((logits((test_codes - shift) / scale) > 0) == test_labels).float().mean(-1)


def _fit_logistic(codes: Tensor, labels: Tensor) -> Logits:
    """Ridge logistic regression, by Newton's method from zero."""

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
    """One hidden ReLU layer, by AdamW on batches; the same batches and first weights every time."""
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
def fit_reader(
    codes: Tensor, outputs: int, loss: Callable[[Tensor, Tensor], Tensor], steps: int
) -> Callable[[Tensor], Tensor]:
    """An MLP that reads ``outputs`` numbers from codes (M, B), fitted to a loss of its outputs for drawn rows.

    For more than a yes or no; of one model. The same batches and first weights every time. The last fifth of the rows
    is kept back, and the weights that did best there are used: a belief shows which game it is of, so a reader soon
    learns its games by heart. Rows should therefore be in the order of the games.
    """
    generator = torch.Generator().manual_seed(0)
    shift, scale = codes.mean(0), codes.std(0) + 1e-4
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(codes.shape[1], READER_HIDDEN), nn.ReLU(), nn.Linear(READER_HIDDEN, outputs))
    optimizer = torch.optim.AdamW(network.parameters(), lr=READER_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    fitted = len(codes) - len(codes) // READER_KEPT_BACK
    kept_back = torch.arange(fitted, len(codes))
    best, best_loss = copy.deepcopy(network), math.inf
    for step in range(1, steps + 1):
        rows = torch.randint(fitted, (READER_BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(network((codes[rows] - shift) / scale), rows).backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // READER_CHECKS) == 0:
            with torch.no_grad():
                judged = float(loss(network((codes[kept_back] - shift) / scale), kept_back))
            if judged < best_loss:
                best, best_loss = copy.deepcopy(network), judged
    return lambda codes: best((codes - shift) / scale).detach()


def linear_fit(codes: Tensor, answers: Tensor, ridge: float) -> Callable[[Tensor], Tensor]:
    """Ridge regression of answers (M, A) on standardised codes (M, B), in closed form."""
    shift, scale = codes.mean(0).double(), codes.std(0).double() + 1e-4
    middle = answers.double().mean(0)
    x = (codes.double() - shift) / scale
    gram = x.T @ x / len(x) + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(gram, x.T @ (answers.double() - middle) / len(x))
    return lambda codes: (((codes.double() - shift) / scale) @ weight + middle).to(answers.dtype)
