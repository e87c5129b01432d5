"""First-person worlds (paper, section "DeepMind Lab environment", Figs. 5 and 6): beliefs about several futures, and
rollouts in jumps.

Two trainings of one model on one recording: ``tdvae`` on jumps of up to 40 steps, ``step_by_step`` on single steps,
which must be rolled out to look further. Actions are not given, neither of the past nor of the future.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tdvae import saved
from tdvae.data.cache import data_folder
from tdvae.data.recording import Recording
from tdvae.data.windows import FrameWindows, split_windows
from tdvae.envs import first_person as worlds
from tdvae.errors import InputError
from tdvae.experiments import first_person_measures as measuring
from tdvae.experiments.first_person_measures import LastFrame, Marginal
from tdvae.experiments.recipe import MUON
from tdvae.experiments.report import Measures, show_flat, show_table
from tdvae.jumps import Consecutive, Jumps, Uniform, Widening
from tdvae.models import TDVAE, ConvTDVAEConfig, build
from tdvae.objectives import Learner, tdvae_loss
from tdvae.rollouts import belief_at
from tdvae.training import FitResult, TrainConfig, fit
from tdvae.training.config import derive_seed
from tdvae.training.log import Progress

NAME = "first_person"
METHODS = ("tdvae", "step_by_step")
TEST = 603  # purpose of a derived seed
SPLIT_SEED = 0  # every seed of a training has the same episodes held out
COPIED = 400  # pairs of frames that say how a frame differs from the last; each has thousands of values
PAPER: Measures = {}  # the paper shows pictures and gives no number

LABELS = {
    "tdvae": "TD-VAE, one jump",
    "step_by_step": "trained on single steps, rolled out",
    "last_frame": "last frame",
    "marginal": "marginal",
    "mean_frame": "mean frame",
}
BY_JUMP = {
    "future_spread_ratio": "spread of futures, across z / within z",
    "time_ratio": "time of a prediction, step by step / one jump",
}
FLAT = {"present_spread_ratio": "spread of the present across z / of real frames"}

MODELS = {
    # The sizes that the paper states; how large z, the canvas and the encoder are, it does not.
    "paper": ConvTDVAEConfig(
        encoder=(32, 64, 128, 256), belief=512, belief_layers=4, layers=16, channels=256, latent=16, canvas=64
    ),
    # A step of the preset below takes about a second of one core.
    "cpu": ConvTDVAEConfig(
        encoder=(16, 32, 64, 32),
        belief=256,
        belief_layers=1,
        shown=1,
        layers=4,
        channels=32,
        latent=4,
        canvas=16,
        log_sigma=-2.0,  # the noise of a fresh state is below its signal
    ),
    "smoke": ConvTDVAEConfig(
        event_shape=(3, 32, 32), encoder=(8, 8, 8), belief=16, belief_layers=1, layers=2, channels=8, latent=4, canvas=8
    ),
}


@dataclass(frozen=True)
class Walk:
    """What is recorded: equal walks are equal to the byte."""

    world: str = "VizdoomHealthGatheringSupreme-v1"
    frames: int = 100_000
    size: int = 64
    episode: int = 300
    seed: int = 0

    @property
    def file(self) -> str:
        world = self.world.replace("/", "-").replace(":", "-")
        return f"{world}-{self.frames}x{self.size}-episodes-{self.episode}-seed-{self.seed}.h5"


@dataclass(frozen=True)
class Preset:
    """Everything about a run but its seed."""

    model: ConvTDVAEConfig
    train: TrainConfig
    walk: Walk = field(default_factory=Walk)
    jumps: Jumps = field(default_factory=lambda: Widening(Uniform(1, 40), start=2, until=0.3))  # of `tdvae`
    window: int = 56  # frames of a training sequence
    every: int = 4  # a window begins at every so many frames of an episode
    seen: int = 16  # t1 of all measures
    measured: tuple[int, ...] = (1, 5, 20, 40)  # δt
    validated: int = 64  # windows
    moments: int = 256  # held-out windows that are measured
    samples: int = 8  # of a density's estimate
    states: int = 6  # z's of one belief
    futures: int = 5  # of each z
    counted: int = 4_000  # training windows that the baselines are fitted on, one frame or pair of frames each
    probed: int = 1_500  # training windows that the pose is learned from
    seeds: tuple[int, ...] = (0,)


_TRAIN = replace(
    MUON,
    batch=8,
    pairs=8,
    optimizer="muon_kernels",
    learning_rate=3e-3,
    muon_learning_rate=0.1,
    validate_every=250,
    checkpoint_every=250,
)

PRESETS = {
    "smoke": Preset(
        MODELS["smoke"],
        replace(_TRAIN, steps=4, batch=4, pairs=2, validate_every=2, checkpoint_every=2, log_every=2),
        Walk("tdvae/Corridors-v0", frames=480, size=32, episode=40),
        Uniform(1, 8),
        window=16,
        seen=6,
        measured=(1, 4),
        validated=4,
        moments=6,
        samples=2,
        states=2,
        futures=2,
        counted=20,
        probed=20,
    ),
    "cpu": Preset(MODELS["cpu"], replace(_TRAIN, steps=2_500)),
    "paper": Preset(MODELS["paper"], TrainConfig(steps=200_000, batch=32, pairs=8), jumps=Uniform(1, 40)),
}


def recorded(walk: Walk) -> Path:
    """The recording of a walk, from the place for data; made if it is not there yet, which takes minutes."""
    path = data_folder(NAME) / walk.file
    if not path.exists():
        world = worlds.open_world(walk.world, size=walk.size)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            worlds.record(world, path, walk.frames, walk.seed, walk.episode, walk.size)
        finally:
            world.close()
    return path


def parts(preset: Preset) -> tuple[FrameWindows, FrameWindows, FrameWindows]:
    """Training, validation and test windows of different episodes."""
    walk, size = preset.walk, tuple(preset.model.event_shape)
    recording = Recording(recorded(walk))
    expected = (walk.world, walk.seed, walk.episode, walk.frames, walk.size)
    about = recording.about
    found = (about["world"], about["seed"], about["longest_episode"], len(recording), recording.size)
    if found != expected:
        raise InputError(f"file: {recording.path} holds another walk, {found}, expected {expected}; remove it")
    if size != (3, recording.size, recording.size):
        raise InputError(f"size: the model takes frames of {size}, the recording has {recording.size} pixels a side")
    train, validation, test = split_windows(recording, preset.window, SPLIT_SEED, preset.every)
    return train, validation, test


def spaced(windows: FrameWindows, count: int) -> FrameWindows:
    """At most ``count`` windows, evenly spaced over all episodes."""
    index = torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()
    return replace(windows, starts=windows.starts[index])


def train(
    preset: Preset, name: str, method: str, seed: int, run_dir: Path, resume: bool, progress: Progress
) -> FitResult:
    """One training; both methods begin with the same weights and see the same windows."""
    data, validation, _ = parts(preset)
    torch.manual_seed(derive_seed(seed))  # the initial weights
    learner = Learner(build(preset.model), partial(tdvae_loss, gradient="path"))
    jumps = preset.jumps if method == "tdvae" else Consecutive()
    info = {"experiment": NAME, "preset": name, "method": method, "walk": asdict(preset.walk)}
    config = replace(preset.train, seed=seed)
    return fit(learner, data, jumps, config, run_dir, spaced(validation, preset.validated), resume, info, progress)


def measure(preset: Preset, method: str, seed: int, run_dir: Path) -> Measures:
    """Every measure of a finished training, on held-out episodes."""
    model = saved.load(run_dir)
    assert isinstance(model, TDVAE)
    train_windows, validation, test = parts(preset)
    moments, t1, jumpy = spaced(test, preset.moments), preset.seen, method == "tdvae"
    torch.manual_seed(derive_seed(seed, TEST))
    estimates = {dt: measuring.bits_ahead(model, moments, t1, dt, preset.samples, jumpy) for dt in preset.measured}
    fit_on, choose_on, test_on = (
        measuring.poses(model, spaced(windows, preset.probed)) for windows in (train_windows, validation, test)
    )
    measures: Measures = {
        "bits": {
            kind: {str(dt): estimates[dt][kind] for dt in preset.measured} for kind in next(iter(estimates.values()))
        },
        "poses": measuring.pose_read(fit_on, choose_on, test_on),
    }
    return measures | _of_futures(preset, model, moments) if jumpy else measures


def _of_futures(preset: Preset, model: TDVAE, moments: FrameWindows) -> Measures:
    """What only the jumpy model is asked: spreads of futures, motion, time."""
    t1, jumps = preset.seen, preset.measured
    spread = measuring.spreads(model, moments, t1, jumps, preset.states, preset.futures)
    mean_frame = _frames(preset)[0].mean(0)
    distances: dict[str, dict[str, float]] = {"tdvae": {}, "last_frame": {}, "mean_frame": {}}
    for dt in jumps:
        changes = measuring.motion(model, moments, t1, dt, mean_frame)
        for name, by_jump in distances.items():
            away = measuring.wasserstein(changes[name], changes["data"])
            by_jump[str(dt)] = away / float(changes["data"].mean())
    belief = belief_at(model, moments.select(torch.arange(min(measuring.AT_ONCE, len(moments)))), t1)
    times = {str(dt): measuring.milliseconds(model, belief, dt) for dt in jumps}
    return {
        "future_spread_ratio": {dt: spread.across[dt] / spread.within[dt] for dt in spread.across},
        "present_spread_ratio": spread.present / spread.data,
        "spread": {
            "present": spread.present,
            "future_within": spread.within,
            "future_across": spread.across,
            "data": spread.data,
        },
        "motion_distance": distances,
        "milliseconds": {
            "tdvae": {dt: time["jump"] for dt, time in times.items()},
            "step_by_step": {dt: time["steps"] for dt, time in times.items()},
        },
        "time_ratio": {dt: time["ratio"] for dt, time in times.items()},
    }


def _frames(preset: Preset) -> tuple[torch.Tensor, ...]:
    """Frames of training windows: those seen last, then those of each δt later; (N, 3, H, W) each."""
    windows = spaced(parts(preset)[0], preset.counted)
    times = [preset.seen - 1 + dt for dt in (0, *preset.measured)]
    some = [windows.select(index).x[:, times] for index in torch.arange(len(windows)).split(64)]
    return torch.cat(some).transpose(0, 1).unbind(0)


def baselines(preset: Preset) -> dict[str, dict[str, float]]:
    """Bits per dimension of the same frames without a model: copying the last frame, and the marginal."""
    seen, *later = _frames(preset)
    marginal, thin = Marginal.fit(torch.cat([seen, *later]), extra=0.3), max(1, len(seen) // COPIED)
    found: dict[str, dict[str, float]] = {"last_frame": {}, "marginal": {}}
    moments = spaced(parts(preset)[2], preset.moments)
    frames = torch.cat([moments.select(index).x for index in torch.arange(len(moments)).split(measuring.AT_ONCE)])
    now = frames[:, preset.seen - 1]
    for dt, training in zip(preset.measured, later, strict=True):
        then = frames[:, preset.seen - 1 + dt]
        copied = LastFrame.fit(seen[::thin], training[::thin])
        found["last_frame"][str(dt)] = measuring.bits(copied.log_prob(now, then), then)
        found["marginal"][str(dt)] = measuring.bits(marginal.log_prob(then), then)
    return found


def together(by_method: dict[str, Measures], without_model: dict[str, dict[str, float]]) -> Measures:
    """The measures of a seed, by measure and then by model."""
    ours = {method: measures["bits"] for method, measures in by_method.items()}
    # Both estimates bound the same density from above, so the lower one is nearer to it.
    best = {
        method: {dt: min(estimate[dt] for estimate in both.values()) for dt in both["smoothed"]}
        for method, both in ours.items()
    }
    readings = {f"{method}, {what}": read for method, m in by_method.items() for what, read in m["poses"].items()}
    readings["pixels"] = readings.pop("tdvae, pixels")
    del readings["step_by_step, pixels"]  # the same for both
    shared: dict[str, Any] = {k: v for k, v in by_method["tdvae"].items() if k not in ("bits", "poses")}
    return {
        "bits_per_dim": {"tdvae": best["tdvae"], **without_model, "step_by_step": best["step_by_step"]},
        "bits_estimates": {f"{method}, {kind}": v for method, both in ours.items() for kind, v in both.items()},
        **shared,
        "pose_probe": readings,
    }


def show(measures: Measures, title: str) -> None:
    """Tables on standard output: a row for each model, a column for each δt."""
    for name, label in (("bits_per_dim", "bits per dimension"), ("motion_distance", "change per jump, distance")):
        rows = {model: LABELS[model] for model in measures[name]}
        show_table(f"{title}: {label}", measures[name], rows)
    show_table(title, measures, BY_JUMP)
    show_flat(title, measures, FLAT)
    show_table(f"{title}: R² of the pose", measures["pose_probe"], {k: k for k in measures["pose_probe"]}, columns="")
