"""Tests on a real GPU: `make test-gpu`. Plain pytest does not come here, so nothing is skipped."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def a_gpu_is_here() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.fail("there is no CUDA here, and these tests are about nothing else", pytrace=False)
