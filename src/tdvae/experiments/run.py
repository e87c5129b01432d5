"""Run an experiment: train its runs, gather their measures, write results and figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tdvae import saved
from tdvae.errors import InputError
from tdvae.experiments import (
    first_person,
    first_person_figure,
    minipacman,
    minipacman_figure,
    moving_mnist,
    moving_mnist_figure,
    oscillator,
    oscillator_ablations,
    oscillator_figure,
    switching,
    switching_figure,
)
from tdvae.experiments.jobs import Job, check_folders, do_all
from tdvae.experiments.report import Measures, results, show_by_key, show_flat, show_table, write_results
from tdvae.training import FitResult
from tdvae.training.log import Progress

P = TypeVar("P")


def run_oscillator(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train a preset's seeds, each in a folder of ``run_dir``; write results and figure there and into ``out``."""
    preset = _preset(oscillator.PRESETS, name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    progress: Progress = "bar" if len(seeds) == 1 else "lines"
    jobs = [
        Job(
            run_dir / f"seed-{s}",
            partial(oscillator.train, preset, name, s),
            partial(oscillator.measure, preset, s),
            resume,
            progress,
        )
        for s in seeds
    ]
    finished = do_all(jobs)
    content = results(
        oscillator.NAME, name, seeds, time.monotonic() - begin, [done.measures for done in finished], oscillator.PAPER
    )
    content["train_seconds"] = {str(s): done.train_seconds for s, done in zip(seeds, finished, strict=True)}
    show_table(f"oscillator, preset {name}, {len(seeds)} seed(s)", content["measures"], oscillator.TABLE)
    model = saved.load(jobs[0].run_dir)
    for folder in _write(oscillator.NAME, content, run_dir, out):
        oscillator_figure.draw(model, preset.settings, seeds[0], folder / "oscillator.png")
        print(f"wrote {folder / 'oscillator.png'}")
    print(f"try: tdvae rollout {jobs[0].run_dir} --from 60 --jumps 20,1,1,1")


def run_ablations(seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train the recipe and each of its variants once; write their forecasts side by side."""
    (seed,) = _seeds((0,), seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    variants = oscillator_ablations.VARIANTS
    jobs = [
        Job(
            run_dir / name,
            partial(oscillator.train, variant, name, seed),
            partial(oscillator.measure, variant, seed),
            resume,
            "lines",
        )
        for name, variant in variants.items()
    ]
    finished = dict(zip(variants, do_all(jobs), strict=True))
    measures = oscillator_ablations.by_variant({name: done.measures for name, done in finished.items()})
    content = results("oscillator_ablations", "demo", [seed], time.monotonic() - begin, [measures], {})
    content["train_seconds"] = {name: done.train_seconds for name, done in finished.items()}
    show_by_key("oscillator: one change at a time", content["measures"], oscillator_ablations.TABLE)
    _write("oscillator_ablations", content, run_dir, out)


def run_moving_mnist(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train a preset's seeds with δt withheld and with δt given; write results, figure and film."""
    preset = _preset(moving_mnist.PRESETS, name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    judge = run_dir / "classifier"
    moving_mnist.judge_of(preset, judge)  # once, before the runs that share it
    variants = [(s, given_dt) for given_dt in (False, True) for s in seeds]
    jobs = [
        Job(
            run_dir / (f"seed-{s}-dt" if given_dt else f"seed-{s}"),
            partial(moving_mnist.train, preset, name, s, given_dt),
            partial(moving_mnist.measure, preset, s, given_dt, judge),
            resume,
            "lines",
        )
        for s, given_dt in variants
    ]
    finished = do_all(jobs)
    measures = [moving_mnist.both(finished[i].measures, finished[len(seeds) + i].measures) for i in range(len(seeds))]
    content = results(moving_mnist.NAME, name, seeds, time.monotonic() - begin, measures, moving_mnist.PAPER)
    content["train_seconds"] = {job.run_dir.name: done.train_seconds for job, done in zip(jobs, finished, strict=True)}
    show_flat(f"moving MNIST, preset {name}, {len(seeds)} seed(s)", content["measures"], moving_mnist.TABLE)
    model, test = saved.load(jobs[0].run_dir), moving_mnist.held_out(preset, seeds[0])
    for folder in _write(moving_mnist.NAME, content, run_dir, out):
        moving_mnist_figure.draw(model, test, content["measures"], seeds[0], folder / "moving_mnist.png")
        moving_mnist_figure.animate(model, test, seeds[0], folder / "moving_mnist.gif")
        print(f"wrote {folder / 'moving_mnist.png'} and {folder / 'moving_mnist.gif'}")


def run_switching(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train a stack of runs for each size and method; write and draw the grid of accuracies beside the exact limit."""
    preset = _preset(switching.PRESETS, name)
    (seed,) = _seeds((0,), seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    wanted = [(size, method) for size in sorted(preset.sizes, reverse=True) for method in switching.METHODS]
    jobs = {
        (size, method): Job(
            run_dir / f"lstm={size},{method}",
            partial(switching.train, preset, size, method, seed),
            partial(switching.measure, preset, size, method, seed),
            resume,
            "lines",
        )
        for size, method in wanted
    }
    finished = dict(zip(wanted, do_all(list(jobs.values())), strict=True))
    by_run = switching.gather({key: done.measures for key, done in finished.items()}, preset)
    content = results(switching.NAME, name, [seed], time.monotonic() - begin, by_run, switching.PAPER)
    content["measures"]["accuracy_bayes"] = switching.limit(preset, seed)
    content["train_seconds"] = {
        f"lstm={size},{method}": done.train_seconds for (size, method), done in finished.items()
    }
    show_by_key(f"switching, preset {name}, {preset.runs} runs a cell", content["measures"], switching.TABLE)
    curves = {
        (size, interval, method): switching.learning_curve(job.run_dir, interval)
        for (size, method), job in jobs.items()
        for interval in preset.intervals
    }
    for folder in _write(switching.NAME, content, run_dir, out):
        switching_figure.draw(preset, content["measures"], curves, folder / "switching.png")
        print(f"wrote {folder / 'switching.png'}")


def run_minipacman(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Train the three models on a preset's seeds; write and draw how they compare."""
    preset = _preset(minipacman.PRESETS, name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    jobs = _by_method(minipacman.METHODS, minipacman.train, minipacman.measure, preset, name, seeds, run_dir, resume)
    finished = dict(zip(jobs, do_all(list(jobs.values())), strict=True))
    measures = [
        minipacman.together({method: finished[method, s].measures for method in minipacman.METHODS}) for s in seeds
    ]
    content = results(minipacman.NAME, name, seeds, time.monotonic() - begin, measures, minipacman.PAPER)
    content["train_seconds"] = {jobs[key].run_dir.name: done.train_seconds for key, done in finished.items()}
    content["parameters"] = minipacman.parameters(preset)
    show_table(f"MiniPacman, preset {name}, {len(seeds)} seed(s)", content["measures"], minipacman.TABLE, columns="")
    model = saved.load(jobs["tdvae", seeds[0]].run_dir)
    curves = {f"{method},{s}": minipacman.learning_curve(job.run_dir) for (method, s), job in jobs.items()}
    probed = minipacman.probed(preset, seeds[0])
    for folder in _write(minipacman.NAME, content, run_dir, out):
        minipacman_figure.draw(
            model, *probed, preset.reader_steps, content["measures"], curves, seeds[0], folder / "minipacman.png"
        )
        print(f"wrote {folder / 'minipacman.png'}")


def run_first_person(name: str, seed: int | None, run_dir: Path, out: Path | None, resume: bool) -> None:
    """Record the walk if it is not there, train the jumpy model and the step-by-step one, compare and draw them."""
    preset = _preset(first_person.PRESETS, name)
    seeds = _seeds(preset.seeds, seed)
    check_folders(run_dir, out, resume)
    begin = time.monotonic()
    test = first_person.parts(preset)[2]  # recorded once, before the runs that share it
    jobs = _by_method(
        first_person.METHODS, first_person.train, first_person.measure, preset, name, seeds, run_dir, resume
    )
    finished = dict(zip(jobs, do_all(list(jobs.values())), strict=True))
    without_model = first_person.baselines(preset)
    measures = [
        first_person.together({method: finished[method, s].measures for method in first_person.METHODS}, without_model)
        for s in seeds
    ]
    content = results(first_person.NAME, name, seeds, time.monotonic() - begin, measures, first_person.PAPER)
    content["train_seconds"] = {jobs[key].run_dir.name: done.train_seconds for key, done in finished.items()}
    first_person.show(content["measures"], f"first-person, preset {name}, {len(seeds)} seed(s)")
    model = saved.load(jobs["tdvae", seeds[0]].run_dir)
    for folder in _write(first_person.NAME, content, run_dir, out):
        first_person_figure.draw(
            model, test, preset.seen, content["measures"], seeds[0], folder / f"{first_person.NAME}.png"
        )
        first_person_figure.animate(model, test, preset.seen, seeds[0], folder / f"{first_person.NAME}.gif")
        print(f"wrote {folder / first_person.NAME}.png, _rollouts.png and .gif")


RUNNERS = {
    "first-person": run_first_person,
    "switching": run_switching,
    "oscillator": run_oscillator,
    "moving-mnist": run_moving_mnist,
    "minipacman": run_minipacman,
}


def _by_method(
    methods: Iterable[str],
    train: Callable[..., FitResult],
    measure: Callable[..., Measures],
    preset: object,
    name: str,
    seeds: list[int],
    run_dir: Path,
    resume: bool,
) -> dict[tuple[str, int], Job]:
    """A training of each method for each seed, in a folder of its own."""
    return {
        (method, s): Job(
            run_dir / f"{method}-seed-{s}",
            partial(train, preset, name, method, s),
            partial(measure, preset, method, s),
            resume,
            "lines",
        )
        for s in seeds
        for method in methods
    }


def _preset(presets: dict[str, P], name: str) -> P:
    if name not in presets:
        raise InputError(f"preset: this experiment has {', '.join(presets)}; got {name}")
    return presets[name]


def _seeds(of_preset: tuple[int, ...], chosen: int | None) -> list[int]:
    if chosen is not None and chosen < 0:
        raise InputError(f"seed: expected at least 0, got {chosen}")
    return list(of_preset) if chosen is None else [chosen]


def _write(name: str, content: dict[str, Any], run_dir: Path, out: Path | None) -> list[Path]:
    """The results into the run's folder and the one asked for; returns both, for figures to follow."""
    folders = [run_dir, *([out] if out else [])]
    for folder in folders:
        write_results(folder / f"{name}.json", content)
        print(f"wrote {folder / f'{name}.json'}")
    return folders
