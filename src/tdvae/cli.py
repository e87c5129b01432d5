"""The command line: `tdvae run`, `fit`, `eval`, `forecast`, `rollout`, `explore`, `bench`, `record`, `convert`.

Each command imports what it needs when it runs. Help, completion and argument errors are therefore fast: they import
neither torch nor any other large dependency.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tdvae import __version__
from tdvae.checks import Range, number, whole
from tdvae.errors import InputError, TDVAEError, failure
from tdvae_paper.registry import EXPERIMENTS

if TYPE_CHECKING:
    ExperimentName = str
else:
    ExperimentName = Literal[tuple(EXPERIMENTS)]  # the choices shown in the help


def _unused_folder(stem: str) -> Path:
    """Return runs/STEM, or the first of runs/STEM-2, -3, … that does not exist, so that no run is overwritten."""
    candidate, number = Path("runs") / stem, 1
    while candidate.exists():
        number += 1
        candidate = Path("runs") / f"{stem}-{number}"
    return candidate


@contextmanager
def _advice_to_resume(folder: Path) -> Iterator[None]:
    """Let an interruption say how to resume, if there is a run by then."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if any(folder.glob("config.json")) or any(folder.glob("*/config.json")):
            interrupt.add_note(f"continue from the last checkpoint with --run-dir {folder} --resume")
        raise


@dataclass(frozen=True)
class Run:
    """Run one of the paper's experiments: train, evaluate, print a table, write results and a figure."""

    experiment: tyro.conf.Positional[ExperimentName]
    """The experiment. oscillator-ablations trains the oscillator's demo preset with one option changed at a time."""
    preset: str | None = None
    """smoke: takes seconds. demo: takes minutes. cpu: the published results. paper: the paper's model and sizes. By
    default the preset of the published results. Not every experiment has all of them."""
    seed: int | None = None
    """Train with this seed only. By default with all seeds of the preset, in parallel on the available cores."""
    run_dir: Path | None = None
    """Run folder. By default a new folder under runs/."""
    out: Path | None = None
    """Also write the results and the figure to this folder."""
    resume: bool = False
    """Resume an interrupted run; needs --run-dir."""

    def main(self) -> None:
        if self.resume and self.run_dir is None:
            raise InputError("--resume: expected a run to resume, given by --run-dir; got none")
        from tdvae_paper import registry
        from tdvae_paper.runner import run

        experiment = registry.load(self.experiment)
        preset = self.preset or experiment.published
        folder = self.run_dir or _unused_folder(f"{self.experiment}-{preset}")
        with _advice_to_resume(folder):
            run(experiment, preset, self.seed, folder, self.out, self.resume)


