"""Calls of the public API with drawn arguments: a result without NaN, or an error of the library."""

from __future__ import annotations

import collections.abc
import inspect
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

import tdvae
from tdvae import distributions, likelihood, objectives
from tdvae.codec import CodecTraining, ConvCodecConfig, load_codec
from tdvae.data import OscillatorSettings, from_arrays, simulate, split
from tdvae.exact import BankPosterior, GaussianMixture, KalmanBank, OscillatorOracle
from tdvae.models import (
    LSTM,
    Bits,
    Classes,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    LinearRecurrence,
    MeanFieldConfig,
    Model,
    NextStepConfig,
    TDVAEConfig,
    build,
    for_data,
)
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.stack import Stack
from tests.campaign.outcome import Outcome, Tally, limited, run_blocks

BLOCK = 500
LIMIT = 20.0
MEMORY = 8 * 2**30  # bytes of address space
WRONG_TYPE = 0.05  # probability for each argument
PASS_ON_NAN = ("log_prob", "cdf", "log_mean_exp", "split", "until", "select")  # of NaN, which stays NaN
INTEGERS = (-1, 0, 1, 1, 2, 2, 3, 4, 5, 7, 12, 100, 2**31, 2**63, -(2**70))
NUMBERS = (-1.0, 0.0, 0.1, 0.5, 0.9, 1.0, 2.0, 10.0, 1e-30, 1e38, float("nan"), float("inf"), 3)


def run(tally: Tally, calls: int, generator: random.Random, folder: Path) -> None:
    folder.mkdir(parents=True)
    seeds = [generator.getrandbits(32) for _ in range(calls)]
    blocks = [seeds[start : start + BLOCK] for start in range(0, calls, BLOCK)]
    work = [partial(_cases, folder, block) for block in blocks]
    run_blocks(tally, work, seconds=60.0 + BLOCK * 1.0, memory=MEMORY)


def _cases(folder: Path, seeds: list[int]) -> list[tuple[Outcome, str]]:
    world = World(random.Random(seeds[0]), folder)
    return [_case(world, seed) for seed in seeds]


def _case(world: World, seed: int) -> tuple[Outcome, str]:
    world.random = random.Random(seed)
    torch.manual_seed(seed)
    name, function, kinds = world.draw_call()
    arguments = world.draw_arguments(function, kinds)

    def call() -> Outcome:
        try:
            result = function(**arguments)
        except TypeError as error:
            if "required positional argument" in str(error) or "required keyword" in str(error):
                return "clear"  # Python itself names the missing argument
            raise
        passes_on = inspect.isclass(function) or name.rpartition(".")[2] in PASS_ON_NAN
        return "silent" if has_nan(result) and not passes_on else "right"

    outcome, description = limited(LIMIT, call)
    return outcome, f"{name}({', '.join(f'{k}={short(v)}' for k, v in arguments.items())}): {description}"


