"""Models with the sizes and the kind of observations of a data set."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from tdvae.checks import checked
from tdvae.errors import InputError
from tdvae.models.config import ModelConfig, build
from tdvae.models.conv import ConvTDVAEConfig
from tdvae.models.decoders import Bits, Classes, Coordinates, DecoderConfig, Gaussian, GaussianDecoder
from tdvae.models.tdvae import TDVAE, TDVAEConfig
from tdvae.nn.dense import ObservationEncoder, Readout, ResidualMaps, Unknown
from tdvae.nn.recurrent import LSTM, BeliefConfig, LinearRecurrence
from tdvae.types import Sequences

FEW_NUMBERS = 32  # per step: up to here a linear recurrence is cheap
CONSTANT = 1e-6  # a sensor whose spread is at most this share of its mean is constant: that is rounding in float32
OUTLIER = 50.0  # standard deviations; normal, exponential and log-normal data stay below
MOST_CLASSES = 512  # more in a data set are taken for measurements
MOST_LOGITS = 100_000  # of an observation with rows and columns: more are unlikely to be class labels


@checked
def for_data(data: Sequences, **choices: Any) -> TDVAE:
    """A TD-VAE that fits a data set; ``choices`` are fields of `TDVAEConfig`. Of ``belief``, a size is enough.

    The decoder follows x's type: floating point is `Gaussian` (standardised inside, so any units will do) with a
    predicted σ, bool is `Bits`, integer is `Classes`. Actions and rewards are used if the data have them, and
    missing values if the data have a mask of observed values. The observation is part of the state if it is a vector or
    categorical. The belief network is a linear recurrence if a step has few numbers and an LSTM if it has many. The
    other defaults are the oscillator's: residual maps, a rotating transition and q_S as a product.

    >>> import torch, tdvae
    >>> data = tdvae.data.from_arrays(torch.randn(4, 12, 3))
    >>> model = tdvae.models.for_data(data, latent=4, belief=tdvae.models.LSTM(16))
    >>> model.config.state, model.config.decoder.noise
    ('observed', 'predicted')
    """
    if len(data) == 0 or data.horizon == 0:
        raise InputError(f"data: expected at least one sequence and one step, got shape {tuple(data.x.shape)}")
    data.check_lengths()
    _check_choices("for_data", TDVAEConfig, choices)
    event_shape = tuple(data.x.shape[2:])
    decoder = choices["decoder"] if "decoder" in choices else _decoder(data)
    settings: dict[str, Any] = {
        "event_shape": event_shape,
        "actions": 0 if data.actions is None else data.actions.shape[-1],
        "rewards": data.rewards is not None,
        "belief": _belief(data, decoder),
        "readout": Readout(64, hidden=64),
        "decoder": decoder,
        "maps": ResidualMaps(64),
        "drift": "rotation" if choices.get("layers", 2) > 1 else "residual",
        "state": "observed" if _suits_observed_state(decoder, event_shape, choices) else "latent",
        "posterior": "product",
    }
    model = build(TDVAEConfig(**_with_choices(settings, choices)))
    if isinstance(model.p_D, GaussianDecoder):
        standardise(model.encoder, model.p_D, data)
    return model


def _decoder(data: Sequences) -> DecoderConfig:
    if data.x.dtype == torch.bool:
        return Bits()
    if data.x.is_floating_point():
        return Gaussian(noise="predicted", missing_values=data.observed is not None)
    count = int(data.x.max()) + 1
    check_classes(count, tuple(data.x.shape[2:]))
    return Classes(count)


def _belief(data: Sequences, decoder: DecoderConfig) -> BeliefConfig:
    classes = decoder.count if isinstance(decoder, Classes) else 1
    numbers = math.prod(data.x.shape[2:]) * classes + (0 if data.actions is None else data.actions.shape[-1])
    return LinearRecurrence() if numbers <= FEW_NUMBERS else LSTM()


def _suits_observed_state(decoder: DecoderConfig, event_shape: tuple[int, ...], choices: dict[str, Any]) -> bool:
    """Whether x is compact enough to be part of the state, and no choice rules that out."""
    compact = isinstance(decoder, Classes) or (not isinstance(decoder, Coordinates) and len(event_shape) == 1)
    dt = choices.get("dt")
    return compact and not (isinstance(dt, Unknown) and dt.lengths > 1) and choices.get("smoothing_sees_b2", True)


def for_pictures(event_shape: tuple[int, ...], actions: int = 0, rewards: bool = False, **choices: Any) -> TDVAE:
    """A convolutional TD-VAE for pictures (channels, rows, columns) in [0, 1]; ``choices`` are fields of its config.

    The pictures are halved until the shorter side has about four pixels. The likelihood is a discretised logistic. The
    sizes are those of the first-person experiment on one core.
    """
    _check_choices("for_pictures", ConvTDVAEConfig, choices)
    settings: dict[str, Any] = {
        "event_shape": event_shape,
        "actions": actions,
        "rewards": rewards,
        "encoder": (*[min(64, 16 << level) for level in range(halvings(min(event_shape[1:])) - 1)], 32),
        "belief": LSTM(256, input_skip=1),
        "layers": 4,
        "channels": 32,
        "latent": 4,
        "canvas": 16,
        "init_log_sigma": -2.0,
    }
    return build(ConvTDVAEConfig(**_with_choices(settings, choices)))


def _with_choices(settings: dict[str, Any], choices: dict[str, Any]) -> dict[str, Any]:
    """The settings with a user's choices. A number is the size of the default belief network."""
    if type(size := choices.get("belief")) is int:
        if size < 1:
            raise InputError(f"belief: expected a size of at least 1, got {size}")
        choices = {**choices, "belief": replace(settings["belief"], size=size)}
    return settings | choices


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


def check_classes(count: int, event_shape: tuple[int, ...]) -> None:
    """Reject integers that are unlikely to be class labels."""
    if len(event_shape) > 1 and count * math.prod(event_shape) > MOST_LOGITS:
        raise InputError(
            f"x: integers are classes, and an observation of shape {event_shape} with {count} classes would need "
            f"{count * math.prod(event_shape):,} logits; for pictures, use tdvae.prepare or `tdvae fit`"
        )
    if count > MOST_CLASSES:
        raise InputError(
            f"x: integers are classes, and there would be {count}; convert measurements to float, or say "
            "decoder=Classes(…) in Python if you mean it"
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


def standardise(encoder: nn.Module, decoder: nn.Module, data: Sequences) -> None:
    """Give the encoder and the decoder the data's own mean and spread, per dimension, of what was observed."""
    assert isinstance(encoder, ObservationEncoder)
    assert isinstance(decoder, GaussianDecoder)
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
    for part in (encoder, decoder):
        part.shift.copy_(shift)
        part.scale.copy_(scale)
