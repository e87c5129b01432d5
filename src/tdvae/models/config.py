"""Configs: everything that shapes a model, as plain numbers that JSON can hold."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from tdvae.errors import InputError


@dataclass(frozen=True)
class ModelConfig:
    """What every model has: the observations, actions and rewards that it is made for."""

    kind: ClassVar[str]

    event_shape: tuple[int, ...] = (1,)  # shape of one observation
    actions: int = 0  # size of an action vector; 0 = none
    rewards: bool = False

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise InputError(f"{name}: expected one of {get_args(hint)}, got {getattr(self, name)!r}")
        for size in self.event_shape:
            _check_at_least(1, "event_shape", size)
        _check_at_least(1, "event_shape's dimensions", len(self.event_shape))
        _check_at_least(0, "actions", self.actions)


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """A belief network that reads observations as vectors, and a decoder of dense layers. Sizes are App. D's."""

    likelihood: Literal["coordinates", "gaussian", "bernoulli", "categorical"] = "gaussian"
    classes: int | None = None  # for categorical observations
    encoder: tuple[int, ...] = ()  # hidden ReLU layers in front of the belief network
    decoder: tuple[int, ...] = (200, 200)  # hidden ReLU layers of the decoder
    # σ of the observation: one learned number per dimension, predicted from the state, or a fixed number
    noise: float | Literal["learned", "predicted"] = "learned"
    belief_network: Literal["lstm", "deep_lstm", "linear_recurrence"] = "lstm"
    lstm_init: Literal["forget_bias", "chrono"] = "forget_bias"  # lstm: forget-gate bias + 1, or spread by timescales
    belief: int = 50  # size of one belief layer; modes of a linear recurrence
    belief_layers: int = 1  # deep_lstm: how many
    input_skip: int = 0  # lstm: how many of the last encoded observations the code shows beside the network's state
    timescales: tuple[float, float] = (10.0, 150.0)  # linear_recurrence, chrono lstm: initial time constants, in steps
    max_frequency: float = math.pi  # linear_recurrence: highest initial frequency, rad/step
    readout: int = 0  # size of a residual map that reads the belief code; 0 = the code itself
    readout_hidden: int = 128
    blocks: int = 2  # residual blocks per map

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("belief", "belief_layers", "readout_hidden"):
            _check_at_least(1, name, getattr(self, name))
        for name in ("readout", "blocks", "input_skip"):
            _check_at_least(0, name, getattr(self, name))
        for name in ("encoder", "decoder"):
            for size in getattr(self, name):
                _check_at_least(1, name, size)
        if self.input_skip and (self.belief_network != "lstm" or self.lstm_init != "forget_bias"):
            raise InputError(
                "input_skip: only an lstm with lstm_init='forget_bias' has this option, got "
                f"{self.belief_network} with {self.lstm_init}"
            )
        if self.lstm_init != "forget_bias" and self.belief_network != "lstm":
            raise InputError(f"lstm_init: only an lstm has this option, got {self.belief_network}")
        for name, value in (("timescales", min(self.timescales)), ("max_frequency", self.max_frequency)):
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name}: expected positive numbers, got {getattr(self, name)}")
        self._check_noise()
        if self.classes is not None:
            _check_at_least(1, "classes", self.classes)
        if (self.likelihood == "categorical") != (self.classes is not None):
            raise InputError(f"classes: needed for categorical observations and only there, got {self.classes}")

    def _check_noise(self) -> None:
        possible: dict[str, tuple[str, ...]] = {"coordinates": ("learned",), "gaussian": ("learned", "predicted")}
        named = possible.get(self.likelihood, ("learned",))
        if isinstance(self.noise, str):
            if self.noise not in named:
                raise InputError(f"noise: expected one of {named} with {self.likelihood}, got {self.noise!r}")
        elif self.likelihood != "coordinates":
            raise InputError(f"noise: only coordinates takes a number, got {self.noise} with {self.likelihood}")
        elif not (math.isfinite(self.noise) and self.noise > 0):
            raise InputError(f"noise: expected a positive number, got {self.noise}")


@dataclass(frozen=True)
class LatentConfig(RecurrentConfig):
    """What every model with a state z has: its layers, and the maps that give their normals."""

    layers: int = 2
    latent: int = 8  # size of each layer of z
    maps: Literal["gated", "residual"] = "gated"  # the D maps: App. D's, or residual SiLU blocks
    hidden: int = 50
    drift: Literal["none", "residual", "rotation"] = "none"  # what p_T's mean is measured from
    init_log_sigma: float = 0.0  # where log σ of every layer starts: a sharp state says something from the first step
    observed_state: bool = False  # the state is (z_t, x_t): p_T and p_D also read x_t1 (beyond the paper)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("layers", "latent", "hidden"):
            _check_at_least(1, name, getattr(self, name))
        if self.observed_state and self.likelihood == "coordinates":
            raise InputError(
                "observed_state: the decoder coordinates reads z alone and cannot take x_t1; choose another "
                "likelihood, or observed_state=False"
            )
        if self.likelihood == "coordinates" and (len(self.event_shape) != 1 or self.event_shape[0] > self.latent):
            raise InputError(
                f"event_shape: coordinates reads at most latent={self.latent} numbers, got {self.event_shape}"
            )


