"""The interface that all models implement, and properties of single models."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import tdvae
from tdvae import Learner, Sequences, TDVAEConfig, TrainConfig, jumps
from tdvae.distributions import DiagonalNormal, NormalMixture
from tdvae.models import (
    LSTM,
    TDVAE,
    Bits,
    Classes,
    ConvTDVAEConfig,
    Coordinates,
    DeepLSTM,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    GridMap,
    LinearRecurrence,
    MeanFieldConfig,
    Model,
    NextStepConfig,
    Number,
    Readout,
    ResidualMaps,
    Unknown,
    Waves,
    build,
    for_data,
)
from tdvae.models.base import RecurrentModel
from tdvae.models.config import LatentConfig, ModelConfig, RecurrentConfig
from tdvae.models.decoders import GaussianDecoder
from tdvae.models.ssm import StateSpace
from tdvae.models.tdvae import TransitionLadder
from tdvae.nn.dense import JumpEmbedding, ObservationEncoder
from tdvae.nn.drift import Rotation
from tdvae.nn.ladder import product
from tdvae.nn.recurrent import ActionSummary, DeepLSTMBelief, LinearRecurrenceBelief
from tdvae.storage import RunFolder, checkpoint
from tdvae.types import Belief, Latent, Pairs, State
from tdvae_paper.chrono_lstm import ChronoLSTM

ROTATION = TDVAEConfig(
    drift="rotation",
    posterior="product",
    belief=LinearRecurrence(12),
    decoder=Coordinates(sigma=0.1),
    readout=Readout(10, hidden=16),
    maps=ResidualMaps(16),
)
FRAMES = ConvTDVAEConfig(
    event_shape=(3, 16, 16), encoder=(4, 6), layers=3, channels=5, latent=2, canvas=4, belief=DeepLSTM(7, layers=2)
)
GRID_WORLD: dict[str, Any] = {
    "event_shape": (3, 3),
    "decoder": Classes(4, (10,)),
    "actions": 3,
    "memory": GridMap((5, 6), ((0, 0), (0, 1), (-1, 0)), obstacles=(1,), features=5),
}
CONFIGS: dict[str, TDVAEConfig | ConvTDVAEConfig] = {
    "app_d": TDVAEConfig(smoothing_sees_b2=False, decoder=Coordinates(), dt=Number()),
    "one_layer": TDVAEConfig(layers=1, latent=3),
    "five_layers": TDVAEConfig(layers=5, latent=2, drift="residual", maps=GatedMaps(12)),
    "deep_belief": TDVAEConfig(belief=DeepLSTM(7, layers=3)),
    "rotation": ROTATION,
    "bits": TDVAEConfig(event_shape=(4, 3), encoder=(9, 8), decoder=Bits((10,)), dt=Unknown()),
    "lengths": TDVAEConfig(layers=3, latent=2, drift="rotation", maps=GatedMaps(8), dt=Unknown(lengths=4)),
    "sharp": TDVAEConfig(encoder=(6,), init_log_sigma=-2.0, latent=3, belief=LSTM(5, input_skip=2)),
    "chrono": TDVAEConfig(latent=3, drift="rotation", belief=ChronoLSTM(6), maps=GatedMaps(8)),
    "classes": TDVAEConfig(event_shape=(5,), decoder=Classes(4), maps=ResidualMaps(10)),
    "acting": TDVAEConfig(event_shape=(2,), actions=3, rewards=True, posterior="product", drift="residual"),
    "observed": TDVAEConfig(
        event_shape=(3,), layers=2, latent=3, decoder=Gaussian(noise="predicted"), maps=GatedMaps(8), state="observed"
    ),
    "observed_acting": TDVAEConfig(
        event_shape=(2,), actions=3, rewards=True, drift="residual", posterior="product", state="observed"
    ),
    "observed_classes": TDVAEConfig(event_shape=(5,), encoder=(7,), decoder=Classes(4), dt=Unknown(), state="observed"),
    "observed_bits": TDVAEConfig(event_shape=(2, 3), drift="rotation", decoder=Bits(), state="observed"),
    "gaps": TDVAEConfig(
        event_shape=(3,), latent=3, encoder=(7,), decoder=Gaussian(missing_values=True), maps=GatedMaps(8)
    ),
    "observed_gaps": TDVAEConfig(
        event_shape=(2,),
        latent=3,
        actions=3,
        decoder=Gaussian(noise="predicted", missing_values=True),
        maps=GatedMaps(8),
        state="observed",
    ),
    "map": TDVAEConfig(**GRID_WORLD, latent=3, maps=GatedMaps(8), state="observed", posterior="product"),
    "conv": FRAMES,
    "conv_acting": replace(FRAMES, layers=1, actions=3, rewards=True, belief=LSTM(7, input_skip=2)),
    "conv_wide": replace(FRAMES, event_shape=(1, 16, 32), encoder=(3, 4, 5), checkpointing=True),
}
NEXT_STEP = {
    "next_step": NextStepConfig(decoder=Gaussian((10,))),
    "next_step_predicted_noise": NextStepConfig(event_shape=(2,), decoder=Gaussian((10,), noise="predicted")),
    "next_step_deep": NextStepConfig(belief=DeepLSTM(6, layers=2), decoder=Gaussian((10,))),
    "next_step_linear": NextStepConfig(belief=LinearRecurrence(6), decoder=Gaussian(()), readout=Readout(5)),
    "next_step_bits": NextStepConfig(event_shape=(4, 3), encoder=(9, 8), decoder=Bits((10,))),
    "next_step_classes": NextStepConfig(event_shape=(5,), decoder=Classes(4, (10,))),
    "next_step_acting": NextStepConfig(event_shape=(2,), actions=3, decoder=Gaussian((10,))),
    "next_step_map": NextStepConfig(**GRID_WORLD),
    "next_step_gaps": NextStepConfig(event_shape=(2,), decoder=Gaussian((10,), missing_values=True)),
}
STATE_SPACE: dict[str, LatentConfig] = {
    "mean_field": MeanFieldConfig(latent=3, maps=GatedMaps(8)),
    "mean_field_acting": MeanFieldConfig(
        event_shape=(2,), latent=3, actions=3, rewards=True, drift="rotation", maps=GatedMaps(8)
    ),
    "filtering": FilteringConfig(latent=3, maps=GatedMaps(8)),
    "filtering_product": FilteringConfig(
        event_shape=(2,), latent=3, actions=3, drift="rotation", posterior="product", maps=GatedMaps(8)
    ),
    "mean_field_observed": MeanFieldConfig(event_shape=(2,), latent=3, actions=3, maps=GatedMaps(8), state="observed"),
    "filtering_observed": FilteringConfig(event_shape=(5,), posterior="product", decoder=Classes(4), state="observed"),
    "mean_field_map": MeanFieldConfig(**GRID_WORLD, latent=3, maps=GatedMaps(8), state="observed"),
    "filtering_map": FilteringConfig(**GRID_WORLD, latent=3, maps=GatedMaps(8), state="observed"),
    "filtering_gaps": FilteringConfig(
        event_shape=(2,),
        latent=3,
        decoder=Gaussian(missing_values=True),
        maps=GatedMaps(8),
        state="observed",
    ),
    "filtering_classes": FilteringConfig(event_shape=(5,), drift="residual", decoder=Classes(4), maps=ResidualMaps(10)),
}
N, T = 3, 24
# Every config whose observations are continuous, with missing values.
GAPS: dict[str, RecurrentConfig] = {
    name: replace(config, decoder=replace(config.decoder, missing_values=True))
    for name, config in {**CONFIGS, **NEXT_STEP, **STATE_SPACE}.items()
    if isinstance(config, RecurrentConfig) and isinstance(config.decoder, Gaussian | Coordinates)
}


def random_x(config: ModelConfig) -> Tensor:
    shape = (N, T, *config.event_shape)
    if isinstance(config, RecurrentConfig) and isinstance(config.decoder, Bits):
        return torch.rand(shape) > 0.5
    if isinstance(config, RecurrentConfig) and config.classes:
        return torch.randint(config.classes, shape)
    if isinstance(config, ConvTDVAEConfig):
        return torch.randint(256, shape) / 255
    return torch.randn(shape)


def observations(config: ModelConfig) -> Sequences:
    return Sequences(
        x := random_x(config),
        torch.full((N,), T),
        torch.randn(N, T, config.actions) if config.actions else None,
        torch.randn(N, T) if config.rewards else None,
        torch.rand(x.shape) > 0.4 if getattr(config, "missing_values", False) else None,
    )


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> TDVAE:
    return build(CONFIGS[request.param])


@pytest.fixture(params=[*CONFIGS, *NEXT_STEP, *STATE_SPACE])
def any_model(request: pytest.FixtureRequest) -> Model:
    return build({**CONFIGS, **NEXT_STEP, **STATE_SPACE}[request.param])


@pytest.fixture(params=GAPS)
def gaps_model(request: pytest.FixtureRequest) -> RecurrentModel:
    """A model with missing values, and with a mean and spread of its own, so that 0 is no special value."""
    model = build(GAPS[request.param])
    assert isinstance(model.encoder, ObservationEncoder)
    model.encoder.shift.fill_(0.7)
    model.encoder.scale.fill_(1.3)
    return model


def test_online_updates_equal_filter(any_model: Model) -> None:
    sequences = observations(any_model.config)
    codes = any_model.filter(sequences).codes
    assert codes.shape[:2] == (N, T + 1)
    for t in (0, 1, 7, T):
        torch.testing.assert_close(tdvae.belief_at(any_model, sequences, t).code, codes[:, t], rtol=1e-4, atol=1e-5)


def test_given_returns_the_distribution_of_sample(model: TDVAE) -> None:
    """With the same conditions, both return the same distribution, for all three ladders."""
    sequences = observations(model.config)
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths, 5, torch.Generator().manual_seed(0))
    beliefs = model.filter(sequences)
    b1, b2 = beliefs.at(pairs.t1), beliefs.at(pairs.t2)
    actions = tdvae.objectives.actions_between(sequences, pairs)
    z2, p_B2 = model.p_B.sample(b2)
    z1, q_S1 = model.q_S.sample(z2, b1, b2, pairs.dt, actions)
    s1 = model.remembered(State(z1, model.features_at(sequences, pairs.t1)), pairs.dt, actions)
    z3, p_T3 = model.p_T.sample(s1, pairs.dt, actions)
    distributions = (
        (p_B2, model.p_B.given(z2, b2)),
        (q_S1, model.q_S.given(z1, z2, b1, b2, pairs.dt, actions)),
        (p_T3, model.p_T.given(z3, s1, pairs.dt, actions)),
    )
    assert isinstance(model.config, LatentConfig | ConvTDVAEConfig)
    assert len(z1.layers) == model.config.layers
    for sampled, given in distributions:
        for layer, other in zip(sampled.layers, given.layers, strict=True):
            assert type(layer) is type(other)
            if isinstance(layer, NormalMixture) and isinstance(other, NormalMixture):
                torch.testing.assert_close(layer.logits, other.logits)
                layer, other = layer.components, other.components
            assert isinstance(layer, DiagonalNormal)
            assert isinstance(other, DiagonalNormal)
            torch.testing.assert_close(layer.mean, other.mean)
            torch.testing.assert_close(layer.log_sigma, other.log_sigma)
    torch.testing.assert_close(p_B2.log_prob(z2), model.p_B.given(z2, b2).log_prob(z2))


def tensors_of(value: State | Belief) -> list[Tensor]:
    """All tensors of a state or a belief."""
    tensors: list[Tensor] = []

    def note(part: Tensor) -> Tensor:
        tensors.append(part)
        return part

    value.map(note)
    return tensors


def test_states_roll_out_and_decode(any_model: Model) -> None:
    sequences = observations(any_model.config)
    belief = tdvae.belief_at(any_model, sequences, 10)
    actions = None if sequences.actions is None else sequences.actions[:, 10:16]
    with torch.no_grad():
        state = any_model.sample_state(belief, 7)
    states = tdvae.rollout(any_model, state, [3, 1, 2], actions)
    assert {part.shape[:3] for part in tensors_of(states)} == {(3, 7, N)}
    decoded = any_model.decode(states)
    assert decoded.sample().shape == (3, 7, N, *any_model.config.event_shape)
    assert decoded.log_prob(sequences.x[:, 10]).shape == (3, 7, N)
    density = tdvae.forecast(any_model, belief, 4, samples=20, a=actions)
    assert bool(torch.isfinite(density.log_prob(sequences.x[:, 13])).all())


# Missing values


def losses_and_forecast(model: RecurrentModel, sequences: Sequences) -> list[Tensor]:
    """The codes, the loss with its gradients, and the scores of a forecast, from the same noise at each call."""
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths, 5, torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model.zero_grad()
    loss = Learner(model)(sequences, pairs).total
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    belief = tdvae.belief_at(model, sequences, 10)
    actions = None if sequences.actions is None else sequences.actions[:, 10:13]
    density = tdvae.forecast(model, belief, 3, samples=8, a=actions)
    codes = model.filter(sequences).codes
    return [codes.detach(), loss.detach(), *gradients, density.mean, density.log_prob(*sequences.at(13))]


def test_online_updates_equal_filter_with_gaps(gaps_model: RecurrentModel) -> None:
    sequences = observations(gaps_model.config)
    assert sequences.observed is not None
    sequences.observed[:, 5:8] = False  # whole observations
    codes, times = gaps_model.filter(sequences).codes, (1, 7, T)
    for t in times:
        belief = tdvae.belief_at(gaps_model, sequences, t)
        torch.testing.assert_close(belief.code, codes[:, t], rtol=1e-4, atol=1e-5)
        if gaps_model.memory is not None:
            features = gaps_model.features_at(sequences, torch.full((N,), t))
            torch.testing.assert_close(belief.x, features)


def test_values_at_missing_places_have_no_influence(gaps_model: RecurrentModel) -> None:
    sequences = observations(gaps_model.config)
    assert sequences.observed is not None
    results = [
        losses_and_forecast(gaps_model, replace(sequences, x=torch.where(sequences.observed, sequences.x, filler)))
        for filler in (0.0, 1e30, torch.nan)
    ]
    assert all(bool(result.isfinite().all()) for result in results[0])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    everything = losses_and_forecast(gaps_model, replace(sequences, observed=None))
    assert not torch.equal(everything[0], results[0][0])  # where values are observed, they have one


def test_a_mask_without_gaps_equals_no_mask(gaps_model: RecurrentModel) -> None:
    complete = replace(observations(gaps_model.config), observed=None)
    masked = replace(complete, observed=torch.ones_like(complete.x, dtype=torch.bool))
    for a, b in zip(*(losses_and_forecast(gaps_model, each) for each in (complete, masked)), strict=True):
        assert torch.equal(a, b)


def test_forecasts_start_in_a_gap(gaps_model: RecurrentModel) -> None:
    """The last observations before the forecast are missing, and the forecast depends on those before them."""
    sequences = observations(gaps_model.config)
    assert sequences.observed is not None
    sequences.observed[:, :6], sequences.observed[:, 6:10] = True, False
    actions = None if sequences.actions is None else sequences.actions[:, 10:15]
    means = []
    for x in (sequences.x, sequences.x + 1.0):
        belief = tdvae.belief_at(gaps_model, replace(sequences, x=x), 10)
        torch.manual_seed(2)
        means.append(tdvae.forecast(gaps_model, belief, 5, samples=8, a=actions).mean)
    assert bool(means[0].isfinite().all())
    assert not torch.equal(*means)


def test_the_present_observation_is_unknown_where_it_is_missing() -> None:
    model = build(CONFIGS["observed_gaps"])
    x = torch.tensor([[2.0, torch.nan], [torch.nan, -1.0], [0.5, 1.5]])
    belief = model.update(model.initial(3), x, torch.zeros(3, 3))
    state = model.sample_state(belief, 4)
    torch.testing.assert_close(model.observation(state), x.expand(4, 3, 2), equal_nan=True)
    guess = torch.tensor([[2.0, 9.0], [9.0, -1.0], [0.5, 9.0]])
    expected = torch.tensor([0.0, 0.0, -torch.inf]).expand(4, 3)
    assert torch.equal(model.decode(state).log_prob(guess), expected)
    assert bool(model.observation(model.transition(state, 2, torch.zeros(3, 2, 3))).isfinite().all())


@pytest.mark.parametrize("any_model", ["one_layer", "observed", "conv", "next_step", "mean_field"], indirect=True)
def test_other_models_refuse_missing_values(any_model: Model) -> None:
    sequences = observations(any_model.config)
    with pytest.raises(tdvae.InputError, match=r"^sequences: .*missing_values=True, got a mask"):
        any_model.filter(replace(sequences, observed=torch.ones_like(sequences.x, dtype=torch.bool)))
    x = sequences.x[:, 0].clone()
    x[1] = torch.nan
    with pytest.raises(tdvae.InputError, match=r"^x: .*missing_values=True, got NaN"):
        any_model.update(any_model.initial(N), x)


def test_masks_of_another_shape_or_type_are_refused() -> None:
    model = build(CONFIGS["gaps"])
    sequences = observations(model.config)
    assert sequences.observed is not None
    for observed in (sequences.observed[..., 0], sequences.observed.float()):
        with pytest.raises(tdvae.InputError, match=r"^observed: expected (truth values|shape \(3, 24, 3\)), got"):
            model.filter(replace(sequences, observed=observed))


def test_for_data_uses_the_mask_if_there_is_one() -> None:
    x = torch.randn(20, 12, 2)
    complete = tdvae.data.from_arrays(x)
    x[3, 4, 1] = torch.nan
    gaps = tdvae.data.from_arrays(x)
    part = gaps.select(slice(5, 20))  # a part without gaps of data that have some
    for data, expected in ((complete, False), (gaps, True), (part, True)):
        config = for_data(data).config
        assert isinstance(config, TDVAEConfig)
        assert config.missing_values is expected


# One of each kind of model: what is particular to a config, the tests without `fit` cover for all of them.
KINDS = ["one_layer", "conv", "next_step", "mean_field", "filtering"]


def assert_same_model(loaded: Model, model: Model) -> None:
    assert loaded.config == model.config
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name


def test_saved_and_loaded_models_are_equal(any_model: Model, tmp_path: Path) -> None:
    """From a run folder as `fit` leaves it; that `fit` leaves such a folder is the next test's."""
    weights = {"weights": Learner(any_model).state_dict()}
    checkpoint.save_numbered(tmp_path / "run" / "checkpoints", "step", 1, weights, {}, keep=1)
    config = {"model": any_model.describe(), "info": {}}
    RunFolder(tmp_path / "run").write_config(config)
    assert_same_model(tdvae.load(tmp_path / "run"), any_model)


