"""Probes on problems with known solutions."""

from __future__ import annotations

import pytest
import torch

from tdvae import InputError
from tdvae_paper.probes import PROBES, fit_reader, probe


def fit_and_test(codes: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    n = len(labels) // 2
    return probe(kind, codes[:, :n], labels[:n], codes[:, n:], labels[n:])


@pytest.mark.parametrize("kind", sorted(PROBES))
def test_accuracy_on_a_linear_label_in_each_run(kind: str) -> None:
    """Codes of three runs: the label, the label with unit noise (best accuracy Φ(1) = 0.841), and noise only."""
    torch.manual_seed(0)
    labels = torch.rand(8000) > 0.5
    sign = labels * 2.0 - 1.0
    noise = torch.randn(3, 8000, 4)
    noise[0, :, 2], noise[1, :, 2] = 100 * sign, sign + noise[1, :, 2]
    accuracy = fit_and_test(noise * 30 + 7, labels, kind)  # arbitrary scale and offset
    assert accuracy[0] == 1.0
    assert abs(accuracy[1] - 0.841) < 0.02
    assert abs(accuracy[2] - 0.5) < 0.03


def test_only_the_mlp_fits_a_nonlinear_label() -> None:
    torch.manual_seed(0)
    codes = torch.randn(2, 6000, 2)
    labels = codes[0, :, 0] * codes[0, :, 1] > 0
    assert fit_and_test(codes, labels, "mlp")[0] > 0.95
    assert abs(fit_and_test(codes, labels, "logistic")[0] - 0.5) < 0.05


def test_logistic_probe_minimises_its_loss() -> None:
    """It agrees with scipy's minimum of the same ridge problem."""
    from scipy.optimize import minimize

    from tdvae_paper.probes import RIDGE, _fit_logistic

    torch.manual_seed(1)
    codes, labels = torch.randn(1, 200, 3), torch.rand(200) > 0.4
    x = torch.nn.functional.pad(codes[0].double(), (0, 1), value=1.0).numpy()
    y = labels.double().numpy()

    def loss(w):  # type: ignore[no-untyped-def]
        import numpy as np

        return np.mean(np.logaddexp(0, x @ w) - y * (x @ w)) + 0.5 * RIDGE * w @ w

    best = minimize(loss, [0.0] * 4, tol=1e-12).x
    expected = torch.from_numpy(x @ best)
    torch.testing.assert_close(_fit_logistic(codes, labels)(codes)[0], expected, rtol=1e-3, atol=1e-4)


def test_invalid_arguments_are_errors() -> None:
    codes, labels = torch.randn(2, 10, 3), torch.rand(10) > 0.5
    with pytest.raises(InputError, match=r"probe: expected one of \['logistic', 'mlp'\], got 'svm'"):
        probe("svm", codes, labels, codes, labels)
    with pytest.raises(InputError, match="test_codes: expected"):
        probe("mlp", codes, labels, codes, labels[:9])


def test_reader_does_not_overfit() -> None:
    """The codes identify every row but contain nothing about the target. The best possible loss is log 8 ≈ 2.1."""
    torch.manual_seed(0)
    codes, targets = torch.randn(2, 500, 200), torch.randint(8, (2, 500))

    def loss(network: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(network(codes[0][rows]), targets[0][rows])

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(200, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))

    reader = fit_reader(make, 500, loss, steps=400)
    assert torch.nn.functional.cross_entropy(reader(codes[1]), targets[1]) < 3.0  # an overfitted reader has more than 4