@dataclass(frozen=True)
class Fit:
    """Fit forecasters to your own sequences, combine them, and evaluate the forecasts on held-out sequences."""

    file: tyro.conf.Positional[Path]
    """A table (.csv, .csv.gz, .parquet, .xlsx): one long series, or several in long format with --id. Arrays (.npz,
    .npy, .h5): x (N, T, …) and optionally lengths (N,), actions (N, T, A), rewards (N, T), observed; floats are
    measurements, bools bits, integers classes, bytes (N, T, rows, columns, channels) pictures. A recording of `tdvae
    record` (.h5)."""
    values: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Columns to forecast, separated by commas; by default all without another role. Arrays: the name of x. Names that
    have commas: --values NAME --values NAME."""
    covariates: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Columns whose future is known (prices, set points, actions), like --values. Arrays: the name of actions."""
    id: str | None = None
    """Tables: the column that tells series apart."""
    time: str | None = None
    """Tables: the column of time stamps. Missing times become missing steps."""
    group: str | None = None
    """Column or array: sequences of one group are not separated by the split."""
    sep: str | None = None
    """What separates the cells of a text file. Detected by default, as the next two."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark of a text file."""
    date_format: str | None = None
    """How dates are written: %d/%m/%Y for 31/12/2024."""
    time_zone: str | None = None
    """The time zone of times without one, and of the calendar: Europe/Berlin."""
    calendar: bool = False
    """Add hour, weekday and month from the time stamps to the covariates, as sine and cosine."""
    window: int | None = None
    """Cut the sequences into windows of this many steps. By default only those that are split by time."""
    stride: int = 1
    """Steps between the starts of successive training windows."""
    split: Literal["auto", "time", "sequence"] = "auto"
    """Split each sequence by time, or by sequence. auto: by time if there are fewer than ten sequences."""
    test_file: Path | None = None
    """Test on this file instead of a part of the first."""
    season: str | None = None
    """Steps of a season, or of several, separated by commas: 48,336. Detected in the training part by default."""
    longest_jump: int = 10
    """Train on jumps of 1 to this many time steps."""
    steps: int = 2_000
    """Training steps of a TD-VAE."""
    minutes: float | None = None
    """A budget of processor time in place of --steps. It is watched while training."""
    patience: int = 8
    """Stop a training after this many of its 20 validations without a better one; 0: never."""
    networks: str | None = None
    """The networks to train, separated by commas: next_step, latent, observed. latent and observed are TD-VAEs; the
    state of observed also has the last observation. By default all three, for vectors of numbers; the worse of the two
    TD-VAEs is stopped early. With several processes one is trained."""
    layers: int | None = None
    """Layers of the latent state. By default chosen for the kind of data, as the next two."""
    latent: int | None = None
    """Size of each layer of the latent state; for pictures its channels."""
    belief: int | None = None
    """Size of the recurrent belief network."""
    batch_size: int | None = None
    """Sequences per training step. By default 32; for pictures 8."""
    seed: int = 0
    """Seed of the data split, the initial weights and the training."""
    devices: int = 1
    """Number of processes on each machine to train with; more than 1 needs torchrun."""
    nodes: int = 1
    """Number of machines to train with; more than 1 needs torchrun and a --run-dir that all machines see."""
    run_dir: Path | None = None
    """Run folder. By default a new folder under runs/."""
    resume: bool = False
    """Resume an interrupted run; needs --run-dir."""
    tensorboard: bool = False
    """Also write TensorBoard logs to the run folder."""

    def main(self) -> None:
        if self.resume and self.run_dir is None:
            raise InputError("--resume: say which run, with --run-dir")
        several = self.devices > 1 or self.nodes > 1
        if several and self.run_dir is None:
            raise InputError("--devices, --nodes: several processes need one --run-dir")
        if several and self.minutes is not None:
            raise InputError("--minutes: expected one process, got --devices or --nodes; say --steps")
        from tdvae.forecasting.command import Options, fit_file

        sizes = {"layers": self.layers, "latent": self.latent, "belief": self.belief, "batch_size": self.batch_size}
        folder = self.run_dir or _unused_folder(self.file.stem)
        _advice_to_resume(folder)(fit_file)(
            self.file,
            Options(
                preparation={
                    "values": _names(self.values),
                    "covariates": _names(self.covariates),
                    "id": self.id,
                    "time": self.time,
                    "group": self.group,
                    "sep": None if self.sep is None else self.sep.replace("\\t", "\t"),
                    "decimal": self.decimal,
                    "date_format": self.date_format,
                    "time_zone": self.time_zone,
                    "longest_jump": self.longest_jump,
                    "calendar": self.calendar,
                    "window": self.window,
                    "stride": self.stride,
                    "split": self.split,
                    "test": self.test_file,
                    "season": None if self.season is None else _numbers("--season", self.season),
                },
                fit={
                    "steps": self.steps,
                    "minutes": self.minutes,
                    "patience": self.patience,
                    "networks": None if self.networks is None else [name.strip() for name in self.networks.split(",")],
                    **{name: size for name, size in sizes.items() if size is not None},
                },
                seed=self.seed,
                settings={"devices": self.devices, "nodes": self.nodes, "tensorboard": self.tensorboard},
            ),
            folder,
            self.resume,
        )


def _names(given: tuple[str, ...]) -> list[str] | None:
    """Names separated by commas; an option that is given several times has one name each, which may have commas."""
    if len(given) == 1:
        return [name.strip() for name in given[0].split(",")]
    return list(given) or None


def _numbers(option: str, text: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option}: expected whole numbers separated by commas, got {text!r}") from error


