"""The command line: `tdvae run`, `fit`, `eval`, `rollout`, `bench`, `record`, `convert`.

Each command imports what it needs when it runs. Help, completion and refused arguments then load neither torch nor any
other large dependency, and appear at once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tdvae import __version__
from tdvae.errors import InputError, TDVAEError
from tdvae.experiments.registry import EXPERIMENTS

if TYPE_CHECKING:
    ExperimentName = str
else:
    ExperimentName = Literal[tuple(EXPERIMENTS)]  # the choices that the command line offers


def _unused_folder(stem: str) -> Path:
    """runs/STEM, or the first runs/STEM-2, -3, … that does not exist: a run is never written over another."""
    candidate, number = Path("runs") / stem, 1
    while candidate.exists():
        number += 1
        candidate = Path("runs") / f"{stem}-{number}"
    return candidate


@dataclass(frozen=True)
class Run:
    """Train, evaluate and draw one of the paper's experiments: prints a table, writes results and a figure."""

    experiment: tyro.conf.Positional[ExperimentName]
    """Which experiment. oscillator-ablations trains the demo's recipe again and again, with one thing changed."""
    preset: str | None = None
    """smoke: seconds. demo: minutes. cpu: what our published results use. paper: the paper's own form and sizes.
    By default the one of our published results; not every experiment has each of them."""
    seed: int | None = None
    """Train only this seed. By default the preset's own, side by side on the machine's cores."""
    run_dir: Path | None = None
    """Folder for the run. By default a new one under runs/."""
    out: Path | None = None
    """Also write the results and the figure into this folder."""
    resume: bool = False
    """Go on with an interrupted run; needs --run-dir."""

    def main(self) -> None:
        if self.resume and self.run_dir is None:
            raise InputError("--resume: say which run, with --run-dir")
        from tdvae.experiments import registry
        from tdvae.experiments.shared.runner import run

        experiment = registry.load(self.experiment)
        preset = self.preset or experiment.published
        folder = self.run_dir or _unused_folder(f"{self.experiment}-{preset}")
        run(experiment, preset, self.seed, folder, self.out, self.resume)


@dataclass(frozen=True)
class Fit:
    """Fit a TD-VAE to your own sequences and judge its forecasts on held-out ones."""

    file: tyro.conf.Positional[Path]
    """A .npz with x (N, T, …) and optionally lengths (N,), actions (N, T, A), rewards (N, T); or a .npy with x.
    Floats are measurements, bools are bits, integers are classes."""
    longest_jump: int = 10
    """Train on jumps of 1 up to this many steps."""
    steps: int = 10_000
    """Training steps."""
    layers: int = 2
    """Layers of the latent state."""
    latent: int = 8
    """Size of each layer."""
    belief: int = 50
    """Size of the recurrent network that carries the belief."""
    batch_size: int = 32
    """Sequences per step."""
    seed: int = 0
    """Seed of the split, the weights and the training."""
    devices: int = 1
    """Processes to train with; more than 1 under torchrun."""
    run_dir: Path | None = None
    """Folder for the run. By default a new one under runs/."""
    resume: bool = False
    """Go on with an interrupted run; needs --run-dir."""
    tensorboard: bool = False
    """Also log for TensorBoard, into the run folder."""

    def main(self) -> None:
        if self.resume and self.run_dir is None:
            raise InputError("--resume: say which run, with --run-dir")
        if self.devices > 1 and self.run_dir is None:
            raise InputError("--devices: several processes need one --run-dir")
        from tdvae import forecasting, saved
        from tdvae.reporting.results import summarise
        from tdvae.reporting.tables import show

        own = forecasting.OwnData(self.file, self.seed, self.longest_jump)
        recipe = own.recipe(self.steps, self.seed, layers=self.layers, latent=self.latent, belief=self.belief)
        config = replace(recipe.config, batch_size=self.batch_size, devices=self.devices, tensorboard=self.tensorboard)
        run_dir = self.run_dir or _unused_folder(self.file.stem)
        forecasting.train(own, replace(recipe, config=config), run_dir, self.resume)
        if int(os.environ.get("RANK", "0")) > 0:
            return  # the first process speaks for all
        measures = summarise([forecasting.evaluate(saved.load(run_dir), own, self.seed)])
        show(f"{self.file.name}: forecasts of held-out sequences", forecasting.tables(measures))
        middle = int(own.parts[2].lengths.min()) // 2
        print(f"the run is in {run_dir}; roll it out with: tdvae rollout {run_dir} --from {middle} --jumps 1,1")


@dataclass(frozen=True)
class Eval:
    """Measure a trained model on held-out sequences. With --json, standard output holds the JSON and nothing else."""

    run: tyro.conf.Positional[str]
    """The folder of a run of oscillator, moving-mnist or fit; or a model that ships: oscillator, moving_mnist."""
    seed: int = 0
    """Seed of the fresh held-out sequences and of the Monte Carlo samples."""
    json: bool = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        from tdvae.experiments.shared.evaluation import evaluate_saved

        evaluate_saved(self.run, self.seed, self.json)


