"""Configs of models and of their parts: as JSON and back, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tdvae
from tdvae import CheckpointError, InputError, Learner, TDVAEConfig, TDVAEError
from tdvae.codec import ConvCodecConfig
from tdvae.config import Config
from tdvae.models import (
    LSTM,
    Bits,
    Classes,
    ConvTDVAEConfig,
    Coordinates,
    DeepLSTM,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    GridMap,
    LegendreSummary,
    LinearRecurrence,
    MeanFieldConfig,
    NextStepConfig,
    Number,
    Readout,
    RecurrentSummary,
    ResidualMaps,
    Unknown,
    Waves,
    build,
    for_data,
)
from tdvae.models.config import ModelConfig
from tdvae.storage import RunFolder, checkpoint
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.first_person.experiment import MODELS as FIRST_PERSON
from tdvae_paper.minipacman.presets import JUMPS_PRESETS, OBSERVED_PRESETS
from tdvae_paper.minipacman.presets import PRESETS as MINIPACMAN
from tests.test_models import CONFIGS, NEXT_STEP, STATE_SPACE

MODELS: dict[str, ModelConfig] = {**CONFIGS, **NEXT_STEP, **STATE_SPACE}
for _preset, _model in FIRST_PERSON.items():
    MODELS[f"first_person_{_preset}"] = _model
for _number, _presets in enumerate((MINIPACMAN, OBSERVED_PRESETS, JUMPS_PRESETS)):
    for _preset, _settings in _presets.items():
        MODELS |= {f"minipacman_{_number}_{_preset}_{name}": config for name, config in _settings.models.items()}

# As JSON and back

sizes, counts, shares = st.integers(1, 2**24), st.integers(1, 128), st.floats(1e-6, 1e6)
layers = st.lists(sizes, max_size=3).map(tuple)
noise, mask = st.sampled_from(["learned", "predicted"]), st.booleans()
PARTS: dict[type[Config], st.SearchStrategy[Config]] = {
    LSTM: st.builds(LSTM, sizes, st.integers(0, 5)),
    DeepLSTM: st.builds(DeepLSTM, sizes, counts),
    LinearRecurrence: st.builds(LinearRecurrence, sizes, st.tuples(shares, shares).map(sorted).map(tuple), shares),
    ChronoLSTM: st.builds(ChronoLSTM, sizes, st.tuples(shares, shares).map(sorted).map(tuple)),
    LegendreSummary: st.builds(LegendreSummary, counts),
    RecurrentSummary: st.just(RecurrentSummary()),
    Readout: st.builds(Readout, sizes, sizes, st.integers(0, 128)),
    GatedMaps: st.builds(GatedMaps, sizes),
    ResidualMaps: st.builds(ResidualMaps, sizes, st.integers(0, 128)),
    Gaussian: st.builds(Gaussian, layers, noise, mask),
    Coordinates: st.builds(Coordinates, st.none() | shares, mask),
    Bits: st.builds(Bits, layers),
    Classes: st.builds(Classes, sizes, layers),
    Waves: st.builds(Waves, st.integers(1, 62)),
    Number: st.just(Number()),
    Unknown: st.builds(Unknown, st.integers(1, 1_000), st.integers(1, 62)),
    ConvCodecConfig: st.builds(ConvCodecConfig, st.just((3, 64, 64)), sizes, st.just((16, 32)), st.floats(0, 1)),
    GridMap: st.builds(
        GridMap,
        st.tuples(sizes, sizes),
        st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=5).map(tuple),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        sizes,
    ),
}


def parts(*kinds: type[Config]) -> st.SearchStrategy[Config]:
    return st.one_of([PARTS[kind] for kind in kinds])


beliefs = parts(LSTM, DeepLSTM, LinearRecurrence, ChronoLSTM)
recurrent = {
    "event_shape": st.lists(sizes, min_size=1, max_size=3).map(tuple),
    "actions": st.integers(0, 2**24),
    "encoder": layers,
    "belief": beliefs,
    "readout": st.none() | PARTS[Readout],
    "decoder": parts(Gaussian, Bits, Classes),
}
latent = {
    **recurrent,
    "rewards": st.booleans(),
    "layers": counts,
    "latent": sizes,
    "maps": parts(GatedMaps, ResidualMaps),
    "drift": st.sampled_from(["none", "residual", "rotation"]),
    "init_log_sigma": st.floats(-10, 10),
    "state": st.sampled_from(["latent", "observed"]),
}
posterior = st.sampled_from(["free", "product"])
KINDS: dict[type[Config], st.SearchStrategy[Config]] = {
    **PARTS,
    NextStepConfig: st.builds(NextStepConfig, **recurrent),
    MeanFieldConfig: st.builds(MeanFieldConfig, **latent),
    FilteringConfig: st.builds(FilteringConfig, **latent, posterior=posterior),
    TDVAEConfig: st.builds(TDVAEConfig, **latent, posterior=posterior, dt=parts(Waves, Number)),
    ConvTDVAEConfig: st.builds(
        ConvTDVAEConfig,
        event_shape=st.tuples(sizes, st.just(32), st.just(64)),
        encoder=st.lists(sizes, min_size=2, max_size=4).map(tuple),
        belief=beliefs,
        layers=counts,
        channels=sizes,
        latent=sizes,
        canvas=sizes,
        init_log_sigma=st.floats(-10, 10),
        checkpointing=st.booleans(),
    ),
}


def through_json(config: Config) -> Any:
    return json.loads(json.dumps(config.describe()))


def test_every_kind_of_config_is_tested() -> None:
    library = {cls for cls in Config.known.values() if not isabstract(cls) and cls.__module__.startswith("tdvae")}
    assert set(KINDS) == library


@given(config=st.one_of(list(KINDS.values())))
@settings(max_examples=300, deadline=None)
def test_a_config_from_json_is_equal(config: Config) -> None:
    restored = Config.from_description(through_json(config))
    assert restored == config
    assert type(restored) is type(config)
    assert hash(restored) == hash(config)  # lists have become tuples


@pytest.mark.parametrize("name", MODELS)
def test_the_config_of_a_model_from_json_is_equal(name: str) -> None:
    config = MODELS[name]
    restored = ModelConfig.from_description(through_json(config))
    assert restored == config
    assert restored.shapes() == config.shapes()


def test_a_config_in_json_is_readable() -> None:
    assert LSTM(7, input_skip=2).describe() == {"config": "LSTM", "size": 7, "input_skip": 2}
    values = TDVAEConfig(event_shape=(3, 2), decoder=Classes(4)).describe()
    assert values["config"] == "TDVAEConfig"
    assert values["event_shape"] == [3, 2]
    assert values["decoder"] == {"config": "Classes", "count": 4, "hidden": [200, 200]}
    assert values["readout"] is None


def test_fields_that_a_description_lacks_have_their_defaults() -> None:
    assert ModelConfig.from_description({"config": "TDVAEConfig", "latent": 3}) == TDVAEConfig(latent=3)


# What is refused


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"config": "TDVAE"}, r"model: expected one of the configs Bits, .*, got 'TDVAE'"),
        ({"config": "ModelConfig"}, r"model: expected one of the configs Bits, .*, got 'ModelConfig'"),
        ({"config": ["TDVAEConfig"]}, r"model: expected one of the configs Bits, .*, got \['TDVAEConfig'\]"),
        ({"kind": "tdvae", "latent": 3}, r"model: expected one of the configs Bits, .*, got None"),
        ({"config": "LSTM"}, r"model: expected the description of a ModelConfig, got LSTM"),
        ([1, 2], r"model: expected the description of a ModelConfig, got tuple"),
        (None, r"model: expected the description of a ModelConfig, got NoneType"),
        (
            {"config": "TDVAEConfig", "hidden": 50, "lags": 2},
            r"model: expected only fields of TDVAEConfig, got hidden, l",
        ),
        ({"config": "TDVAEConfig", "belief": {"config": "GRU"}}, r"model\.belief: expected one of .*, got 'GRU'"),
        ({"config": "TDVAEConfig", "belief": {"config": "Bits"}}, r"belief: expected a BeliefConfig, got Bits"),
        ({"config": "TDVAEConfig", "belief": 50}, r"belief: expected a BeliefConfig, got 50"),
        ({"config": "TDVAEConfig", "maps": {"config": "Maps"}}, r"model\.maps: expected one of .*, got 'Maps'"),
        (
            {"config": "TDVAEConfig", "maps": {"config": "GatedMaps", "blocks": 2}},
            r"model\.maps: expected only fields of GatedMaps, got blocks; was it written by a newer version\?",
        ),
        ({"config": "TDVAEConfig", "decoder": {"config": "Classes"}}, r"model\.decoder: .* of Classes, got no count"),
        ({"config": "TDVAEConfig", "decoder": {"config": "Bits", "hidden": 9}}, r"hidden: expected a tuple, got 9"),
        ({"config": "TDVAEConfig", "latent": "8"}, r"latent: expected an integer, got '8'"),
        ({"config": "TDVAEConfig", "latent": True}, r"latent: expected an integer, got True"),
        ({"config": "TDVAEConfig", "drift": "fall"}, r"drift: expected one of .*, got 'fall'"),
    ],
    ids=str,
)
def test_a_description_of_no_config_is_refused_in_one_line(values: object, said: str) -> None:
    with pytest.raises(TDVAEError, match=rf"^{said}[^\n]*$"):
        ModelConfig.from_description(values, "model")


@pytest.mark.parametrize(
    "make",
    [
        lambda: TDVAEConfig(layers=10**6),
        lambda: TDVAEConfig(latent=10**9),
        lambda: ResidualMaps(blocks=10**5),
        lambda: build(TDVAEConfig(belief=LSTM(2**24))),
        lambda: build(TDVAEConfig(belief=LSTM(2**24, input_skip=2**60))),
        lambda: build(TDVAEConfig(event_shape=(2**20, 2**20))),
        lambda: build(TDVAEConfig(event_shape=(2**24, 2**24, 2**24))),
        lambda: build(TDVAEConfig(latent=2**20, drift="rotation")),
        lambda: build(TDVAEConfig(layers=128, latent=2**12, maps=ResidualMaps(2**14, blocks=2))),
        lambda: build(NextStepConfig(encoder=(2**24, 2**24))),
        lambda: build(ConvTDVAEConfig(channels=2**15)),
        lambda: for_data(tdvae.data.from_arrays(torch.randn(4, 6)), belief=2**24),
    ],
)
def test_sizes_that_no_machine_has_are_refused_before_anything_is_built(make: Callable[[], object]) -> None:
    with Allocations() as allocations, pytest.raises(InputError, match=r"^\w+: expected [^\n]*at most [^\n]*, got"):
        make()
    assert allocations.largest < 10_000


class Allocations(TorchDispatchMode):
    """The most numbers of a tensor that an operation made. Tensors of the device "meta" have no memory."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.device.type != "meta":
            self.largest = max(self.largest, result.numel())
        return result


