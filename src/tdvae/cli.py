"""The command line: `tdvae run`, `fit`, `eval`, `forecast`, `rollout`, `explore`, `bench`, `record`, `convert`.

Each command imports what it needs when it runs. Help, completion and argument errors are therefore fast: they import
neither torch nor any other large dependency.
"""

from __future__ import annotations

import csv
import os
import re
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


MOST_STEPS = 100_000  # in a range of horizons


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
        from tdvae.storage.run_folder import is_started

        if is_started(folder):
            interrupt.add_note(f"continue from the last checkpoint with --run-dir {folder} --resume")
        raise


def _shown_default(value: str) -> str:
    """What the help says of a default; nothing where the text says what happens without the option."""
    return "" if value in ("None", "False", "") else f"(default: {value})"


def option(placeholder: str, name: str | None = None) -> object:
    """An option with this placeholder in the help."""
    return tyro.conf.arg(name=name, metavar=placeholder, help_behavior_hint=_shown_default)


Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
Names = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAMES", help_behavior_hint="")]
RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
RunOrName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
DataFile = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class Run:
    """Run one of the paper's experiments: train, evaluate, print a table, write results and a figure.

    tdvae run oscillator --preset demo
    """

    experiment: Annotated[tyro.conf.Positional[ExperimentName], tyro.conf.arg(help_behavior_hint="")]
    """The experiment. oscillator-ablations trains the oscillator's demo preset with one option changed at a time."""
    preset: Annotated[str | None, option("PRESET")] = None
    """smoke: a check that takes seconds, not a training. demo: takes minutes. cpu: the published results. paper: the
    paper's model and sizes. By default the preset of the published results. Not every experiment has all of them."""
    seed: Annotated[int | None, option("N")] = None
    """Train with this seed only. By default with all seeds of the preset, in parallel on the available cores."""
    run_dir: Annotated[Path | None, option("FOLDER")] = None
    """Run folder. By default a new folder under runs/."""
    out: Annotated[Path | None, option("FOLDER")] = None
    """Also write the results and the figure to this folder."""
    resume: Flag = False
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
class Data:
    """How the file is read. Separators, decimal marks, dates and seasons are detected by default."""

    values: Names = ()
    """Columns to forecast, separated by commas; by default all without another role. Arrays: the name of x. Names that
    have commas are put in double quotes: --values '"a, b",c'."""
    covariates: Names = ()
    """Columns whose future is known (prices, set points, actions), like --values. Arrays: the name of actions."""
    id: Annotated[str | None, option("COLUMN")] = None
    """Tables: the column that tells series apart."""
    time: Annotated[str | None, option("COLUMN")] = None
    """Tables: the column of time stamps. Missing times become missing steps."""
    calendar: Flag = False
    """Add hour, weekday and month from the time stamps to the covariates, as sine and cosine."""
    season: Annotated[str | None, option("STEPS")] = None
    """Steps of a season, or of several, separated by commas: 48,336."""
    sep: Annotated[str | None, option("CHARACTER")] = None
    """What separates the cells of a text file."""
    decimal: Annotated[Literal[".", ","] | None, option("{.,,}")] = None
    """The decimal mark of a text file."""
    date_format: Annotated[str | None, option("FORMAT")] = None
    """How dates are written: %d/%m/%Y for 31/12/2024."""
    time_zone: Annotated[str | None, option("ZONE")] = None
    """The time zone of times without one, and of the calendar: Europe/Berlin."""


@dataclass(frozen=True)
class Split:
    """Which part is for training, validation and test. No test target is seen in training."""

    split: Annotated[Literal["auto", "time", "sequence"], option("{auto,time,sequence}")] = "auto"
    """Split each sequence by time, or by sequence. auto: by time if there are fewer than ten sequences."""
    group: Annotated[str | None, option("COLUMN")] = None
    """Column or array: sequences of one group are not separated by the split."""
    test_file: Annotated[Path | None, option("FILE")] = None
    """Test on this file instead of a part of the first."""
    window: Annotated[int | None, option("STEPS")] = None
    """Cut the sequences into windows of this many steps. By default only those that are split by time."""
    stride: Annotated[int, option("STEPS")] = 1
    """Steps between the starts of successive training windows."""


