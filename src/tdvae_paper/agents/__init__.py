"""Agents: policies on learned beliefs at equal interactions, and planning in jumps."""

from tdvae_paper.agents.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