@pytest.mark.parametrize("any_model", KINDS, indirect=True)
def test_trained_and_loaded_models_are_equal(any_model: Model, tmp_path: Path) -> None:
    data, config = observations(any_model.config), TrainConfig(steps=2, batch_size=2, pairs=3)
    tdvae.fit(Learner(any_model), data, jumps.Uniform(1, 3), config, tmp_path / "run", progress="none")
    assert_same_model(tdvae.load(tmp_path / "run"), any_model)


class LossOfTensors(nn.Module):
    """A model's loss as a function of plain tensors, whose types Fabric converts."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.learner = Learner(model)

    def forward(self, batch: dict[str, Tensor], t1: Tensor, t2: Tensor) -> Tensor:
        return self.learner(Sequences(**batch), Pairs(t1, t2)).total


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions_give_gradients(any_model: Model, precision: Literal["bf16-mixed", "64-true"]) -> None:
    """A step as `fit` makes it, without its files: every config has parts that could mix types."""
    fabric = Fabric(accelerator="cpu", devices=1, precision=precision)
    sequences = observations(any_model.config)
    pairs = jumps.Uniform(1, 3).sample(sequences.lengths, 3, torch.Generator().manual_seed(0))
    loss = fabric.setup_module(LossOfTensors(any_model))(sequences.named(), pairs.t1, pairs.t2)
    fabric.backward(loss)
    for name, parameter in any_model.named_parameters():
        assert parameter.dtype == (torch.float64 if precision == "64-true" else torch.float32), name
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all()), name
    assert any(parameter.grad is not None for parameter in any_model.parameters())


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
@pytest.mark.parametrize("any_model", KINDS, indirect=True)
def test_other_precisions_train(any_model: Model, tmp_path: Path, precision: Literal["bf16-mixed", "64-true"]) -> None:
    config = TrainConfig(steps=2, batch_size=2, pairs=3, precision=precision, accelerator="cpu")
    data = observations(any_model.config)
    result = tdvae.fit(Learner(any_model), data, jumps.Uniform(1, 3), config, tmp_path / "run", progress="none")
    assert result.steps == 2
    assert all(bool(torch.isfinite(p).all()) for p in any_model.parameters())


def test_every_parameter_has_a_gradient(any_model: Model) -> None:
    sequences = observations(any_model.config)
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths, 20, torch.Generator().manual_seed(0))
    pairs = Pairs(torch.cat([torch.zeros(N, 1).long(), pairs.t1], 1), torch.cat([torch.ones(N, 1).long(), pairs.t2], 1))
    Learner(any_model)(sequences, pairs).total.backward()
    learned = {name: p for name, p in any_model.named_parameters() if p.requires_grad}  # x_0 of a map is not learned
    unused = [name for name, p in learned.items() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert unused == []


def test_copied_model_is_independent(any_model: Model) -> None:
    """q_S borrows p_B and the drift, a filtering q borrows p_T: in a copy each must borrow the copy's."""
    sequences = observations(any_model.config)
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths, 5, torch.Generator().manual_seed(0))
    twin = Learner(copy.deepcopy(any_model))

    def loss() -> Tensor:
        torch.manual_seed(1)
        return twin(sequences, pairs).total

    with torch.no_grad():
        before, original = loss(), Learner(any_model)(sequences, pairs).total
        for p in any_model.parameters():
            p.zero_()
        assert not torch.equal(Learner(any_model)(sequences, pairs).total, original)
        assert torch.equal(loss(), before)


