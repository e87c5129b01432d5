"""MiniPacman: a vectorised game engine, views of its state, a player and recordings of played games."""

from tdvae.envs.minipacman.draws import spawn
from tdvae.envs.minipacman.games import Games, Outcome
from tdvae.envs.minipacman.policy import Player, PlayerSettings
from tdvae.envs.minipacman.recording import Recording, Truth, record
from tdvae.envs.minipacman.rules import MODES, Cell, Mode
from tdvae.envs.minipacman.view import N_CLASSES, PALETTE, View, as_text

__all__ = [
    "MODES",
    "N_CLASSES",
    "PALETTE",
    "Cell",
    "Games",
    "Mode",
    "Outcome",
    "Player",
    "PlayerSettings",
    "Recording",
    "Truth",
    "View",
    "as_text",
    "record",
    "spawn",
]
