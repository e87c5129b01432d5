"""First-person 3D worlds: adapters for ViZDoom, MiniWorld and other Gymnasium environments, agents, the recorder."""

from tdvae.envs.first_person.agents import HolderSettings, WalkerSettings
from tdvae.envs.first_person.from_gymnasium import GymnasiumWorld
from tdvae.envs.first_person.from_miniworld import MiniworldWorld
from tdvae.envs.first_person.from_vizdoom import VizdoomWorld
from tdvae.envs.first_person.opening import open_world
from tdvae.envs.first_person.recorder import Summary, record
from tdvae.envs.first_person.world import Moves, Step, View, World

__all__ = [
    "GymnasiumWorld",
    "HolderSettings",
    "MiniworldWorld",
    "Moves",
    "Step",
    "Summary",
    "View",
    "VizdoomWorld",
    "WalkerSettings",
    "World",
    "open_world",
    "record",
]