@pytest.mark.parametrize("name", ["rotation", "filtering_product"])
def test_posterior_uses_the_prior_of_its_own_model(name: str) -> None:
    """A product posterior is p_B or p_T times a message: in a copy, too, it changes with the copy's."""
    torch.manual_seed(1)
    for model in (build({**CONFIGS, **STATE_SPACE}[name]), copy.deepcopy(build({**CONFIGS, **STATE_SPACE}[name]))):
        means = []
        for _ in range(2):
            torch.manual_seed(0)
            means.append(posterior_mean(model))
            lender = model.p_B if isinstance(model, TDVAE) else model.get_submodule("p_T")
            with torch.no_grad():
                for p in lender.parameters():
                    p.add_(0.1)
        before, after = means
        assert not torch.allclose(before, after)


def posterior_mean(model: Model) -> Tensor:
    """The mean of the top layer of q_S(z_t1 | …), or of q(z_t | z_{t-1}, b_t)."""
    z = Latent(tuple(torch.randn(4, size) for size in [8, 8] if isinstance(model, TDVAE)) or (torch.randn(4, 3),) * 2)
    if isinstance(model, TDVAE):
        b1, b2 = torch.randn(2, 4, 10)
        law = model.q_S.given(z, z, b1, b2, torch.ones(4, dtype=torch.long)).layers[-1]
    else:
        assert isinstance(model, StateSpace)
        law = model.q.given(z, torch.randn(4, 50), State(z), torch.randn(4, 1, 3)).layers[-1]
    assert isinstance(law, DiagonalNormal)
    return law.mean.detach()


