"""The first-person experiment: for each seed the jumpy model and the one trained on single steps, on one recording."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tdvae.data.windows import FrameWindows
from tdvae.experiments.first_person import measures as measuring
from tdvae.experiments.first_person.baselines import baselines
from tdvae.experiments.first_person.measures import ByJump
from tdvae.experiments.first_person.presets import PRESETS, Preset
from tdvae.experiments.first_person.recording import parts, spaced, training_frames
from tdvae.experiments.first_person.tables import futures
from tdvae.experiments.shared.experiment import Experiment, Task, TrainedRun, Training, by_seed, seeds_of, time_of
from tdvae.jumps import Consecutive
from tdvae.models import TDVAE, Model, build
from tdvae.objectives import Learner, tdvae_loss
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block
from tdvae.rollouts import belief_at
from tdvae.training.config import derive_seed

METHODS = ("tdvae", "step_by_step")
TEST = 603  # purpose of a derived seed


class FirstPerson(Experiment[Preset]):
    """Densities of later frames, spreads of futures, motion of rollouts, and poses read from beliefs."""

    name = "first_person"
    title = "first-person"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{method}-seed-{seed}", method) for seed in seeds for method in METHODS]

    def prepare(self, preset: Preset) -> None:
        """Record the walk."""
        parts(preset)

    def training(self, preset: Preset, task: Task) -> Training:
        """Both methods begin with the same weights and see the same windows."""
        data, validation, _ = parts(preset)
        torch.manual_seed(derive_seed(task.seed))  # the initial weights
        return Training(
            Learner(build(preset.model), partial(tdvae_loss, gradient="path")),
            data,
            preset.jumps if task.variant == "tdvae" else Consecutive(),
            replace(preset.train, seed=task.seed),
            spaced(validation, preset.validated),
            {"method": task.variant, "walk": asdict(preset.walk)},
        )

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        model = models[0]
        assert isinstance(model, TDVAE)
        train_windows, validation, test = parts(preset)
        moments, t1, jumpy = spaced(test, preset.moments), preset.seen, task.variant == "tdvae"
        torch.manual_seed(derive_seed(task.seed, TEST))
        estimates = {dt: measuring.bits_ahead(model, moments, t1, dt, preset.samples, jumpy) for dt in preset.measured}
        fit_on, choose_on, test_on = (
            measuring.poses(model, spaced(windows, preset.probed)) for windows in (train_windows, validation, test)
        )
        measures: Measures = {
            "bits": {
                kind: {str(dt): estimates[dt][kind] for dt in preset.measured}
                for kind in next(iter(estimates.values()))
            },
            "poses": measuring.pose_read(fit_on, choose_on, test_on),
        }
        return measures | _of_futures(preset, model, moments) if jumpy else measures

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        without_model = baselines(preset)
        return [together(by_method, without_model) for by_method in by_seed(measures).values()]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        return {self.name: futures(content["measures"])}

    def made(self, content: dict[str, Any]) -> str:
        return (
            f"`{content['command']}`, seed {seeds_of(content)}: {time_of(content)}. "
            "The paper shows pictures and gives no number."
        )

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae.experiments.first_person import figure

        model, seed, test = runs[0].models[0], runs[0].task.seed, parts(preset)[2]
        paths = [folder / f"{self.name}{ending}" for ending in (".png", "_rollouts.png", ".gif")]
        figure.draw(model, test, preset.seen, content["measures"], seed, paths[0], paths[1])
        figure.animate(model, test, preset.seen, seed, paths[2])
        return paths


def _of_futures(preset: Preset, model: TDVAE, moments: FrameWindows) -> Measures:
    """What only the jumpy model is asked: spreads of futures, motion, time."""
    t1, jumps = preset.seen, preset.measured
    spread = measuring.spreads(model, moments, t1, jumps, preset.states, preset.futures)
    mean_frame = training_frames(preset)[0].mean(0)
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


def together(by_method: dict[str, Measures], without_model: dict[str, ByJump]) -> Measures:
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
