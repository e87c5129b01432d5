"""The switching and moving MNIST experiments end to end at smoke size, and the benchmark."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from tdvae import Belief, InputError, Latent, cli
from tdvae.distributions import Bernoulli
from tdvae.jumps import Uniform, Widening
from tdvae.models import LSTM, Bits, Model
from tdvae.types import Pairs, Sequences, State
from tdvae_paper.bench import bench
from tdvae_paper.bench import moving_mnist as bench_mnist
from tdvae_paper.experiment import Task, TrainedRun
from tdvae_paper.moving_mnist import measures as moving_mnist
from tdvae_paper.moving_mnist.experiment import PRESETS as MOVING_MNIST
from tdvae_paper.moving_mnist.measures import JUMPS
from tdvae_paper.moving_mnist.moving_digits import MovingSequences, draw_sequences, synthetic_digits
from tdvae_paper.runner import train
from tdvae_paper.stack import Stack
from tdvae_paper.switching import CURRICULUM
from tdvae_paper.switching import EXPERIMENT as SWITCHING
from tdvae_paper.switching.curriculum.presets import PRESETS, curriculum
from tdvae_paper.switching.fixed.methods import METHODS, weighted_next_step_loss
from tdvae_paper.switching.fixed.presets import PRESETS as FIXED
from tdvae_paper.switching.fixed.presets import sequences as fixed_sequences
from tdvae_paper.switching.grid import cell_name, learning_curve
from tdvae_paper.switching.measures import forgetting_times
from tdvae_paper.switching.pairs import Around, Bridging
from tdvae_paper.switching.simulation import OPENING, SwitchingCurriculum, SwitchingSettings, simulate_switching

torch.set_num_threads(1)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr("sys.argv", ["tdvae", *map(str, arguments)])
    cli.main()


def width_of(path: Path) -> int:
    with Image.open(path) as picture:
        return picture.size[0]


# Switching


def test_switching_commands_run_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both grids at smoke size; that with a curriculum is a block of the other's file.

    Resuming does not train finished tasks again.
    """
    out = ["--out", str(tmp_path / "out")]
    fixed, curriculum = ["--run-dir", str(tmp_path / "fixed")], ["--run-dir", str(tmp_path / "curriculum")]
    run(monkeypatch, "run", "switching", "--preset", "smoke", *fixed, *out)
    run(monkeypatch, "run", "switching-curriculum", "--preset", "smoke", *curriculum, *out)
    content = json.loads((tmp_path / "out" / "switching.json").read_text())
    assert content["blocks"]["curriculum"]["command"].startswith("tdvae run switching-curriculum")
    for preset, measures, names, at in (
        (FIXED["smoke"], content["measures"], METHODS, "lstm={size},interval={interval},t={t}"),
        (PRESETS["smoke"], content["measures"]["curriculum"], ("tdvae", "next_step"), "lstm={size},t={t}"),
    ):
        cells = {cell_name(size, interval) for size in preset.sizes for interval in preset.intervals}
        for measure in (*(f"accuracy_{name}" for name in names), "accuracy_bayes"):
            assert set(measures[measure]) == cells
            assert all(0 <= entry["mean"] <= 1 for entry in measures[measure].values())
        assert measures["accuracy_tdvae"]["lstm=6,interval=4"]["n"] == preset.runs * len(preset.seeds)
        probed = {
            at.format(size=size, interval=interval, t=t)
            for size in preset.sizes
            for interval in (preset.intervals if "interval" in at else (4,))
            for t in forgetting_times(interval)
        }
        assert set(measures["accuracy_tdvae_at"]) == probed
    assert width_of(tmp_path / "out" / "switching.png") > 500
    assert width_of(tmp_path / "out" / "switching_curriculum.png") > 500
    weights = {p: p.stat().st_mtime_ns for p in (tmp_path / "fixed").rglob("*.safetensors")}
    # As after an interruption before it was measured:
    (tmp_path / "fixed" / "lstm=6,interval=2,tdvae,seed=0" / "measures.json").unlink()
    run(monkeypatch, "run", "switching", "--preset", "smoke", *fixed, *out, "--resume")
    again = json.loads((tmp_path / "out" / "switching.json").read_text())
    assert again["measures"] == content["measures"]
    assert {p: p.stat().st_mtime_ns for p in weights} == weights