def test_linear_recurrence_equals_a_loop() -> None:
    network = LinearRecurrenceBelief(inputs=2, modes=5, timescales=(3.0, 40.0), max_frequency=1.0)
    torch.nn.init.normal_(network.first)
    x = torch.randn(3, 37, 2)
    codes, last = network.scan(network.initial(3), x)
    pole = torch.polar(torch.exp(-network.log_decay.exp()), network.angle)
    h = torch.complex(*network.first).expand(3, 5)
    drive = network.drive(x) * torch.sqrt(2 * network.log_decay.exp())
    for t in range(37):
        h = pole * h + drive[:, t]
        torch.testing.assert_close(codes[:, t, :5], h.real, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(codes[:, t, 5:10], h.imag, rtol=1e-4, atol=1e-5)
    first, middle = network.scan(network.initial(3), x[:, :20])
    second, end = network.scan(middle, x[:, 20:])
    torch.testing.assert_close(torch.cat([first, second], 1), codes, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(end.carry[0], last.carry[0], rtol=1e-4, atol=1e-5)


EVERY = {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("upward", "steps", "sources"),
    [
        # b^l_t sees b^l and b^{l+1} of t - 1, the lowest also b^L as its b^0; and what b^{l-1} has seen at t.
        (True, 1, [{0, 1, 4}, {0, 1, 2, 4}, EVERY, EVERY, EVERY]),
        (True, 2, [EVERY] * 5),
        # Without the links to b^{l-1}_t, news come down by one layer per step.
        (False, 1, [{0, 1, 4}, {1, 2}, {2, 3}, {3, 4}, {4}]),
        (False, 2, [{0, 1, 2, 4}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {4}]),
    ],
)
def test_deep_lstm_top_down_connections(upward: bool, steps: int, sources: list[set[int]]) -> None:
    """App. C, by which layers of the belief before have a gradient from each layer ``steps`` later."""
    network = DeepLSTMBelief(inputs=1, size=4, layers=5)
    if not upward:
        with torch.no_grad():
            for cell in list(network.cells)[1:]:
                cell.get_parameter("weight_ih")[:, 1:5] = 0  # columns: x, the layer below, the layer above
    code = torch.randn(1, 20, requires_grad=True)
    codes, _ = network.scan(tdvae.Belief(code, network.initial(1).carry), torch.randn(1, steps, 1))
    for layer, expected in enumerate(sources):
        (gradient,) = torch.autograd.grad(codes[0, -1, 4 * layer : 4 * layer + 4].sum(), code, retain_graph=True)
        reached = set(gradient.view(5, 4).abs().sum(1).nonzero()[:, 0].tolist())
        assert reached == expected, layer


def test_deep_lstm_equals_the_equation_of_app_c() -> None:
    """b^l_t = RNN(b^l_{t-1}; x_t, b^{l-1}_t, b^{l+1}_{t-1}), written out; of the top layer without the last."""
    network = DeepLSTMBelief(inputs=2, size=4, layers=3)
    torch.nn.init.normal_(network.first)
    x = torch.randn(6, 3, 2)
    codes, last = network.scan(network.initial(6), x)
    b, c = (list(part.split(4, -1)) for part in (network.initial(6).code, network.initial(6).carry[0]))
    lowest, middle, top = network.cells
    for t in range(3):
        first, c[0] = lowest(torch.cat([x[:, t], b[2], b[1]], -1), (b[0], c[0]))
        second, c[1] = middle(torch.cat([x[:, t], first, b[2]], -1), (b[1], c[1]))
        third, c[2] = top(torch.cat([x[:, t], second], -1), (b[2], c[2]))
        b = [first, second, third]
        torch.testing.assert_close(codes[:, t], torch.cat(b, -1))
    torch.testing.assert_close(last.carry[0], torch.cat(c, -1))


def test_action_summary_depends_on_the_actions_of_the_jump_only() -> None:
    summary = ActionSummary(actions=2, size=6)
    actions = torch.randn(4, 9, 2, requires_grad=True)
    summary(actions, torch.tensor([1, 3, 5, 9])).sum().backward()
    assert actions.grad is not None
    for row, dt in enumerate((1, 3, 5, 9)):
        assert float(actions.grad[row, :dt].abs().sum(-1).min()) > 0
        assert float(actions.grad[row, dt:].abs().sum()) == 0


def test_transition_depends_on_the_order_of_actions() -> None:
    model = build(CONFIGS["acting"])
    state = model.sample_state(model.initial(1), 1)
    actions = torch.randn(1, 1, 4, 3)

    def mean(a: Tensor) -> Tensor:
        bottom = model.p_T.given(state.z, state, torch.full((1, 1), 4), a).layers[0]
        assert isinstance(bottom, DiagonalNormal)
        return bottom.mean

    assert not torch.allclose(mean(actions), mean(actions.flip(2)))


def test_transition_without_dt_depends_on_all_actions() -> None:
    model = build(TDVAEConfig(event_shape=(2,), actions=3, dt=Unknown()))
    state = model.sample_state(model.initial(1), 1)
    actions = torch.randn(1, 1, 4, 3, requires_grad=True)
    model.p_T.given(state.z, state, torch.full((1, 1), 4), actions).log_prob(state.z).sum().backward()
    assert actions.grad is not None
    assert float(actions.grad.abs().sum(-1).min()) > 0


def test_next_step_prediction_depends_on_the_action_before_the_observation() -> None:
    model = build(NEXT_STEP["next_step_acting"])
    sequences = observations(model.config)
    assert sequences.actions is not None
    with torch.no_grad():
        state = model.sample_state(tdvae.belief_at(model, sequences, 5), 1)
        actual, other = sequences.actions[:, 5:6], sequences.actions[:, 5:6] + 1
        assert not torch.allclose(model.predict(state, 1, actual).mean, model.predict(state, 1, other).mean)
        # The prediction equals the decoded next state, and the distribution in the loss.
        following = model.sample_state(tdvae.belief_at(model, sequences, 6), 1)
        torch.testing.assert_close(model.decode(following).mean, model.predict(state, 1, actual).mean)
        first_step = sequences.until(1)
        start = model.sample_state(model.initial(N), 1)
        nll = -model.predict(start, 1, first_step.actions).log_prob(first_step.x[:, 0]).mean()
        pairs = Pairs(torch.zeros(N, 1, dtype=torch.long), torch.ones(N, 1, dtype=torch.long))
        torch.testing.assert_close(tdvae.objectives.next_step_loss(model, first_step, pairs).total, nll)


def test_actions_of_a_jump() -> None:
    """The actions of the jump t1 → t2 are a_{t1+1} … a_{t2}."""
    config = CONFIGS["acting"]
    sequences = observations(config)
    marked = replace(sequences, actions=torch.arange(1.0, T + 1)[None, :, None].expand(N, T, 3).contiguous())
    taken = tdvae.objectives.actions_between(marked, Pairs(torch.tensor([[4]] * N), torch.tensor([[7]] * N)))
    assert taken is not None
    assert taken[0, 0, :, 0].tolist() == [5.0, 6.0, 7.0]


def test_embeddings_of_different_jumps_differ() -> None:
    features = JumpEmbedding(Waves(9))(torch.arange(1, 513))
    distances = torch.cdist(features, features) + 10 * torch.eye(512)
    assert float(distances.min()) > 0.01


def test_rotation_forth_and_back_is_the_identity() -> None:
    rotation = Rotation(latent=4, layers=3)
    for p in rotation.rates.parameters():
        torch.nn.init.zeros_(p)
    torch.nn.init.normal_(rotation.rates.out.bias)  # rates that do not depend on z
    z = Latent((torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 4)))
    dt = torch.tensor([1, 2, 30, 4, 100])
    torch.testing.assert_close(rotation.back(rotation(z, dt), dt).flat, z.flat, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rotation(z, dt).flat.norm(dim=-1), z.flat.norm(dim=-1))


def test_product_of_normals_is_bayes_rule() -> None:
    prior = DiagonalNormal(torch.tensor([1.0]), torch.tensor([0.3]))
    message = DiagonalNormal(torch.tensor([-2.0]), torch.tensor([-0.5]))
    fused = product(prior, message)
    grid = torch.linspace(-8, 8, 4001)[:, None]
    density = torch.exp(prior.log_prob(grid) + message.log_prob(grid))
    density = density / density.sum()
    mean = (density * grid[:, 0]).sum()
    sigma = (density * (grid[:, 0] - mean) ** 2).sum().sqrt()
    torch.testing.assert_close(fused.mean[0], mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fused.sigma[0], sigma, rtol=1e-4, atol=1e-4)


def test_predict_with_integrated_last_layer_agrees_with_monte_carlo() -> None:
    """The closed-form integral over z^1 and plain Monte Carlo estimate the same density."""
    model = build(replace(ROTATION, decoder=Coordinates(sigma=0.5)))
    belief = tdvae.belief_at(model, observations(model.config), 8)
    x = torch.tensor([[0.3], [-0.2], [1.0]])
    integrated = tdvae.forecast(model, belief, 3, samples=4000).log_prob(x)
    with torch.no_grad():
        states = model.transition(model.sample_state(belief, 40_000), 3)
        monte_carlo = torch.logsumexp(model.decode(states).log_prob(x), 0) - torch.log(torch.tensor(40_000.0))
    torch.testing.assert_close(integrated, monte_carlo, rtol=0, atol=0.06)


def test_for_data_is_invariant_to_units() -> None:
    """Data in other units give the same model, and densities that differ by the factor of the units."""
    x = torch.randn(20, 12, 2)
    belief, forecasts = [], []
    for scale, shift in ((1.0, 0.0), (1000.0, -5e4)):
        data = tdvae.data.from_arrays(x * scale + shift)
        torch.manual_seed(5)
        model = for_data(data, latent=4)
        torch.manual_seed(6)
        belief.append(tdvae.belief_at(model, data, 5))
        forecasts.append(tdvae.forecast(model, belief[-1], 2, samples=30).log_prob(data.x[:, 6]))
    torch.testing.assert_close(belief[0].code, belief[1].code, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(forecasts[0] - 2 * torch.log(torch.tensor(1000.0)), forecasts[1], rtol=1e-2, atol=1e-2)


def test_forecast_density_integrates_to_one() -> None:
    model = build(ROTATION)
    density = tdvae.forecast(model, model.initial(1), 5, samples=50)
    grid = torch.linspace(-30, 30, 3_001)
    mass = torch.stack([density.log_prob(x.view(1, 1)).exp() for x in grid]).sum(0) * (grid[1] - grid[0])
    torch.testing.assert_close(mass, torch.ones_like(mass), rtol=1e-3, atol=1e-3)
    with pytest.raises(tdvae.InputError, match="shape"):
        density.log_prob(torch.zeros(5))  # would broadcast
    low, high = density.quantile(0.05), density.quantile(0.95)
    torch.testing.assert_close(density.cdf(high) - density.cdf(low), torch.full_like(low, 0.9), rtol=0, atol=1e-4)


def test_next_step_loss_is_the_mean_negative_log_density_of_predict() -> None:
    """After one transition, `decode` is p(x_{t+1} | x_≤t), and the loss averages over steps without padding."""
    model = build(NEXT_STEP["next_step"])
    x = torch.randn(N, T, 1)
    lengths = torch.tensor([T, 3, 10])
    nll = []
    with torch.no_grad():
        for row, length in enumerate(lengths.tolist()):
            sequence = Sequences(x[row : row + 1], lengths[row : row + 1])
            for t in range(length):
                state = model.sample_state(tdvae.belief_at(model, sequence, t), 1)
                nll.append(-model.predict(state, 1).log_prob(sequence.x[:, t]))
        loss = tdvae.objectives.next_step_loss(model, Sequences(x, lengths), Pairs(lengths, lengths)).total
    torch.testing.assert_close(loss, torch.stack(nll).mean())


def test_next_step_decode_depends_on_the_previous_code() -> None:
    model = build(NEXT_STEP["next_step"])
    sequences = observations(model.config)
    with torch.no_grad():
        previous, current = (tdvae.belief_at(model, sequences, t) for t in (9, 10))
        decoded = model.decode(model.sample_state(current, 1))
        torch.testing.assert_close(decoded.mean[0], model.following(model.read(previous.code)).mean)


def test_transition_with_different_jump_lengths_in_a_batch() -> None:
    """With noise-free samples, a batch of different δt gives the same states as separate transitions."""
    model = build(NEXT_STEP["next_step"])
    assert isinstance(model.head, GaussianDecoder)
    with torch.no_grad():
        model.head.log_sigma.fill_(-100.0)
        state = model.sample_state(tdvae.belief_at(model, observations(model.config), 5), 2)
        batched = model.transition(state, torch.tensor([[1, 2, 4], [4, 1, 2]]))
        for dt, indices in ((1, ((0, 0), (1, 1))), (2, ((0, 1), (1, 2))), (4, ((0, 2), (1, 0)))):
            separate = model.transition(state, dt)
            for index in indices:
                torch.testing.assert_close(batched[index].z.layers, separate[index].z.layers)


def test_grouping_by_length_does_not_change_codes() -> None:
    torch.manual_seed(0)
    model = build(replace(CONFIGS["one_layer"], actions=2))
    lengths = torch.randint(1, T + 1, (200,))
    sequences = Sequences(torch.randn(200, T, 1), lengths, torch.randn(200, T, 2))
    grouped = model.filter(sequences).codes
    whole = model.filter(Sequences(sequences.x, torch.full((200,), T), sequences.actions)).codes
    assert grouped.shape == whole.shape
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(grouped[row, : length + 1], whole[row, : length + 1])
    assert int((grouped == 0).all(-1).sum()) > 1000  # padding was not encoded


def test_loss_is_the_same_without_frames_after_the_last_t2() -> None:
    """Each sequence is encoded up to its last t2 only, with the same loss and gradient as for all frames."""
    model = build(CONFIGS["one_layer"])
    sequences = Sequences(torch.randn(128, T, 1), torch.full((128,), T))
    pairs = jumps.Uniform(1, 4).sample(sequences.lengths, 1, torch.Generator().manual_seed(0))
    results = []
    for last in (None, T):  # up to the last t2 of each sequence; all frames
        model.zero_grad()
        torch.manual_seed(0)
        loss = tdvae.objectives.tdvae_loss(model, sequences, Pairs(pairs.t1, pairs.t2, last)).total
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for cut, complete in zip(*results, strict=True):
        torch.testing.assert_close(cut, complete, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", STATE_SPACE)
def test_elbo_does_not_depend_on_padding(name: str) -> None:
    """Extreme values in the padding do not change the loss."""
    model, data = build(STATE_SPACE[name]), observations(STATE_SPACE[name])
    short = replace(data, lengths=torch.tensor([T, 5, 9]))
    x = short.x.clone()
    x[1, 5:] = 0 if STATE_SPACE[name].classes else 1e6
    losses = []
    for sequences in (short, replace(short, x=x)):
        torch.manual_seed(0)
        losses.append(Learner(model)(sequences, Pairs(torch.zeros(0).long(), torch.zeros(0).long())).total)
    assert bool(torch.isfinite(losses[0]))
    torch.testing.assert_close(losses[0], losses[1])


def test_filtering_particles_have_the_distribution_of_the_encoder() -> None:
    """Online particles and samples of `infer` agree in mean and standard deviation."""
    config = FilteringConfig(latent=2, layers=1, maps=GatedMaps(8))
    model, data = build(config), observations(config).select(slice(0, 1)).until(4)
    model.particles = 4_000
    with torch.no_grad():
        online = model.sample_state(tdvae.belief_at(model, data, 4), 20_000).z.flat[:, 0]
        codes = model.read(model.filter(data).codes[:, 1:])
        inferred = model.infer(codes.expand(4_000, -1, -1), data.select(torch.zeros(4_000).long())).flat[:, -1]
    torch.testing.assert_close(online.mean(0), inferred.mean(0), rtol=0, atol=0.08)
    torch.testing.assert_close(online.std(0), inferred.std(0), rtol=0.08, atol=0)


def test_a_withheld_length_is_summed_over() -> None:
    """p_T(z_t2 | z_t1) = Σ_k w_k p_T(z_t2 | z_t1, k), whichever way the layers are drawn and scored."""
    model = build(CONFIGS["lengths"])
    z1, z2 = (Latent(tuple(torch.randn(5, 2) for _ in range(3))) for _ in range(2))
    dt = torch.ones(5, dtype=torch.long)
    assert isinstance(model.p_T, TransitionLadder)
    context = model.p_T.context(State(z1), dt)
    assert context.log_weights is not None
    layers = z2.map(lambda layer: layer[:, None].expand(5, 4, 2)).layers
    log_probs = torch.stack(
        [model.p_T.heads(i, context.features, layers[i + 1 :], context.base_mean).log_prob(layers[i]) for i in range(3)]
    ).sum(0)
    expected = torch.logsumexp(context.log_weights + log_probs, dim=-1)
    torch.testing.assert_close(model.p_T.given(z2, State(z1), dt).log_prob(z2), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(context.log_weights.exp().sum(-1), torch.ones(5))
    assert float(context.log_weights.detach().exp().min()) > 0.01 / 4  # no length has weight 0


@pytest.mark.parametrize("drift", ["none", "residual", "rotation"])
@pytest.mark.parametrize("lengths", [1, 4])
def test_no_ladder_depends_on_dt_if_it_is_not_given(
    drift: Literal["none", "residual", "rotation"], lengths: int
) -> None:
    """With dt=Unknown() (App. D), p_T and q_S, including the drift, are the same for δt = 1 and δt = 4."""
    model = build(
        TDVAEConfig(latent=3, drift=drift, posterior="product", maps=GatedMaps(6), dt=Unknown(lengths=lengths))
    )
    z1, z2 = (Latent((torch.randn(5, 3), torch.randn(5, 3))) for _ in range(2))
    b1, b2 = torch.randn(2, 5, 50)
    one, four = torch.ones(5, dtype=torch.long), torch.full((5,), 4)
    for ladder, z, conditions in ((model.p_T, z2, (State(z1),)), (model.q_S, z1, (z2, b1, b2))):
        log_probs = [ladder.given(z, *conditions, dt).log_prob(z) for dt in (one, four)]
        assert torch.equal(*log_probs)