@dataclass(frozen=True)
class Training:
    """How long and on what is trained. A training ends early if its forecasts get no better."""

    longest_jump: Annotated[int, option("STEPS")] = 10
    """Train on jumps of 1 to this many time steps: the longest horizon that is forecast in one jump."""
    steps: Annotated[int, option("N")] = 2_000
    """Training steps of each network."""
    minutes: Annotated[float | None, option("MINUTES")] = None
    """A budget of processor time in place of --steps, for the trainings and their evaluation."""
    patience: Annotated[int, option("N")] = 8
    """Stop a training after this many of its 20 validations without a better one; 0: never."""
    batch_size: Annotated[int | None, option("N")] = None
    """Sequences per training step. By default 32; for pictures 8."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the data split, the initial weights and the training."""
    accelerator: Annotated[Literal["auto", "cpu", "cuda", "mps"], option("{auto,cpu,cuda,mps}")] = "auto"
    """The processor to train on. auto: a graphics card if there is one."""
    devices: Annotated[int, option("N")] = 1
    """Number of processes on each machine to train with; more than 1 needs torchrun."""
    nodes: Annotated[int, option("N")] = 1
    """Number of machines to train with; more than 1 needs torchrun and a --run-dir that all machines see."""


@dataclass(frozen=True)
class Networks:
    """What is trained. The sizes suit the kind of data by default."""

    networks: Annotated[str | None, option("NAMES")] = None
    """The networks to train, separated by commas: next_step, latent, observed. latent and observed are TD-VAEs; the
    state of observed also has the last observation. By default all three, for vectors of numbers; the worse of the two
    TD-VAEs is stopped early. Pictures have latent, a TD-VAE of codes, or convolutional, one of pixels. With several
    processes one is trained."""
    layers: Annotated[int | None, option("N")] = None
    """Layers of the latent state."""
    latent: Annotated[int | None, option("N")] = None
    """Size of each layer of the latent state; for pictures its channels."""
    belief: Annotated[int | None, option("N")] = None
    """Size of the recurrent belief network."""


@dataclass(frozen=True)
class Output:
    """Where the run is written, and what is printed."""

    run_dir: Annotated[Path | None, option("FOLDER")] = None
    """Run folder. By default a new folder under runs/."""
    resume: Flag = False
    """Resume an interrupted run; needs --run-dir."""
    overwrite: Flag = False
    """Replace the run in --run-dir."""
    tensorboard: Flag = False
    """Also write TensorBoard logs to the run folder."""
    verbose: Flag = False
    """Print all scores of all forecasters."""


