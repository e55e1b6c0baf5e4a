"""Errors of what is open name its path, unless they name another already."""

from __future__ import annotations

import errno

import pytest

from hostprep.system.descriptors import named


@pytest.mark.parametrize(
    ("names", "told"), [(None, "here"), (7, "here"), ("there", "there"), (b"it", b"it")]
)
def test_an_error_that_names_no_path_gets_one(names: object, told: object) -> None:
    error = OSError(errno.EIO, "says the kernel")
    error.filename = names
    with pytest.raises(OSError, match="says the kernel") as caught, named("here"):
        raise error
    assert caught.value.filename == told
