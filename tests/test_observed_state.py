"""Models whose state includes the observation: what their states hold, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tdvae
from tdvae import InputError, Sequences, State, TDVAEConfig
from tdvae.models import (
    LSTM,
    Classes,
    Coordinates,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    MeanFieldConfig,
    Unknown,
    build,
)
from tdvae.models.base import RecurrentModel
from tdvae.models.config import LatentConfig
from tdvae.nn.memory import LastObservation

SMALL: dict[str, Any] = {"latent": 3, "maps": GatedMaps(8), "belief": LSTM(6), "state": "observed"}
VECTOR: dict[str, Any] = {**SMALL, "event_shape": (2,), "decoder": Gaussian((8,), noise="predicted")}
KINDS: list[type[LatentConfig]] = [TDVAEConfig, FilteringConfig, MeanFieldConfig]


def vectors(n: int = 3) -> Sequences:
    return Sequences(2.0 + 3.0 * torch.randn(n, 8, 2), torch.full((n,), 8))


@pytest.mark.parametrize("kind", KINDS)
def test_the_present_state_holds_the_last_observation(kind: type[LatentConfig]) -> None:
    model, data = build(kind(**VECTOR)), vectors()
    assert isinstance(model, RecurrentModel)
    state = model.sample_state(tdvae.belief_at(model, data, 5), 4)
    torch.testing.assert_close(model.observation(state), data.x[:, 4].expand(4, -1, -1))
    present = model.decode(state)
    torch.testing.assert_close(present.mean, data.x[:, 4].expand(4, -1, -1))
    seen = model.observation(state)
    assert torch.equal(present.log_prob(seen), torch.zeros(4, 3))
    assert bool((present.log_prob(seen + 0.1) == -math.inf).all())


def test_the_present_of_classes_is_a_certain_class() -> None:
    config = TDVAEConfig(**SMALL, event_shape=(4,), decoder=Classes(3, (8,)))
    model, data = build(config), Sequences(torch.randint(3, (5, 6, 4)), torch.full((5,), 6))
    state = model.sample_state(tdvae.belief_at(model, data, 6), 2)
    present = model.decode(state)
    assert torch.equal(model.observation(state), data.x[:, 5].expand(2, -1, -1))
    assert torch.equal(present.sample(), data.x[:, 5].expand(2, -1, -1))
    assert torch.equal(present.log_prob(data.x[:, 5]), torch.zeros(2, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_transition_draws_the_observation_from_what_decode_returns(kind: type[LatentConfig]) -> None:
    torch.manual_seed(1)
    model, data = build(kind(**VECTOR)), vectors(1)
    assert isinstance(model, RecurrentModel)
    with torch.no_grad():
        state = model.transition(model.sample_state(tdvae.belief_at(model, data, 5), 20_000), 1)
        decoded = model.decode(state)
        assert isinstance(decoded, tdvae.distributions.DiagonalNormal)
        standardised = (model.observation(state) - decoded.mean) / decoded.sigma
    torch.testing.assert_close(standardised.mean((0, 1)), torch.zeros(2), rtol=0, atol=0.03)
    torch.testing.assert_close(standardised.std((0, 1)), torch.ones(2), rtol=0, atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_prediction_depends_on_the_observation_in_the_state(kind: type[LatentConfig]) -> None:
    model, data = build(kind(**VECTOR)), vectors()
    with torch.no_grad():
        state = model.sample_state(tdvae.belief_at(model, data, 5), 4)
        assert state.x is not None
        torch.manual_seed(0)
        first = model.predict(state, 1).mean
        torch.manual_seed(0)
        second = model.predict(State(state.z, state.x + 1.0), 1).mean
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("kind", KINDS)
def test_a_linear_autoregression_is_part_of_the_model(kind: type[LatentConfig]) -> None:
    """With the network's output at zero, the mean is a linear function of x_t1."""
    model, data = build(kind(**VECTOR)), vectors()
    assert isinstance(model.p_D, tdvae.models.decoders.GaussianDecoder)
    with torch.no_grad():
        for p in model.p_D.layers[-1].parameters():
            p.zero_()
        assert model.p_D.linear is not None
        model.p_D.linear.weight.copy_(torch.tensor([[0.5, 0.2], [-0.1, 0.9]]))
        predicted = model.predict(model.sample_state(tdvae.belief_at(model, data, 5), 2), 1).mean
    torch.testing.assert_close(predicted, (data.x[:, 4] @ model.p_D.linear.weight.mT).expand(2, -1, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_without_its_observation_is_refused(kind: type[LatentConfig]) -> None:
    model = build(kind(**VECTOR))
    state = State(model.sample_state(model.initial(2), 3).z)
    for use in (lambda: model.transition(state, 1), lambda: model.predict(state, 1), lambda: model.decode(state)):
        with pytest.raises(
            InputError, match=r"^state: expected an observation x, since the model has state='observed'"
        ):
            use()


def test_a_model_whose_state_is_z_alone_has_no_observation_in_it() -> None:
    model = build(TDVAEConfig())
    with pytest.raises(InputError, match=r"^state: expected a model with state='observed', got state='latent'"):
        model.observation(model.sample_state(model.initial(2), 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoder": Coordinates()}, r"state: expected 'latent' with Coordinates, .*, got 'observed'"),
        ({"dt": Unknown(lengths=3)}, r"state: expected another one with Unknown\(lengths=3\), .*, got 'observed'"),
        ({"smoothing_sees_b2": False}, r"smoothing_sees_b2: expected True with state='observed', .*, got False"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        TDVAEConfig(**{**SMALL, **options})


def test_the_first_observation_is_predicted_from_a_learned_stand_in() -> None:
    model, data = build(TDVAEConfig(**VECTOR)), vectors()
    assert isinstance(model.memory, LastObservation)
    features = model.features_at(data, torch.tensor([0, 1, 8]))
    assert features is not None
    assert torch.equal(features[0], model.memory.x_0)
    torch.testing.assert_close(features[1:], torch.stack([data.x[1, 0], data.x[2, 7]]))
