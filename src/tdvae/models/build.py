"""Functions that build models, from a config or for a data set."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields
from typing import Any, overload

import torch
from torch import Tensor, nn

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.models.base import RecurrentModel
from tdvae.models.config import (
    ConvTDVAEConfig,
    FilteringConfig,
    LatentConfig,
    MeanFieldConfig,
    ModelConfig,
    NextStepConfig,
    RecurrentConfig,
    TDVAEConfig,
)
from tdvae.models.conv import CanvasDecoder, ConvBelief, ConvSmoothing, ConvTransition
from tdvae.models.decoders import (
    BernoulliDecoder,
    CategoricalDecoder,
    CoordinatesDecoder,
    Decoder,
    GaussianDecoder,
)
from tdvae.models.nextstep import NextStep
from tdvae.models.ssm import Filtering, FilteringLadder, MeanField, MeanFieldLadder
from tdvae.models.tdvae import TDVAE, BeliefLadder, SmoothingLadder, TransitionLadder
from tdvae.nn.conv import ConvSizes, FrameEncoder, block_runner
from tdvae.nn.dense import JumpEmbedding, MapFactory, ObservationEncoder, map_factory
from tdvae.nn.drift import Drift, Residual, Rotation
from tdvae.nn.linear import LinearForecast
from tdvae.nn.recurrent import (
    ActionSummary,
    BeliefNetwork,
    ChronoLSTMBelief,
    DeepLSTMBelief,
    LinearRecurrenceBelief,
    LSTMBelief,
    SingleAction,
)
from tdvae.types import Sequences

FEW_NUMBERS = 32  # per step: up to here a linear recurrence is cheap
CONSTANT = 1e-6  # a sensor whose spread is at most this share of its mean is constant: that is rounding in float32
OUTLIER = 50.0  # standard deviations; normal, exponential and log-normal data stay below
MOST_CLASSES = 512  # more in a data set are taken for measurements
MOST_LOGITS = 100_000  # of an observation with rows and columns: more are hardly meant


@overload
def build(config: TDVAEConfig | ConvTDVAEConfig) -> TDVAE: ...
@overload
def build(config: FilteringConfig) -> Filtering: ...
@overload
def build(config: MeanFieldConfig) -> MeanField: ...
@overload
def build(config: NextStepConfig) -> NextStep: ...
@overload
def build(config: ModelConfig) -> RecurrentModel: ...
@checked
def build(config: ModelConfig) -> RecurrentModel:
    """Build a model with newly initialised weights; the type of the config determines the type of the model."""
    if isinstance(config, TDVAEConfig):
        return _tdvae(config)
    if isinstance(config, ConvTDVAEConfig):
        return _conv_tdvae(config)
    if isinstance(config, FilteringConfig):
        return _filtering(config)
    if isinstance(config, MeanFieldConfig):
        return _mean_field(config)
    if isinstance(config, NextStepConfig):
        encoder, belief, read, code = _recurrent_parts(config)
        return NextStep(config, encoder, belief, read, _decoder(config, code + config.known_size + config.actions))
    raise InputError(f"config: expected a model config, got {type(config).__name__}")


def _tdvae(config: TDVAEConfig) -> TDVAE:
    encoder, belief, read, code = _recurrent_parts(config)
    make_map, sizes, drift = _latent_parts(config)
    dt = JumpEmbedding(config.dt, config.octaves)
    p_B = BeliefLadder(code, sizes, make_map, config.init_log_sigma)
    prior = p_B if config.posterior == "product" else None
    # With dt="none", q_S must not depend on δt through a rotation either.
    smoothing_drift = Residual() if drift and config.dt == "none" else drift
    # With x_t1 in the state, the posterior of z_t1 depends on the effect of the actions on x_t1.
    smoothing_summary = (
        ActionSummary(config.actions, config.hidden) if config.actions and config.observed_state else None
    )
    q_S = SmoothingLadder(
        code,
        sizes,
        make_map,
        dt,
        config.smoothing_sees_b2,
        smoothing_drift,
        prior,
        config.init_log_sigma,
        smoothing_summary,
    )
    # A second embedding, because modules of a stack must not be shared.
    transition_dt = JumpEmbedding(config.dt if config.max_latent_dt == 1 else "waves", config.octaves)
    summary = ActionSummary(config.actions, config.hidden) if config.actions else None
    observed = _observed_size(config, encoder)
    p_T = TransitionLadder(
        sizes, make_map, transition_dt, drift, summary, config.init_log_sigma, config.max_latent_dt, observed
    )
    if not config.linear_jumps:
        return TDVAE(config, encoder, belief, read, p_B, q_S, p_T, _state_decoder(config, p_T, observed))
    size = math.prod(config.event_shape)
    linear = LinearForecast(config.lags, size, config.linear_jumps, config.actions)
    inputs = config.latent * config.layers + 2 * size + p_T.features_size
    p_D = GaussianDecoder(inputs, config.event_shape, config.decoder, predicts_sigma=True, has_base=True)
    return TDVAE(config, encoder, belief, read, p_B, q_S, p_T, p_D, linear)


def _conv_tdvae(config: ConvTDVAEConfig) -> TDVAE:
    run = block_runner(config.checkpointing)
    encoder = FrameEncoder(config.event_shape, config.encoder, run)
    inputs = encoder.size + config.actions + config.rewards
    belief: BeliefNetwork = (
        LSTMBelief(inputs, config.belief, config.input_skip)
        if config.belief_layers == 1
        else DeepLSTMBelief(inputs, config.belief, config.belief_layers)
    )
    sizes = ConvSizes(config.grid, config.layers, config.channels, config.latent)
    residual = config.drift == "residual"
    p_B = ConvBelief(belief.size, sizes, config.init_log_sigma, run)
    q_S = ConvSmoothing(belief.size, sizes, JumpEmbedding("waves"), residual, config.init_log_sigma, run)
    summary = ActionSummary(config.actions, config.channels) if config.actions else None
    p_T = ConvTransition(sizes, JumpEmbedding("waves"), summary, residual, config.init_log_sigma, run)
    p_D = CanvasDecoder(config.event_shape, sizes, config.canvas, len(config.encoder), run)
    return TDVAE(config, encoder, belief, nn.Identity(), p_B, q_S, p_T, p_D)


def _filtering(config: FilteringConfig) -> Filtering:
    encoder, belief, read, code = _recurrent_parts(config)
    make_map, sizes, drift = _latent_parts(config)
    observed = _observed_size(config, encoder)
    p_T = _single_step_transition(config, make_map, sizes, drift, observed)
    prior = p_T if config.posterior == "product" else None
    q = FilteringLadder(code, sizes, make_map, drift, prior, config.init_log_sigma)
    return Filtering(config, encoder, belief, read, q, p_T, _state_decoder(config, p_T, observed))


def _mean_field(config: MeanFieldConfig) -> MeanField:
    encoder, belief, read, code = _recurrent_parts(config)
    make_map, sizes, drift = _latent_parts(config)
    observed = _observed_size(config, encoder)
    p_T = _single_step_transition(config, make_map, sizes, drift, observed)
    q = MeanFieldLadder(code, sizes, make_map, config.init_log_sigma)
    return MeanField(config, encoder, belief, read, q, p_T, _state_decoder(config, p_T, observed))


def _latent_parts(config: LatentConfig) -> tuple[MapFactory, list[int], Drift | None]:
    """The factory of D maps, the sizes of the layers of z, and the drift."""
    make_map = map_factory(config.maps, config.hidden, config.blocks)
    drift: Drift | None = None
    if config.drift != "none":
        drift = Residual() if config.drift == "residual" else Rotation(config.latent, config.layers)
    return make_map, [config.latent] * config.layers, drift


def _single_step_transition(
    config: LatentConfig, make_map: MapFactory, sizes: list[int], drift: Drift | None, observed: int
) -> TransitionLadder:
    summary = SingleAction(config.actions) if config.actions else None
    return TransitionLadder(
        sizes, make_map, JumpEmbedding("none"), drift, summary, config.init_log_sigma, observed=observed
    )


def _observed_size(config: LatentConfig, encoder: ObservationEncoder) -> int:
    """The number of features of x_t1 in the state."""
    return (config.known_size or encoder.features_size) if config.observed_state else 0


def _state_decoder(config: LatentConfig, p_T: TransitionLadder, observed: int) -> Decoder:
    """p_D of a model with a latent state: a decoder of z_t2 and, with ``observed_state``, of the inputs of p_T."""
    return _decoder(config, config.latent * config.layers + (p_T.features_size if observed else 0), observed)


def _recurrent_parts(config: RecurrentConfig) -> tuple[ObservationEncoder, BeliefNetwork, nn.Module, int]:
    """The encoder, the belief network, the readout, and the size of the code after the readout."""
    encoder = ObservationEncoder(
        config.event_shape, config.encoder, config.classes, config.likelihood == "bernoulli", config.missing_values
    )
    belief = _belief_network(config, encoder.size + config.known_size + config.actions + config.rewards)
    if not config.readout:
        return encoder, belief, nn.Identity(), belief.size
    read = map_factory("residual", config.readout_hidden, config.blocks)(belief.size, config.readout)
    return encoder, belief, read, config.readout


def _belief_network(config: RecurrentConfig, inputs: int) -> BeliefNetwork:
    if config.belief_network == "lstm":
        if config.lstm_init == "chrono":
            return ChronoLSTMBelief(inputs, config.belief, config.timescales)
        return LSTMBelief(inputs, config.belief, config.input_skip)
    if config.belief_network == "deep_lstm":
        return DeepLSTMBelief(inputs, config.belief, config.belief_layers)
    return LinearRecurrenceBelief(inputs, config.belief, config.timescales, config.max_frequency)


def _decoder(config: RecurrentConfig, inputs: int, linear: int = 0) -> Decoder:
    if config.likelihood == "coordinates":
        return CoordinatesDecoder(config.event_shape[0], None if isinstance(config.noise, str) else config.noise)
    if config.likelihood == "gaussian":
        return GaussianDecoder(inputs, config.event_shape, config.decoder, config.noise == "predicted", linear)
    if config.likelihood == "bernoulli":
        return BernoulliDecoder(inputs, config.event_shape, config.decoder, linear)
    assert config.classes is not None  # the config checks it
    return CategoricalDecoder(inputs, config.event_shape, config.decoder, config.classes, linear)


@checked
def for_data(data: Sequences, **choices: Any) -> TDVAE:
    """A TD-VAE that fits a data set; ``choices`` are fields of `TDVAEConfig`.

    The likelihood follows x's type: floating point is Gaussian (standardised inside, so any units will do), bool is
    Bernoulli, integer is categorical. Actions and rewards are used if the data have them, and ``missing_values`` is set
    if the data have a mask of observed values. The observation is part of the state if it is a vector or categorical,
    and a Gaussian's σ is predicted. The belief network is a linear recurrence if a step has few numbers and an LSTM if
    it has many. The other defaults are the oscillator's: residual maps, a rotating transition and q_S as a product.
    """
    if len(data) == 0 or data.horizon == 0:
        raise InputError(f"data: expected at least one sequence and one step, got shape {tuple(data.x.shape)}")
    data.check_lengths()
    event_shape = tuple(data.x.shape[2:])
    settings: dict[str, Any] = {"event_shape": event_shape, "rewards": data.rewards is not None}
    settings["actions"] = 0 if data.actions is None else data.actions.shape[-1]
    settings["missing_values"] = data.observed is not None
    settings |= {"maps": "residual", "hidden": 64, "readout": 64, "readout_hidden": 64, "posterior": "product"}
    settings["drift"] = "rotation" if choices.get("layers", 2) > 1 else "residual"
    if data.x.dtype == torch.bool:
        settings["likelihood"] = "bernoulli"
    elif not data.x.is_floating_point():
        settings |= {"likelihood": "categorical", "classes": choices.get("classes", int(data.x.max()) + 1)}
        if "classes" not in choices:
            check_classes(settings["classes"], event_shape)
    likelihood: str = choices.get("likelihood", settings.get("likelihood", "gaussian"))
    if likelihood == "gaussian":
        settings["noise"] = "predicted"
    settings["observed_state"] = _suits_observed_state(likelihood, event_shape, choices)
    if math.prod(event_shape) * settings.get("classes", 1) + settings["actions"] <= FEW_NUMBERS:
        settings["belief_network"] = "linear_recurrence"
    _check_choices("for_data", TDVAEConfig, choices)
    model = build(TDVAEConfig(**{**settings, **choices}))
    if isinstance(model.p_D, GaussianDecoder):
        _standardise(model, data)
    return model


def for_pictures(event_shape: tuple[int, ...], actions: int = 0, rewards: bool = False, **choices: Any) -> TDVAE:
    """A convolutional TD-VAE for pictures (channels, rows, columns) in [0, 1]; ``choices`` are fields of its config.

    The pictures are halved until the shorter side has about four pixels. The likelihood is a discretised logistic. The
    sizes are those of the first-person experiment on one core.
    """
    settings: dict[str, Any] = {"event_shape": event_shape, "actions": actions, "rewards": rewards}
    settings["encoder"] = (*[min(64, 16 << level) for level in range(halvings(min(event_shape[1:])) - 1)], 32)
    settings |= {"belief": 256, "belief_layers": 1, "input_skip": 1, "layers": 4, "channels": 32, "latent": 4}
    settings |= {"canvas": 16, "init_log_sigma": -2.0}
    _check_choices("for_pictures", ConvTDVAEConfig, choices)
    return build(ConvTDVAEConfig(**{**settings, **choices}))


def halvings(side: int) -> int:
    """How often convolutions halve a picture with this shorter side: down to about four pixels, at least twice."""
    return max(2, round(math.log2(side / 4)))


def padded_size(rows: int, columns: int) -> tuple[int, int]:
    """The smallest size not below this one that can be halved as often as `for_pictures` halves it."""
    side = min(rows, columns)
    times = halvings(side)
    while halvings(_rounded_up(side, 2**times)) > times:
        times += 1
    return _rounded_up(rows, 2**times), _rounded_up(columns, 2**times)


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _check_choices(name: str, config: type[ModelConfig], choices: dict[str, Any]) -> None:
    known = {field.name for field in fields(config)}
    if unknown := set(choices) - known:
        raise InputError(f"{name}: unknown choices {sorted(unknown)}; known are {sorted(known)}")


def _suits_observed_state(likelihood: str, event_shape: tuple[int, ...], choices: dict[str, Any]) -> bool:
    """Whether x is compact enough to be part of the state, and no choice rules that out."""
    compact = likelihood == "categorical" or (likelihood != "coordinates" and len(event_shape) == 1)
    return compact and choices.get("max_latent_dt", 1) == 1 and choices.get("smoothing_sees_b2", True)


def check_classes(count: int, event_shape: tuple[int, ...]) -> None:
    """Refuse integers that are hardly classes."""
    if len(event_shape) > 1 and count * math.prod(event_shape) > MOST_LOGITS:
        raise InputError(
            f"x: integers are classes, and an observation of shape {event_shape} with {count} classes would need "
            f"{count * math.prod(event_shape):,} logits; for pictures, use tdvae.prepare or `tdvae fit`"
        )
    if count > MOST_CLASSES:
        raise InputError(
            f"x: integers are classes, and there would be {count}; convert measurements to float, or say classes=… in "
            "Python if you mean it"
        )


def _warn_of_outliers(steps: Tensor, shift: Tensor, scale: Tensor) -> None:
    """Warn if few values decide the result."""
    deviations = float(((steps - shift) / scale).abs().max())
    if deviations > OUTLIER:
        warnings.warn(
            f"x: the largest value is {deviations:.0f} standard deviations from the mean. Such outliers decide the "
            "result, and forecasts may be worse than the marginal; clip them or take a logarithm",
            stacklevel=5,
        )


def _standardise(model: TDVAE, data: Sequences) -> None:
    """Give the encoder and the decoder the data's own mean and spread, per dimension, of what was observed."""
    assert isinstance(model.encoder, ObservationEncoder)
    assert isinstance(model.p_D, GaussianDecoder)
    if never := data.never_observed():
        raise InputError(f"data: expected at least one observed value of each channel, got none of channel {never[0]}")
    steps = data.x[data.mask].double()
    observed = torch.ones_like(steps, dtype=torch.bool) if data.observed is None else data.observed[data.mask]
    count = observed.sum(0)
    shift = torch.where(observed, steps, 0).sum(0) / count
    scale = (torch.where(observed, steps - shift, 0).square().sum(0) / (count - 1).clamp(min=1)).sqrt()
    if not bool((shift.square() + scale.square()).float().isfinite().all()):
        raise InputError(
            "x: expected values whose squares are finite 32-bit numbers, got values up to "
            f"{float(steps.abs().max()):g}; divide the data by a constant"
        )
    scale = torch.where(scale > CONSTANT * shift.abs(), scale, 1)
    _warn_of_outliers(torch.where(observed, steps, shift), shift, scale)
    for part in (model.encoder, model.p_D):
        part.shift.copy_(shift)
        part.scale.copy_(scale)