@dataclass(frozen=True)
class Fit:
    """Fit forecasters to your own sequences, combine them, and evaluate forecasts of later or held-out data.

    tdvae fit sales.csv --time date --values sales --covariates price --longest-jump 14 --minutes 5
    """

    file: DataFile
    """A table (.csv, .csv.gz, .parquet, .xlsx): one long series, or several in long format with --id. Arrays (.npz,
    .npy, .h5): x (N, T, …) and optionally lengths (N,), actions (N, T, A), rewards (N, T), observed; floats are
    measurements, bools bits, integers classes, bytes (N, T, rows, columns, channels) pictures. A recording of `tdvae
    record` (.h5)."""
    data: Data = Data()
    split: Split = Split()
    training: Training = Training()
    model: Networks = Networks()
    output: Output = Output()

    def main(self) -> None:
        data, split, training, model, output = self.data, self.split, self.training, self.model, self.output
        if output.resume and output.run_dir is None:
            raise InputError("--resume: say which run, with --run-dir")
        if output.resume and output.overwrite:
            raise InputError("--resume, --overwrite: expected one of them, got both")
        several = training.devices > 1 or training.nodes > 1
        if several and output.run_dir is None:
            raise InputError("--devices, --nodes: several processes need one --run-dir")
        if several and training.minutes is not None:
            raise InputError("--minutes: expected one process, got --devices or --nodes; say --steps")
        from tdvae.forecasting.command import fit_file

        sizes = {**vars(model), "batch_size": training.batch_size}
        names = sizes.pop("networks")
        folder = output.run_dir or _unused_folder(self.file.stem)
        _advice_to_resume(folder)(fit_file)(
            self.file,
            {
                **vars(data),
                "values": _names(data.values),
                "covariates": _names(data.covariates),
                "sep": None if data.sep is None else data.sep.replace("\\t", "\t"),
                "season": None if data.season is None else _steps("--season", data.season),
                "split": split.split,
                "group": split.group,
                "test": split.test_file,
                "window": split.window,
                "stride": split.stride,
                "longest_jump": training.longest_jump,
            },
            {
                "steps": training.steps,
                "minutes": training.minutes,
                "patience": training.patience,
                "networks": None if names is None else [name.strip() for name in names.split(",")],
                **{name: size for name, size in sizes.items() if size is not None},
            },
            {
                "accelerator": training.accelerator,
                "devices": training.devices,
                "nodes": training.nodes,
                "tensorboard": output.tensorboard,
            },
            training.seed,
            folder,
            output.resume,
            output.overwrite,
            output.verbose,
        )


def _names(given: tuple[str, ...]) -> list[str] | None:
    """Names separated by commas, as in a line of a CSV file: those that have commas are in double quotes."""
    return [name.strip() for line in csv.reader(given, skipinitialspace=True) for name in line] or None


def _steps(option: str, text: str) -> list[int]:
    """Whole numbers separated by commas, and ranges: 1-12,24."""
    try:
        ends = [[int(end) for end in re.split(r"(?<=\d)-", part)] for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option}: expected whole numbers as in 1,7,14 or 1-12; got {text!r}") from error
    if any(len(part) > 2 or part[-1] < part[0] or part[-1] - part[0] > MOST_STEPS for part in ends):
        raise InputError(f"{option}: expected whole numbers as in 1,7,14 or 1-12, at most {MOST_STEPS:,}; got {text!r}")
    return [step for part in ends for step in range(part[0], part[-1] + 1)]


@dataclass(frozen=True)
class Forecast:
    """Forecast what follows the data of a file, with a run of `tdvae fit`: quantiles in the units of the file.

    tdvae forecast runs/sales --data recent.csv --horizon 1-14 --plot forecast.png
    """

    run: RunFolder
    """Run folder of fit."""
    data: Annotated[Path, option("FILE")]
    """A file like the one of the training. Values may be missing; covariates must reach as far as the forecasts."""
    horizon: Annotated[str, option("STEPS")] = "1"
    """How many steps ahead: 1,7,14 or 1-12. More than the longest trained jump are composed of several jumps."""
    out: Annotated[Path, option("FILE")] = Path("forecast.csv")
    """The new file: .csv, .tsv, .parquet or .npz."""
    plot: Annotated[Path | None, option("FILE")] = None
    """Also draw the forecasts and what came before them: .png, .pdf or .svg."""
    overwrite: Flag = False
    """Replace the files if they exist."""
    quantiles: Annotated[str, option("LEVELS")] = "0.05,0.25,0.5,0.75,0.95"
    """Levels of the quantiles, separated by commas."""
    samples: Annotated[int, option("N")] = 0
    """Also write this many sampled futures."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the Monte Carlo samples."""

    def main(self) -> None:
        steps = _steps("--horizon", self.horizon)
        try:
            levels = [float(part) for part in self.quantiles.split(",")]
        except ValueError as error:
            raise InputError(f"--quantiles: expected numbers separated by commas, got {self.quantiles!r}") from error
        from tdvae.forecasting.command import forecast_file

        forecast_file(self.run, self.data, steps, self.out, levels, self.samples, self.seed, self.plot, self.overwrite)


