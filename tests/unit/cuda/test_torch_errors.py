"""What torch's exceptions say, of those that torch itself made here."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from hostprep.cuda.torch_errors import cure_for_the_host, in_a_line

WORDS = "unable to write to file </torch_7_1_0>: No space left on device (28)"


class Full(Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise RuntimeError(WORDS + "\nand advice")


def test_what_a_worker_raised_is_told_and_not_where_it_was_caught() -> None:
    loader: Any = DataLoader(Full(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RuntimeError, match="Caught RuntimeError in DataLoader worker") as raised:
        list(loader)
    assert in_a_line(raised.value) == f"RuntimeError: {WORDS}"


def test_a_full_disk_is_no_full_shared_memory() -> None:
    error = OSError(28, "No space left on device", "/tmp/.hostprep-verify-1/7.raw")
    assert cure_for_the_host(in_a_line(error)) is None
    assert "/dev/shm" in (cure_for_the_host(WORDS) or "")
