"""Environments. Importing this package registers them for ``gymnasium.make("tdvae/MiniPacman-v0")``."""

import gymnasium

from tdvae.envs import first_person, minipacman

# No max_episode_steps: the frame limit is a rule of the game.
gymnasium.register("tdvae/MiniPacman-v0", entry_point="tdvae.envs.minipacman.env:MiniPacmanEnv")

# No max_episode_steps: the length of an episode is an argument of the environment.
gymnasium.register("tdvae/Corridors-v0", entry_point="tdvae.envs.first_person.corridors:CorridorsEnv")

__all__ = ["first_person", "minipacman"]
