"""Several people on one machine: who owns the copies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep

_COLLEAGUE = 54321


def test_root_of_a_container_that_knows_no_other_user_owns_all(source: Path, target: Path) -> None:
    """There is no number there to give a file to, as there is no right to for an ordinary user."""
    prefix = ("unshare", "--user", "--map-root-user", "--")
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    program = source / "class-1/program"
    program.write_bytes(b"#!")
    large = source / "large"
    large.write_bytes(os.urandom(1 << 20))
    for path in (program, large, source / "link", source / "class-1"):
        os.chown(path, _COLLEAGUE, _COLLEAGUE, follow_symlinks=False)
    program.chmod(0o6755)
    told = hostprep("stage", source, "--to", target, prefix=prefix)
    assert told["skipped"] == []
    copy = target / "data/class-1/program"
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o7777) == (0, 0o755)
    program.chmod(0o755)
    assert differences(source, target / "data", owners=False) == []
    program.chmod(0o6755)
    again = hostprep("stage", source, "--to", target, prefix=prefix)
    assert not again["changed"]