def test_all_methods_of_a_cell_share_the_lstm_the_sequences_and_the_optimiser() -> None:
    preset = FIXED["smoke"]
    tasks = [task for task in SWITCHING.tasks(preset, [0]) if task.folder.startswith("lstm=6,interval=4,")]
    assert [task.folder.split(",")[2] for task in tasks] == list(METHODS)
    trainings = [SWITCHING.training(preset, task) for task in tasks]
    index = torch.tensor([0, 9, 30])
    for training in trainings:
        assert replace(training.config, pairs=1) == replace(trainings[0].config, pairs=1)
        assert torch.equal(training.data.select(index).x, trainings[0].data.select(index).x)
        assert training.data.lengths.tolist() == [44] * preset.train.steps * preset.train.batch_size * preset.runs
        assert isinstance(training.learner, Stack)
        lstm = {name: tuple(w.shape) for name, w in training.learner.weights.items() if name.startswith("model/belief")}
        assert sorted(lstm.values()) == [(2, 2, 6), (2, 8, 24)]
    other = fixed_sequences(preset, 2, seed=0)
    assert not torch.equal(other.select(index).x[:, :20], trainings[0].data.select(index).x[:, :20])


def test_weighted_loss_has_a_share_on_the_steps_after_the_last_switch() -> None:
    """With -log p(x_t) = t, the mean over all steps is (T + 1) / 2 and that over the ten steps is T - 20 + 5.5."""

    class Known(torch.nn.Module):
        def predictions(self, sequences: Sequences) -> SimpleNamespace:
            steps = torch.arange(1.0, sequences.horizon + 1).expand(len(sequences), -1)
            return SimpleNamespace(log_prob=lambda x, observed: -steps)

    sequences = Sequences(torch.zeros(2, 44, 1), torch.tensor([44, 42]))
    pairs = Pairs(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1, dtype=torch.long))
    for share in (0.0, 0.4, 1.0):
        everywhere = (sum(range(1, 45)) + sum(range(1, 43))) / (44 + 42)
        after = (24 + 22) / 2 + 5.5
        loss = weighted_next_step_loss(Known(), sequences, pairs, share)  # type: ignore[arg-type]
        assert float(loss.total) == pytest.approx((1 - share) * everywhere + share * after)


def test_pairs_of_the_trainings_without_the_place_do_not_depend_on_the_switch() -> None:
    """Beyond the first and last steps, t1 of consecutive pairs is uniform: around the switch as anywhere else."""
    for name, method in METHODS.items():
        if method.jumps is None:
            continue
        jumps = method.jumps(100)
        pairs = jumps.sample(torch.full((100,), 140), 500, torch.Generator().manual_seed(0))
        near = ((pairs.t1 >= 115) & (pairs.t1 <= 125) & (pairs.dt == 1)).sum() / (pairs.dt == 1).sum()
        assert (abs(float(near) - 11 / 140) < 0.01) != method.knows, name


def test_stacked_runs_differ_and_are_reproducible(tmp_path: Path) -> None:
    preset = PRESETS["smoke"]
    found = []
    for name in ("one", "two"):
        task = Task(0, name, "4,next_step")
        train(CURRICULUM, preset, "smoke", task, tmp_path / name)
        found.append(TrainedRun(task, tmp_path / name).models)
    first, second = ([model.get_parameter("belief.network.weight") for model in models] for models in found)
    assert torch.equal(first[0], second[0])
    assert not torch.allclose(first[0], first[1])
    steps, accuracies = learning_curve(TrainedRun(Task(0, "one"), tmp_path / "one").metrics, interval=4)
    assert steps == [3, 6]
    assert all(len(row) == preset.runs for row in accuracies)


