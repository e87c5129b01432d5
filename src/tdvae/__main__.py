"""The `tdvae` command and `python -m tdvae`, also for torchrun."""

import os
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Import and run the command line. Ctrl-C during the import ends without a traceback, too."""
    try:
        from tdvae import cli
    except KeyboardInterrupt:
        print("tdvae: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)
    if "WORLD_SIZE" not in os.environ:  # torchrun ends its processes itself, and they cannot wait for each other
        end_by_sigterm()
    cli.main()


def end_by_sigterm() -> None:
    """Let SIGTERM end the process as Ctrl-C does, so that unfinished files are removed and workers end."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    main()
