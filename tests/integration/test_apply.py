"""`plan` and `apply`: a spec made true on real mounts, its drift found and mended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.stagecraft import make_source, run_hostprep, snapshot

Write = Callable[..., Path]
QUIET = ("--reserve", "0")


@pytest.fixture(autouse=True)
def state(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state"))
    return safe_dir / "state"


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "data", directories=2, files=5)


@pytest.fixture
def volume(safe_dir: Path) -> Path:
    return safe_dir / "ram"


@pytest.fixture
def fstab(own_state: Path) -> Path:
    return own_state / "fstab"


@pytest.fixture
def spec(safe_dir: Path, source: Path, volume: Path) -> Path:
    path = safe_dir / "hostprep.yml"
    path.write_text(
        f"volumes:\n  - {{path: {volume}, size: 64M}}\n"
        f"datasets:\n  - {{source: {source}, volume: {volume}}}\n"
    )
    return path


def plan(spec: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    return _run("plan", spec, *words, expect=expect)


def apply(spec: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    return _run("apply", spec, "--yes", *words, expect=expect)


def _run(command: str, spec: Path, *words: str, expect: int) -> dict[str, Any]:
    done = run_hostprep(command, spec, *QUIET, *words, "--json")
    assert done.returncode == expect, f"{done.returncode}: {done.stderr}{done.stdout}"
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == f"hostprep.{command}/1"
    assert found["ok"] is (expect in (0, 4))
    return found


def kinds(changes: list[dict[str, str]]) -> list[str]:
    return [change["kind"] for change in changes]


def test_a_host_is_converged_and_the_second_run_changes_nothing(
    spec: Path, source: Path, volume: Path, fstab: Path, state: Path
) -> None:
    fstab.write_text("# somebody's\n/dev/null /srv none noauto 0 0")
    planned = plan(spec, "--exit-code", expect=4)
    assert kinds(planned["changes"]) == ["volume", "volume", "fstab", "dataset"]
    assert not volume.exists() and not state.exists(), "a plan changes nothing"

    applied = apply(spec)
    assert applied["done"] == planned["changes"]
    assert (applied["changed"], applied["failed"], applied["pending"]) == (True, [], [])
    assert os.path.ismount(volume)
    assert snapshot(volume / "data").keys() == {
        os.fsencode(str(path).replace(str(source), str(volume / "data"), 1))
        for path in (source, *source.rglob("*"))
    }
    assert fstab.read_text().startswith("# somebody's\n/dev/null /srv none noauto 0 0\n")
    before = snapshot(state), snapshot(volume), fstab.read_bytes()

    again = apply(spec)
    assert (again["changed"], again["changes"], again["done"]) == (False, [], [])
    assert {each["kind"] for each in again["unchanged"]} == {"volume", "fstab", "dataset"}
    assert plan(spec, "--exit-code")["changes"] == []
    assert (snapshot(state), snapshot(volume), fstab.read_bytes()) == before
    assert "nothing to do" in run_hostprep("apply", spec, "--yes", *QUIET).stdout
