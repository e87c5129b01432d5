"""Exceptions of the library, and the line with which the command line reports a failure."""

import os


class TDVAEError(Exception):
    """Base class of all exceptions that this library raises.

    >>> import tdvae
    >>> try:
    ...     tdvae.load("none")
    ... except tdvae.TDVAEError as error:
    ...     print(error)
    run or name: expected a run folder or one of ['first_person', 'moving_mnist', 'oscillator', 'pendulum'], got 'none'
    """


class InputError(TDVAEError, ValueError):
    """An argument or a file is invalid. The message names it, what was expected and what was given.

    >>> import tdvae
    >>> tdvae.TrainConfig(steps=0)
    Traceback (most recent call last):
    tdvae.errors.InputError: steps: expected at least 1, got 0
    """


class ArgumentTypeError(TDVAEError, TypeError):
    """An argument has the wrong type. The message names it, what was expected and what was given.

    >>> import tdvae
    >>> tdvae.TrainConfig(steps=19.5)
    Traceback (most recent call last):
    tdvae.errors.ArgumentTypeError: steps: expected an integer, got 19.5
    """


class CheckpointError(TDVAEError):
    """A checkpoint or another file of a run is incomplete, damaged or of another format. Nothing was loaded.

    >>> from pathlib import Path
    >>> from tdvae.storage import checkpoint
    >>> checkpoint.load(Path("no-such-folder"))
    Traceback (most recent call last):
    tdvae.errors.CheckpointError: checkpoint no-such-folder: cannot be read (No such file or directory: ...)
    """


class DivergenceError(TDVAEError):
    """A loss term or a gradient became NaN or infinite, and training stopped.

    >>> import torch, tdvae
    >>> data = tdvae.data.from_arrays(torch.randn(8, 6))
    >>> learner = tdvae.Learner(tdvae.models.build(tdvae.TDVAEConfig()))
    >>> config = tdvae.TrainConfig(steps=5, batch_size=8, learning_rate=1e30)
    >>> tdvae.fit(learner, data, tdvae.jumps.Uniform(1, 2), config, "runs/diverges", progress="none")
    Traceback (most recent call last):
    tdvae.errors.DivergenceError: ...
    """


def failure(error: Exception) -> str:
    """What the command line says about an error, in one line. Empty if another process of the same run says it.

    With several processes, each of them finds the same mistake of the user; the first on each machine reports it.
    """
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if isinstance(error, TDVAEError):
        return "" if rank > 0 else _one_line(error)
    process = f"process {rank}: " if rank > 0 else ""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{process}{place}{error.strerror}"
    text = _one_line(error)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "connect" in text.lower():
        return f"{process}the connection to another process was lost, which has ended; start all of them with --resume"
    # Without memory, the interpreter itself fails with a SystemError, and oneDNN with words of its own.
    if isinstance(error, MemoryError | SystemError) or "memory" in text.lower() or "create a primitive" in text:
        return f"{process}not enough memory; choose smaller sizes, a smaller batch or fewer samples: {text[:200]}"
    if isinstance(error, ModuleNotFoundError):
        return f"{process}the package {error.name} is missing; install tdvae with its dependencies"
    if isinstance(error, ImportError) and "shared object" in text:  # libraries are loaded when they are first used
        return (
            f"{process}a library cannot be loaded; check the free memory, the limit of open files and the "
            f"installation: {text[:200]}"
        )
    return f"{process}unexpected {type(error).__name__}: {text}; please report this, with the output of --debug"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
