"""Probes against problems whose answer is known."""

from __future__ import annotations

import pytest
import torch

from tdvae import InputError
from tdvae.experiments.shared.probes import PROBES, fit_reader, probe


def halves(codes: torch.Tensor, labels: torch.Tensor, kind: str) -> torch.Tensor:
    n = len(labels) // 2
    return probe(kind, codes[:, :n], labels[:n], codes[:, n:], labels[n:])


@pytest.mark.parametrize("kind", sorted(PROBES))
def test_what_is_linearly_there_is_found_in_each_run(kind: str) -> None:
    """Three runs hold the label in full, blurred by unit noise (best accuracy Φ(1) = 0.841), and not at all."""
    torch.manual_seed(0)
    labels = torch.rand(8000) > 0.5
    sign = labels * 2.0 - 1.0
    noise = torch.randn(3, 8000, 4)
    noise[0, :, 2], noise[1, :, 2] = 100 * sign, sign + noise[1, :, 2]
    found = halves(noise * 30 + 7, labels, kind)  # any units
    assert found[0] == 1.0
    assert abs(found[1] - 0.841) < 0.02
    assert abs(found[2] - 0.5) < 0.03


def test_only_the_mlp_sees_what_is_not_linear() -> None:
    torch.manual_seed(0)
    codes = torch.randn(2, 6000, 2)
    labels = codes[0, :, 0] * codes[0, :, 1] > 0
    assert halves(codes, labels, "mlp")[0] > 0.95
    assert abs(halves(codes, labels, "logistic")[0] - 0.5) < 0.05


def test_a_logistic_probe_is_at_the_optimum_of_its_loss() -> None:
    """Newton's fixed point: where scipy's optimiser of the same ridge problem ends as well."""
    from scipy.optimize import minimize

    from tdvae.experiments.shared.probes import RIDGE, _fit_logistic

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


def test_bad_input() -> None:
    codes, labels = torch.randn(2, 10, 3), torch.rand(10) > 0.5
    with pytest.raises(InputError, match=r"probe: expected one of \['logistic', 'mlp'\], got 'svm'"):
        probe("svm", codes, labels, codes, labels)
    with pytest.raises(InputError, match="test_codes: expected"):
        probe("mlp", codes, labels, codes, labels[:9])


def test_a_reader_does_not_learn_its_rows_by_heart() -> None:
    """Codes that say nothing about the answer, but tell every row apart: knowing nothing costs log 8."""
    torch.manual_seed(0)
    codes, answers = torch.randn(2, 500, 200), torch.randint(8, (2, 500))

    def loss(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, answers[0][rows])

    reader = fit_reader(codes[0], 8, loss, steps=400)
    assert torch.nn.functional.cross_entropy(reader(codes[1]), answers[1]) < 3.0  # by heart it would be more than 4
