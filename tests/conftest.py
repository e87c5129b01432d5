"""Settings for all tests: one thread and one process, so that results do not depend on the cores, and a fixed seed."""

import os

import matplotlib
import pytest
import torch

from tdvae.experiments.shared import jobs

matplotlib.use("Agg")
torch.set_num_threads(1)
# Some virtual processors report AMX but do not allow its use. bf16 then fails, and so do LSTMs after it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _one_process() -> None:
    """Experiments train their runs here: each process would take seconds to import what is imported already.

    `test_experiment_runner` has the test of runs side by side.
    """
    jobs._usable_cores = lambda: 1
