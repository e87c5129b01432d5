"""Stacks of runs against separate runs: scan, losses, gradients, training and checkpoints."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from tdvae.nn.lstm_scan import lstm_scan
from torch import nn

import tdvae
from tdvae import InputError, Learner, Pairs, Sequences, TDVAEConfig, TrainConfig, jumps
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
    LinearRecurrence,
    MeanFieldConfig,
    Model,
    NextStepConfig,
    ResidualMaps,
    build,
)
from tdvae.models.config import ModelConfig
from tdvae.training.config import make_optimizers
from tdvae.training.muon import Muon
from tdvae_paper.chrono_lstm import ChronoLSTM
from tdvae_paper.stack import Stack

R, B, T = 3, 2, 12
TD = TDVAEConfig(
    latent=2, drift="rotation", posterior="product", belief=ChronoLSTM(5), decoder=Coordinates(), maps=GatedMaps(8)
)
NEXT = NextStepConfig(belief=ChronoLSTM(5), decoder=Gaussian((6,)))


def stack_of(config: ModelConfig, runs: int = R) -> tuple[Stack, list[Learner]]:
    torch.manual_seed(1)
    learners = [Learner(build(config)) for _ in range(runs)]
    return Stack(learners), learners


def batch(n: int = R * B) -> tuple[Sequences, Pairs]:
    sequences = tdvae.data.from_arrays(torch.randn(n, T, 1, generator=torch.Generator().manual_seed(2)))
    return sequences, jumps.Uniform(1, 4).sample(sequences.lengths, 3, torch.Generator().manual_seed(0))


# The scan


def torch_lstm(inputs: int, size: int) -> tuple[nn.LSTM, torch.Tensor]:
    """An LSTM of torch (gates i, f, g, o) and its parameters in the layout of the scan."""
    lstm = nn.LSTM(inputs, size, batch_first=True).double()
    names = ("weight_hh_l0", "weight_ih_l0", "bias_ih_l0", "bias_hh_l0")
    w_h, w_x, bias_ih, bias_hh = (lstm.get_parameter(name).detach() for name in names)
    i, f, g, o = torch.cat([w_h, w_x, (bias_ih + bias_hh)[:, None]], dim=1).chunk(4)
    return lstm, torch.cat([i, f, o, g]).mT.contiguous()


def test_scan_equals_torch_lstm() -> None:
    torch.manual_seed(0)
    lstm, weight = torch_lstm(3, 4)
    x, h, c = (torch.randn(*shape, dtype=torch.float64) for shape in ((2, 7, 3), (2, 4), (2, 4)))
    expected, (_, cell) = lstm(x, (h[None], c[None]))
    codes, last = lstm_scan(x, weight, h, c)
    torch.testing.assert_close(codes, expected)
    torch.testing.assert_close(last, cell[0])


def test_scan_gradient() -> None:
    torch.manual_seed(0)
    inputs = [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 4, 2), (6, 12), (2, 3), (2, 3))
    ]
    assert torch.autograd.gradcheck(lstm_scan, inputs)
    for output in range(2):  # the loss may depend on the codes only, or on the last cells only
        assert torch.autograd.gradcheck(lambda *given, output=output: lstm_scan(*given)[output], inputs)


def test_mapped_scan_equals_separate_scans() -> None:
    torch.manual_seed(0)
    x, weight, h, c = (torch.randn(*shape, dtype=torch.float64) for shape in ((R, 2, 5, 2), (R, 6, 12), (2, 3), (2, 3)))
    weight.requires_grad_()
    codes, last = torch.func.vmap(lstm_scan, in_dims=(0, 0, None, None))(x, weight, h, c)
    (mapped,) = torch.autograd.grad(codes.square().sum() + last.sum(), weight)
    separate = [lstm_scan(x[r], weight[r], h, c) for r in range(R)]
    torch.testing.assert_close(codes, torch.stack([run_codes for run_codes, _ in separate]))
    torch.testing.assert_close(last, torch.stack([run_last for _, run_last in separate]))
    total = torch.stack([codes.square().sum() + last.sum() for codes, last in separate]).sum()
    torch.testing.assert_close(mapped, torch.autograd.grad(total, weight)[0])


# The stack


def test_stacked_next_step_loss_and_gradient_equal_separate_runs() -> None:
    """The loss of the next-step predictor is deterministic, so it can be compared directly."""
    stack, learners = stack_of(NEXT)
    sequences, pairs = batch()
    terms = stack(sequences, pairs)
    terms.total.sum().backward()
    for run, learner in enumerate(learners):
        rows = slice(run * B, (run + 1) * B)
        loss = learner(sequences.select(rows), pairs.select(rows)).total
        torch.testing.assert_close(terms.total[run], loss)
        loss.backward()
        for name, parameter in learner.named_parameters():
            gradient = stack.weights[name.replace(".", "/")].grad
            assert gradient is not None
            torch.testing.assert_close(gradient[run], parameter.grad, rtol=1e-4, atol=1e-6)


def test_stacked_tdvae_loss_has_the_mean_of_separate_runs() -> None:
    stack, learners = stack_of(TD)
    sequences, pairs = batch()
    torch.manual_seed(0)
    with torch.no_grad():
        stacked = torch.stack([stack(sequences, pairs).total for _ in range(150)])
        for run, learner in enumerate(learners):
            rows = slice(run * B, (run + 1) * B)
            separate = torch.stack([learner(sequences.select(rows), pairs.select(rows)).total for _ in range(150)])
            error = (stacked[:, run].var() / 150 + separate.var() / 150).sqrt()
            assert abs(stacked[:, run].mean() - separate.mean()) < 5 * error
    assert float(torch.corrcoef(stacked.T)[0, 1].abs()) < 0.25  # the noise of different runs is independent


def test_stacked_loss_of_a_large_batch() -> None:
    stack, learners = stack_of(NEXT)
    sequences, pairs = batch(R * 70)
    loss = learners[1](sequences.select(slice(70, 140)), pairs.select(slice(70, 140))).total
    torch.testing.assert_close(stack(sequences, pairs).total[1], loss)


def test_gradients_of_each_run_are_clipped_separately() -> None:
    stack, _ = stack_of(NEXT)
    for weight in stack.weights.values():
        weight.grad = torch.ones_like(weight)
        weight.grad[1] *= 1e-6
        weight.grad[2] *= 100
    stack.clip_gradients(1.0)
    norms = torch.stack([w.grad.flatten(1).square().sum(1) for w in stack.weights.values() if w.grad is not None])
    norms = norms.sum(0).sqrt()
    torch.testing.assert_close(norms[[0, 2]], torch.ones(2), rtol=1e-4, atol=0)
    assert norms[1] < 1e-3  # small gradients are unchanged


MUON = TrainConfig(optimizer="muon", muon_learning_rate=0.05, learning_rate=0.01)
WIDE = replace(TD, belief=LSTM(9), maps=ResidualMaps(12, blocks=1))  # with matrices that Muon updates


@pytest.mark.parametrize("matrices", ["inner", "all"])
@pytest.mark.parametrize("runs", [1, R])
def test_muon_updates_each_run_of_a_stack_as_it_does_alone(matrices: Literal["inner", "all"], runs: int) -> None:
    """The gradients of two steps are set, so that momentum matters too; those of the runs differ a lot in size."""
    config = replace(MUON, muon_matrices=matrices)
    stack, learners = stack_of(WIDE, runs)
    alone = [make_optimizers(config, learner) for learner in learners]
    stacked = make_optimizers(config, stack)
    assert [type(optimizer) for optimizer in stacked] == [torch.optim.Adam, Muon]
    names = [{id(p) for group in one[1].param_groups for p in group["params"]} for one in (stacked, alone[0])]
    updated = [
        {name.replace("/", ".") for name, p in module.named_parameters() if id(p) in ids}
        for module, ids in zip((stack.weights, learners[0]), names, strict=True)
    ]
    assert updated[0] == updated[1]
    assert ("model.belief.weight" in updated[0]) == (matrices == "all")
    generator = torch.Generator().manual_seed(3)
    for _ in range(2):
        for name, weight in stack.weights.items():
            weight.grad = torch.randn(weight.shape, generator=generator)
            weight.grad *= 10.0 ** torch.arange(runs).view(-1, *[1] * (weight.ndim - 1))
            for run, learner in enumerate(learners):
                learner.get_parameter(name.replace("/", ".")).grad = weight.grad[run].clone()
        for optimizer in itertools.chain(stacked, *alone):
            optimizer.step()
    for run, learner in enumerate(learners):
        for name, parameter in learner.named_parameters():
            torch.testing.assert_close(stack.weights[name.replace(".", "/")][run], parameter)


def test_models_of_a_stack() -> None:
    stack, learners = stack_of(TD)
    sequences, pairs = batch()
    stack(sequences, pairs)  # must not leave mapped weights in the models
    for model, learner in zip(stack.models(), learners, strict=True):
        torch.testing.assert_close(model.filter(sequences).codes, learner.model.filter(sequences).codes)


@pytest.mark.parametrize("config", [TD, NEXT])
def test_training_updates_all_runs_of_a_stack(config: TDVAEConfig | NextStepConfig, tmp_path: Path) -> None:
    stack, _ = stack_of(config)
    before = {name: weight.detach().clone() for name, weight in stack.weights.items()}
    sequences, _ = batch(24)
    train = TrainConfig(steps=3, batch_size=R * B, pairs=3, learning_rate=0.01)
    tdvae.fit(stack, sequences, jumps.Uniform(1, 3), train, tmp_path / "run", progress="none")
    for name, weight in stack.weights.items():
        moved = (weight - before[name]).flatten(1).abs().amax(1)
        assert bool((moved > 0).all()), name
    description = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert description["kind"] == "stack"
    assert description["runs"] == R
    assert description["of"]["kind"] == config.kind


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_resumed_stack_is_bit_identical(optimizer: Literal["adam", "muon"], tmp_path: Path) -> None:
    sequences, _ = batch(24)
    train = replace(MUON, optimizer=optimizer, steps=4, batch_size=R * B, pairs=3, checkpoint_every=2)
    whole, _ = stack_of(WIDE)
    tdvae.fit(whole, sequences, jumps.Uniform(1, 3), train, tmp_path / "whole", progress="none")
    calls = 0

    class Interrupt(tdvae.Monitor):
        def measure(self) -> dict[str, float]:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise KeyboardInterrupt
            return {"calls": float(calls)}

    class Nine(tdvae.Monitor):
        def measure(self) -> dict[str, float]:
            return {"calls": 9.0}

    steps, config = jumps.Uniform(1, 3), replace(train, validate_every=1)
    first, _ = stack_of(WIDE)
    with pytest.raises(KeyboardInterrupt):
        tdvae.fit(first, sequences, steps, config, tmp_path / "resumed", progress="none", monitor=Interrupt())
    second, _ = stack_of(WIDE)
    tdvae.fit(
        second,
        sequences,
        steps,
        config,
        tmp_path / "resumed",
        resume=True,
        progress="none",
        monitor=Nine(),
    )
    for name, weight in whole.weights.items():
        assert torch.equal(weight, second.weights[name]), name
    lines = [json.loads(line) for line in (tmp_path / "resumed" / "metrics.jsonl").read_text().splitlines()]
    assert [line["calls"] for line in lines if "calls" in line] == [1.0, 2.0, 9.0, 9.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stack([]), "learners: expected at least one"),
        (lambda: Stack([Learner(build(TD)), Learner(build(replace(TD, belief=LSTM(6))))]), "models of one config"),
        (lambda: stack_of(NEXT)[0](*batch(R * B + 1)), "batch: expected a multiple of the 3"),
        (
            lambda: stack_of(NEXT)[0](replace(batch()[0], lengths=torch.arange(6) + 5), batch()[1]),
            "expected the same length",
        ),
    ],
)
def test_invalid_arguments(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_initial_time_constants_of_a_chrono_lstm() -> None:
    model: Model = build(replace(NEXT, belief=LSTM(400)))
    bias = model.get_parameter("belief.network.weight")[-1].detach()
    opening, forgetting = bias[:400], bias[400:800]
    assert torch.equal(opening, -forgetting)
    kept = forgetting.exp()
    assert 20 <= float(kept.min()) < 22
    assert 75 < float(kept.max()) <= 80


# What can be stacked, and what cannot

CATEGORICAL = NextStepConfig(event_shape=(2,), belief=ChronoLSTM(5), decoder=Classes(4))
BITS = replace(CATEGORICAL, decoder=Bits())
LINEAR = replace(NEXT, belief=LinearRecurrence(3))
ACTING = replace(NEXT, actions=3)
GAPS = replace(NEXT, decoder=Gaussian(missing_values=True))


def batch_for(config: ModelConfig) -> tuple[Sequences, Pairs]:
    """A batch of observations of the model's kind, with actions if it takes them."""
    classes, generator = getattr(config, "classes", None), torch.Generator().manual_seed(2)
    shape = (R * B, T, *config.event_shape)
    if classes is not None or getattr(config, "likelihood", None) == "bernoulli":
        x = torch.randint(classes or 2, shape, generator=generator)
    else:
        x = torch.randn(shape, generator=generator)
    actions = torch.randn(R * B, T, config.actions, generator=generator) if config.actions else None
    observed = torch.rand(shape, generator=generator) > 0.4 if getattr(config, "missing_values", False) else None
    return replace(batch()[0], x=x, actions=actions, observed=observed), batch()[1]


