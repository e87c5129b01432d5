"""The `tdvae` command and `python -m tdvae`, also for torchrun."""

import sys


def main() -> None:
    """Import and run the command line. Ctrl-C during the import ends without a traceback, too."""
    try:
        from tdvae import cli
    except KeyboardInterrupt:
        print("tdvae: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