@dataclass(frozen=True)
class Eval:
    """Evaluate a trained model on its test data. With --json, only the JSON is printed to standard output.

    tdvae eval runs/sales --data later.csv
    """

    run: RunOrName
    """Run folder of oscillator, moving-mnist or fit; or a model shipped with the package: oscillator, moving_mnist."""
    data: Annotated[Path | None, option("FILE")] = None
    """For runs of fit: evaluate on this file instead of the run's own test part."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the held-out sequences and of the Monte Carlo samples."""
    verbose: Flag = False
    """For runs of fit: print all scores of all forecasters."""
    json: Flag = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        from tdvae_paper.evaluation import evaluate_saved

        evaluate_saved(self.run, self.seed, self.json, self.data, self.verbose)


@dataclass(frozen=True)
class Rollout:
    """Filter one held-out sequence up to a time step, then predict in jumps without further observations.

    tdvae rollout oscillator --from 60 --horizon 20-25 --plot rollout.png
    """

    run: RunOrName
    """Run folder, or a model shipped with the package: oscillator."""
    start: Annotated[int, option("STEPS", name="from")] = 60
    """Number of observations to filter before the first jump."""
    horizon: Annotated[str, option("STEPS")] = "20-23"
    """How many steps ahead, each reached by one jump from the one before: 20-23 is a jump of 20 steps, then 3 of 1."""
    samples: Annotated[int, option("N")] = 200
    """Number of futures to sample."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the sequence and of the samples."""
    plot: Annotated[Path | None, option("FILE")] = None
    """Also draw the sequence and its futures: .png, .pdf or .svg."""
    overwrite: Flag = False
    """Replace the plot if it exists."""
    json: Flag = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        steps = _steps("--horizon", self.horizon)
        from tdvae_paper.evaluation import rollout_saved

        rollout_saved(self.run, self.start, steps, self.samples, self.seed, self.json, self.plot, self.overwrite)


@dataclass(frozen=True)
class Explore:
    """Open a local web page that shows beliefs, jumps and possible futures; needs the extra `explorer`.

    tdvae explore oscillator
    """

    run: Annotated[tyro.conf.Positional[str | None], option("RUN")] = None
    """Run folder of oscillator, moving-mnist or fit, or a shipped model. By default a gallery of all shipped models."""
    host: Annotated[str, option("HOST")] = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs the token that is then printed."""
    port: Annotated[int, option("PORT")] = 8765
    """Port to listen on; 0: a free one."""
    data: Annotated[Path | None, option("FILE")] = None
    """For runs of fit: sequences of this file instead of the run's own test part."""
    compare: Annotated[str | None, option("RUN")] = None
    """A second run or model, shown on the same sequences."""
    export: Annotated[Path | None, option("FOLDER")] = None
    """Write a static version with precomputed answers to this new folder, instead of serving the page."""

    def main(self) -> None:
        from tdvae.explorer.command import explore

        explore(self.run, self.host, self.port, self.data, self.export, self.compare)


@dataclass(frozen=True)
class Bench:
    """Benchmark training steps and jumps: ratios of times within one run, as median and half the range.

    tdvae bench moving-mnist --repeats 7
    """

    what: Annotated[
        tyro.conf.Positional[Literal["oscillator", "moving-mnist", "devices", "all"]],
        tyro.conf.arg(help_behavior_hint=_shown_default),
    ] = "oscillator"
    """moving-mnist compares with a plain baseline: the training procedure that public implementations share. devices
    compares two processes with one and needs two idle cores; it is not part of all."""
    repeats: Annotated[int, option("N")] = 7
    """Number of repeated timings."""
    minutes: Annotated[float, option("MINUTES")] = 0.0
    """moving-mnist: train the plain baseline for this long, then measure how soon ours reaches its held-out loss.
    0: skip this comparison."""
    out: Annotated[Path | None, option("FOLDER")] = None
    """Write bench.json and a plot to this folder."""

    def main(self) -> None:
        Range(1).check("--repeats", whole("--repeats", self.repeats))
        Range(0).check("--minutes", number("--minutes", self.minutes))
        from tdvae_paper.bench.bench import bench

        bench(self.what, self.repeats, self.minutes, self.out)