def has_nan(value: Any) -> bool:
    """Whether a result contains NaN, in its tensors or in those of its fields."""
    if isinstance(value, Tensor):
        return value.is_floating_point() and bool(value.isnan().any())
    if isinstance(value, float):
        return value != value
    if isinstance(value, tuple | list):
        return any(has_nan(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return any(has_nan(getattr(value, field.name)) for field in fields(value))
    return False


def short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
    if isinstance(value, tdvae.Sequences):
        return f"Sequences{list(value.x.shape)}"
    if isinstance(value, tdvae.Pairs):
        return f"Pairs({value.t1.flatten().tolist()[:4]}, {value.t2.flatten().tolist()[:4]})"
    text = repr(value) if isinstance(value, str | int | float | tuple | type(None)) else type(value).__name__
    return text if len(text) < 50 else f"{text[:47]}…"


@dataclass(frozen=True)
class Call:
    """A public function; ``kinds`` are the kinds of arguments whose annotation says too little."""

    name: str
    function: Callable[..., Any]
    kinds: dict[str, str]


class World:
    """Models, data and values from which arguments are drawn."""

    def __init__(self, generator: random.Random, folder: Path) -> None:
        self.random, self.folder = generator, folder
        sizes: dict[str, Any] = {"belief": LSTM(3), "decoder": Gaussian((3,))}
        latent: dict[str, Any] = {**sizes, "latent": 2, "maps": GatedMaps(3), "layers": 1}
        torch.manual_seed(0)
        configs = [
            TDVAEConfig(**latent),
            TDVAEConfig(**{**latent, "layers": 2}, event_shape=(2,), actions=1, rewards=True),
            TDVAEConfig(**{**latent, "belief": LinearRecurrence(3)}, state="observed"),
            TDVAEConfig(**{**latent, "belief": ChronoLSTM(3), "decoder": Bits((3,))}),
            TDVAEConfig(**{**latent, "decoder": Classes(3, (3,))}),
            MeanFieldConfig(**latent),
            FilteringConfig(**latent),
            NextStepConfig(**{**sizes, "belief": LinearRecurrence(3)}),
        ]
        self.models: list[Any] = [build(config) for config in configs]
        self.codec = ConvCodecConfig((1, 8, 8), size=3, channels=(4,)).build()
        self.oracle = OscillatorOracle(OscillatorSettings(length=6), frequencies=5)
        with torch.no_grad():
            self.posterior = self.oracle.observe(simulate(OscillatorSettings(length=6), 2, 0).x)
        np.savez(folder / "data.npz", x=np.zeros((4, 5), dtype=np.float32))

    # Calls

    def draw_call(self) -> tuple[str, Callable[..., Any], dict[str, str]]:
        model = self.random.choice(self.models)
        method = partial(self._method, model)
        draws: list[Callable[[], tuple[str, Callable[..., Any], dict[str, str]]]] = [
            self._constructor,
            self._function,
            method,
            method,
        ]
        return self.random.choice(draws)()

    def _constructor(self) -> tuple[str, Callable[..., Any], dict[str, str]]:
        kinds = [
            tdvae.TrainConfig,
            TDVAEConfig,
            MeanFieldConfig,
            FilteringConfig,
            NextStepConfig,
            tdvae.Sequences,
            tdvae.Pairs,
            tdvae.Belief,
            tdvae.Latent,
            tdvae.State,
            tdvae.LossTerms,
            tdvae.Learner,
            tdvae.Forecast,
            tdvae.jumps.Uniform,
            tdvae.jumps.Mixture,
            tdvae.jumps.Widening,
            tdvae.jumps.InTurn,
            tdvae.jumps.Subsequences,
            OscillatorSettings,
            OscillatorOracle,
            GaussianMixture,
            KalmanBank,
            Stack,
            ConvCodecConfig,
            CodecTraining,
        ]
        kind = self.random.choice(kinds)
        return kind.__name__, kind, {}

    def _function(self) -> tuple[str, Callable[..., Any], dict[str, str]]:
        names = [
            (tdvae, ("belief_at", "rollout", "forecast", "load", "recipe")),
            (objectives, ("pair_terms", "tdvae_loss", "subsequence_loss", "elbo_terms", "state_space_loss")),
            (objectives, ("next_step_loss",)),
            (likelihood, ("importance_log_prob", "pair_log_weights", "joint_log_weights", "steps_log_weights")),
            (likelihood, ("trajectory_log_weights", "particle_log_prob", "resample", "log_mean_exp")),
        ]
        functions = [getattr(module, name) for module, group in names for name in group]
        functions += [build, for_data, split, simulate, tdvae.data.from_npz, load_codec]
        chosen = self.random.choice(functions)
        if self.random.random() < 0.1:
            return "from_arrays", from_arrays, dict.fromkeys(("x", "actions", "rewards", "lengths"), "array")
        return chosen.__name__, chosen, {"run_or_name": "name", "path": "path"}

    def _method(self, model: Any) -> tuple[str, Callable[..., Any], dict[str, str]]:
        owner, names = self.random.choice(
            [
                (model, ("initial", "update", "filter", "sample_state", "transition", "decode", "predict")),
                (model, ("update", "sample_state", "transition", "decode", "predict")),
                (self._forecast(model), ("log_prob", "cdf", "quantile")),
                (self._jumps(), ("sample",)),
                (self.oracle, ("observe", "forecast", "frequency", "amplitude", "marginal")),
                (self.oracle.bank, ("filter", "jump", "advance", "predict", "log_likelihood")),
                (self.oracle.bank.predict(self.posterior, 1), ("log_prob", "cdf", "quantile", "sample")),
                (self._distribution(), ("log_prob",)),
                (self._sequences(), ("until", "select")),
                (self.codec, ("encode", "decode", "bits_per_dim", "likelihood")),
            ]
        )
        name = self.random.choice(names)
        kinds = {"pictures": "pictures"} if owner is self.codec else {}
        return f"{type(owner).__name__}.{name}", getattr(owner, name), kinds

    # Arguments

    def draw_arguments(self, function: Callable[..., Any], kinds: dict[str, str]) -> dict[str, Any]:
        target = function.__init__ if inspect.isclass(function) else function
        if inspect.isclass(function) and is_dataclass(function):
            hints = get_type_hints(function, include_extras=True)
        else:
            hints = get_type_hints(inspect.unwrap(target), include_extras=True)
        self.model = self.random.choice(self.models)  # most arguments of one call belong to the same model
        arguments = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
                continue
            optional = parameter.default is not inspect.Parameter.empty
            if optional and self.random.random() < 0.6:
                continue
            if self.random.random() < WRONG_TYPE:
                arguments[name] = self.random.choice(
                    (None, "text", 1.5, [], {}, object(), np.zeros(3), 3, b"bytes", int)
                )
            else:
                arguments[name] = self.value(kinds.get(name, hints.get(name)))
        return arguments

    def value(self, hint: Any) -> Any:
        """A value for an annotation: of the right type, and often a wrong one."""
        origin, parts = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self.value(parts[0])
        if origin is Literal:
            return self.random.choice((*parts, "foo"))
        if origin in (Union, types.UnionType):
            return self.value(self.random.choice(parts))
        if origin is tuple:
            count = self.random.randint(0, 3) if parts[-1] is Ellipsis else len(parts)
            return tuple(self.value(parts[0]) for _ in range(count))
        if origin in (collections.abc.Sequence, collections.abc.Iterable, list):
            return [self.value(parts[0]) for _ in range(self.random.randint(0, 3))]
        if origin is collections.abc.Callable:
            return self.random.choice((objectives.tdvae_loss, objectives.next_step_loss, lambda *_: None))
        makers: dict[Any, Callable[[], Any]] = {
            int: lambda: self.random.choice(INTEGERS),
            float: lambda: self.random.choice(NUMBERS),
            bool: lambda: self.random.choice((True, False)),
            str: lambda: self.random.choice(("", "oscillator", "cpu", "\x00", "x" * 5000)),
            type(None): lambda: None,
            Path: lambda: self.folder / self.random.choice(("data.npz", "missing", "x" * 300)),
            slice: lambda: slice(self.random.randint(-3, 3), self.random.randint(-3, 3)),
            Tensor: self._tensor,
            Model: lambda: self.model,
            objectives.TDVAEParts: lambda: self.model,
            tdvae.models.StateSpace: lambda: self.random.choice(self.models),
            tdvae.models.NextStep: lambda: self.random.choice(self.models),
            tdvae.Learner: lambda: tdvae.Learner(self.random.choice(self.models)),
            tdvae.Sequences: self._sequences,
            tdvae.Pairs: self._pairs,
            tdvae.Belief: self._belief,
            tdvae.Latent: lambda: self._state().z,
            tdvae.State: self._state,
            tdvae.jumps.Jumps: self._jumps,
            torch.Generator: lambda: torch.Generator().manual_seed(0),
            distributions.Distribution: self._distribution,
            tdvae.models.config.ModelConfig: lambda: self.random.choice(self.models).config,
            OscillatorSettings: lambda: OscillatorSettings(length=6),
            BankPosterior: lambda: self.posterior,
            "array": self._array,
            "pictures": lambda: torch.rand(2, 1, 8, 8) if self.random.random() < 0.5 else self._tensor(),
            "name": lambda: self.random.choice(("oscillator", "missing", "", "x" * 300, "\x00")),
            "path": lambda: self.folder / self.random.choice(("data.npz", "missing.npz", "x" * 300)),
        }
        return makers[hint]() if hint in makers else None

    def _shape(self) -> tuple[int, ...]:
        return self.random.choice(
            ((), (0,), (2,), (3, 1), (2, 1), (2, 2), (2, 3), (2, 6, 1), (2, 6, 2), (4, 6, 1), (2, 0, 1), (3, 2, 1))
        )

    def _tensor(self) -> Tensor:
        tensor = torch.randn(self._shape())
        kind = self.random.choice(("float",) * 6 + ("long", "bool", "double", "complex", "nan", "huge", "unit"))
        if kind == "nan":
            return torch.full_like(tensor, float("nan"))
        if kind == "huge":
            return 1e30 * tensor
        if kind == "unit":
            return tensor.sigmoid()
        dtypes = {"long": torch.long, "bool": torch.bool, "double": torch.double, "complex": torch.cfloat}
        return tensor.to(dtypes.get(kind, torch.float))

    def _array(self) -> Any:
        array = self._tensor().numpy()
        return self.random.choice(
            (array, array, array.astype(str), array.tolist(), [array, array], torch.from_numpy(array))
        )

    def _sequences(self) -> tdvae.Sequences:
        """Sequences that fit the model of the call, or those of another one."""
        model = self.model if hasattr(self, "model") and self.random.random() < 0.8 else self.random.choice(self.models)
        config, n, horizon = model.config, self.random.randint(1, 3), self.random.randint(1, 8)
        x = torch.rand(n, horizon, *config.event_shape)
        if getattr(config, "likelihood", "") == "categorical":
            x = (3 * x).long()
        if self.random.random() < 0.1 and x.is_floating_point():
            x = x * self.random.choice((float("nan"), 1e38, 5.0))
        lengths = torch.full((n,), horizon)
        if self.random.random() < 0.2:
            lengths = torch.randint(-1, horizon + 2, (n,))
        return tdvae.Sequences(
            x,
            lengths,
            torch.randn(n, horizon, config.actions) if config.actions else None,
            torch.randn(n, horizon) if config.rewards else None,
        )

    def _pairs(self) -> tdvae.Pairs:
        n, k = self.random.randint(1, 3), self.random.randint(1, 2)
        shape = (n, k) if self.random.random() < 0.8 else (n, k, 2)
        t1 = torch.randint(0, 3, shape) if self.random.random() < 0.8 else torch.randint(-2, 9, shape)
        return tdvae.Pairs(t1, t1 + torch.randint(1 if self.random.random() < 0.8 else -1, 4, shape))

    def _belief(self) -> tdvae.Belief:
        model = self.model if hasattr(self, "model") and self.random.random() < 0.8 else self.random.choice(self.models)
        return model.initial(self.random.randint(1, 3))

    def _state(self) -> tdvae.State:
        model = self.model if hasattr(self, "model") and self.random.random() < 0.8 else self.random.choice(self.models)
        with torch.no_grad():
            return model.sample_state(model.initial(self.random.randint(1, 3)), self.random.randint(1, 3))

    def _forecast(self, model: Any) -> tdvae.Forecast:
        actions = torch.zeros(2, 1) if model.config.actions else None
        return tdvae.forecast(model, model.initial(2), 2, samples=3, a=actions)

    def _jumps(self) -> tdvae.jumps.Jumps:
        uniform = tdvae.jumps.Uniform(1, self.random.choice((1, 2, 5)))
        return self.random.choice((uniform, tdvae.jumps.Widening(uniform), tdvae.jumps.Subsequences(3, uniform)))

    def _distribution(self) -> Any:
        zeros = torch.zeros(2, 3)
        return self.random.choice(
            (
                distributions.DiagonalNormal(zeros, zeros),
                distributions.Bernoulli(zeros),
                distributions.Categorical(torch.zeros(2, 3, 4)),
                distributions.PointMass(zeros),
            )
        )
