"""What a training measures beside its loss, and what chooses its best weights."""

from __future__ import annotations

SCORE = "score"


class Monitor:
    """Measures of a training in progress. Subclasses override what they need; the learner is in evaluation mode.

    >>> import tdvae
    >>> class Constant(tdvae.Monitor):
    ...     def measure(self) -> dict[str, float]:
    ...         return {"score": 1.0}
    >>> Constant().finish()
    {}
    """

    def measure(self) -> dict[str, float]:
        """Metrics to log, computed at each validation.

        A metric named ``score`` replaces the validation loss in the choice of the best weights; lower is better.
        """
        return {}

    def in_words(self, measured: dict[str, float]) -> str:
        """A few words about ``measured`` for the progress line."""
        return ""

    def finish(self) -> dict[str, float]:
        """Called once after training, with the best weights loaded. It may change them, for calibration.

        The metrics that it returns are logged, and the weights are saved again.
        """
        return {}
