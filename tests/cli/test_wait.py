"""``hostprep wait``: what it says, and with which exit code, where nothing has to be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest

from hostprep.cli.main import run
from hostprep.converging.boot_record import BootRecord, save_boot_record
from hostprep.staging.inspection import Inspected, inspect_target
from hostprep.staging.record.records import Record
from tests.kit.stagecraft import HOSTPREP, hostprep, make_source, rewrite, run_hostprep


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "cityscapes", directories=2, files=4)


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    return tmp_path / "fast"


def test_what_is_staged_is_ready_at_once(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    here = os.path.relpath(fast / "cityscapes")
    link = fast.with_name("link")
    link.symlink_to(fast)
    for word in ("cityscapes", f"{fast}/cityscapes", here, f"{here}/", f"{link}/cityscapes"):
        waited = hostprep("wait", word, "--timeout", "0")
        assert waited["datasets"] == [
            {
                "name": "cityscapes",
                "target": str(fast / "cityscapes"),
                "ready": True,
                "state": "ready",
                "reason": "it is there, whole",
                "hint": None,
                "timed_out": False,
            }
        ]
    done = run_hostprep("wait", "cityscapes", "cityscapes")
    assert done.stdout == f"cityscapes is ready: {fast}/cityscapes\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_name_is_told_from_a_near_one(source: Path, fast: Path) -> None:
    def error_of(name: str) -> tuple[str, str]:
        error = hostprep("wait", name, expect=2)["error"]
        later = f"; with --timeout SECONDS this command waits until {name} is staged"
        assert error["hint"].endswith(later)
        return error["code"], error["hint"].removesuffix(later)

    assert error_of("cityscapes") == ("usage", "known: none")
    hostprep("stage", source, "--to", fast)
    assert error_of("cityscape") == ("usage", "did you mean cityscapes?")
    assert error_of("imagenet") == ("usage", "known: cityscapes")


@pytest.mark.parametrize("by_path", [False, True])
def test_one_that_is_not_begun_is_waited_for_in_time(
    by_path: bool, source: Path, fast: Path
) -> None:
    word = str(fast / "cityscapes") if by_path else "cityscapes"
    waiting = subprocess.Popen(
        [*HOSTPREP, "wait", word, "--timeout", "60"], stdout=PIPE, stderr=PIPE, text=True
    )
    assert waiting.stderr is not None
    said = waiting.stderr.readline()  # it has looked, and found nothing
    hostprep("stage", source, "--to", fast)
    out, more = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (0, f"cityscapes is ready: {fast}/cityscapes\n")
    assert said == f"hostprep: {word}: no data set of this name is on record yet; waiting for it\n"
    assert more == ""


def test_one_that_nobody_begins_is_told_when_the_time_is_over(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    waited = hostprep("wait", "cityscapes", "cityscape", "--timeout", "1.2", expect=1)
    assert [(each["ready"], each["timed_out"]) for each in waited["datasets"]] == [
        (True, False),
        (False, True),
    ]
    unknown, error = waited["datasets"][1], waited["error"]
    assert (unknown["name"], unknown["target"], unknown["state"]) == ("cityscape", None, "unknown")
    assert error["code"] == "timeout" and error["hint"] == "did you mean cityscapes?"
    assert error["message"].endswith("s: unknown: no data set of this name is on record")
    done = run_hostprep("wait", "imagenet", "--timeout", "1.2")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("yet; waiting for it") == 1


@pytest.mark.usefixtures("fast")
def test_that_nothing_at_all_is_known_is_not_told_to_who_waits_for_the_first() -> None:
    done = run_hostprep("wait", "imagenet", "--timeout", "0.1")
    assert done.returncode == 1 and "(known" not in done.stderr
    assert "no data set of this name is on record" in done.stderr and "--timeout" in done.stderr


def test_one_that_cannot_become_ready_ends_the_wait_for_one_not_begun(
    source: Path, fast: Path
) -> None:
    hostprep("stage", source, "--to", fast)
    (fast / "cityscapes").rename(fast / "away")
    waited = hostprep("wait", "cityscapes", "imagenet", "--timeout", "60", expect=1)
    assert waited["error"]["message"].startswith("cityscapes is not ready: ")
    assert waited["seconds"] < 60


def test_a_record_that_cannot_be_read_is_named(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    hostprep("stage", source, "--to", fast, "--name", "other")
    (record,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("datasets/cityscapes-*/dataset.json")
    record.write_text("{")
    for word in ("cityscapes", str(fast / "cityscapes"), f"{fast}/cityscapes/"):
        error = hostprep("wait", word, expect=1)["error"]
        assert str(record) in error["message"] and "move the folder away" in error["hint"]
    hint = hostprep("wait", "imagenet", expect=2)["error"]["hint"]
    assert hint.startswith("known: other; the record ") and str(record) in hint
    hostprep("wait", "other")


def test_a_name_that_several_have_needs_the_path(source: Path, fast: Path, tmp_path: Path) -> None:
    for target in (fast, tmp_path / "other"):
        hostprep("stage", source, "--to", target)
    error = hostprep("wait", "cityscapes", expect=2)["error"]
    assert f"{fast}/cityscapes, {tmp_path}/other/cityscapes" in error["hint"]
    hostprep("wait", fast / "cityscapes")


def test_what_is_gone_fails_at_once(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    (fast / "cityscapes").rename(fast / "away")
    waited = hostprep("wait", "cityscapes", expect=1)
    assert waited["datasets"][0]["state"] == "missing"
    assert "nothing stages it at boot" in waited["error"]["message"]
    done = run_hostprep("wait", "cityscapes")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not on the target" in done.stderr and "\n  -> " in done.stderr


@pytest.mark.parametrize(
    ("written", "instead", "words"),
    [
        (b'"phase": "staged"', b'"phase": "updating"', "a run did not get to its end"),
        (b'"partial": false', b'"partial": true', "missing from it, or not up to date"),
        (b'"volume": null', b'"volume": "/mnt/none"', "its volume /mnt/none is not mounted"),
    ],
)
def test_what_is_not_whole_is_not_ready(
    source: Path, fast: Path, written: bytes, instead: bytes, words: str
) -> None:
    hostprep("stage", source, "--to", fast)
    (path,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("datasets/*/dataset.json")
    rewrite(path, path.read_bytes().replace(written, instead))
    assert words in hostprep("wait", "cityscapes", expect=1)["error"]["message"]


def test_one_that_cannot_become_ready_ends_the_wait_for_all(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    save_boot_record(
        BootRecord("late", str(source), "/mnt/none", "/mnt/none", 1 << 20, "/none", None, False)
    )
    waited = hostprep("wait", "cityscapes", "late", expect=1)
    assert [(each["name"], each["ready"]) for each in waited["datasets"]] == [
        ("cityscapes", True),
        ("late", False),
    ]
    assert waited["error"]["message"].startswith("late is not ready: ")


def test_a_time_that_is_none_is_a_usage_error() -> None:
    assert run_hostprep("wait", "x", "--timeout", "-1").returncode == 2
    assert "not a number of seconds" in run_hostprep("wait", "x", "--timeout", "nan").stderr
    assert run_hostprep("wait").returncode == 2


def test_restage_is_hidden_and_needs_a_record() -> None:
    assert "restage" not in run_hostprep("--help").stdout
    done = run_hostprep("restage", "cityscapes")
    assert done.returncode == 2
    assert "no data set 'cityscapes' is to be staged at boot" in done.stderr


@pytest.mark.parametrize(
    "damage", ["all gone", "one gone", "one changed", "no manifest", "half a manifest"]
)
def test_what_lost_entries_is_not_ready(damage: str, source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    staged, file = fast / "cityscapes", fast / "cityscapes/class-1/images/002.bin"
    if damage == "all gone":
        shutil.rmtree(staged)
        staged.mkdir()
    elif damage == "one gone":
        file.unlink()
    elif damage == "one changed":
        rewrite(file, b"another length")
    else:
        (manifest,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("datasets/*/manifest.jsonl")
        lines = manifest.read_bytes()
        manifest.unlink()
        if damage == "half a manifest":
            manifest.write_bytes(lines[: len(lines) // 2])
    words = {"all gone": "15 of 16 entries", "no manifest": "cannot be looked at"}
    words["half a manifest"] = "of the 16 entries that were staged"
    for more in ((), ("--timeout", "0")):
        waited = hostprep("wait", "cityscapes", *more, expect=1)
        assert not waited["datasets"][0]["ready"] and not waited["datasets"][0]["timed_out"]
        assert words.get(damage, "1 of 16 entries") in waited["error"]["message"]
        assert "hostprep stage" in waited["error"]["hint"]
    if "manifest" in damage:
        assert f"move {staged} away" in waited["error"]["hint"]
        staged.rename(fast / "away")
    hostprep("stage", source, "--to", fast)
    hostprep("wait", "cityscapes")


def test_what_others_added_is_no_hindrance(source: Path, fast: Path) -> None:
    hostprep("stage", source, "--to", fast)
    (fast / "cityscapes/index.cache").write_bytes(b"of a training")
    assert hostprep("wait", "cityscapes")["datasets"][0]["reason"] == "it is there, whole"


def test_where_there_is_no_time_to_look_at_all_it_says_so(
    source: Path,
    fast: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = make_source(source.parent / "large", directories=1, files=200)
    hostprep("stage", source, "--to", fast)
    monkeypatch.setattr("hostprep.converging.waiting._LOOK_SECONDS", 0.0)
    (found,) = hostprep("wait", "large")["datasets"]
    assert found["ready"] and "there was time to look at" in found["reason"]
    assert run(["wait", "large"]) == 0
    assert "/large (there was time to look at " in capsys.readouterr().out
    for file in (fast / "large/class-0/images").iterdir():
        file.unlink()
    error = hostprep("wait", "large", expect=1)["error"]
    assert "entries on" in error["message"] and "are missing" in error["message"]


def test_a_run_that_begins_while_it_looks_is_waited_for(
    source: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", fast)
    file = fast / "cityscapes/class-1/images/002.bin"
    file.unlink()
    looked = []

    def look(record: Record, *, seconds: float) -> Inspected:
        found = inspect_target(record, seconds=seconds)
        if not looked:
            assert run_hostprep("stage", source, "--to", fast).returncode == 0
        looked.append(found)
        return found

    monkeypatch.setattr("hostprep.converging.waiting.inspect_target", look)
    hostprep("wait", "cityscapes")
    assert [each.missing for each in looked] == [1, 0]
