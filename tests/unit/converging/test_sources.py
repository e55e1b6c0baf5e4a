"""A look at a source in which nothing moves any more is ended; one that is merely slow is not."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from hostprep.converging import looking, sources
from hostprep.converging.looking import Looker
from hostprep.converging.sources import (
    LOOK_SECONDS,
    Patient,
    SilentOnes,
    kept_target,
    real_paths,
)
from hostprep.errors import HostprepError, Refused
from hostprep.host.answering import NoAnswer
from hostprep.host.mounts import parse_mountinfo
from hostprep.spec.model import DatasetSpec
from hostprep.staging.observer import Silent
from tests.kit.stagecraft import hostprep, make_source


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sources.time, "monotonic", clock.monotonic)
    return clock


def test_no_progress_for_ten_minutes_is_the_end(clock: Clock) -> None:
    patient = Patient(Silent(), "/srv/data")
    patient.phase("scan")
    for _ in range(100):
        patient.progress(5, 0)
        clock.now += 6
    clock.now += 1
    with pytest.raises(NoAnswer, match="/srv/data stopped answering: for 10 min"):
        patient.progress(5, 0)


def test_a_slow_source_gets_all_the_time_it_needs(clock: Clock) -> None:
    patient = Patient(Silent(), "/srv/data")
    for entries in range(50):
        clock.now += 599
        patient.progress(entries, 0)
    patient.phase("check")
    clock.now += 599
    patient.progress(0, 0)


def test_what_the_child_cannot_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "real_path", lambda path: 1 / 0)
    with pytest.raises(HostprepError, match="/srv/data could not be looked at"):
        real_paths(DatasetSpec("data", "/srv/data", to="/fast"))


def test_an_empty_source_is_refused_whatever_was_staged_of_it(tmp_path: Path) -> None:
    source = tmp_path / "mount point"
    source.mkdir()
    with pytest.raises(Refused, match=r"is empty; nothing was changed\.") as refused:
        real_paths(DatasetSpec("data", str(source), to="/fast"))
    assert refused.value.hint is not None and f"findmnt -T '{source}'" in refused.value.hint
    (source / "file").touch()
    assert real_paths(DatasetSpec("data", str(source), to="/")) == (str(source), "/")


def test_a_missing_source_is_no_path_for_findmnt_which_would_say_nothing(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"does not exist; nothing was changed\.") as refused:
        real_paths(DatasetSpec("data", str(tmp_path / "no"), to="/fast"))
    assert refused.value.hint is not None and "`findmnt --real`" in refused.value.hint
    assert str(tmp_path) not in refused.value.hint


def test_what_was_asked_whose_links_it_has_is_not_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who exchanges a folder of theirs for a link after that has root look into nothing."""
    source, other = tmp_path / "data", make_source(tmp_path / "other")
    source.symlink_to(other)
    monkeypatch.setattr(looking, "real_paths", lambda *_: (str(source), str(tmp_path)))
    look = Looker({}, None, Silent()).look(DatasetSpec("copy", str(source), to=str(tmp_path)))
    assert look.action is None and look.problem is not None
    assert "is a symlink now, and was not a moment ago" in look.problem.message


def test_a_data_set_whose_records_or_target_fail_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a on the target")

    source = make_source(tmp_path / "data")
    monkeypatch.setattr(looking, "plan_stage", failing)
    look = Looker({}, None, Silent()).look(DatasetSpec("copy", str(source), to=str(tmp_path)))
    assert look.action is None and look.problem is not None
    assert look.problem.message == (
        f"what staging {tmp_path}/copy takes cannot be told: Input/output error (a on the target);"
        " nothing was changed."
    )
    assert "dmesg" in str(look.problem.hint)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's symlink is made by root")
@pytest.mark.parametrize("field", ["source", "to"])
def test_a_strangers_symlink_is_named_as_such(tmp_path: Path, field: str) -> None:
    tmp_path.chmod(0o1777)
    link = tmp_path / "link"
    link.symlink_to("/usr")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    paths = {"source": "/usr", "to": "/usr", field: str(link)}
    with pytest.raises(Refused, match=f"^{link}, on the way to .* is a symlink of uid 65534") as no:
        real_paths(DatasetSpec("data", paths["source"], to=paths["to"]))
    assert no.value.hint is not None and "ls -ld" in no.value.hint


@pytest.mark.parametrize(
    "spoil",
    [
        lambda copy: copy.unlink(),
        lambda copy: os.truncate(copy, 1),
    ],
    ids=["missing", "changed"],
)
def test_what_is_not_as_it_was_staged_is_no_copy_to_keep_to(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    source = make_source(tmp_path / "data", directories=2, files=3)
    hostprep("stage", source, "--to", tmp_path / "to")
    spec = DatasetSpec("data", str(source), to=str(tmp_path / "to"))
    assert kept_target(spec, str(source)) == f"{tmp_path}/to/data"
    assert kept_target(spec, str(tmp_path)) is None
    other = DatasetSpec("other", str(source), to=str(tmp_path / "to"))
    assert kept_target(other, str(source)) is None
    spoil(next(path for path in (tmp_path / "to/data").rglob("*.bin") if path.stat().st_size > 1))
    assert kept_target(spec, str(source)) is None


_INDIRECT = b"67 1 0:44 / /n/auto rw - autofs /etc/auto.n rw,fd=5,pgrp=9,timeout=300,indirect\n"
_DIRECT = b"67 1 0:44 / /n/auto rw - autofs systemd-1 rw,fd=57,timeout=30,direct\n"


@pytest.mark.parametrize(("mounted", "seconds"), [(_INDIRECT, LOOK_SECONDS), (_DIRECT, 1.0)])
def test_another_server_of_the_same_automounter_is_given_all_the_time(
    mounted: bytes, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not have mounted yet takes a while, and is not what did not answer."""
    monkeypatch.setattr(sources, "read_mounts", lambda: parse_mountinfo(mounted))
    silent = SilentOnes()
    silent.add(DatasetSpec("a", "/n/auto/dead/a", to="/fast"))
    assert silent.patience_for(DatasetSpec("b", "/n/auto/alive/b", to="/fast")) == seconds
    assert silent.patience_for(DatasetSpec("c", "/n/auto/dead/c", to="/fast")) == 1.0


def test_where_links_lead_on_a_disk_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = os.getpid()

    def hangs(path: str) -> None:
        assert os.getpid() != ours, "the run itself hangs"
        time.sleep(60)

    monkeypatch.setattr(sources, "link_at", hangs)
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.1)
    silent, spec = SilentOnes(), DatasetSpec("a", "/srv/a", to="/fast")
    assert silent.patience_for(spec) == LOOK_SECONDS
    silent.add(spec)
    assert silent.patience_for(spec) == 0.1