def test_curriculum_lengthens_the_interval() -> None:
    preset = replace(PRESETS["smoke"], stages=((5, 20), (10, 20), (20, 60)), mixed=0.5)
    data = curriculum(preset, seed=0)
    assert len(data.intervals) == 100
    assert max(data.intervals[:20]) == 5
    assert max(data.intervals[20:40]) == 10
    assert max(data.intervals) == 20
    steps = 4_000
    late = curriculum(replace(preset, stages=((20, steps),)), seed=0).intervals
    assert set(late) == set(range(1, 21))
    share, expected = late.count(20) / steps, 0.5 + 0.5 / 20  # a twentieth of the mixed half also has interval 20
    assert abs(share - expected) < 3 * (expected * (1 - expected) / steps) ** 0.5
    unmixed = curriculum(replace(preset, mixed=0.0), seed=0)
    assert unmixed.intervals == (5,) * 20 + (10,) * 20 + (20,) * 60


def test_observations_do_not_depend_on_the_final_length_of_the_interval() -> None:
    """This is why one training serves all intervals: until the shorter one ends, the distributions are equal.

    Means, squares and products have standard deviations up to 0.75; 4000 sequences leave a standard error of 0.012.
    """
    short, long = (simulate_switching(SwitchingSettings(interval=i), 4000, seed=1).x[:, :25] for i in (5, 50))
    torch.testing.assert_close(short.mean(0), long.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(short.square().mean(0), long.square().mean(0), atol=0.02, rtol=0)
    products = [(x[:, 20:25] * x[:, 19:24]).mean(0) for x in (short, long)]
    torch.testing.assert_close(*products, atol=0.02, rtol=0)


def test_simulated_blocks_do_not_depend_on_the_selection() -> None:
    data = SwitchingCurriculum(SwitchingSettings(), (3, 7, 3), block=4, seed=5)
    assert len(data) == 12
    assert data.lengths.tolist() == [43] * 4 + [47] * 4 + [43] * 4
    batch = data.select(torch.tensor([9, 2, 5]))
    assert batch.x.shape == (3, 47, 1)
    for row, index in enumerate((9, 2, 5)):
        alone = data.select(torch.tensor([index]))
        length = int(alone.lengths[0])
        assert torch.equal(batch.x[row, :length], alone.x[0])
        assert not batch.x[row, length:].any()
    assert not torch.equal(data.select(torch.tensor([0])).x, data.select(torch.tensor([8])).x)


def test_bridging_pairs_start_in_the_middle_and_end_in_the_last_interval() -> None:
    jumps = Bridging(0.4, OPENING, 17, Uniform(1, 3))
    lengths = torch.tensor([60, 140])
    pairs = jumps.sample(lengths, 20_000, torch.Generator().manual_seed(0))
    bridge = pairs.dt > 3
    assert bool((pairs.t1 >= 0).all())
    assert bool((pairs.t2 <= lengths[:, None]).all())
    for row, length in enumerate((60, 140)):
        t1, t2 = pairs.t1[row][bridge[row]], pairs.t2[row][bridge[row]]
        assert (int(t1.min()), int(t1.max())) == (OPENING, length - 17)
        assert (int(t2.min()), int(t2.max())) == (length - 16, length)
    assert abs(bridge[1].float().mean() - 0.4) < 0.0105  # three standard errors
    late = replace(jumps, since=0.5)
    assert bool((late.sample(lengths, 2_000, torch.Generator().manual_seed(0), progress=0.4).dt <= 3).all())
    assert bool((late.sample(lengths, 2_000, torch.Generator().manual_seed(0), progress=0.5).dt > 3).any())
    with pytest.raises(InputError, match="expected Bridging outside"):
        Widening(jumps)
    with pytest.raises(InputError, match="share: expected"):
        Bridging(1.5, 0, 1, Uniform(1, 2))
    with pytest.raises(InputError, match="got 30 in the shortest"):
        jumps.sample(torch.tensor([30]), 1, torch.Generator())


def test_around_pairs_start_near_the_last_switch() -> None:
    jumps = Around(0.5, 20, 5, Uniform(1, 3))
    lengths = torch.tensor([60, 1000])
    for outer in (jumps, Bridging(0.0, OPENING, 17, jumps)):
        pairs = outer.sample(lengths, 20_000, torch.Generator().manual_seed(0))
        assert (int(pairs.dt.min()), int(pairs.dt.max())) == (1, 3)
        assert bool((pairs.t1 >= 0).all())
        assert bool((pairs.t2 <= lengths[:, None]).all())
        near = (pairs.t1[1] - 980).abs() <= 5
        by_chance = 11 / 998  # of the other half, uniform on 0 … 997 or a little further
        assert abs(near.float().mean() - (0.5 + 0.5 * by_chance)) < 0.0105  # three standard errors
        assert set((pairs.t1[1][near] - 980).tolist()) == set(range(-5, 6))
    with pytest.raises(InputError, match="expected Around outside"):
        Widening(jumps)
    with pytest.raises(InputError, match="share: expected"):
        Around(1.5, 20, 5, Uniform(1, 3))
    with pytest.raises(InputError, match="ending: expected room"):
        Around(0.5, 20, 18, Uniform(1, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": ()}, "sizes: expected at least one"),
        ({"intervals": ()}, "intervals: expected at least one"),
        ({"intervals": (0,)}, "sizes and intervals: expected at least 1"),
        ({"stages": ()}, "stages: expected at least one"),
        ({"intervals": (2, 50)}, "intervals: expected at most the longest interval of the stages"),
        ({"runs": 0}, "runs: expected at least 1"),
        ({"probe": "svm"}, "probe: expected one of"),
    ],
)
def test_invalid_grid_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(PRESETS["smoke"], **changes)


def test_unknown_preset_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "run", "switching", "--preset", "demo", "--run-dir", tmp_path / "grid")
    assert "preset: expected one of smoke, cpu, paper; got demo" in capsys.readouterr().err


