"""Configs that the models share. Those of single models and of their parts are beside what they build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import torch
from torch import nn

from tdvae.checks import Range, shown
from tdvae.config import Config, Count, Size
from tdvae.errors import ArgumentTypeError, InputError
from tdvae.models.decoders import Bits, Classes, Coordinates, Decoder, DecoderConfig, Gaussian
from tdvae.nn.dense import GatedMaps, Maps, ObservationEncoder, Readout
from tdvae.nn.drift import Drift, Residual, Rotation
from tdvae.nn.memory import GridMap, LastObservation, Memory
from tdvae.nn.recurrent import LSTM, BeliefConfig, BeliefNetwork

if TYPE_CHECKING:
    from tdvae.models.base import RecurrentModel
    from tdvae.models.tdvae import TransitionLadder

M = TypeVar("M", bound=nn.Module, covariant=True)
MOST_WEIGHTS = 2**29  # of a model: more would not fit into the memory of most machines


@dataclass(frozen=True)
class ModelConfig(Config, ABC):
    """Settings of all models: the shapes of observations, actions and rewards."""

    event_shape: tuple[Size, ...] = (1,)  # shape of one observation
    actions: Annotated[int, Range(0, 2**24)] = 0  # size of the action vector; 0 means no actions
    rewards: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.event_shape:
            raise InputError("event_shape: expected at least one dimension, got ()")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the layers of z; none if the model has no latent state."""
        return ()

    @abstractmethod
    def build(self) -> RecurrentModel:
        """The model with newly initialised weights; `tdvae.models.build` checks its size first."""

    def shapes(self) -> dict[str, torch.Size]:
        """The shapes of the model's weights by name, without memory for them."""
        try:
            with torch.device("meta"):
                return {name: tensor.shape for name, tensor in self.build().state_dict().items()}
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise InputError(f"config: expected a model of at most {MOST_WEIGHTS:,} weights, got far more") from error


class Builds(Protocol[M]):
    """A config that builds a model of one kind."""

    def build(self) -> M: ...


def build(config: Builds[M]) -> M:
    """Build a model with newly initialised weights; the type of the config determines the type of the model.

    >>> import tdvae
    >>> type(tdvae.models.build(tdvae.models.NextStepConfig(event_shape=(3,)))).__name__
    'NextStep'
    """
    if not isinstance(config, ModelConfig):
        raise ArgumentTypeError(f"config: expected a config of a model, got {shown(config)}")
    count = sum(shape.numel() for shape in config.shapes().values())
    if count > MOST_WEIGHTS:
        raise InputError(f"config: expected a model of at most {MOST_WEIGHTS:,} weights, got {count:,}")
    return config.build()


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """Settings of models with a belief network over observation vectors and a dense decoder. Default sizes: App. D."""

    encoder: tuple[Size, ...] = ()  # sizes of the hidden ReLU layers of the observation encoder
    belief: BeliefConfig = LSTM()
    readout: Readout | None = None
    decoder: DecoderConfig = Gaussian()
    memory: GridMap | None = None  # a map of what was seen, for belief and state, in grid worlds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            self._check_map(self.memory)

    def _check_map(self, memory: GridMap) -> None:
        if self.classes is None or len(self.event_shape) != 2:
            raise InputError(
                f"memory: expected None unless observations are windows of Classes, got a map with {self.decoder} and "
                f"event_shape={self.event_shape}"
            )
        if any(side < seen for side, seen in zip(memory.size, self.event_shape, strict=True)):
            raise InputError(f"memory.size: expected at least the window {self.event_shape}, got {memory.size}")
        if not memory.moves or len(memory.moves) != self.actions:
            raise InputError(f"memory.moves: expected one for each of the {self.actions} actions, got {memory.moves}")
        if any(not 0 <= kind < self.classes for kind in memory.obstacles):
            raise InputError(f"memory.obstacles: expected classes from 0 to {self.classes - 1}, got {memory.obstacles}")

    @property
    def classes(self) -> int | None:
        """The number of classes of categorical observations."""
        return self.decoder.count if isinstance(self.decoder, Classes) else None

    @property
    def missing_values(self) -> bool:
        """Whether observations may have missing values."""
        return isinstance(self.decoder, Gaussian | Coordinates) and self.decoder.missing_values

    @property
    def map_features(self) -> int:
        """The number of features of the map; 0 without one."""
        return 0 if self.memory is None else self.memory.features_size(self.event_shape, self.classes or 0)

    def build_memory(self, encoder: ObservationEncoder) -> Memory | None:
        """What was observed and is a part of the state."""
        return None if self.memory is None else self.memory.build(self.event_shape, self.classes or 0)

    def parts(self) -> tuple[ObservationEncoder, BeliefNetwork, nn.Module, int]:
        """The encoder, the belief network, the readout, and the size of the code after the readout."""
        bits = isinstance(self.decoder, Bits)
        encoder = ObservationEncoder(self.event_shape, self.encoder, self.classes, bits, self.missing_values)
        belief = self.belief.build(encoder.size + self.map_features + self.actions + self.rewards)
        if self.readout is None:
            return encoder, belief, nn.Identity(), belief.size
        return encoder, belief, self.readout.build(belief.size), self.readout.size


@dataclass(frozen=True)
class LatentConfig(RecurrentConfig):
    """Settings of models with a latent state z: its layers, and the maps that compute their distributions."""

    layers: Count = 2
    latent: Size = 8  # size of each layer of z
    maps: Maps = GatedMaps()
    drift: Literal["none", "residual", "rotation"] = "none"  # drift of z_t1 that is added to the mean of p_T
    init_log_sigma: float = 0.0  # initial log σ; lower values make early samples informative
    # observed: the state is (z_t, x_t), and p_T and p_D are also given x_t1 (not in the paper)
    state: Literal["latent", "observed"] = "latent"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None and self.state != "observed":
            raise InputError("state: expected 'observed' with a map, which is a part of the state, got 'latent'")
        if not isinstance(self.decoder, Coordinates):
            return
        if self.state == "observed":
            raise InputError("state: expected 'latent' with Coordinates, whose decoder cannot use x_t1, got 'observed'")
        if len(self.event_shape) != 1 or self.event_shape[0] > self.latent:
            raise InputError(
                f"event_shape: expected one dimension of at most latent={self.latent} with Coordinates, got "
                f"{self.event_shape}"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.latent,) * self.layers

    def build_drift(self) -> Drift | None:
        drifts: dict[str, Callable[[], Drift | None]] = {
            "none": lambda: None,
            "residual": Residual,
            "rotation": lambda: Rotation(self.latent, self.layers),
        }
        return drifts[self.drift]()

    def build_memory(self, encoder: ObservationEncoder) -> Memory | None:
        if self.memory is not None or self.state == "latent":
            return super().build_memory(encoder)
        return LastObservation(encoder.features_size)

    def observed_size(self, encoder: ObservationEncoder) -> int:
        """The number of features of x_t1, or of a map, that p_T and p_D are given."""
        return (self.map_features or encoder.features_size) if self.state == "observed" else 0

    def build_decoder(self, p_T: TransitionLadder, observed: int) -> Decoder:
        """p_D: a decoder of z_t2 and, if the state includes the observation, of the inputs of p_T."""
        inputs = sum(self.sizes) + (p_T.features_size if observed else 0)
        return self.decoder.build(inputs, self.event_shape, observed)
