"""Models that keep one contract (`Model`), and how to build one by its config or for a data set."""

from tdvae.models.base import Model
from tdvae.models.build import TDVAEConfig, build, for_data
from tdvae.models.tdvae import TDVAE

__all__ = ["TDVAE", "Model", "TDVAEConfig", "build", "for_data"]
