"""Models from plain numbers: a frozen config that JSON can hold, and what to build from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import nn

from tdvae.errors import InputError
from tdvae.models.decoders import (
    BernoulliDecoder,
    CategoricalDecoder,
    Decoder,
    FirstComponents,
    GaussianDecoder,
)
from tdvae.models.tdvae import TDVAE, BeliefLadder, SmoothingLadder, TransitionLadder
from tdvae.nn.dense import JumpEmbedding, ObservationEncoder, map_factory
from tdvae.nn.drift import Drift, Stay, Turn
from tdvae.nn.recurrent import (
    ActionSummary,
    BeliefNetwork,
    DeepLSTMBelief,
    LinearRecurrenceBelief,
    LSTMBelief,
)
from tdvae.types import Sequences

FEW_NUMBERS = 32  # per step: up to here a linear recurrence is cheap
MOST_CLASSES = 512  # more in a data set are taken for measurements


@dataclass(frozen=True)
class TDVAEConfig:
    """Everything that shapes a TD-VAE. The defaults are the sizes of App. D."""

    event_shape: tuple[int, ...] = (1,)  # shape of one observation
    likelihood: Literal["first_components", "gaussian", "bernoulli", "categorical"] = "gaussian"
    classes: int | None = None  # for categorical observations
    encoder: tuple[int, ...] = ()  # hidden ReLU layers in front of the belief network
    decoder: tuple[int, ...] = (200, 200)  # hidden ReLU layers of the decoder
    sigma: float | None = None  # first_components: observation noise, learned if None
    belief_network: Literal["lstm", "deep_lstm", "linear_recurrence"] = "lstm"
    belief: int = 50  # size of one belief layer; modes of a linear recurrence
    belief_layers: int = 1  # deep_lstm: how many
    memory: tuple[float, float] = (10.0, 150.0)  # linear_recurrence: initial time constants, in steps
    fastest: float = math.pi  # linear_recurrence: highest initial frequency, rad/step
    readout: int = 0  # size of a residual map that reads the belief code; 0 = the code itself
    readout_hidden: int = 128
    layers: int = 2
    latent: int = 8  # size of each layer of z
    maps: Literal["gated", "residual"] = "gated"  # the D maps: App. D's, or residual SiLU blocks
    hidden: int = 50
    blocks: int = 2  # residual blocks per map
    dt: Literal["waves", "number", "none"] = "waves"  # how δt is given to q_S and p_T
    octaves: int = 8  # waves: jumps of up to 2^octaves steps are told apart
    drift: Literal["none", "stay", "turn"] = "none"  # what p_T's mean is measured from
    smoothing: Literal["free", "product"] = "free"  # q_S: a D map, or p_B(z_t1) times a message from t2
    smoothing_sees_b2: bool = True
    actions: int = 0  # size of an action vector; 0 = none
    rewards: bool = False

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(TDVAEConfig).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise InputError(f"{name}: expected one of {get_args(hint)}, got {getattr(self, name)!r}")
        for name in ("belief", "belief_layers", "layers", "latent", "hidden", "readout_hidden", "octaves"):
            _check_at_least(1, name, getattr(self, name))
        for name in ("readout", "actions", "blocks"):
            _check_at_least(0, name, getattr(self, name))
        for name in ("event_shape", "encoder", "decoder"):
            for size in getattr(self, name):
                _check_at_least(1, name, size)
        _check_at_least(1, "event_shape's dimensions", len(self.event_shape))
        for name, value in (("sigma", self.sigma), ("memory", min(self.memory)), ("fastest", self.fastest)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}: expected positive numbers, got {getattr(self, name)}")
        if self.classes is not None:
            _check_at_least(1, "classes", self.classes)
        if (self.likelihood == "categorical") != (self.classes is not None):
            raise InputError(f"classes: needed for categorical observations and only there, got {self.classes}")
        if self.likelihood == "first_components" and (len(self.event_shape) != 1 or self.event_shape[0] > self.latent):
            raise InputError(
                f"event_shape: first_components reads at most latent={self.latent} numbers, got {self.event_shape}"
            )


def _check_at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise InputError(f"{name}: expected at least {least}, got {value}")


def config_from_dict(values: dict[str, Any]) -> TDVAEConfig:
    """The config that `Model.describe` gave, after JSON has made tuples into lists."""
    values = dict(values)
    if (kind := values.pop("kind", None)) != TDVAE.kind:
        raise InputError(f"model kind: expected {TDVAE.kind!r}, got {kind!r}")
    known = {field.name for field in fields(TDVAEConfig)}
    if unknown := set(values) - known:
        raise InputError(f"model config: unknown entries {sorted(unknown)}; was it written by a newer version?")
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return TDVAEConfig(**settings)


def build(config: TDVAEConfig) -> TDVAE:
    """A TD-VAE with fresh weights."""
    make_map = map_factory(config.maps, config.hidden, config.blocks)
    sizes = [config.latent] * config.layers
    encoder = ObservationEncoder(config.event_shape, config.encoder, config.classes)
    belief = _belief_network(config, encoder.size + config.actions + config.rewards)
    code = config.readout or belief.size
    read: nn.Module = nn.Identity()
    if config.readout:
        read = map_factory("residual", config.readout_hidden, config.blocks)(belief.size, config.readout)
    drift: Drift | None = None
    if config.drift != "none":
        drift = Stay() if config.drift == "stay" else Turn(config.latent, config.layers)
    dt = JumpEmbedding(config.dt, config.octaves)
    summary = ActionSummary(config.actions, config.hidden) if config.actions else None
    p_B = BeliefLadder(code, sizes, make_map)
    prior = p_B if config.smoothing == "product" else None
    q_S = SmoothingLadder(code, sizes, make_map, dt, config.smoothing_sees_b2, drift, prior)
    p_T = TransitionLadder(sizes, make_map, dt, drift, summary)
    return TDVAE(config, encoder, belief, read, p_B, q_S, p_T, _decoder(config))


def _belief_network(config: TDVAEConfig, inputs: int) -> BeliefNetwork:
    if config.belief_network == "lstm":
        return LSTMBelief(inputs, config.belief)
    if config.belief_network == "deep_lstm":
        return DeepLSTMBelief(inputs, config.belief, config.belief_layers)
    return LinearRecurrenceBelief(inputs, config.belief, config.memory, config.fastest)


def _decoder(config: TDVAEConfig) -> Decoder:
    latent = config.layers * config.latent
    if config.likelihood == "first_components":
        return FirstComponents(config.event_shape[0], config.sigma)
    if config.likelihood == "gaussian":
        return GaussianDecoder(latent, config.event_shape, config.decoder)
    if config.likelihood == "bernoulli":
        return BernoulliDecoder(latent, config.event_shape, config.decoder)
    assert config.classes is not None  # the config checks it
    return CategoricalDecoder(latent, config.event_shape, config.decoder, config.classes)


def for_data(data: Sequences, **choices: Any) -> TDVAE:
    """A TD-VAE that fits a data set; ``choices`` are fields of `TDVAEConfig`.

    The likelihood follows x's type: floating point is Gaussian (standardised inside, so any units will do), bool is
    Bernoulli, integer is categorical. Actions and rewards are used if the data have them. The rest is what the
    oscillator's recipe found to learn: a linear recurrence as belief where a step has few numbers (an LSTM where it has
    many), residual maps, a turning transition and q_S as a product.
    """
    event_shape = tuple(data.x.shape[2:])
    settings: dict[str, Any] = {"event_shape": event_shape, "rewards": data.rewards is not None}
    settings["actions"] = 0 if data.actions is None else data.actions.shape[-1]
    settings |= {"maps": "residual", "hidden": 64, "readout": 64, "readout_hidden": 64, "smoothing": "product"}
    settings["drift"] = "turn" if choices.get("layers", 2) > 1 else "stay"
    if data.x.dtype == torch.bool:
        settings["likelihood"] = "bernoulli"
    elif not data.x.is_floating_point():
        settings |= {"likelihood": "categorical", "classes": choices.get("classes", int(data.x.max()) + 1)}
        if "classes" not in choices and settings["classes"] > MOST_CLASSES:
            raise InputError(
                f"x: integers are classes, and there would be {settings['classes']}; convert measurements to float, "
                "or say classes=… if you mean it"
            )
    if math.prod(event_shape) * settings.get("classes", 1) + settings["actions"] <= FEW_NUMBERS:
        settings["belief_network"] = "linear_recurrence"
    known = {field.name for field in fields(TDVAEConfig)}
    if unknown := set(choices) - known:
        raise InputError(f"for_data: unknown choices {sorted(unknown)}; known are {sorted(known)}")
    model = build(TDVAEConfig(**{**settings, **choices}))
    if isinstance(model.p_D, GaussianDecoder):
        _standardise(model, data)
    return model


def _standardise(model: TDVAE, data: Sequences) -> None:
    """Give the encoder and the decoder the data's own mean and spread, per dimension."""
    assert isinstance(model.p_D, GaussianDecoder)
    steps = data.x[data.mask]
    shift, scale = steps.mean(0), steps.std(0)
    scale = torch.where(scale > 1e-6 * shift.abs().clamp(min=1e-6), scale, torch.ones_like(scale))  # constant sensors
    for part in (model.encoder, model.p_D):
        part.shift.copy_(shift)
        part.scale.copy_(scale)
