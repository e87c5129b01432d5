"""Model configs: dataclasses with all settings of a model, as JSON-compatible values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

from tdvae.checks import NonNegative, PositiveNumber, Range, check_fields
from tdvae.errors import InputError

MAX_SIZE, MAX_COUNT, MAX_WEIGHTS = 2**24, 128, 2**29
Size = Annotated[int, Range(1, MAX_SIZE)]
OptionalSize = Annotated[int, Range(0, MAX_SIZE)]
Count = Annotated[int, Range(1, MAX_COUNT)]
SIZES = ("event_shape", "actions", "classes", "encoder", "decoder", "belief", "readout", "latent", "hidden", "channels")
COUNTS = ("layers", "belief_layers")


@dataclass(frozen=True)
class ModelConfig:
    """Settings of all models: the shapes of observations, actions and rewards."""

    kind: ClassVar[str]

    event_shape: tuple[Size, ...] = (1,)  # shape of one observation
    actions: OptionalSize = 0  # size of the action vector; 0 means no actions
    rewards: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.event_shape:
            raise InputError("event_shape: expected at least one dimension, got ()")
        self._check_weights()

    def _check_weights(self) -> None:
        """Refuse sizes that no machine has the memory for, before a network of these sizes is built."""
        counts = {name: value for name, value in asdict(self).items() if name in COUNTS}
        sizes = {
            name: math.prod(value) if name == "event_shape" else max(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name in SIZES and value
        }
        largest = sorted(sizes, key=sizes.__getitem__)[-2:]
        if "belief" in largest and getattr(self, "belief_network", "") != "linear_recurrence":
            largest = ["belief", "belief"]  # an LSTM has a matrix from its state to its state
        weights = math.prod(sizes[name] for name in largest) * max(counts.values(), default=1)
        if weights > MAX_WEIGHTS:
            given = ", ".join(f"{name}={sizes[name]}" for name in dict.fromkeys(largest))
            raise InputError(f"{given}: expected sizes of at most {MAX_WEIGHTS:,} weights, got about {weights:,}")


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """Settings of models with a belief network over observation vectors and a dense decoder. Default sizes: App. D."""

    likelihood: Literal["coordinates", "gaussian", "bernoulli", "categorical"] = "gaussian"
    classes: Size | None = None  # number of classes of categorical observations
    missing_values: bool = False  # observations may have missing values; the encoder is also given the mask
    encoder: tuple[Size, ...] = ()  # sizes of the hidden ReLU layers of the observation encoder
    decoder: tuple[Size, ...] = (200, 200)  # sizes of the hidden ReLU layers of the decoder
    # σ of the observation: one learned number per dimension, predicted from the state, or a fixed number
    noise: PositiveNumber | Literal["learned", "predicted"] = "learned"
    belief_network: Literal["lstm", "deep_lstm", "linear_recurrence"] = "lstm"
    lstm_init: Literal["forget_bias", "chrono"] = "forget_bias"  # lstm: forget-gate bias + 1, or biases from timescales
    belief: Size = 50  # size of one belief layer; number of modes of a linear recurrence
    belief_layers: Count = 1  # deep_lstm: number of layers
    input_skip: NonNegative = 0  # lstm: number of last encoded observations in the code, beside the state of the LSTM
    timescales: tuple[PositiveNumber, PositiveNumber] = (
        10.0,
        150.0,
    )  # linear_recurrence, chrono: initial time constants, in steps
    max_frequency: PositiveNumber = math.pi  # linear_recurrence: highest initial frequency, rad/step
    readout: OptionalSize = 0  # size of the output of a residual map of the belief code; 0 means no readout
    readout_hidden: Size = 128
    blocks: Annotated[int, Range(0, MAX_COUNT)] = 2  # residual blocks per map
    # Grid worlds: rows and columns of a map of what was seen, registered by the actions (`tdvae.nn.map_memory`)
    map_size: tuple[Size, Size] | None = None
    moves: tuple[tuple[int, int], ...] = ()  # map: rows and columns that each action moves the agent by
    obstacles: tuple[int, ...] = ()  # map: classes that block a move
    map_features: Size = 128  # map: size of the learned summary of the whole map

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_skip and (self.belief_network != "lstm" or self.lstm_init != "forget_bias"):
            raise InputError(
                "input_skip: expected 0 unless belief_network='lstm' and lstm_init='forget_bias', got "
                f"{self.input_skip} with {self.belief_network!r} and {self.lstm_init!r}"
            )
        if self.lstm_init != "forget_bias" and self.belief_network != "lstm":
            raise InputError(
                f"lstm_init: expected 'forget_bias' unless belief_network='lstm', got {self.lstm_init!r} with "
                f"{self.belief_network!r}"
            )
        self._check_map()
        self._check_noise()
        if (self.likelihood == "categorical") != (self.classes is not None):
            raise InputError(
                "classes: expected a number for a categorical likelihood and None for others, got "
                f"{self.classes} with {self.likelihood!r}"
            )
        if self.missing_values and self.likelihood not in ("gaussian", "coordinates"):
            raise InputError(
                f"missing_values: expected False unless the likelihood is 'gaussian' or 'coordinates', got True with "
                f"{self.likelihood!r}"
            )

    @property
    def known_size(self) -> int:
        """The number of features of the map: the window where an action leads, one-hot, and the summary; 0: no map."""
        return 0 if self.map_size is None else math.prod(self.event_shape) * (self.classes or 1) + self.map_features

    def _check_map(self) -> None:
        if self.map_size is None:
            return
        if self.likelihood != "categorical" or len(self.event_shape) != 2:
            raise InputError(
                f"map_size: expected None unless observations are windows of classes, got {self.map_size} with "
                f"{self.likelihood!r} and event_shape={self.event_shape}"
            )
        if any(side < seen for side, seen in zip(self.map_size, self.event_shape, strict=True)):
            raise InputError(f"map_size: expected at least the window {self.event_shape}, got {self.map_size}")
        if not self.moves or len(self.moves) != self.actions:
            raise InputError(f"moves: expected one for each of the {self.actions} actions, got {len(self.moves)}")
        if any(not 0 <= kind < (self.classes or 0) for kind in self.obstacles):
            raise InputError(f"obstacles: expected classes from 0 to {(self.classes or 1) - 1}, got {self.obstacles}")

    def _check_noise(self) -> None:
        options: dict[str, tuple[str, ...]] = {"coordinates": ("learned",), "gaussian": ("learned", "predicted")}
        allowed = options.get(self.likelihood, ("learned",))
        if isinstance(self.noise, str):
            if self.noise not in allowed:
                raise InputError(f"noise: expected one of {allowed} with {self.likelihood!r}, got {self.noise!r}")
        elif self.likelihood != "coordinates":
            raise InputError(
                f"noise: expected a number only for likelihood='coordinates', got {self.noise} with {self.likelihood!r}"
            )


@dataclass(frozen=True)
class LatentConfig(RecurrentConfig):
    """Settings of models with a latent state z: its layers, and the maps that compute their distributions."""

    layers: Count = 2
    latent: Size = 8  # size of each layer of z
    maps: Literal["gated", "residual"] = "gated"  # D maps: those of App. D, or residual SiLU blocks
    hidden: Size = 50
    drift: Literal["none", "residual", "rotation"] = "none"  # drift of z_t1 that is added to the mean of p_T
    init_log_sigma: float = 0.0  # initial log σ; lower values make early samples informative
    observed_state: bool = False  # the state is (z_t, x_t): p_T and p_D are also given x_t1 (not in the paper)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.map_size is not None and not self.observed_state:
            raise InputError("map_size: expected None unless observed_state=True, since a map is a part of the state")
        if self.observed_state and self.likelihood == "coordinates":
            raise InputError(
                "observed_state: expected False with likelihood='coordinates', whose decoder cannot use x_t1, got True"
            )
        if self.likelihood == "coordinates" and (len(self.event_shape) != 1 or self.event_shape[0] > self.latent):
            raise InputError(
                f"event_shape: expected one dimension of at most latent={self.latent} with likelihood='coordinates', "
                f"got {self.event_shape}"
            )


@dataclass(frozen=True)
class TDVAEConfig(LatentConfig):
    """Config of a TD-VAE. The default sizes are those of App. D.

    >>> import tdvae
    >>> config = tdvae.TDVAEConfig(event_shape=(3,), layers=2, latent=8)
    >>> tdvae.models.build(config).config == config
    True
    """

    kind = "tdvae"

    dt: Literal["waves", "number", "none"] = "waves"  # embedding of δt in q_S and p_T
    octaves: Annotated[int, Range(1, 62)] = 8  # waves: jumps of up to 2^octaves steps have different embeddings
    # dt="none": if above 1, p_T is a mixture over latent jump lengths 1 … max_latent_dt, with learned weights
    max_latent_dt: Annotated[int, Range(1, 1_000)] = 1
    posterior: Literal["free", "product"] = "free"  # q_S: a D map, or p_B(z_t1) times a message from t2
    smoothing_sees_b2: bool = True  # q_S is given b_t2, as in the main text; not in App. D
    # If above 0, p_D starts from a linear forecast from the last ``lags`` observations, for jumps of up to this length
    linear_jumps: Annotated[int, Range(0, 10_000)] = 0
    lags: Annotated[int, Range(1, 10_000)] = 1  # last observations in the state

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.linear_jumps and not (self.observed_state and self.noise == "predicted"):
            raise InputError(
                "linear_jumps: expected 0 unless observed_state=True and noise='predicted', got "
                f"{self.linear_jumps} with {self.observed_state} and {self.noise!r}"
            )
        if self.lags > 1 and not self.linear_jumps:
            raise InputError(f"lags: expected 1 unless linear_jumps is above 0, got {self.lags}")
        if self.max_latent_dt > 1 and (self.dt != "none" or self.actions or self.likelihood == "coordinates"):
            raise InputError(
                "max_latent_dt: expected 1 unless dt='none', actions=0 (the number of actions would determine δt) and "
                f"the likelihood is not 'coordinates', got {self.max_latent_dt} with dt={self.dt!r}, "
                f"actions={self.actions}, likelihood={self.likelihood!r}"
            )
        if self.observed_state and self.max_latent_dt > 1:
            raise InputError(
                f"max_latent_dt: expected 1 with observed_state, whose p_D is given δt, got {self.max_latent_dt}"
            )
        if self.observed_state and not self.smoothing_sees_b2:
            raise InputError(
                "smoothing_sees_b2: expected True with observed_state, since q_S must depend on x_t2 if p_D is given "
                "z_t1, got False"
            )


@dataclass(frozen=True)
class MeanFieldConfig(LatentConfig):
    """Config of a state-space model with the encoder q(z_t | b_t)."""

    kind = "mean_field"


@dataclass(frozen=True)
class FilteringConfig(LatentConfig):
    """Config of a state-space model with the encoder q(z_t | z_{t-1}, b_t)."""

    kind = "filtering"

    posterior: Literal["free", "product"] = "free"  # q: a D map, or p_T(z_t | z_{t-1}) times a message from b_t
    particles: Annotated[int, Range(1, 100_000)] = (
        32  # samples of z_t in a belief, since b_t alone does not determine the distribution of z_t
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.map_size is not None and self.posterior == "product":
            raise InputError("posterior: expected 'free' with a map, got 'product'")


@dataclass(frozen=True)
class NextStepConfig(RecurrentConfig):
    """Config of a next-step predictor."""

    kind = "next_step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.likelihood == "coordinates":
            raise InputError("likelihood: expected one that needs no latent state z, got 'coordinates'")
        if self.rewards:
            raise InputError(
                "rewards: expected False, since a next-step predictor feeds back its predictions of x only, got True"
            )


@dataclass(frozen=True)
class ConvTDVAEConfig(ModelConfig):
    """Config of the convolutional TD-VAE for frames (channels, rows, columns).

    The defaults are the paper's sizes ("DeepMind Lab environment" and App. D). The paper does not state the sizes of z,
    the canvas and the encoder.
    """

    kind = "conv_tdvae"

    event_shape: tuple[Size, ...] = (3, 64, 64)
    encoder: tuple[Size, ...] = (32, 64, 128, 256)  # channels of the convolutions of stride 2, down to 4 × 4
    belief: Size = 512  # size of one belief layer
    belief_layers: Count = 4
    input_skip: NonNegative = (
        0  # belief_layers=1: number of last encoded frames in the code, beside the state of the LSTM
    )
    layers: Count = 16  # of z, and of each stack of convolutional LSTM cells
    channels: Size = 256  # of the feature map of each convolutional LSTM cell
    latent: Size = 16  # channels of each layer of z
    canvas: Size = 64  # channels of the decoder's canvas
    drift: Literal["none", "residual"] = "none"  # residual: z_t1 is added to the means of p_T, z_t2 to those of q_S
    init_log_sigma: float = 0.0  # initial log σ of all layers
    checkpointing: bool = False  # recompute activations in the backward pass: less memory, more time

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.encoder) < 2:
            raise InputError(f"encoder: expected at least 2 convolutions, got {len(self.encoder)}")
        if self.input_skip and self.belief_layers > 1:
            raise InputError(
                f"input_skip: expected 0 unless belief_layers=1, got {self.input_skip} with {self.belief_layers} layers"
            )
        reduction = 2 ** len(self.encoder)
        if len(self.event_shape) != 3 or any(size % reduction for size in self.event_shape[1:]):
            raise InputError(
                f"event_shape: expected (channels, rows, columns), with rows and columns divisible by {reduction} for "
                f"{len(self.encoder)} convolutions of stride 2, got {self.event_shape}"
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the feature maps of the convolutional LSTM cells."""
        _, rows, columns = self.event_shape
        return rows // 2 ** len(self.encoder), columns // 2 ** len(self.encoder)


CONFIGS: dict[str, type[ModelConfig]] = {
    config.kind: config for config in (TDVAEConfig, ConvTDVAEConfig, MeanFieldConfig, FilteringConfig, NextStepConfig)
}


def describe_config(config: ModelConfig) -> dict[str, object]:
    """The config as JSON-compatible values; `config_from_dict` is the inverse."""
    return json.loads(json.dumps({"kind": config.kind, **asdict(config)}))


def config_from_dict(values: dict[str, Any]) -> ModelConfig:
    """The config that `Model.describe` returned; lists, which JSON has instead of tuples, are converted."""
    values = dict(values)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in CONFIGS:
        raise InputError(f"model kind: expected one of {sorted(CONFIGS)}, got {kind!r}")
    known = {field.name for field in fields(CONFIGS[kind])}
    if unknown := set(values) - known:
        raise InputError(
            f"model config: expected only fields of {CONFIGS[kind].__name__}, got {sorted(unknown)}; "
            "was it written by a newer version?"
        )
    settings: dict[str, Any] = {k: _tuples(v) for k, v in values.items()}
    return CONFIGS[kind](**settings)


def _tuples(value: Any) -> Any:
    """Lists, also nested ones, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
