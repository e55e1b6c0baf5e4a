"""Tests on a real GPU: `make test-gpu`. Plain pytest does not come here, so nothing is skipped."""

from __future__ import annotations

import pytest

from tests.gpu.transcript import verify


@pytest.fixture(scope="session", autouse=True)
def a_gpu_is_here() -> None:
    import torch

    if not torch.cuda.is_available():
        said = verify("--quick").stdout  # why it does not start, which nobody may come to ask again
        pytest.exit(f"these tests need CUDA, which is not here:\n{said}", 1)
