"""Environments. Importing this registers them with Gymnasium: ``gymnasium.make("tdvae/MiniPacman-v0")``."""

import gymnasium

from tdvae.envs import minipacman

# The frame limit is the game's own rule, so Gymnasium needs no limit of its own.
gymnasium.register("tdvae/MiniPacman-v0", entry_point="tdvae.envs.minipacman.env:MiniPacmanEnv")

__all__ = ["minipacman"]