@dataclass(frozen=True)
class Forecast:
    """Forecast what follows the data of a file, with a run of `tdvae fit`: quantiles in the units of the file."""

    run: tyro.conf.Positional[Path]
    """Run folder of fit."""
    data: Path
    """A file like the one of the training. Values may be missing; covariates must reach as far as the forecasts."""
    steps: str = "1"
    """How many steps ahead, separated by commas. More than the longest trained jump are composed of several jumps."""
    out: Path = Path("forecast.csv")
    """The new file: .csv, .tsv, .parquet or .npz."""
    quantiles: str = "0.05,0.25,0.5,0.75,0.95"
    """Levels of the quantiles, separated by commas."""
    samples: int = 0
    """Also write this many sampled futures."""
    seed: int = 0
    """Seed of the Monte Carlo samples."""

    def main(self) -> None:
        steps = _numbers("--steps", self.steps)
        try:
            levels = [float(part) for part in self.quantiles.split(",")]
        except ValueError as error:
            raise InputError(f"--quantiles: expected numbers separated by commas, got {self.quantiles!r}") from error
        from tdvae.forecasting.command import forecast_file

        forecast_file(self.run, self.data, steps, self.out, levels, self.samples, self.seed)


@dataclass(frozen=True)
class Eval:
    """Evaluate a trained model on held-out sequences. With --json, only the JSON is printed to standard output."""

    run: tyro.conf.Positional[str]
    """Run folder of oscillator, moving-mnist or fit; or a model shipped with the package: oscillator, moving_mnist."""
    data: Path | None = None
    """For runs of fit: evaluate on this file instead of the run's own test part."""
    seed: int = 0
    """Seed of the held-out sequences and of the Monte Carlo samples."""
    json: bool = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        from tdvae_paper.evaluation import evaluate_saved

        evaluate_saved(self.run, self.seed, self.json, self.data)


@dataclass(frozen=True)
class Rollout:
    """Filter one held-out sequence up to a time step, then predict in jumps without further observations."""

    run: tyro.conf.Positional[str]
    """Run folder, or a model shipped with the package: oscillator."""
    start: Annotated[int, tyro.conf.arg(name="from")] = 60
    """Number of observations to filter before the first jump."""
    jumps: str = "20,1,1,1"
    """Lengths of the jumps in time steps, separated by commas."""
    samples: int = 200
    """Number of futures to sample."""
    seed: int = 0
    """Seed of the sequence and of the samples."""
    json: bool = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        lengths = _numbers("--jumps", self.jumps)
        from tdvae_paper.evaluation import rollout_saved

        rollout_saved(self.run, self.start, lengths, self.samples, self.seed, self.json)


@dataclass(frozen=True)
class Explore:
    """Open a local web page that shows beliefs, jumps and possible futures; needs the extra `explorer`."""

    run: tyro.conf.Positional[str | None] = None
    """Run folder of oscillator, moving-mnist or fit, or a shipped model. By default a gallery of all shipped models."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs the token that is then printed."""
    port: int = 8765
    """Port to listen on; 0: a free one."""
    data: Path | None = None
    """For runs of fit: sequences of this file instead of the run's own test part."""
    compare: str | None = None
    """A second run or model, shown on the same sequences."""
    export: Path | None = None
    """Write a static version with precomputed answers to this new folder, instead of serving the page."""

    def main(self) -> None:
        from tdvae.explorer.command import explore

        explore(self.run, self.host, self.port, self.data, self.export, self.compare)


@dataclass(frozen=True)
class Bench:
    """Benchmark training steps and jumps: ratios of times within one run, as median and half the range."""

    what: tyro.conf.Positional[Literal["oscillator", "moving-mnist", "devices", "all"]] = "oscillator"
    """moving-mnist compares with a plain baseline: the training procedure that public implementations share. devices
    compares two processes with one and needs two idle cores; it is not part of all."""
    repeats: int = 7
    """Number of repeated timings."""
    minutes: float = 0.0
    """moving-mnist: train the plain baseline for this long, then measure how soon ours reaches its held-out loss.
    0: skip this comparison."""
    out: Path | None = None
    """Write bench.json and a plot to this folder."""

    def main(self) -> None:
        Range(1).check("--repeats", whole("--repeats", self.repeats))
        Range(0).check("--minutes", number("--minutes", self.minutes))
        from tdvae_paper.bench.bench import bench

        bench(self.what, self.repeats, self.minutes, self.out)


