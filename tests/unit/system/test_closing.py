"""Descriptors: closed after the body, or where it raises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.system.descriptors import closed_on_error, closing_fd


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_symlink()


@pytest.fixture
def descriptor() -> int:
    return os.open("/", os.O_RDONLY)


def test_it_is_closed_after_the_body(descriptor: int) -> None:
    with closing_fd(descriptor) as held:
        assert held == descriptor
        assert is_open(held)
    assert not is_open(descriptor)


def test_it_is_closed_where_the_body_raises(descriptor: int) -> None:
    with pytest.raises(KeyboardInterrupt), closing_fd(descriptor):
        raise KeyboardInterrupt
    assert not is_open(descriptor)


def test_what_is_handed_on_stays_open(descriptor: int) -> None:
    with closed_on_error(descriptor):
        pass
    assert is_open(descriptor)
    os.close(descriptor)


def test_what_is_not_handed_on_is_closed(descriptor: int) -> None:
    with pytest.raises(KeyboardInterrupt), closed_on_error(descriptor):
        raise KeyboardInterrupt
    assert not is_open(descriptor)
