"""``hostprep probe`` on the command line: its document, its exit codes, what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.probing.probe import LEAST_SECONDS
from hostprep.system.interruption import INTERRUPTIONS
from hostprep.system.own_directory import PROBE_PREFIX
from hostprep.system.state import state_dir
from tests.unit.probing.made import measured

SHORT = ("--seconds", "5", "--size", "64M")


def hostprep(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hostprep", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
        check=False,
    )


def probe_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = hostprep("probe", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def fill(folder: Path, files: int = 120) -> dict[Path, bytes]:
    content = {}
    for number in range(files):
        file = folder / f"class{number % 4}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        content[file] = os.urandom(30_000 + number)
        file.write_bytes(content[file])
    return content


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (status.st_size, status.st_mtime_ns, status.st_mode)
        for path in [folder, *folder.rglob("*")]
        for status in [path.stat()]
    }


@pytest.fixture
def fake_fio(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder / "fio"


def with_fio(program: Path, script: str) -> dict[str, str]:
    if script:
        version = 'if [ "$1" = --version ]; then echo fio-3.33; exit; fi\n'
        program.write_text("#!/bin/sh\n" + version + script)
        program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


@pytest.mark.timed
def test_a_data_set_is_measured_and_not_touched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    content = fill(data)
    before = snapshot(data)
    code, fields = probe_json(str(data), *SHORT)
    assert code in (0, 4), fields  # a busy machine makes it INVALID, and says so
    assert fields["schema"] == "hostprep.probe/1"
    assert fields["ok"] is True
    assert fields["verdict"] == ("MEASURED" if code == 0 else "INVALID")
    assert fields["valid"] is (code == 0)
    assert fields["path"] == str(data)
    assert fields["sequential"]["bytes_per_s"] > 0
    assert fields["random_4k"]["iops"] > 0
    assert fields["random_4k"]["depth_32"]["block_bytes"] == 4096
    small = fields["small_files"]
    assert small["source"] == "dataset"
    assert small["mean_bytes"] == pytest.approx(30_060, abs=60)
    assert 0 < small["latency_s"]["p50"] <= small["latency_s"]["p95"] <= small["latency_s"]["p99"]
    assert fields["dataset"] == {
        "files": 120,
        "complete": True,
        "size_bytes": sum(map(len, content.values())),
        "links": 0,
        "mounts": 0,
        "closed": 0,
        "hole_bytes": 0,
    }
    assert fields["epoch"]["files"] == 120
    assert fields["device"]["class"]
    assert fields["seconds"] < 8
    assert snapshot(data) == before
    assert all(file.read_bytes() == bytes_ for file, bytes_ in content.items())
    assert (state_dir() / "probes" / f"{fields['id']}.json").is_file()


def test_text_for_people_has_bars_and_the_verdict(tmp_path: Path) -> None:
    done = hostprep("probe", str(tmp_path), *SHORT, "--need", "0.001")
    assert done.returncode in (0, 4)
    assert "█" in done.stdout
    # On a busy machine there may be no time for the second, which is said.
    assert re.search("sequential (1 MiB, depth 32|reads were only made one)", done.stdout)
    assert "made for this" in done.stdout
    assert re.search(r"^(PASS|INVALID):", done.stdout, re.M)
    assert "\x1b" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timed
def test_a_need_out_of_reach_fails_with_remedies() -> None:
    # In memory no cache can be too warm, and processors only by others: the verdict is certain.
    folder = Path("/dev/shm") / f"hostprep-test-{os.getpid()}"
    folder.mkdir()
    try:
        code, fields = probe_json(str(folder), *SHORT, "--need", "9000G")
    finally:
        folder.rmdir()  # fails where something is left
    if fields["device"]["kernel_class"] != "ram":
        pytest.skip("/dev/shm is not a tmpfs here")
    doubts = {reason["code"] for reason in fields["invalid_reasons"]}
    assert doubts <= {"cpu_saturated", "too_little_time"}
    if code == 4 and doubts:
        pytest.skip(f"other programs have the processors: {fields['invalid_reasons']}")
    assert (code, fields["verdict"]) == (3, "FAIL")
    assert fields["need"]["judged"]["share"] < 0.9
    assert [remedy["action"] for remedy in fields["remedies"]][-1] == "buy faster storage"


def test_a_comparison_needs_the_same_settings(tmp_path: Path) -> None:
    _, first = probe_json(str(tmp_path), *SHORT)
    _, second = probe_json(str(tmp_path), *SHORT, "--compare", str(tmp_path))
    assert second["compared"]["id"] == first["id"]
    assert second["compared"]["valid"] is first["valid"]
    names = {change["name"] for change in second["compared"]["differences"]}
    assert names >= {"sequential.bytes_per_s", "random_4k.iops"}
    begun = time.monotonic()
    code, refused = probe_json(str(tmp_path), "--seconds", "9", "--compare", first["id"])
    assert code == 5
    assert refused["error"]["code"] == "refused"
    assert "seconds" in refused["error"]["message"]
    assert time.monotonic() - begun < 9  # before anything is measured


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/not/there"], 2, "does not exist"),
        ([__file__], 2, "not a folder"),
        (["/proc"], 2, "is not storage"),  # to read some of it, kmsg for example, has effects
        (["/sys/kernel"], 2, "is not storage"),
        (["/tmp", "--need", "fast"], 2, "not a rate"),
        (["/tmp", "--profile", "gpt"], 2, "no profile"),
        (["/tmp", "--need", "1", "--profile", "unet3d-h100"], 2, "two requirements"),
        (["/tmp", "--size", "many"], 2, "not a size"),
        (["/not/there", "--size", "1%"], 2, "does not exist"),
        (["/tmp", "--seconds", "1"], 2, "too short"),
        (["/tmp", "--seconds", "1e9"], 2, "too long"),
        (["/tmp", "--seconds", "nan"], 2, "not a number of seconds"),
        (["/tmp", "--seconds", "inf"], 2, "not a number of seconds"),
        (["/tmp", "--compare", "nothing"], 2, "no earlier probe"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], code: int, words: str) -> None:
    done = hostprep("probe", *arguments, "--json")
    assert done.returncode == code
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert words in document["error"]["message"]
    assert words in done.stderr


def test_help_names_the_least_time() -> None:
    assert f"; {LEAST_SECONDS:g} at least." in hostprep("probe", "--help").stdout


def test_no_fio(tmp_path: Path, fake_fio: Path) -> None:
    done = hostprep("probe", str(tmp_path), "--json", env={"PATH": str(fake_fio.parent)})
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "missing_tool"
    assert "apt-get install fio" in error["hint"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo '{\n \"jobs\": ['; echo 'fio: killed' >&2; kill -9 $$", "fio: killed"),
        ("echo 'fio: engine libaio not loadable'; exit 1", "libaio not loadable"),
    ],
)
def test_a_broken_fio_is_a_sentence_and_nothing_stays(
    tmp_path: Path, fake_fio: Path, script: str, words: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    done = hostprep("probe", str(data), *SHORT, "--json", env=with_fio(fake_fio, script))
    assert done.returncode == 1
    assert words in json.loads(done.stdout)["error"]["message"]
    assert list(data.iterdir()) == []


def test_an_fio_that_hangs_leaves_what_was_measured_before(tmp_path: Path, fake_fio: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    env = with_fio(fake_fio, "exec sleep 300")
    done = hostprep("probe", str(data), *SHORT, "--json", env=env)
    fields = json.loads(done.stdout)
    assert (done.returncode, fields["valid"]) == (4, False)
    assert fields["small_files"]["files_per_s"] > 0
    assert fields["sequential"] is None
    words = {reason["code"]: reason["message"] for reason in fields["invalid_reasons"]}
    assert "did not end" in words["fio_unfinished"] and "dmesg" in words["fio_unfinished"]
    assert list(data.iterdir()) == []


def test_an_fio_that_does_not_start_in_time_is_a_sentence(tmp_path: Path, fake_fio: Path) -> None:
    """As from a disk that answers three requests a second, which fio itself lies on."""
    data = tmp_path / "data"
    data.mkdir()
    fake_fio.write_text("#!/bin/sh\nexec sleep 300\n")
    fake_fio.chmod(0o755)
    begun = time.monotonic()
    env = {"PATH": f"{fake_fio.parent}:/usr/bin:/bin"}
    done = hostprep("probe", str(data), "--seconds", "5", "--json", env=env)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "fio_not_loaded"
    assert f"the disk that fio itself lies on ({fake_fio})" in error["message"]
    assert time.monotonic() - begun < 20
    assert list(data.iterdir()) == []


def wait_for_fio(pid_file: Path) -> None:
    deadline = time.monotonic() + 60
    while not pid_file.exists() or not pid_file.read_text().strip():
        assert time.monotonic() < deadline, "fio was never started"
        time.sleep(0.02)


@contextmanager
def while_fio_runs(data: Path, fake_fio: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Probe ``data`` in a session of its own up to an fio that does not end.

    Yields the process, and where fio, which must not outlive it, has put down its number.
    """
    data.mkdir()
    pid_file = data.with_name("pid")
    env = {**os.environ, **with_fio(fake_fio, f"echo $$ > {pid_file}; exec sleep 300")}

    def as_on_a_terminal() -> None:
        # In the background, or under nohup, the tests may have inherited that these are ignored.
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(
        [sys.executable, "-m", "hostprep", "probe", str(data), *SHORT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
        preexec_fn=as_on_a_terminal,
    ) as process:
        wait_for_fio(pid_file)
        assert list(data.glob(f"{PROBE_PREFIX}*"))
        yield process, pid_file


@pytest.mark.parametrize("number", INTERRUPTIONS)
def test_an_interruption_leaves_nothing_behind(
    tmp_path: Path, fake_fio: Path, number: signal.Signals
) -> None:
    data = tmp_path / "data"
    with while_fio_runs(data, fake_fio) as (process, pid_file):
        process.send_signal(number)
        _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert words.strip().splitlines() == ["hostprep: interrupted."]
    assert list(data.iterdir()) == []
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_a_probe_that_was_stopped_has_no_figures(tmp_path: Path, fake_fio: Path) -> None:
    """The clock went on meanwhile: rates would be too low by that, and nothing would say so."""
    data = tmp_path / "data"
    with while_fio_runs(data, fake_fio) as (process, _):
        os.killpg(process.pid, signal.SIGSTOP)  # as Ctrl-Z does
        os.killpg(process.pid, signal.SIGCONT)
        _, words = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "the probe was stopped (Ctrl-Z, SIGSTOP) while it measured" in words
    assert list(data.iterdir()) == []


def test_a_kernel_short_of_memory_leaves_nothing_behind(tmp_path: Path, fake_fio: Path) -> None:
    """It kills the process that measures, and not the one that waits for it."""
    data = tmp_path / "data"
    with while_fio_runs(data, fake_fio) as (process, _):
        tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for child in tasks.read_text().split():
            os.kill(int(child), signal.SIGKILL)
        _, words = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the process that measured was killed" in words and "may still be in" not in words
    assert list(data.iterdir()) == []


def test_a_terminal_that_is_closed_leaves_nothing_behind(tmp_path: Path, fake_fio: Path) -> None:
    data = tmp_path / "data"
    with while_fio_runs(data, fake_fio) as (process, pid_file):
        os.killpg(process.pid, signal.SIGHUP)  # the child that measures gets it, too
        process.wait(60)
    deadline = time.monotonic() + 60
    while list(data.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(data.iterdir()) == []
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "data").touch()
    before = snapshot(tmp_path / "data")
    env = {"HOSTPREP_STATE_DIR": str(tmp_path / "state")}
    done = hostprep("probe", str(tmp_path / "data"), *SHORT, "--dry-run", env=env)
    assert done.returncode == 0, done.stderr
    assert f"would: {tmp_path}/data: write a test file of up to 64.0 MiB" in done.stdout
    assert (
        f"would: {tmp_path}/data/{PROBE_PREFIX}*: make a hidden folder, and remove it"
        in done.stdout
    )
    assert f"would: {tmp_path}/state/probes: keep the result" in done.stdout
    assert "about 5.0 s" in done.stdout
    assert "the largest one here, if that has 16.0 MiB)" in done.stdout
    assert done.stdout.endswith("dry run: nothing was written, and nothing measured\n")
    told = json.loads(
        hostprep("probe", str(tmp_path / "data"), "--dry-run", "--json", env=env).stdout
    )
    assert told["dry_run"] is True
    assert {tuple(change) for change in told["changes"]} == {("subject", "action", "reason")}
    assert snapshot(tmp_path / "data") == before
    assert not (tmp_path / "state").exists()
    top = hostprep("probe", "/", "--dry-run", env=env).stdout
    assert "would: //" not in top
    if os.access("/", os.W_OK):
        assert f"would: /{PROBE_PREFIX}*: " in top
    odd = hostprep("probe", str(tmp_path / "data"), "--seconds", "1", "--dry-run", env=env)
    assert odd.returncode == 2
    assert "too short" in odd.stderr


@pytest.mark.parametrize(
    ("words", "changes", "code", "verdict"),
    [
        ((), {}, 0, "MEASURED"),
        (("--need", "50"), {}, 0, "PASS"),
        (("--need", "1000"), {}, 3, "FAIL"),
        ((), {"fio_note": "fio did not end"}, 4, "INVALID"),
        (("--need", "1000"), {"fio_note": "fio did not end"}, 4, "INVALID"),
    ],
)
def test_a_script_knows_the_verdict_by_the_exit_code(
    words: tuple[str, ...],
    changes: dict[str, Any],
    code: int,
    verdict: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hostprep.probing.probe.probe", lambda *_: measured(**changes))
    assert run(["probe", str(tmp_path), *words, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["verdict"]) == (True, verdict)
    assert run(["probe", str(tmp_path), *words]) == code
    assert verdict in capsys.readouterr().out or verdict == "MEASURED"
