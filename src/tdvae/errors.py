"""What can go wrong, by kind: the command line prints these as one line and exits with a non-zero code."""


class TDVAEError(Exception):
    """Base of every error this library raises on purpose."""


class InputError(TDVAEError, ValueError):
    """An argument or a file does not fit: the message names it, what came and what was expected."""


class CheckpointError(TDVAEError):
    """A checkpoint is torn, damaged or foreign. Nothing was loaded."""


class DivergenceError(TDVAEError):
    """A loss term or a gradient became NaN or infinite; training stopped."""