SMALL = TDVAEConfig(latent=2, belief=LSTM(4), decoder=Gaussian((4,)), maps=GatedMaps(4))


@pytest.mark.parametrize(
    "other",
    [
        {**SMALL.describe(), "latent": 3},
        {**SMALL.describe(), "belief": LSTM(10_000).describe()},  # 1.6 GB
        {**SMALL.describe(), "belief": LSTM(2**24).describe()},
        {**SMALL.describe(), "belief": LinearRecurrence(4).describe()},
        {**SMALL.describe(), "layers": 128, "latent": 2**24, "maps": ResidualMaps(2**24).describe()},
        NextStepConfig().describe(),
        ConvTDVAEConfig().describe(),
    ],
    ids=["latent", "wide", "widest", "recurrence", "deep", "next step", "frames"],
)
def test_weights_of_another_config_are_refused_before_a_model_is_built(
    other: dict[str, object], tmp_path: Path
) -> None:
    """Also if the config asks for more memory than there is: it may be a stranger's."""
    weights = {"weights": Learner(build(SMALL)).state_dict()}
    checkpoint.save_numbered(tmp_path / "run" / "checkpoints", "step", 1, weights, {}, keep=1)
    for description in (SMALL.describe(), other):
        RunFolder(tmp_path / "run").write_config({"model": description, "info": {}})
        if description != other:
            assert tdvae.load(tmp_path / "run").config == SMALL
            continue
        message = r"run: the weights do not match the model config$"
        with Allocations() as allocations, pytest.raises(CheckpointError, match=message):
            tdvae.load(tmp_path / "run")
        assert allocations.largest < 10_000
