"""Properties of the convolutional model; test_models.py tests the interface of all models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tdvae
from tdvae import InputError, Latent, Learner, Sequences, TrainConfig, jumps
from tdvae.data import Recording, split_windows
from tdvae.envs import first_person
from tdvae.models import LSTM, ConvTDVAEConfig, build
from tdvae.nn.conv import ConvLSTMCell
from tdvae.types import State
from tdvae_paper.bench import conv_costs
from tdvae_paper.first_person.experiment import MODELS

SMALL = ConvTDVAEConfig(
    event_shape=(3, 16, 16), encoder=(4, 6), layers=3, channels=5, latent=2, canvas=4, actions=2, belief=LSTM(7)
)
BELIEF = 7


def frames(config: ConvTDVAEConfig, count: int = 2, steps: int = 6) -> Sequences:
    x = torch.randint(256, (count, steps, *config.event_shape)) / 255
    actions = torch.randn(count, steps, config.actions) if config.actions else None
    return Sequences(x, torch.full((count,), steps), actions)


def state(config: ConvTDVAEConfig = SMALL, lead: tuple[int, ...] = (4,)) -> Latent:
    size = config.latent * config.grid[0] * config.grid[1]
    return Latent(tuple(torch.randn(*lead, size, requires_grad=True) for _ in range(config.layers)))


def depends(value: Tensor, on: Tensor) -> bool:
    (gradient,) = torch.autograd.grad(value.sum(), on, retain_graph=True, allow_unused=True)
    return gradient is not None and bool(gradient.abs().sum() > 0)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_paper_preset_has_the_sizes_of_the_paper() -> None:
    with torch.device("meta"):
        model = build(replace(MODELS["paper"], actions=3))
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert MODELS["paper"].grid == (4, 4)
    assert [shapes[f"belief.cells.{layer}.weight_hh"] for layer in range(4)] == [(4 * 512, 512)] * 4
    for part in ("p_B", "q_S", "p_T", "p_D"):
        kernels = [shapes[f"{part}.cells.{layer}.gates.weight"] for layer in range(16)]
        assert all(kernel[0] == 4 * 256 and kernel[2:] == (3, 3) for kernel in kernels)
    assert count(model) == 388_078_424
    assert {name: count(part) for name, part in model.named_children()} == {
        "encoder": 388_416,
        "belief": 45_133_824,
        "read": 0,
        "p_B": 87_306_752,
        "q_S": 96_350_976,
        "p_T": 80_822_784,
        "p_D": 78_075_672,
    }


def test_loss_and_gradients_of_the_paper_preset() -> None:
    """Forward and backward pass of all layers, on two frames."""
    model = build(MODELS["paper"])
    data = frames(MODELS["paper"], count=1, steps=2)
    pairs = jumps.Uniform(1, 1).sample(data.lengths, 1, torch.Generator().manual_seed(0))
    loss = Learner(model)(data, pairs).total
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_checkpointing_does_not_change_gradients() -> None:
    data = frames(SMALL)
    pairs = jumps.Uniform(1, 3).sample(data.lengths, 4, torch.Generator().manual_seed(0))
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = build(replace(SMALL, checkpointing=checkpointing))
        Learner(model)(data, pairs).total.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name  # type: ignore[arg-type]


def test_checkpointing_recomputes_every_cell() -> None:
    data = frames(SMALL)
    pairs = jumps.Uniform(1, 3).sample(data.lengths, 4, torch.Generator().manual_seed(0))
    calls = []
    for checkpointing in (False, True):
        model = build(replace(SMALL, checkpointing=checkpointing))
        called: list[nn.Module] = []
        for module in model.modules():
            if isinstance(module, ConvLSTMCell):
                module.register_forward_pre_hook(lambda cell, args, called=called: called.append(cell))
        Learner(model)(data, pairs).total.backward()
        calls.append(len(called))
    assert calls == [5 * SMALL.layers, 2 * 5 * SMALL.layers]  # p_B twice; q_S, p_T and p_D once


def test_layers_depend_on_all_layers_above_and_none_below() -> None:
    model, z = build(SMALL), state()
    dt, actions = torch.tensor([1, 2, 3, 4]), torch.randn(4, 4, 2)
    b = torch.randn(4, BELIEF)
    for distribution in (
        model.p_B.given(z, b),
        model.q_S.given(z, state(), b, b, dt),
        model.p_T.given(z, State(state()), dt, actions),
    ):
        for index, layer in enumerate(distribution.layers):
            dependent = [depends(layer.log_prob(torch.zeros(4, 32)), source) for source in z.layers]
            assert dependent == [source > index for source in range(3)]


def test_ladders_have_the_conditions_of_the_paper() -> None:
    """q_S depends on z_t2, both codes and δt; p_T on z_t1, δt and the actions."""
    model, z, other = build(SMALL), state(), state()
    b1, b2 = torch.randn(4, BELIEF, requires_grad=True), torch.randn(4, BELIEF, requires_grad=True)
    actions = torch.randn(4, 9, 2, requires_grad=True)
    dt = torch.full((4,), 3)
    smoothed = model.q_S.given(z, other, b1, b2, dt).log_prob(z)
    predicted = model.p_T.given(z, State(other), dt, actions).log_prob(z)
    assert all(depends(smoothed, source) for source in (b1, b2, *other.layers))
    assert all(depends(predicted, source) for source in (actions, *other.layers))
    assert not torch.allclose(smoothed, model.q_S.given(z, other, b1, b2, dt + 1).log_prob(z))
    assert not torch.allclose(predicted, model.p_T.given(z, State(other), dt + 1, actions).log_prob(z))


def test_frame_depends_on_every_layer() -> None:
    model, z = build(SMALL), state()
    frame = model.decode(State(z))
    assert frame.mean.shape == (4, 3, 16, 16)
    assert all(depends(frame.mean, layer) for layer in z.layers)
    assert 0 <= float(frame.mean.detach().min()) <= float(frame.mean.detach().max()) <= 1
    sample = frame.sample() * 255
    torch.testing.assert_close(sample, sample.round())  # samples are 8-bit frames


def test_decode_does_not_depend_on_the_leading_shape() -> None:
    model, z = build(SMALL), state(lead=(2, 3))
    flat = z.map(lambda layer: layer.flatten(0, 1))
    torch.testing.assert_close(model.decode(State(z)).mean.flatten(0, 1), model.decode(State(flat)).mean)


def test_convolutional_cell_on_a_1x1_map_equals_an_lstm_cell() -> None:
    """On a 1 × 1 feature map, only the centres of the kernels have an effect."""
    cell, plain = ConvLSTMCell(3, 4), nn.LSTMCell(3, 4)
    centre = cell.gates.weight[:, :, 1, 1]
    with torch.no_grad():
        plain.weight_ih.copy_(centre[:, :3])
        plain.weight_hh.copy_(centre[:, 3:])
        plain.bias_ih.copy_(cell.gates.get_parameter("bias"))
        plain.bias_hh.zero_()
    x, h, c = torch.randn(5, 3), torch.randn(5, 4), torch.randn(5, 4)
    outputs = cell(x[..., None, None], h[..., None, None], c[..., None, None])
    for output, expected in zip(outputs, plain(x, (h, c)), strict=True):
        torch.testing.assert_close(output[..., 0, 0], expected)


def test_invalid_sizes_and_frames_are_rejected() -> None:
    with pytest.raises(InputError, match=r"^event_shape: expected \(channels, rows, columns\).*divisible by 16.*60"):
        ConvTDVAEConfig(event_shape=(3, 60, 64))
    with pytest.raises(InputError, match=r"^event_shape: .*\(64, 64, 3\)"):
        ConvTDVAEConfig(event_shape=(64, 64, 3))
    with pytest.raises(InputError, match=r"^encoder: expected at least 2 convolutions, got 1"):
        ConvTDVAEConfig(encoder=(8,))
    model, data = build(SMALL), frames(SMALL)
    with pytest.raises(InputError, match=r"^x: .*\(3, 16, 16\), got \(16, 16, 3\)"):
        model.filter(replace(data, x=data.x.movedim(2, -1)))
    with pytest.raises(InputError, match=r"^x: expected frames in \[0, 1\], got values from 0 to 255"):
        model.filter(replace(data, x=torch.tensor([0, 255] * 3 * 128).expand(2, 6, -1).reshape(2, 6, 3, 16, 16)))


def test_cost_of_a_training_step() -> None:
    cost = conv_costs.cost_of(MODELS["smoke"], repeats=2)
    assert len(cost.seconds) == 2
    assert min(cost.seconds) > 0
    assert cost.parameters == count(build(MODELS["smoke"]))


def test_smoke_model_learns_from_a_recording(tmp_path: Path) -> None:
    world = first_person.open_world("tdvae/Corridors-v0", size=32)
    first_person.record(world, tmp_path / "walk.h5", frames=300, seed=0, episode=100, size=32)
    world.close()
    data, *_ = split_windows(Recording(tmp_path / "walk.h5"), length=10, seed=0, with_actions=True)
    model = build(replace(MODELS["smoke"], actions=3))
    uniform, config = jumps.Uniform(1, 3), TrainConfig(steps=40, batch_size=8, pairs=4, learning_rate=3e-3, log_every=1)
    pairs = uniform.sample(data.lengths[:8], 4, torch.Generator().manual_seed(0))
    learner, first = Learner(model), data.select(slice(0, 8))
    before = learner(first, pairs).total.detach()
    tdvae.fit(learner, data, uniform, config, tmp_path / "run", progress="none")
    after = learner(first, pairs).total.detach()
    assert float(after) < 0.95 * float(before)
