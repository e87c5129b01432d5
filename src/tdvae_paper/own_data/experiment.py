"""The experiment on users' data: the recipe of `tdvae fit` on five sets, scored by δt beside other forecasters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from tdvae.forecasting.evaluation import Evaluation, evaluate, model_scores

from tdvae.forecasting import OwnData, Recipe, candidates, recipe
from tdvae.forecasting.monitor import ForecastMonitor
from tdvae.forecasting.origins import Origins, held_out_origins
from tdvae.forecasting.recipe import StateKind
from tdvae.forecasting.verdict import LABELS, Comparison, list_dt, verdict
from tdvae.models import TDVAE, Model
from tdvae.models.config import LatentConfig
from tdvae.objectives import Learner
from tdvae.reporting.results import Measures
from tdvae.reporting.tables import Block, Table, by_key
from tdvae_paper.experiment import Experiment, Task, TrainedRun, Training, by_seed
from tdvae_paper.own_data import peers
from tdvae_paper.own_data.sets import SERIES, load

SETS = {
    "elnino": "El Niño sea temperatures",
    "sunspots": "sunspots",
    "co2": "carbon dioxide",
    "japanese_vowels": "Japanese vowels",
    "pendulum": "pendulum with hidden velocity",
}
HORIZONS = (1, 2, 5, 10, 20)
SHORTEST_VOWEL = 7  # steps; a jump may not be longer
MOST_ORIGINS = 500  # of forecasts in the test part
BASELINES = ("last_value", "seasonal", "linear", "marginal")
PEERS = {"next_step": "next-step predictor", "auto_arima": "AutoARIMA", "auto_ets": "AutoETS"}


@dataclass(frozen=True)
class Preset:
    """Settings of data, models and trainings."""

    sets: tuple[str, ...] = tuple(SETS)
    sequences: int = 400  # of the pendulum
    length: int = 60  # of the pendulum
    steps: int = 1_000
    next_step_steps: int = 3_000  # about the same time
    samples: int = 200
    horizons: tuple[int, ...] = HORIZONS
    peers: bool = True  # compare with AutoARIMA and AutoETS, which need the extra `peers`
    model: dict[str, Any] = field(default_factory=dict)  # model options that differ from the recipe's
    seeds: tuple[int, ...] = (0, 1, 2)

    def horizons_of(self, name: str) -> tuple[int, ...]:
        longest = SHORTEST_VOWEL if name == "japanese_vowels" else max(self.horizons)
        return tuple(dt for dt in self.horizons if dt <= longest)


PRESETS = {
    "smoke": Preset(
        ("pendulum",),
        sequences=20,
        length=24,
        steps=2,
        next_step_steps=2,
        samples=4,
        horizons=(1, 5),
        peers=False,
        model={"latent": 2, "hidden": 8, "belief": 6, "readout": 8, "readout_hidden": 8},
        seeds=(0,),
    ),
    "cpu": Preset(),
}


def _own_data(preset: Preset, task: Task) -> OwnData:
    name = _set_of(task)
    return load(name, max(preset.horizons_of(name)), task.seed, preset.sequences, preset.length)


def _set_of(task: Task) -> str:
    return task.variant.partition(",")[0]


def origins_of(own: OwnData) -> Origins:
    return held_out_origins(own.test.sequences, own.test.context, own.longest_jump, MOST_ORIGINS)


class OwnDataSets(Experiment[Preset]):
    """For each data set and seed, one training of the recipe's model and one of a next-step predictor."""

    name = "own_data"
    title = "forecasts of users' data"
    presets = PRESETS

    def tasks(self, preset: Preset, seeds: list[int]) -> list[Task]:
        return [
            Task(seed, f"{name}-{model}-seed-{seed}", f"{name},{model}")
            for seed in seeds
            for name in preset.sets
            for model in ("tdvae", "next_step")
        ]

    def training(self, preset: Preset, task: Task) -> Training:
        own = _own_data(preset, task)
        chosen = recipe(own, steps=preset.steps, seed=task.seed, **preset.model)
        if not task.variant.endswith("next_step"):
            start = partial(candidates(own, preset.steps, task.seed, **preset.model).fit, own)
            return Training(chosen.learner, own.train, chosen.jumps, chosen.config, own.validation, start=start)
        chosen = _next_step(chosen, preset, task)
        model, checked = chosen.learner.model, own.validated
        monitor = ForecastMonitor.up_to(own.longest_jump, model, checked.sequences, task.seed, checked.context)
        return Training(chosen.learner, own.train, chosen.jumps, chosen.config, own.validation, monitor=monitor)

    def measure(self, preset: Preset, task: Task, models: list[Model]) -> Measures:
        own, horizons = _own_data(preset, task), preset.horizons_of(_set_of(task))
        if not task.variant.endswith("next_step"):
            evaluation = _evaluation(preset, own, horizons, task.seed, models[0])
            return {**evaluation.with_differences(), "state": _state_of(models[0])}
        origins, test = origins_of(own), own.test.sequences
        used = {dt: origins.with_target(test, dt) for dt in horizons}
        scores = model_scores(models[0], own.history, test, used, task.seed, preset.samples)
        return Evaluation({"next_step": scores}, {}).measures

    def combine(self, preset: Preset, measures: dict[Task, Measures]) -> list[Measures]:
        series = [name for name in preset.sets if preset.peers and name in SERIES]
        known = {name: peers.measures(name, preset.horizons) for name in series}
        replicates = []
        for variants in by_seed(measures).values():
            nested: Measures = {}
            for name in preset.sets:
                for found in (variants[f"{name},tdvae"], variants[f"{name},next_step"], known.get(name, {})):
                    for measure, value in found.items():
                        nested.setdefault(measure, {}).setdefault(name, {}).update(value)
            replicates.append(nested)
        return replicates

    def tables(self, content: dict[str, Any]) -> dict[str, list[Block]]:
        measures = content["measures"]
        return {
            **{f"{self.name}_{measure}": _blocks(measures, measure) for measure in ("nll", "crps", "rmse")},
            f"{self.name}_coverage": [_coverage(measures)],
            f"{self.name}_state": [_states(measures)],
            self.name: [f"{SETS[name]}: {text}" for name, text in verdicts(measures).items()],
        }

    def draw(self, preset: Preset, content: dict[str, Any], runs: list[TrainedRun], folder: Path) -> list[Path]:
        from tdvae_paper.own_data.figure import draw

        shown = {_set_of(run.task): run for run in reversed(runs) if run.task.variant.endswith("tdvae")}
        found = {}
        for name in preset.sets:
            task, model = shown[name].task, shown[name].models[0]
            own = _own_data(preset, task)
            evaluation = _evaluation(preset, own, preset.horizons_of(name), task.seed, model)
            found[name] = (SETS[name], model, own.test.sequences, origins_of(own), evaluation)
        return [draw(folder / f"{self.name}.png", found, content["measures"], {**LABELS, **PEERS})]