@dataclass(frozen=True)
class Record:
    """Record an agent that walks through a first-person world: frames, actions, rewards, poses."""

    env: tyro.conf.Positional[str]
    """Gymnasium id of an environment with image observations and discrete actions (VizdoomMyWayHome-v1,
    MiniWorld-FourRooms-v0, your own as module:id); deepmind_lab:LEVEL if that module is installed; or
    tdvae/Corridors-v0, which needs no extra package."""
    out: Path
    """Path of the new recording, an HDF5 file that must not exist yet."""
    frames: int = 100_000
    """Number of frames to record."""
    seed: int = 0
    """Seed of the environment and of the agent."""
    episode: int = 300
    """Largest number of frames per episode."""
    size: int = 64
    """Side of a frame in pixels."""
    repeat: int | None = None
    """Number of environment steps each action is repeated. By default 4 in ViZDoom and DeepMind Lab, else 1."""
    moves: tuple[int, int, int] | None = None
    """For your own environment: the indices of the actions that move forward, turn left and turn right. Without them,
    the agent takes random actions, each for several steps."""

    def main(self) -> None:
        from tdvae.data.recording import check_new_file
        from tdvae.envs import first_person
        from tdvae.envs.first_person.report import progress_bar, show_recorded
        from tdvae_paper.first_person.lab import open_world

        check_new_file(self.out)  # before the environment is started
        moves = None if self.moves is None else first_person.Moves(*self.moves)
        world = open_world(self.env, self.repeat, self.size, moves)
        try:
            with progress_bar(self.env, self.frames) as progress:
                summary = first_person.record(
                    world, self.out, self.frames, self.seed, self.episode, self.size, progress=progress
                )
        finally:
            world.close()
        show_recorded(summary)


@dataclass(frozen=True)
class Convert:
    """Convert public recordings of DeepMind Lab (RL Unplugged, TFRecord files) to the format of `record`."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """The TFRecord files, with or without gzip compression."""
    out: Path
    """Path of the new recording, an HDF5 file that must not exist yet."""
    frames: int | None = None
    """Stop after the episode in which this many frames are reached. By default all frames are converted."""
    size: int = 64
    """Side of a frame in pixels."""

    def main(self) -> None:
        from tdvae.envs.first_person.report import progress_bar, show_converted
        from tdvae_paper.first_person import rl_unplugged

        with progress_bar(self.out.name, self.frames) as progress:
            rl_unplugged.convert(self.files, self.out, self.size, self.frames, progress)
        show_converted(self.out)


Command = (
    Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Forecast, tyro.conf.subcommand("forecast")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Explore, tyro.conf.subcommand("explore")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Record, tyro.conf.subcommand("record")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
)


def main() -> None:
    """Run a command. Whatever the user or the machine causes is one line on standard error, without a traceback.

    ``--debug`` or TDVAE_DEBUG=1 shows the traceback.
    """
    debug = "--debug" in sys.argv or os.environ.get("TDVAE_DEBUG", "0") not in ("", "0")
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        if sys.argv[1:] == ["--version"]:
            print(f"tdvae {__version__}")
            return
        command: Run | Fit | Eval | Forecast | Rollout | Explore | Bench | Record | Convert = tyro.cli(
            Command,
            prog="tdvae",
            description="Belief-state world models: train, evaluate and roll out TD-VAE.\n\n"
            "tdvae --version prints the version. tdvae --tyro-print-completion {bash,zsh,tcsh} prints a completion "
            "script. --debug shows the traceback of an error.",
        )
        # The tensors are small: a second thread gains little, and costs much if other processes need the core. torch
        # reads this variable when a command imports it; torch.set_num_threads would need the import here.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        command.main()
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        advice = getattr(interrupt, "__notes__", ["nothing was written"])
        print(f"tdvae: interrupted; {advice[0]}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        if message := failure(error):
            print(f"tdvae: {message}", file=sys.stderr)
        sys.exit(2 if isinstance(error, TDVAEError) else 1)
