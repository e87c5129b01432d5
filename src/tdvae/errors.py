"""What can go wrong, by kind: the command line prints these as one line and exits with a non-zero code."""


class TDVAEError(Exception):
    """Base of every error this library raises on purpose.

    >>> import tdvae
    >>> try:
    ...     tdvae.load("no-such-model")
    ... except tdvae.TDVAEError as error:
    ...     print(error)
    run or name: no folder 'no-such-model' here, and no model of that name; known: ['moving_mnist', 'oscillator']
    """


class InputError(TDVAEError, ValueError):
    """An argument or a file does not fit: the message names it, what came and what was expected.

    >>> import tdvae
    >>> tdvae.TrainConfig(steps=0)
    Traceback (most recent call last):
    tdvae.errors.InputError: steps: expected at least 1, got 0
    """


class CheckpointError(TDVAEError):
    """A checkpoint is torn, damaged or foreign. Nothing was loaded.

    >>> from pathlib import Path
    >>> from tdvae.training import checkpoint
    >>> checkpoint.load(Path("no-such-folder"))
    Traceback (most recent call last):
    tdvae.errors.CheckpointError: checkpoint no-such-folder: cannot be read (No such file or directory: ...)
    """


class DivergenceError(TDVAEError):
    """A loss term or a gradient became NaN or infinite; training stopped.

    >>> import torch, tdvae
    >>> data = tdvae.data.from_arrays(torch.full((8, 6), 1e30))
    >>> learner = tdvae.Learner(tdvae.models.build(tdvae.TDVAEConfig()))
    >>> config = tdvae.TrainConfig(steps=1, batch_size=8)
    >>> tdvae.fit(learner, data, tdvae.jumps.Uniform(1, 2), config, "runs/diverges", progress="none")
    Traceback (most recent call last):
    tdvae.errors.DivergenceError: ...
    """
