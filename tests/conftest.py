"""Shared by all tests: one thread (the machine is shared, and results then never depend on its cores), fresh seeds."""

import os

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
torch.set_num_threads(1)
# Some virtual processors announce AMX and do not let a process use it; bf16 then fails, and LSTMs after it do, too.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
