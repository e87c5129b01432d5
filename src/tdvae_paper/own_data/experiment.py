"""The experiment on users' data: `tdvae fit` on eight sets, scored by horizon beside other forecasters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tdvae.forecasting import Forecaster, OwnData, fit_forecaster
from tdvae.forecasting.evaluation import (
    LABELS,
    Evaluation,
    comparisons,
    evaluate,
    evaluation_origins,
    list_steps,
    verdict,
)
from tdvae.forecasting.fitting import FOLDER
from tdvae.forecasting.predictors import scored_horizons
from tdvae.models import LSTM, ResidualMaps
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, by_key
from tdvae.training import FitResult
from tdvae.training.log import Progress
from tdvae_paper.experiment import Experiment, Task, TrainedRun, by_seed
from tdvae_paper.own_data import peers
from tdvae_paper.own_data.limit import lorenz_limit
from tdvae_paper.own_data.sets import SERIES, load

SETS = {
    "elnino": "El Niño sea temperatures",
    "sunspots": "sunspots",
    "co2": "carbon dioxide",
    "japanese_vowels": "Japanese vowels",
    "pendulum": "pendulum with hidden velocity",
    "lorenz": "Lorenz, one noisy coordinate",
    "lorenz_gaps": "Lorenz with missing values",
    "two_seasons": "demand with two seasons",
}
LONGEST = {"japanese_vowels": 7, "two_seasons": 48}  # the shortest vowel has 7 steps, a day 48
SIZES = {"pendulum": (400, 60), "lorenz": (300, 100), "lorenz_gaps": (300, 100), "two_seasons": (12, 336)}
LORENZ_STEPS = 1_500  # where they are measured apart
STEPS = {"elnino": 100, "sunspots": 100, "co2": 100, "two_seasons": 400}  # few numbers, and long windows
OTHERS = {"limit": "limit (particle filter)", "auto_arima": "AutoARIMA", "auto_ets": "AutoETS"}
MEMBERS = {"latent": "TD-VAE", "observed": "TD-VAE with observed state"}


@dataclass(frozen=True)
class Preset:
    """Settings of data, models and trainings."""

    sets: tuple[str, ...] = tuple(SETS)
    sizes: dict[str, tuple[int, int]] = field(default_factory=lambda: SIZES)  # of simulated sets: sequences, length
    longest: int = 20
    steps: int = 900
    steps_of: dict[str, int] = field(default_factory=lambda: STEPS)
    samples: int = 200
    particles: int = 2_000
    peers: bool = True  # compare with AutoARIMA and AutoETS, which need the extra `peers`
    model: dict[str, Any] = field(default_factory=dict)  # model options that differ from the recipe's
    seeds: tuple[int, ...] = (0, 1, 2)

    def longest_of(self, name: str) -> int:
        return min(LONGEST.get(name, self.longest), self.longest) if self.longest < 20 else LONGEST.get(name, 20)

    def data(self, task: Task) -> OwnData:
        return load(task.variant, self.longest_of(task.variant), task.seed, *self.sizes.get(task.variant, (0, 0)))


PRESETS = {
    "smoke": Preset(
        ("pendulum", "lorenz_gaps"),
        sizes={"pendulum": (20, 24), "lorenz_gaps": (20, 24)},
        longest=5,
        steps=2,
        samples=4,
        particles=20,
        peers=False,
        model={"latent": 2, "maps": ResidualMaps(8), "belief": LSTM(6)},
        seeds=(0,),
    ),
    "cpu": Preset(),
}


class OwnDataSets(Experiment[Preset]):
    """For each data set and seed, one fit of all forecasters and their combination."""

    name = "own_data"
    title = "forecasts of users' data"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [Task(seed, f"{name}-seed-{seed}", name) for seed in seeds for name in preset.sets]

    def training(self, preset: Preset, task: Task) -> Callable[..., FitResult]:
        steps = min(preset.steps, preset.steps_of.get(task.variant, preset.steps))
        return partial(_fit, preset.data(task), steps, task.seed, preset.model)

    def measure_run(self, preset: Preset, run: TrainedRun) -> Measures:
        own, forecaster = preset.data(run.task), Forecaster.load(run.folder)
        found = {**_evaluation(preset, own, forecaster, run.task.seed).with_differences()}
        assert forecaster.info is not None
        found["seconds"] = forecaster.info["cpu_seconds"]
        if run.task.variant.startswith("lorenz"):
            at = evaluation_origins(own.test, own.longest_jump)
            used = {h: at.with_target(own.test.sequences, h) for h in scored_horizons(own.longest_jump)}
            limit = lorenz_limit(own, {h: o for h, o in used.items() if len(o)}, preset.particles, run.task.seed)
            found["nll"]["limit"] = {str(h): value for h, value in limit.items()}
        return found

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        series = [name for name in preset.sets if preset.peers and name in SERIES]
        known = {name: peers.measures(name, scored_horizons(preset.longest_of(name))) for name in series}
        replicates = []
        for variants in by_seed(measures).values():
            nested: Measures = {}
            for name in preset.sets:
                for found in (variants[name], known.get(name, {})):
                    for measure, value in found.items():
                        if isinstance(value, dict):
                            nested.setdefault(measure, {}).setdefault(name, {}).update(value)
                        else:
                            nested.setdefault(measure, {})[name] = value
            replicates.append(nested)
        return [_shared(each, replicates) for each in replicates]

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        measures = content["measures"]
        return {
            **{f"{self.name}_{measure}": _blocks(measures, measure) for measure in ("nll", "crps", "rmse")},
            f"{self.name}_coverage": [_coverage(measures)],
            f"{self.name}_weights": _blocks(measures, "weights"),
            self.name: [f"{SETS[name]}: {text}" for name, text in verdicts(measures).items()],
        }

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.own_data.figure import draw_fans, draw_skill

        first = {run.task.variant: run for run in reversed(runs)}
        shown, longest = {}, {}
        for name in preset.sets:
            own, stack = preset.data(first[name].task), Forecaster.load(first[name].folder).stack
            assert stack is not None
            origins = evaluation_origins(own.test, own.longest_jump)
            shown[name] = (SETS[name], stack, own.test.sequences, origins)
            longest[name] = max(map(int, content["measures"]["nll"][name]["combination"]))
        titles = {name: SETS[name] for name in preset.sets}
        return [
            draw_skill(folder / f"{self.name}.png", content["measures"], titles, {**LABELS, **OTHERS}),
            draw_fans(folder / f"{self.name}_fans.png", shown, longest),
        ]


class Lorenz(OwnDataSets):
    """The set that has what TD-VAE is made for: noise, and observations that show a part of the state."""

    name = "own_data_lorenz"
    title = "forecasts of Lorenz' system"
    presets = {  # noqa: RUF012
        "smoke": replace(PRESETS["smoke"], sets=("lorenz",), sizes={"lorenz": (20, 24)}),
        "cpu": Preset(("lorenz",), steps=LORENZ_STEPS, peers=False),
    }


def _fit(
    own: OwnData,
    steps: int,
    seed: int,
    model: dict[str, Any],
    run_dir: Path,
    resume: bool,
    info: dict[str, Any],
    progress: Progress,
) -> FitResult:
    """Fit the forecasters. A fit that was stopped before its end is resumed."""
    resume = resume or (run_dir / FOLDER).is_dir()
    fitted = fit_forecaster(own, run_dir, steps, seed, resume=resume, info=info, progress=progress, **model)
    assert fitted.info is not None
    trained = fitted.info["trained"][fitted.info["main"]]
    return FitResult(run_dir, trained, trained, None, fitted.info["cpu_seconds"])


def _evaluation(preset: Preset, own: OwnData, forecaster: Forecaster, seed: int) -> Evaluation:
    return evaluate(
        forecaster.model,
        forecaster.stack,
        own.history,
        own.test,
        own.longest_jump,
        own.seasons,
        seed,
        samples=preset.samples,
    )


def _shared(measures: Any, others: Iterable[Any]) -> Any:
    """The entries that all replicates have: a season may be found with some seeds only."""
    if not isinstance(measures, dict):
        return measures
    others = list(others)
    return {
        key: _shared(value, [other[key] for other in others])
        for key, value in measures.items()
        if all(key in other for other in others)
    }


def verdicts(measures: Measures) -> dict[str, str]:
    """The verdict on each set, from the means over seeds, and where the combination is behind what users would pick."""
    found = {}
    for name in measures["nll_difference"]:
        own = {key: of[name] for key, of in measures.items() if isinstance(of, dict) and name in of}
        origins = {int(h): round(entry["mean"]) for h, entry in own["origins"].items()}
        found[name] = " ".join([verdict(comparisons(own["nll"], own), origins), *_peers_ahead(own["nll"])])
    return found


def _peers_ahead(nll: Measures) -> list[str]:
    """A sentence for each of the peers with a lower NLL than the combination, on average over seeds."""
    found = []
    for name in sorted(("auto_arima", "auto_ets")):
        ahead = [int(h) for h, e in nll.get(name, {}).items() if e["mean"] < nll["combination"][h]["mean"]]
        if ahead:
            found.append(f"{OTHERS[name]} has a lower NLL at {list_steps(ahead)}.")
    return found


def _blocks(measures: Measures, measure: str) -> list[Block]:
    """A table for each set: a row for each forecaster, a column for each horizon."""
    return [
        by_key(((_label(label), values) for label, values in by_forecaster.items()), "{} steps", SETS[name])
        for name, by_forecaster in measures[measure].items()
    ]


def _coverage(measures: Measures) -> Block:
    """The coverage of the combination and, for series, of AutoARIMA."""
    rows = [
        (f"{SETS[name]}, {width} %: {_label(forecaster)}", measures[f"coverage_{width}"][name][forecaster])
        for name, by_forecaster in measures["coverage_50"].items()
        for width in (50, 90)
        for forecaster in ("combination", "auto_arima")
        if forecaster in by_forecaster
    ]
    return by_key(rows, "{} steps", "share inside the interval")


def _label(forecaster: str) -> str:
    return OTHERS.get(forecaster) or MEMBERS.get(forecaster) or LABELS[forecaster]
