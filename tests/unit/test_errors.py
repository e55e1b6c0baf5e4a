"""What is said to be done about an error."""

from __future__ import annotations

import errno
import os

import pytest

from hostprep.errors import failed_by_host, reading_hint


@pytest.mark.parametrize(
    ("code", "uid", "words"),
    [
        (errno.EACCES, 1000, "with sudo"),
        (errno.EACCES, 0, "allow_other"),  # root is refused by a server, or a user's own mount
        (errno.EACCES, 0, "dmesg"),  # or by a security module
        (errno.ESTALE, 1000, "mount it anew"),
        (errno.ECONNABORTED, 1000, "mount it anew"),
        (errno.EIO, 0, "dmesg"),
        (errno.EMFILE, 0, "ulimit -n"),
        (errno.ENFILE, 0, "fs.file-max"),
        (errno.EAGAIN, 1000, "ulimit -u"),
        (errno.ENOMEM, 0, "free some memory"),
        (errno.ELOOP, 0, "namei -l"),
        (errno.ENAMETOOLONG, 1000, "that long"),
    ],
)
def test_what_helps_where_something_cannot_be_read(
    code: int, uid: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert words in reading_hint(OSError(code, os.strerror(code)))


@pytest.mark.parametrize(
    ("code", "of_the_host"),
    [
        (errno.ESHUTDOWN, True),
        (errno.EHOSTUNREACH, True),
        (errno.ENOSPC, True),
        (errno.EBADF, False),
    ],
)
def test_what_the_host_fails_is_no_mistake_of_ours(code: int, of_the_host: bool) -> None:
    found = failed_by_host(OSError(code, os.strerror(code)))
    assert (found is not None) is of_the_host
