"""`python -m tdvae`: the command line, also for torchrun."""

from tdvae.cli import main

if __name__ == "__main__":
    main()
