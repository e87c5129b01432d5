"""Shared by all tests: one thread (the machine is shared, and results then never depend on its cores), fresh seeds."""

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