@dataclass(frozen=True)
class Record:
    """Record an environment: an agent that walks through a first-person world, or random actions anywhere else.

    tdvae record tdvae/Corridors-v0 --out corridors.h5 --frames 10000
    tdvae record CartPole-v1 --out cartpole.npz --frames 10000
    """

    env: Annotated[tyro.conf.Positional[str], option("ENV")]
    """Gymnasium id of an environment. For .h5 with image observations and discrete actions (VizdoomMyWayHome-v1,
    MiniWorld-FourRooms-v0, your own as module:id); deepmind_lab:LEVEL if that module is installed; or
    tdvae/Corridors-v0, which needs no extra package."""
    out: Annotated[Path, option("FILE")]
    """Path of the new recording. .npz: observations, actions and rewards of any environment, with random actions, for
    fit. .h5: frames, actions, rewards and poses of a walk through a first-person world."""
    frames: Annotated[int, option("N")] = 100_000
    """Number of frames or steps to record."""
    seed: Annotated[int, option("N")] = 0
    """Seed of the environment and of the agent."""
    episode: Annotated[int, option("N")] = 300
    """Largest number of frames per episode."""
    size: Annotated[int, option("PIXELS")] = 64
    """Side of a frame in pixels."""
    repeat: Annotated[int | None, option("N")] = None
    """Number of environment steps each action is repeated. By default 4 in ViZDoom and DeepMind Lab, else 1."""
    moves: Annotated[tuple[int, int, int] | None, option("FORWARD LEFT RIGHT")] = None
    """For your own environment: the indices of the actions that move forward, turn left and turn right. Without them,
    the agent takes random actions, each for several steps."""

    def main(self) -> None:
        if self.out.suffix == ".npz":
            from tdvae.data.episodes import record
            from tdvae.envs.first_person.report import progress_bar

            with progress_bar(self.env, self.frames) as progress:
                episodes = record(self.env, "random", self.frames, self.seed, self.out, progress)
            print(f"wrote {self.out}: {len(episodes)} episodes, {episodes.steps:,} steps")
            return
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
    """Convert public recordings of DeepMind Lab (RL Unplugged, TFRecord files) to the format of `record`.

    tdvae convert part-*.tfrecord --out lab.h5 --frames 100000
    """

    files: Annotated[tyro.conf.Positional[tuple[Path, ...]], option("FILE")]
    """The TFRecord files, with or without gzip compression."""
    out: Annotated[Path, option("FILE")]
    """Path of the new recording, an HDF5 file that must not exist yet."""
    frames: Annotated[int | None, option("N")] = None
    """Stop after the episode in which this many frames are reached. By default all frames are converted."""
    size: Annotated[int, option("PIXELS")] = 64
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


def parse(
    arguments: list[str] | None = None,
) -> Run | Fit | Eval | Forecast | Rollout | Explore | Bench | Record | Convert:
    """The command of these arguments, by default those of the process."""
    return tyro.cli(
        Command,
        args=arguments,
        prog="tdvae",
        description="Belief-state world models: train, evaluate and roll out TD-VAE.\n\n"
        "tdvae COMMAND --help has the options of a command. tdvae --version prints the version. tdvae --completion "
        "{bash,zsh,tcsh} prints a completion script. --debug shows the traceback of an error.",
        config=(tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    )


def main() -> None:
    """Run a command. Report user and OS errors as one line on standard error, without a traceback.

    ``--debug`` or TDVAE_DEBUG=1 shows the traceback.
    """
    debug = "--debug" in sys.argv or os.environ.get("TDVAE_DEBUG", "0") not in ("", "0")
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        if sys.argv[1:] == ["--version"]:
            print(f"tdvae {__version__}")
            return
        if sys.argv[1:2] == ["--completion"]:
            sys.argv[1] = "--tyro-print-completion"
        command = parse()
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
