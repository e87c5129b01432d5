"""Environments. Importing this registers them with Gymnasium: ``gymnasium.make("tdvae/MiniPacman-v0")``."""

import gymnasium

from tdvae.envs import first_person, minipacman

# The frame limit is the game's own rule, so Gymnasium needs no limit of its own.
gymnasium.register("tdvae/MiniPacman-v0", entry_point="tdvae.envs.minipacman.env:MiniPacmanEnv")

# The length of an episode is an argument of the environment's own.
gymnasium.register("tdvae/Corridors-v0", entry_point="tdvae.envs.first_person.corridors:CorridorsEnv")

__all__ = ["first_person", "minipacman"]