@dataclass(frozen=True)
class Rollout:
    """Look at one held-out sequence up to a time, then predict on in jumps, without looking again."""

    run: tyro.conf.Positional[str]
    """A run folder, or the name of a model that ships with the package: oscillator."""
    start: Annotated[int, tyro.conf.arg(name="from")] = 60
    """How many observations the model sees before it starts."""
    jumps: str = "20,1,1,1"
    """Lengths of the jumps, in steps, separated by commas."""
    samples: int = 200
    """How many futures to sample."""
    seed: int = 0
    """Seed of the sequence and of the samples."""
    json: bool = False
    """Print JSON instead of a table."""

    def main(self) -> None:
        try:
            lengths = [int(part) for part in self.jumps.split(",")]
        except ValueError as error:
            raise InputError(f"--jumps: expected whole numbers separated by commas, got {self.jumps!r}") from error
        from tdvae.experiments.shared.evaluation import rollout_saved

        rollout_saved(self.run, self.start, lengths, self.samples, self.seed, self.json)


@dataclass(frozen=True)
class Bench:
    """Measure where time goes: ratios within one run, median and spread."""

    what: tyro.conf.Positional[Literal["oscillator", "moving-mnist", "all"]] = "oscillator"
    """moving-mnist measures against the plain way of training that public implementations share."""
    repeats: int = 7
    """How often each thing is timed."""
    minutes: float = 0.0
    """moving-mnist: train the plain baseline so long, then see how soon ours has its held-out loss. 0: no such race."""
    out: Path | None = None
    """Write bench.json and a plot into this folder."""

    def main(self) -> None:
        for name, value, least in (("repeats", self.repeats, 1), ("minutes", self.minutes, 0)):
            if value < least:
                raise InputError(f"--{name}: expected at least {least}, got {value}")
        from tdvae.bench.bench import bench

        bench(self.what, self.repeats, self.minutes, self.out)


@dataclass(frozen=True)
class Record:
    """Let an agent walk through a first-person world and record what it sees: frames, actions, rewards, poses."""

    env: tyro.conf.Positional[str]
    """A Gymnasium id with pictures and a list of actions (VizdoomMyWayHome-v1, MiniWorld-FourRooms-v0, your own as
    module:id), deepmind_lab:LEVEL where that module is installed, or tdvae/Corridors-v0, which needs nothing."""
    out: Path
    """The recording, an HDF5 file; refused if it exists."""
    frames: int = 100_000
    """How many frames to record."""
    seed: int = 0
    """Seed of the worlds and of the agent."""
    episode: int = 300
    """Begin anew after at most so many frames."""
    size: int = 64
    """Side of a frame in pixels."""
    repeat: int | None = None
    """Steps for which an action is held. By default 4 in ViZDoom and DeepMind Lab, else 1."""
    moves: tuple[int, int, int] | None = None
    """Your own environment: the numbers of the actions that walk forward, turn left and turn right. Without them,
    random actions are held for a while."""

    def main(self) -> None:
        from tdvae.data.recording import check_new_file
        from tdvae.envs import first_person
        from tdvae.envs.first_person.report import progress_bar, show_recorded

        check_new_file(self.out)  # before a game is started for nothing
        moves = None if self.moves is None else first_person.Moves(*self.moves)
        world = first_person.open_world(self.env, self.repeat, self.size, moves)
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
    """Turn public recordings of DeepMind Lab (RL Unplugged, TFRecord files) into a recording as `record` makes them."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """The TFRecord files, gzip or not."""
    out: Path
    """The recording, an HDF5 file; refused if it exists."""
    frames: int | None = None
    """Stop after the episode with which there are so many. By default all are taken."""
    size: int = 64
    """Side of a frame in pixels."""

    def main(self) -> None:
        from tdvae.data import rl_unplugged
        from tdvae.envs.first_person.report import progress_bar, show_converted

        with progress_bar(self.out.name, self.frames) as progress:
            rl_unplugged.convert(self.files, self.out, self.size, self.frames, progress)
        show_converted(self.out)


Command = (
    Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Record, tyro.conf.subcommand("record")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
)


def main() -> None:
    """Run a command; an error of ours is one line on standard error and exit code 2."""
    if sys.argv[1:] == ["--version"]:
        print(f"tdvae {__version__}")
        return
    command = tyro.cli(
        Command,
        prog="tdvae",
        description="Belief-state world models: train, judge and roll out TD-VAE.\n\n"
        "tdvae --version prints the version. tdvae --tyro-print-completion {bash,zsh,tcsh} prints a completion script.",
    )
    # Our tensors are small: a second thread gains little, and costs much where other work wants the core. torch reads
    # this when a command imports it; setting the number in torch itself would import it here.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        command.main()
    except TDVAEError as error:
        print(f"tdvae: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        trains = isinstance(command, Run | Fit)
        rest = "the run goes on from its last checkpoint with --resume" if trains else "nothing was written"
        print(f"tdvae: interrupted; {rest}", file=sys.stderr)
        sys.exit(130)
