"""The first-person experiment: for each seed, one model trained on jumps and one on single steps."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tdvae.data.windows import FrameWindows
from tdvae.jumps import Consecutive
from tdvae.models import TDVAE, Model, build
from tdvae.objectives import Learner, tdvae_loss
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae_paper.first_person import measures as measuring
from tdvae_paper.first_person.baselines import baselines
from tdvae_paper.first_person.measures import ByJump
from tdvae_paper.first_person.presets import PRESETS, Preset
from tdvae_paper.first_person.recording import evenly_spaced, split_recording, training_frames
from tdvae_paper.first_person.tables import futures

METHODS = ("tdvae", "step_by_step")
TEST = 603  # purpose of a derived seed


class FirstPerson(Experiment[Preset]):
    """Densities of later frames, spreads of futures, motion of rollouts, and poses predicted from beliefs."""

    name = "first_person"
    title = "first-person"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{method}-seed-{seed}", method) for seed in seeds for method in METHODS]

    def prepare(self, preset: Preset) -> None:
        """Record the walk unless it is in the data cache."""
        split_recording(preset)

    def training(self, preset: Preset, task: Task) -> Training:
        """Both methods have the same initial weights and training windows."""
        data, validation, _ = split_recording(preset)
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        return Training(
            Learner(build(preset.model), partial(tdvae_loss, gradient="path")),
            data,
            preset.jumps if task.variant == "tdvae" else Consecutive(),
            replace(preset.train, seed=task.seed),
            evenly_spaced(validation, preset.validated),
            {"method": task.variant, "walk": asdict(preset.walk)},
        )

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        model = models[0]
        assert isinstance(model, TDVAE)
        train_windows, validation, test = split_recording(preset)
        moments, t1, jumpy = evenly_spaced(test, preset.moments), preset.seen, task.variant == "tdvae"
        torch.manual_seed(derive_seed(task.seed, TEST))
        estimates = {dt: measuring.bits_ahead(model, moments, t1, dt, preset.samples, jumpy) for dt in preset.measured}
        fit_on, choose_on, test_on = (
            measuring.poses(model, evenly_spaced(windows, preset.probed))
            for windows in (train_windows, validation, test)
        )
        measures: Measures = {
            "bits": {
                kind: {str(dt): estimates[dt][kind] for dt in preset.measured}
                for kind in next(iter(estimates.values()))
            },
            "poses": measuring.pose_r_squared(fit_on, choose_on, test_on),
        }
        return measures | _future_measures(preset, model, moments) if jumpy else measures

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        baseline_bits = baselines(preset)
        return [combine_methods(by_method, baseline_bits) for by_method in by_seed(measures).values()]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        return {self.name: futures(content["measures"])}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`, seed {seeds_of(content)}: {time_of(content)}. "
            "The paper shows pictures and gives no number."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.first_person import figure

        model, seed, test = runs[0].models[0], runs[0].task.seed, split_recording(preset)[2]
        paths = [folder / f"{self.name}{ending}" for ending in (".png", "_rollouts.png", ".gif")]
        figure.draw(model, test, preset.seen, content["measures"], seed, paths[0], paths[1])
        figure.animate(model, test, preset.seen, seed, paths[2])
        return paths


def _future_measures(preset: Preset, model: TDVAE, moments: FrameWindows) -> Measures:
    """Compute the measures of the model trained on jumps only: spreads of futures, motion, time."""
    t1, jumps = preset.seen, preset.measured
    spread = measuring.spreads(model, moments, t1, jumps, preset.states, preset.futures)
    mean_frame = training_frames(preset)[0].mean(0)
    distances: dict[str, dict[str, float]] = {"tdvae": {}, "last_frame": {}, "mean_frame": {}}
    for dt in jumps:
        changes = measuring.motion(model, moments, t1, dt, mean_frame)
        for name, by_jump in distances.items():
            distance = measuring.wasserstein(changes[name], changes["data"])
            by_jump[str(dt)] = distance / float(changes["data"].mean())
    belief = belief_at(model, moments.select(torch.arange(min(measuring.BATCH_SIZE, len(moments)))), t1)
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


def combine_methods(by_method: dict[str, Measures], baseline_bits: dict[str, ByJump]) -> Measures:
    """Return the measures of one seed, by measure and then by model."""
    estimates = {method: measures["bits"] for method, measures in by_method.items()}
    # Both estimates are upper bounds of the same quantity, so the lower one is closer to it.
    best = {
        method: {dt: min(by_jump[dt] for by_jump in by_kind.values()) for dt in by_kind["smoothed"]}
        for method, by_kind in estimates.items()
    }
    poses = {f"{method}, {source}": r2 for method, m in by_method.items() for source, r2 in m["poses"].items()}
    poses["pixels"] = poses.pop("tdvae, pixels")
    del poses["step_by_step, pixels"]  # the same for both methods
    other: dict[str, Any] = {k: v for k, v in by_method["tdvae"].items() if k not in ("bits", "poses")}
    return {
        "bits_per_dim": {"tdvae": best["tdvae"], **baseline_bits, "step_by_step": best["step_by_step"]},
        "bits_estimates": {f"{method}, {kind}": v for method, e in estimates.items() for kind, v in e.items()},
        **other,
        "pose_probe": poses,
    }
