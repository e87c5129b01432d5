"""Settings for all tests: one thread and one process, so that results do not depend on the cores, and a fixed seed."""

import os

import hypothesis
import matplotlib
import pytest
import torch

from tdvae_paper import jobs

matplotlib.use("Agg")
torch.set_num_threads(1)
# Hypothesis fails an example that takes more than 200 ms by default; no test may depend on how busy the machine is.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
# Some virtual processors report AMX but do not allow its use. bf16 then fails, and so do LSTMs after it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _one_process() -> None:
    """Experiments train their runs in the test's process, because new processes take seconds to import everything.

    `test_experiment_runner` tests runs in parallel processes.
    """
    jobs._usable_cores = lambda: 1