# Moving MNIST


def test_moving_mnist_command_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TDVAE_DATA", str(tmp_path / "data"))  # the digit classifier is saved there
    run(
        monkeypatch,
        "run",
        "moving-mnist",
        "--preset",
        "smoke",
        "--run-dir",
        tmp_path / "run",
        "--out",
        tmp_path / "out",
    )
    content = json.loads((tmp_path / "out" / "moving_mnist.json").read_text())
    measures = content["measures"]
    assert set(measures["digit_kept"]) == {"0", "1", "3", "6"}
    for name in ("direction_kept", "displacement_tv", "exact_displacement"):
        assert 0 <= measures[name]["mean"] <= 1
    assert measures["nats_per_frame"]["importance"]["mean"] < measures["nats_per_frame"]["bound"]["mean"]
    capsys.readouterr()
    run(monkeypatch, "eval", tmp_path / "run" / "seed-0", "--json")
    alone = json.loads(capsys.readouterr().out)
    assert alone["measures"]["digit_kept"].keys() == measures["digit_kept"].keys()
    with pytest.raises(SystemExit):
        run(monkeypatch, "rollout", tmp_path / "run" / "seed-0", "--from", "10", "--horizon", "1,2")
    assert "got one of images" in capsys.readouterr().err
    with Image.open(tmp_path / "out" / "moving_mnist.gif") as film:
        assert getattr(film, "n_frames", 1) == 12 + 1 + JUMPS


class ExactModel(Model):
    """A model that moves digits exactly by ``step`` pixels per jump, or by δt if ``step`` is 0."""

    def __init__(self, test: MovingSequences, step: int, flips: bool = False) -> None:
        super().__init__()
        self.still = test.still(torch.arange(len(test)))
        self.position, self.direction = test.shift(torch.arange(len(test))), test.direction
        self.step, self.flips, self.seen = step, flips, 0

    def initial(self, batch: int) -> Any:
        self.seen = 0
        return Belief(torch.zeros(batch, 1), ())

    def update(self, belief: Any, x: Any, a: Any = None, r: Any = None, graph: bool = False) -> Any:
        self.seen += 1
        return belief

    def belief_features(self, belief: Any, kind: Any = "code") -> Any:
        raise AssertionError("not used")

    def filter(self, sequences: Any) -> Any:
        raise AssertionError("not used")

    def sample_state(self, belief: Any, n: int) -> Any:
        return State(Latent((self.position[None, :, self.seen - 1, None].float(),)))

    def transition(self, z: Any, dt: Any, a: Any = None) -> Any:
        direction = -self.direction if self.flips else self.direction
        pixels = torch.as_tensor(dt).expand(1, len(direction)) if self.step == 0 else self.step
        return z.map(lambda position: position + (pixels * direction)[..., None])

    def decode(self, z: Any) -> Any:
        shifts = z.z.layers[0][0, :, 0].long() % 28
        frames = torch.stack([still.roll(int(shift), -1) for still, shift in zip(self.still, shifts, strict=True)])
        return Bernoulli((frames[None] - 0.5) * 20, event_ndim=2)

    def predict(self, z: Any, dt: Any, a: Any = None) -> Any:
        raise AssertionError("not used")


