"""Exceptions of the library. The command line prints them as one line and exits with a non-zero code."""


class TDVAEError(Exception):
    """Base class of all exceptions that this library raises.

    >>> import tdvae
    >>> try:
    ...     tdvae.load("no-such-model")
    ... except tdvae.TDVAEError as error:
    ...     print(error)
    run or name: expected a run folder or one of ['moving_mnist', 'oscillator'], got 'no-such-model'
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
    >>> data = tdvae.data.from_arrays(torch.full((8, 6), 1e30))
    >>> learner = tdvae.Learner(tdvae.models.build(tdvae.TDVAEConfig()))
    >>> config = tdvae.TrainConfig(steps=1, batch_size=8)
    >>> tdvae.fit(learner, data, tdvae.jumps.Uniform(1, 2), config, "runs/diverges", progress="none")
    Traceback (most recent call last):
    tdvae.errors.DivergenceError: ...
    """