@pytest.mark.parametrize(
    "config",
    [CATEGORICAL, BITS, LINEAR, ACTING, GAPS],
    ids=["classes", "bits", "linear recurrence", "actions", "missing values"],
)
def test_each_run_of_a_stack_has_the_loss_it_has_alone(config: NextStepConfig) -> None:
    stack, learners = stack_of(config)
    sequences, pairs = batch_for(config)
    total = stack(sequences, pairs).total
    for run, learner in enumerate(learners):
        rows = slice(run * B, (run + 1) * B)
        torch.testing.assert_close(total[run], learner(sequences.select(rows), pairs.select(rows)).total)


@pytest.mark.parametrize(
    "config",
    [
        replace(TD, event_shape=(2,), decoder=Classes(4)),
        replace(TD, event_shape=(2,), decoder=Bits(), state="observed"),
        replace(TD, event_shape=(2,), decoder=Gaussian(missing_values=True), state="observed"),
        MeanFieldConfig(latent=2, actions=3, belief=ChronoLSTM(), maps=GatedMaps(8)),
        FilteringConfig(latent=2, actions=3, posterior="product", belief=ChronoLSTM(), maps=GatedMaps(8)),
    ],
    ids=[
        "td-vae of classes",
        "td-vae with observed bits",
        "td-vae with missing values",
        "mean field with actions",
        "filtering with actions",
    ],
)
def test_every_weight_of_a_stack_has_a_gradient(config: ModelConfig) -> None:
    stack, _ = stack_of(config)
    stack(*batch_for(config)).total.sum().backward()
    for name, weight in stack.weights.items():
        assert weight.grad is not None, name
        assert bool(torch.isfinite(weight.grad).all()), name


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (TDVAEConfig(), "belief_network: torch's LSTM cannot be stacked; choose lstm_init='chrono'"),
        (NextStepConfig(), "belief_network: torch's LSTM cannot be stacked"),
        (replace(TD, belief=LSTM(input_skip=2)), "belief_network: torch's LSTM cannot be stacked"),
        (NextStepConfig(belief=DeepLSTM()), "belief_network: torch's LSTMCell cannot be stacked"),
        (replace(TD, actions=2), "actions: a TD-VAE reads the actions of a jump with torch's GRU"),
        (
            ConvTDVAEConfig(
                event_shape=(3, 16, 16), encoder=(4, 6), layers=1, channels=5, canvas=4, belief=DeepLSTM(7, layers=4)
            ),
            "model: a convolutional TD-VAE cannot be stacked",
        ),
    ],
)
def test_what_cannot_be_stacked_is_refused_with_the_reason(config: ModelConfig, reason: str) -> None:
    with pytest.raises(InputError, match=f"^{reason}"):
        stack_of(config, runs=2)


def test_different_objectives_are_not_stacked() -> None:
    path = functools.partial(tdvae.objectives.tdvae_loss, gradient="path")
    with pytest.raises(InputError, match="expected one objective"):
        Stack([Learner(build(TD)), Learner(build(TD), path)])


@pytest.mark.parametrize(
    ("config", "wrong", "message"),
    [(CATEGORICAL, 4, "expected integer classes from 0 to 3, got class 4"), (BITS, 255, "expected bits")],
)
def test_a_stack_and_its_models_refuse_wrong_values(config: NextStepConfig, wrong: int, message: str) -> None:
    stack, _ = stack_of(config)
    sequences, pairs = batch_for(config)
    sequences.x[-1, -1, -1] = wrong
    with pytest.raises(InputError, match=message):
        stack(sequences, pairs)
    with pytest.raises(InputError, match=message):
        stack.models()[0].filter(sequences)
