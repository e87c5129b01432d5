"""Arguments of the public API: a wrong type is a TypeError, a wrong value an InputError, and both name the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import tdvae
from tdvae import ArgumentTypeError, InputError, Learner, Pairs, Sequences, TrainConfig, checks
from tdvae.checks import check_of, checked
from tdvae.distributions import Bernoulli, Categorical, DiagonalNormal, DiscretisedLogistic, PointMass
from tdvae.likelihood import importance_log_prob
from tdvae.models import (
    LSTM,
    FilteringConfig,
    GatedMaps,
    Gaussian,
    LinearRecurrence,
    MeanFieldConfig,
    NextStepConfig,
    TDVAEConfig,
    build,
    for_data,
)
from tdvae.objectives import next_step_loss, state_space_loss, tdvae_loss
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.stack import Stack

SIZES: dict[str, Any] = {"belief": LSTM(4), "decoder": Gaussian((4,))}
LATENT = {**SIZES, "latent": 2, "maps": GatedMaps(4)}
CONFIGS = {
    "tdvae": TDVAEConfig(**LATENT),
    "recurrence": TDVAEConfig(**{**LATENT, "belief": LinearRecurrence(4)}),
    "mean_field": MeanFieldConfig(**LATENT),
    "filtering": FilteringConfig(**LATENT),
    "next_step": NextStepConfig(**SIZES),
}


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    return build(CONFIGS[request.param])


# The mechanism


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, np.int64(3), 3),
        (int, torch.tensor(3), 3),
        (float, np.float32(0.5), 0.5),
        (float, 2, 2),
        (bool, np.bool_(True), True),
        (tuple[int, ...], [1, np.int32(2)], (1, 2)),
        (int | None, None, None),
        (float | Literal["learned"], "learned", "learned"),
        (Annotated[int, checks.Range(1)], 1, 1),
    ],
)
def test_values_are_accepted_and_converted_to_plain_ones(hint: Any, value: Any, expected: Any) -> None:
    converted = check_of(hint)("size", value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "error", "message"),
    [
        (int, 19.5, TypeError, "size: expected an integer, got 19.5"),
        (int, True, TypeError, "size: expected an integer, got True"),
        (int, "3", TypeError, "size: expected an integer, got '3'"),
        (int, 2**70, InputError, "size: expected an integer of at most 64 bits, got one of 71 bits"),
        (float, math.nan, InputError, "size: expected a finite number, got nan"),
        (float, 1j, TypeError, "size: expected a number, got complex"),
        (bool, 1, TypeError, "size: expected True or False, got 1"),
        (tuple[int, int], (1,), InputError, "size: expected 2 values, got 1"),
        (tuple[int, ...], 3, TypeError, "size: expected a tuple, got 3"),
        (Literal["a", "b"], "c", InputError, "size: expected one of ('a', 'b'), got 'c'"),
        (float | Literal["a", "b"], "c", InputError, "size: expected one of ('a', 'b'), got 'c'"),
        (int | str, 1.5, TypeError, "size: expected an integer or a str, got 1.5"),
        (Tensor, np.zeros(2), TypeError, "size: expected a Tensor, got ndarray of shape (2,); convert it with torch"),
        (Tensor, torch.zeros(2, dtype=torch.cfloat), InputError, "size: expected real numbers, got torch.complex64"),
        (Annotated[int, checks.Range(1, 8)], 0, InputError, "size: expected at least 1, got 0"),
        (Annotated[int, checks.Range(1, 8)], 9, InputError, "size: expected at most 8, got 9"),
        (Annotated[float, checks.Range(above=0)], 0.0, InputError, "size: expected more than 0, got 0.0"),
        (Callable[..., int], 3, TypeError, "size: expected a function, got 3"),
        (Learner, build(CONFIGS["tdvae"]), TypeError, "size: expected a Learner, got TDVAE; tdvae.Learner(model) mak"),
        (Sequences, np.zeros(3), TypeError, "size: expected a Sequences, got ndarray of shape (3,); tdvae.data.from_a"),
    ],
)
def test_other_values_are_refused_by_name(hint: Any, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refused:
        check_of(hint)("size", value)
    assert str(refused.value).startswith(message)
    assert isinstance(refused.value, tdvae.TDVAEError)


def test_every_argument_of_a_decorated_function_is_checked() -> None:
    @checked
    def scale(value: float, times: checks.Positive = 1, *rest: Any, **options: Any) -> float:
        return value * times

    three: Any = np.int64(3)
    assert scale(2.0, times=three) == 6.0
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((1.0, 0), {}), ((1.0,), {"times": 0})]
    for arguments, options in calls:
        with pytest.raises(InputError, match="times: expected at least 1, got 0"):
            scale(*arguments, **options)
    with pytest.raises(TypeError, match="value"):
        scale()  # type: ignore[call-arg]


# Configs


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("optimizer", "sgd", InputError),
        ("schedule", "linear", InputError),
        ("muon_matrices", "none", InputError),
        ("precision", "16", InputError),
        ("steps", 19.5, TypeError),
        ("steps", "20", TypeError),
        ("seed", 2**64, InputError),
        ("learning_rate", math.inf, InputError),
        ("adam_beta2", 1.0, InputError),
        ("shuffle", "no", TypeError),
    ],
)
def test_a_typing_error_in_the_training_config_is_refused(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"^{name}: expected"):
        TrainConfig(**{name: value})


def test_plain_numbers_are_stored(tmp_path: Any) -> None:
    three: Any = np.int64(3)
    assert type(TrainConfig(steps=three).steps) is int  # NumPy's cannot be written as JSON


# Losses and densities


def test_a_typing_error_in_a_loss_is_refused() -> None:
    model, data = build(TDVAEConfig(**LATENT)), Sequences(torch.randn(3, 9, 1), torch.full((3,), 9))
    pairs = Pairs(torch.zeros(3, 2).long(), torch.ones(3, 2).long())
    for option in ("kl", "gradient"):
        wrong: dict[str, Any] = {option: "foo"}
        with pytest.raises(InputError, match=rf"^{option}: expected one of"):
            tdvae_loss(model, data, pairs, **wrong)


@pytest.mark.parametrize(("t1", "t2"), [(5, 3), (3, 3), (-1, 2), (7, 10)])
def test_pairs_that_are_not_in_order_or_not_in_the_sequence_are_refused(t1: int, t2: int) -> None:
    model, data = build(TDVAEConfig(**LATENT)), Sequences(torch.randn(2, 9, 1), torch.full((2,), 9))
    pairs = Pairs(torch.tensor([[0], [t1]]), torch.tensor([[1], [t2]]))
    for call in (lambda: importance_log_prob(model, data, pairs, 3), lambda: Learner(model)(data, pairs)):
        with pytest.raises(InputError, match=r"^pairs: expected 0 <= t1 < t2 <= the length"):
            call()
    stack = Stack([Learner(build(TDVAEConfig(**{**LATENT, "belief": ChronoLSTM(4)}))) for _ in range(2)])
    with pytest.raises(InputError, match=r"^pairs: expected 0 <= t1 < t2 <= the length"):
        stack(data, pairs)


def test_values_outside_of_a_distribution_have_no_density() -> None:
    for distribution, x in (
        (Bernoulli(torch.zeros(3)), torch.full((3,), 99.0)),
        (Bernoulli(torch.zeros(3)), torch.full((3,), math.nan)),
        (Categorical(torch.zeros(3, 4)), torch.full((3,), 1.9)),
        (Categorical(torch.zeros(3, 4)), torch.full((3,), 4)),
        (DiscretisedLogistic(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2)), torch.full((1, 2, 2), 200.0)),
    ):
        with pytest.raises(InputError, match=r"^x: expected"):
            distribution.log_prob(x)


def test_the_value_of_a_density_is_a_tensor() -> None:
    zeros = torch.zeros(3)
    images = DiscretisedLogistic(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))
    for distribution in (DiagonalNormal(zeros, zeros), PointMass(zeros), Bernoulli(zeros), Categorical(zeros), images):
        with pytest.raises(ArgumentTypeError, match=r"^x: expected .*Tensor, got None"):
            distribution.log_prob(None)  # type: ignore[arg-type]


# Models


def test_an_update_takes_finite_real_tensors_with_one_row_for_each_belief(model: Any) -> None:
    belief = model.initial(3)
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match=r"^x: expected finite"):
            model.update(belief, torch.full((3, 1), value))
    with pytest.raises(InputError, match=r"^x: expected real"):
        model.update(belief, torch.zeros(3, 1, dtype=torch.cfloat))
    with pytest.raises(ArgumentTypeError, match=r"^x: expected a Tensor, got ndarray .* torch\.as_tensor"):
        model.update(belief, np.zeros((3, 1), dtype=np.float32))
    for rows in (1, 2, 4):
        with pytest.raises(InputError, match=rf"^x: expected one row for each of the 3 beliefs, got {rows}"):
            model.update(belief, torch.zeros(rows, 1))


def test_beliefs_and_states_of_other_models_are_refused(model: Any) -> None:
    other = build(TDVAEConfig(**{**LATENT, "belief": LSTM(5), "latent": 3}))
    with pytest.raises(InputError, match=r"^belief: expected one of this model"):
        model.update(other.initial(3), torch.zeros(3, 1))
    with pytest.raises(InputError, match=r"^belief: expected one of this model"):
        model.sample_state(other.initial(3), 2)
    state = other.sample_state(other.initial(3), 2)
    for call in (lambda: model.decode(state), lambda: model.predict(state, 1)):
        with pytest.raises(InputError, match=r"^state: expected one of this model"):
            call()


@pytest.mark.parametrize("n", [-1, 0, 10**9])
def test_at_least_one_state_is_drawn(model: Any, n: int) -> None:
    with pytest.raises(InputError, match=r"^n: expected at"):
        model.sample_state(model.initial(2), n)


def test_jumps_that_do_not_fit_are_refused(model: Any) -> None:
    state = model.sample_state(model.initial(2), 3)
    for dt in (0, 2**40, torch.tensor([1, 2, 3, 4, 5]), torch.tensor(1.5), 10**30):
        with pytest.raises((InputError, TypeError), match=r"^dt: expected"):
            model.transition(state, dt)


@pytest.mark.parametrize(
    ("kind", "objective"), [("next_step", tdvae_loss), ("tdvae", state_space_loss), ("filtering", next_step_loss)]
)
def test_an_objective_for_another_kind_of_model_is_refused(kind: str, objective: Any) -> None:
    with pytest.raises(InputError, match=rf"^objective: expected one for \w+, got {objective.__name__}"):
        Learner(build(CONFIGS[kind]), objective)


def test_fit_takes_a_learner_and_sequences(tmp_path: Any) -> None:
    data, jumps = tdvae.data.from_arrays(torch.randn(8, 6)), tdvae.jumps.Uniform(1, 2)
    model = build(CONFIGS["tdvae"])
    with pytest.raises(ArgumentTypeError, match=r"^learner: expected a Learner, got TDVAE; tdvae\.Learner\(model\)"):
        tdvae.fit(model, data, jumps, TrainConfig(), tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^data: expected SequenceSource"):
        tdvae.fit(Learner(model), np.zeros((8, 6)), jumps, TrainConfig(), tmp_path / "run")  # type: ignore[arg-type]
    wrong = Sequences(torch.randn(8, 6, 1), torch.full((8,), 7))
    with pytest.raises(InputError, match=r"^lengths: expected between 1 and the horizon 6, got 7 to 7"):
        tdvae.fit(Learner(model), wrong, jumps, TrainConfig(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sequences_of_inconsistent_shapes_are_refused() -> None:
    x, lengths = torch.zeros(3, 5, 2), torch.full((3,), 5)
    for name, arguments in {
        "x": (torch.zeros(3), lengths),
        "lengths": (x, torch.full((2,), 5)),
        "actions": (x, lengths, torch.zeros(3, 4, 1)),
        "rewards": (x, lengths, None, torch.zeros(3, 5, 1)),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: expected"):
            Sequences(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^lengths: expected integers, got torch\.float32"):
        Sequences(x, lengths.float())


# Data of extreme scale


def test_data_of_extreme_scale_are_named_as_the_cause(tmp_path: Any) -> None:
    data = tdvae.data.from_arrays(1e38 * torch.rand(8, 6))
    with pytest.raises(InputError, match=r"^x: expected values whose squares .* got values up to \S*e\+3[78]"):
        for_data(data)
    for scale, error, message in (
        (1e38, InputError, r"^x: expected values within 1e\+15 .* got values up to \S*e\+3[78]; scale the data"),
        (1e12, tdvae.DivergenceError, r"x has values up to .*; scale the data"),
    ):
        data = tdvae.data.from_arrays(scale * torch.rand(8, 6))
        learner, jumps = Learner(build(CONFIGS["tdvae"])), tdvae.jumps.Uniform(1, 2)
        with pytest.raises(error, match=message):
            tdvae.fit(learner, data, jumps, TrainConfig(steps=1), tmp_path / f"{scale}")


def test_inputs_whose_squares_overflow_are_refused_before_they_become_nan() -> None:
    model = build(CONFIGS["recurrence"])
    with pytest.raises(InputError, match=r"^x: expected values within 1e\+15 .* got values up to 1e\+30"):
        tdvae.forecast(model, torch.full((2, 3, 1), 1e30), dt=1)
    acting = build(TDVAEConfig(**{**LATENT, "belief": LinearRecurrence(4)}, actions=1, rewards=True))
    x, large = torch.zeros(2, 1), torch.full((2, 1), 1e30)
    for name, a, r in (("actions", large, x[:, 0]), ("rewards", x, large[:, 0])):
        with pytest.raises(InputError, match=rf"^{name}: expected numbers of at most 1e\+15 in size, got 1e\+30"):
            acting.update(acting.initial(2), x, a, r)
    gaps = build(TDVAEConfig(**{**LATENT, "decoder": Gaussian((4,), missing_values=True)}))
    gaps.encoder.load_state_dict({**gaps.encoder.state_dict(), "shift": torch.full((1,), 1e18)})
    assert gaps.update(gaps.initial(1), torch.tensor([[math.nan]])).code.isfinite().all()  # a missing value has no size


def test_outliers_that_decide_the_fit_are_reported() -> None:
    cauchy = torch.distributions.Cauchy(0.0, 1.0).sample((50, 200))
    with pytest.warns(UserWarning, match=r"x: the largest value is \d+ standard deviations from the mean"):
        for_data(tdvae.data.from_arrays(cauchy))
    for_data(tdvae.data.from_arrays(torch.randn(50, 200).exp()))  # moderate tails


# Users' own data, monitors, masks


def test_arguments_for_own_data_are_checked(tmp_path: Any) -> None:
    wrong: dict[str, Any]
    series = torch.sin(0.3 * torch.arange(100.0)).numpy()
    for wrong, name in (
        ({"longest_jump": 0}, "longest_jump"),
        ({"longest_jump": 2.5}, "longest_jump"),
        ({"window": -1}, "window"),
        ({"stride": 0}, "stride"),
        ({"season": 0}, "season"),
        ({"seed": -1}, "seed"),
        ({"split": "random"}, "split"),
        ({"calendar": "yes"}, "calendar"),
        ({"values": 3}, "values"),
    ):
        with pytest.raises((InputError, ArgumentTypeError), match=rf"^{name}: expected"):
            tdvae.prepare(series, **wrong)
    data = tdvae.prepare(series, longest_jump=3)
    for wrong, name in (
        ({"steps": 0}, "steps"),
        ({"patience": -1}, "patience"),
        ({"batch_size": "8"}, "batch_size"),
        ({"longest_jump": 4}, "longest_jump"),
        ({"kind": "linear"}, "kind"),
    ):
        with pytest.raises((InputError, ArgumentTypeError), match=rf"^{name}: expected"):
            tdvae.recipe(data, **wrong)
    for wrong, name in (
        ({"minutes": 0}, "minutes"),
        ({"minutes": float("nan")}, "minutes"),
        ({"networks": ["linear"]}, "networks"),
        ({"run_dir": 3}, "run_dir"),
    ):
        with pytest.raises((InputError, ArgumentTypeError), match=rf"^{name}"):
            tdvae.fit_forecaster(data, **{"run_dir": tmp_path / "run", **wrong})
    with pytest.raises(ArgumentTypeError, match=r"^data: expected .*Sequences.*OwnData.*ndarray"):
        tdvae.recipe(series)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"^run: expected"):
        tdvae.Forecaster.load(3)  # type: ignore[arg-type]


def test_monitors_and_files_of_a_training_are_checked(tmp_path: Any) -> None:
    learner, uniform = Learner(build(CONFIGS["tdvae"])), tdvae.jumps.Uniform(1, 2)
    data, config = tdvae.data.from_arrays(torch.randn(8, 6)), TrainConfig(steps=1, batch_size=4)
    wrong: Any = lambda: {"score": 1.0}  # noqa: E731
    with pytest.raises(ArgumentTypeError, match=r"^monitor: expected a Monitor"):
        tdvae.fit(learner, data, uniform, config, tmp_path / "a", progress="none", monitor=wrong)
    for name in ("../outside", "config.json", ".lock", "checkpoints", "/absolute", ""):
        with pytest.raises(InputError, match=r"^files: expected names"):
            tdvae.fit(learner, data, uniform, config, tmp_path / "b", progress="none", files={name: b"1"})
    assert not (tmp_path / "outside").exists()
    with pytest.raises(InputError, match=r"^patience: expected at least 0"):
        TrainConfig(patience=-1)
    with pytest.raises(ArgumentTypeError, match=r"^jumps: expected .*Jumps"):
        tdvae.jumps.SemiGradient(3)  # type: ignore[arg-type]


def test_masks_are_truth_values_in_the_shape_of_x() -> None:
    normal = DiagonalNormal(torch.zeros(2, 3), torch.zeros(2, 3))
    x = torch.randn(2, 3)
    with pytest.raises(InputError, match=r"^observed: expected truth values"):
        normal.log_prob(x, torch.ones(2, 3))
    with pytest.raises(InputError, match=r"^observed: expected a shape"):
        normal.log_prob(x, torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(InputError, match=r"^observed: expected shape"):
        Sequences(torch.zeros(2, 5, 3), torch.tensor([5, 5]), observed=torch.ones(2, 5, dtype=torch.bool))
    missing = torch.tensor([[True, False, True]] * 2)
    assert torch.equal(normal.log_prob(torch.where(missing, x, torch.nan), missing), normal.log_prob(x, missing))
    bits = Bernoulli(torch.zeros(2, 3))
    assert bits.log_prob(torch.where(missing, 1.0, torch.nan), missing).isfinite().all()
