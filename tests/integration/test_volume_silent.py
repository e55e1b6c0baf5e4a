"""Volumes on file systems whose server has ceased to answer: named in time, and passed over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.volumes import facts, live
from tests.kit.failing_fs import FailingFs, Rule, failing_fs
from tests.kit.stagecraft import hostprep, is_mounted

pytestmark = pytest.mark.usefixtures("state")

# Longer than all of a test takes, and short enough for a run that hangs after all.
DEAD = Rule("*", "getattr", error=None, hang_seconds=8)


@pytest.fixture
def share(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingFs]:
    """Serve a directory; who asks is patient for a second only."""
    for module in (facts, live):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 1.0)
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as served:
        yield served
        served.tell()


def test_where_no_server_answers_nothing_is_mounted_and_that_is_said(
    share: FailingFs, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE_SECONDS", 0.1)
    spec, led = safe_dir / "lab.yml", safe_dir / "led"
    led.symlink_to(share.mount)
    spec.write_text(f"volumes: [{{path: {share.mount}/v, size: 16M}}]\n")
    share.tell(DEAD)
    for verb, path, *size in (
        ("mount", share.mount, "--size", "16M"),
        ("mount", led / "v", "--size", "16M"),
        ("unmount", share.mount / "not-there/v"),
    ):
        error = hostprep(verb, path, *size, expect=1)["error"]
        assert error["message"] == f"{path} did not answer within 0.1 s; nothing was changed."
        assert "whose server is gone?" in error["hint"]
    (refusal,) = hostprep("plan", spec, expect=5)["refusals"]
    assert refusal["message"] == (
        f"{share.mount}/v did not answer within 0.1 s; nothing was changed."
    )


def test_a_volume_behind_a_silent_server_keeps_no_other_from_its_work(
    share: FailingFs, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, other, fstab = share.mount / "v", safe_dir / "other", safe_dir / "fstab"
    monkeypatch.setenv("HOSTPREP_FSTAB", str(fstab))
    hostprep("mount", hidden, "--size", "16M", "--reserve", "0")
    share.tell(DEAD)
    (shown,) = hostprep("status")["volumes"]
    assert (shown["mounted"], shown["problem"]) == (None, f"{hidden} did not answer within 1 s")
    fstab.write_text(f"server:/v {share.mount}/in/other nfs noauto 0 0\n")
    hostprep("mount", other, "--size", "16M", "--reserve", "0")
    share.tell()
    hostprep("unmount", hidden)
    assert not is_mounted(hidden)