def roll_out(step: int, flips: bool = False, given_dt: bool = False) -> moving_mnist.Rollouts:
    test = draw_sequences(synthetic_digits(100, 0), 60, 3)
    return moving_mnist.roll(ExactModel(test, step, flips), test, 12, given_dt)


def test_measured_displacements_are_those_of_the_model() -> None:
    for step in (1, 3):
        assert bool((roll_out(step).moved == step).all())
    assert bool((roll_out(2, flips=True).moved == -2).all())
    rollouts = roll_out(0, given_dt=True)
    assert torch.equal(rollouts.moved, rollouts.dt)
    assert set(rollouts.dt.unique().tolist()) == {1, 2, 3, 4}


# The benchmark


def test_benchmark_compares_equal_gradients_and_varies_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small model: both ways of encoding give the same gradients, and all four sizes are varied."""
    small = replace(bench_mnist.PLAIN_MODEL, encoder=(12, 12), belief=LSTM(6), decoder=Bits((12,)))
    monkeypatch.setattr(bench_mnist, "PLAIN_MODEL", small)
    assert (
        bench_mnist.gradient_difference(bench_mnist.frames(n=128), bench_mnist.pairs_of(bench_mnist.frames(n=128), 1))
        < 1e-5
    )
    sizes = {sweep.name: sweep.sizes for sweep in bench_mnist.size_sweeps()}
    assert set(sizes) == {"T", "K", "layers", "batch"}


def test_training_to_a_loss_stops_when_it_is_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smoke = MOVING_MNIST["smoke"]
    monkeypatch.setitem(MOVING_MNIST, "cpu", smoke)
    fast = replace(smoke.train, learning_rate=0.01, schedule="constant")
    slow = replace(smoke.train, learning_rate=1e-6, schedule="constant", optimizer="adam")
    monkeypatch.setattr(
        bench_mnist, "METHODS", {"plain": (smoke.model, slow, True), "fast": (smoke.model, fast, False)}
    )
    monkeypatch.setattr(bench_mnist, "HELD_OUT", 40)
    ticks = itertools.count()  # a clock by which every step takes 20 ms, however busy the machine is
    monkeypatch.setattr(bench_mnist, "time", SimpleNamespace(process_time=lambda: 0.02 * next(ticks)))
    curves = bench_mnist.train_to_loss(minutes=0.02, evaluate_every=0.05)
    plain, quick = curves["plain"], curves["fast"]
    assert plain.seconds[-1] == pytest.approx(1.2, abs=0.03)  # all its time
    assert quick.seconds[-1] < 0.24  # less than a fifth of it, where it would have been stopped
    assert quick.losses[-1] <= plain.losses[-1]  # it ended by reaching the goal
    assert all(loss > plain.losses[-1] for loss in quick.losses[:-1])  # as soon as it did
    ratios = bench_mnist.time_to_loss_measures(curves)["time_to_loss_ratio"]
    assert set(ratios) == {"plain", "fast"}
    assert ratios["fast"]["mean"] == pytest.approx(quick.seconds[-1] / plain.seconds[-1])
    assert ratios["fast"]["mean"] < ratios["plain"]["mean"] <= 1
    bench.draw(ratios, 0.02, tmp_path / "bench.png")
    assert width_of(tmp_path / "bench.png") > 300