@dataclass(frozen=True)
class TDVAEConfig(LatentConfig):
    """Everything that shapes a TD-VAE. The defaults are the sizes of App. D."""

    kind = "tdvae"

    dt: Literal["waves", "number", "none"] = "waves"  # how δt is given to q_S and p_T
    octaves: int = 8  # waves: jumps of up to 2^octaves steps are told apart
    max_latent_dt: int = 1  # none: p_T takes a jump for one of 1 … max_latent_dt steps, and learns how often it is each
    posterior: Literal["free", "product"] = "free"  # q_S: a D map, or p_B(z_t1) times a message from t2
    smoothing_sees_b2: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("octaves", "max_latent_dt"):
            _check_at_least(1, name, getattr(self, name))
        if self.max_latent_dt > 1 and (self.dt != "none" or self.actions or self.likelihood == "coordinates"):
            raise InputError(
                "max_latent_dt: expected 1 unless δt is withheld (dt='none'), there are no actions (their number "
                f"would tell δt) and the decoder is a map; got {self.max_latent_dt} with dt={self.dt!r}, "
                f"actions={self.actions}, likelihood={self.likelihood!r}"
            )
        if self.observed_state and self.max_latent_dt > 1:
            raise InputError(f"max_latent_dt: expected 1 with observed_state, got {self.max_latent_dt}: p_D reads δt")
        if self.observed_state and not self.smoothing_sees_b2:
            raise InputError("smoothing_sees_b2: with observed_state p_D reads z_t1, so q_S must see x_t2 through b_t2")


@dataclass(frozen=True)
class MeanFieldConfig(LatentConfig):
    """Everything that shapes a state-space model whose encoder is q(z_t | b_t)."""

    kind = "mean_field"


@dataclass(frozen=True)
class FilteringConfig(LatentConfig):
    """Everything that shapes a state-space model whose encoder is q(z_t | z_{t-1}, b_t)."""

    kind = "filtering"

    posterior: Literal["free", "product"] = "free"  # q: a D map, or p_T(z_t | z_{t-1}) times a message from b_t
    particles: int = 32  # paths of z that a belief carries along: b_t alone does not say what z_t may be

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_at_least(1, "particles", self.particles)


@dataclass(frozen=True)
class NextStepConfig(RecurrentConfig):
    """Everything that shapes a next-step predictor."""

    kind = "next_step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.likelihood == "coordinates":
            raise InputError("likelihood: coordinates reads a state z, and a next-step predictor has none")
        if self.rewards:
            raise InputError(
                "rewards: a next-step predictor feeds back what it predicts, and that is observations only"
            )


@dataclass(frozen=True)
class ConvTDVAEConfig(ModelConfig):
    """Everything that shapes the convolutional TD-VAE of frames (channels, rows, columns). The defaults are the paper's
    sizes ("DeepMind Lab environment" and App. D); it does not say how large z, the canvas and the encoder are.
    """

    kind = "conv_tdvae"

    event_shape: tuple[int, ...] = (3, 64, 64)
    encoder: tuple[int, ...] = (32, 64, 128, 256)  # channels of convolutions that halve the frame, down to 4 × 4
    belief: int = 512  # size of one belief layer
    belief_layers: int = 4
    input_skip: int = 0  # one belief layer: how many of the last encoded frames the code shows beside the LSTM's state
    layers: int = 16  # of z, and of each stack of convolutional LSTMs
    channels: int = 256  # of each convolutional LSTM's map
    latent: int = 16  # channels of each layer of z
    canvas: int = 64  # channels of the decoder's canvas
    drift: Literal["none", "residual"] = "none"  # what the means of p_T and q_S are measured from
    init_log_sigma: float = 0.0  # where log σ of every layer starts
    checkpointing: bool = False  # compute layers again for the gradient instead of keeping them: less memory, more time

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("belief", "belief_layers", "layers", "channels", "latent", "canvas"):
            _check_at_least(1, name, getattr(self, name))
        _check_at_least(0, "input_skip", self.input_skip)
        _check_at_least(2, "encoder's convolutions", len(self.encoder))
        for width in self.encoder:
            _check_at_least(1, "encoder", width)
        if self.input_skip and self.belief_layers > 1:
            raise InputError(f"input_skip: only a belief of one layer has this option, got {self.belief_layers} layers")
        shrinks = 2 ** len(self.encoder)
        if len(self.event_shape) != 3 or any(size % shrinks for size in self.event_shape[1:]):
            raise InputError(
                f"event_shape: expected (channels, rows, columns), rows and columns divisible by {shrinks} since "
                f"{len(self.encoder)} convolutions halve them, got {self.event_shape}"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the convolutional LSTMs' maps."""
        _, rows, columns = self.event_shape
        return rows // 2 ** len(self.encoder), columns // 2 ** len(self.encoder)


CONFIGS: dict[str, type[ModelConfig]] = {
    config.kind: config for config in (TDVAEConfig, ConvTDVAEConfig, MeanFieldConfig, FilteringConfig, NextStepConfig)
}


def _check_at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise InputError(f"{name}: expected at least {least}, got {value}")


def describe_config(config: ModelConfig) -> dict[str, object]:
    """The config as JSON can hold it; `config_from_dict` reads it back."""
    return json.loads(json.dumps({"kind": config.kind, **asdict(config)}))


def config_from_dict(values: dict[str, Any]) -> ModelConfig:
    """The config that `Model.describe` gave, after JSON has made tuples into lists."""
    values = dict(values)
    kind = values.pop("kind", None)
    if kind not in CONFIGS:
        raise InputError(f"model kind: expected one of {sorted(CONFIGS)}, got {kind!r}")
    known = {field.name for field in fields(CONFIGS[kind])}
    if unknown := set(values) - known:
        raise InputError(f"model config: unknown entries {sorted(unknown)}; was it written by a newer version?")
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return CONFIGS[kind](**settings)