def _evaluation(preset: Preset, own: OwnData, horizons: tuple[int, ...], seed: int, model: Model) -> Evaluation:
    test = own.test.sequences
    return evaluate(model, own.history, test, horizons, seed=seed, origins=origins_of(own), samples=preset.samples)


def _state_of(model: Model) -> dict[str, float]:
    """1 for the state that was chosen, 0 for the others; the mean over seeds is how often it was chosen."""
    assert isinstance(model, TDVAE)
    assert isinstance(model.config, LatentConfig)
    chosen = "linear" if model.linear is not None else "observed" if model.config.observed_state else "latent"
    return {kind: float(kind == chosen) for kind in get_args(StateKind)}


def _next_step(chosen: Recipe, preset: Preset, task: Task) -> Recipe:
    """A next-step predictor in place of the recipe's model, with the same belief network and training."""
    model = peers.next_step(chosen.learner.model, task.seed)
    steps = preset.next_step_steps
    every = max(1, steps // 20)
    config = replace(chosen.config, steps=steps, validate_every=every, checkpoint_every=every)
    return replace(chosen, learner=Learner(model), config=config)


def verdicts(measures: Measures) -> dict[str, str]:
    """The verdict on each set, from the means over seeds, and where the model is behind what users would pick."""
    found = {}
    for name, differences in measures["nll_difference"].items():
        nll = {label: of for label, of in measures["nll"][name].items() if label in BASELINES}
        comparisons = {}
        for dt, difference in differences.items():
            best = min(nll, key=lambda label: nll[label][dt]["mean"])
            error = measures["nll_difference_error"][name][dt]["mean"]
            comparisons[int(dt)] = Comparison(best, difference["mean"], error)
        found[name] = " ".join([verdict(comparisons), *_peers_ahead(measures["nll"][name])])
    return found


def _peers_ahead(nll: Measures) -> list[str]:
    """A sentence for each of the peers with a lower NLL than the model, on average over seeds."""
    found = []
    for name in PEERS.keys() & nll.keys():
        dts = [int(dt) for dt, entry in nll[name].items() if entry["mean"] < nll["tdvae"][dt]["mean"]]
        if dts:
            found.append(f"{PEERS[name]} has a lower NLL at {list_dt(dts)}.")
    return sorted(found)


def _blocks(measures: Measures, measure: str) -> list[Block]:
    """A table for each set: a row for each forecaster, a column for each δt."""
    return [
        by_key(((_label(label), values) for label, values in by_forecaster.items()), "δt = {}", SETS[name])
        for name, by_forecaster in measures[measure].items()
    ]


def _coverage(measures: Measures) -> Block:
    """The coverage of the model and, for series, of AutoARIMA."""
    rows = [
        (f"{SETS[name]}, {width} %: {_label(forecaster)}", measures[f"coverage_{width}"][name][forecaster])
        for name, by_forecaster in measures["coverage_50"].items()
        for width in (50, 90)
        for forecaster in ("tdvae", "auto_arima")
        if forecaster in by_forecaster
    ]
    return by_key(rows, "δt = {}", "share inside the interval")


def _states(measures: Measures) -> Block:
    """How many of the seeds chose each state."""
    rows = [
        [SETS[name], *(str(round(entry["mean"] * entry["n"])) for entry in by_kind.values())]
        for name, by_kind in measures.get("state", {}).items()
    ]
    return Table(["chosen state, number of seeds", *get_args(StateKind)], rows)


def _label(forecaster: str) -> str:
    return PEERS.get(forecaster) or LABELS[forecaster]
