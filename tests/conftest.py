"""Settings for all tests: one thread, so that results do not depend on the number of cores, and a fixed seed."""

import os

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
torch.set_num_threads(1)
# Some virtual processors report AMX but do not allow its use. bf16 then fails, and so do LSTMs after it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
