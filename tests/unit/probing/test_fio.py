"""fio's arguments and output, and programs that behave as a broken fio does."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from hostprep.errors import MissingTool
from hostprep.probing.fio import (
    FioFailed,
    FioNotLoaded,
    FioTooLate,
    Job,
    StatusReader,
    arguments,
    measure,
    version,
)
from hostprep.probing.layout import open_existing
from hostprep.system.run import CommandFailed, run

JOB = Job("/data/file", "/data/file", "randread", 4096, 32, 1.5, 1 << 20, True)


def status(io_bytes: int = 4096, runtime: int = 1000, error: int = 0) -> str:
    read = {
        "io_bytes": io_bytes,
        "runtime": runtime,
        "total_ios": io_bytes // 4096,
        "lat_ns": {"percentile": {"50.000000": 1000, "95.000000": 2000, "99.000000": 3000}},
    }
    return json.dumps(
        {"fio version": "fio-3.33", "jobs": [{"error": error, "read": read}]}, indent=1
    )


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where to write a program that is found as fio."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "fio"


def write(program: Path, script: str) -> None:
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)


def say(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND\n"


def test_the_measuring_pass_can_neither_write_nor_make_a_file() -> None:
    line = arguments(JOB)
    for argument in ("--readonly", "--allow_file_create=0", "--randrepeat=0", "--direct=1"):
        assert argument in line
    assert "--runtime=1500ms" in line
    assert "--thread" in line


def test_words_before_the_json_and_documents_in_pieces() -> None:
    text = "fio: this is a warning\n{not json} \n" + status(4096, 500) + "\n" + status(12288, 1500)
    reader = StatusReader()
    documents, rates = [], []
    for index in range(0, len(text), 37):
        for document in reader.feed(text[index : index + 37].encode()):
            documents.append(document)
            rates.append(reader.rate())
    assert len(documents) == 2
    assert rates == [8192, 8192]  # cumulative values: differences of them
    assert reader.last == documents[1]


@pytest.mark.parametrize(
    ("told", "late"),
    [
        ([(500, 50), (1000, 100), (1500, 110), (2000, 120)], 20.0),
        ([(500, 10), (1000, 20), (1500, 120), (2010, 222)], 200.0),
        ([(499, 50), (1000, 100)], 100.0),
        ([(2000, 120)], None),
        ([(100, 10), (2000, 120)], None),
        ([], None),
    ],
)
def test_the_second_half_of_a_pass(told: list[tuple[int, int]], late: float | None) -> None:
    reader = StatusReader()
    for runtime, kilobytes in told:
        reader.feed((status(kilobytes * 1000, runtime) + "\n").encode())
    seen = reader.late_rate()
    assert seen == (late if late is None else pytest.approx(late * 1e3, rel=0.01))


def test_errors_before_the_json_do_not_hide_the_result(fake: Path) -> None:
    write(fake, "echo 'fio: posix_fadvise failed'; echo words >&2\n" + say(status(40960, 2000)))
    result = measure(JOB)
    assert result.read_bytes == 40960
    assert result.bytes_per_s == 20480
    assert result.iops == 5
    assert result.latency is not None and result.latency.p95 == 2e-6
    assert result.load.cpu_own  # it is told when fio has ended, and has been waited for


def test_an_fio_that_dies_half_way(fake: Path) -> None:
    write(fake, say(status()[:100]) + "echo 'fio: pid 7, got signal=11' >&2; kill -SEGV $$\n")
    with pytest.raises(FioFailed, match="got signal=11"):
        measure(JOB)


def test_an_fio_that_dies_after_some_status(fake: Path) -> None:
    write(fake, say(status()) + "echo 'fio: io_u error on file' >&2; exit 1\n")
    with pytest.raises(FioFailed, match="io_u error"):
        measure(JOB)


def test_an_fio_that_is_killed_after_some_status_is_a_sentence(fake: Path) -> None:
    write(fake, say(status()) + "kill -KILL $$\n")
    with pytest.raises(FioFailed) as caught:
        measure(JOB)
    assert caught.value.message.endswith("(status -9, error 0): it was ended before it was done")


def test_an_error_that_only_the_job_tells(fake: Path) -> None:
    write(fake, say(status(error=5)))
    with pytest.raises(FioFailed, match="error 5"):
        measure(JOB)


def test_an_fio_that_read_nothing(fake: Path) -> None:
    write(fake, say(status(io_bytes=0, runtime=0)))
    with pytest.raises(FioFailed, match="read nothing"):
        measure(JOB)


def test_an_fio_that_hangs_is_stopped_soon_after_its_time(fake: Path) -> None:
    write(fake, "echo $$ > " + str(fake.parent / "pid") + "; exec sleep 300\n")
    begun = time.monotonic()
    with pytest.raises(FioTooLate, match="did not end"):
        measure(Job("/data/file", "/data/file", "read", 4096, 1, 0.1, 1 << 20, True))
    assert time.monotonic() - begun < 60
    pid = (fake.parent / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_under_way_at_the_end_is_waited_for(fake: Path) -> None:
    # 32 MiB at 5 MB/s: a volume whose credit is used up, a share over a slow network.
    write(fake, "sleep 6.4\n" + say(status(40960, 6400)))
    result = measure(Job("/data/file", "/data/file", "read", 1 << 20, 32, 0.1, 1 << 30, True))
    assert result.bytes_per_s == 6400


def test_an_fio_that_comes_from_a_slow_disk_has_time_to_come(fake: Path) -> None:
    write(fake, "sleep 4.6\n" + say(status(4096, 1000)))
    job = Job("/data/file", "/data/file", "read", 4096, 1, 0.1, 1 << 20, True)
    assert measure(job, loading_seconds=4.0).bytes_per_s == 4096
    with pytest.raises(FioTooLate, match="within 4 s"):
        measure(job)


def test_no_more_is_waited_than_is_left_of_the_time(fake: Path) -> None:
    write(fake, "exec sleep 300\n")
    job = Job("/data/file", "/data/file", "read", 1 << 20, 32, 0.1, 1 << 30, True)
    begun = time.monotonic()
    with pytest.raises(FioTooLate, match="within 1 s"):
        measure(job, loading_seconds=60.0, within_seconds=1.0)
    assert time.monotonic() - begun < 60
    write(fake, "sleep 4.6\n" + say(status(4096, 1000)))
    job = Job("/data/file", "/data/file", "randread", 4096, 32, 0.1, 1 << 20, True)
    assert measure(job, arriving_seconds=4.0).bytes_per_s == 4096


def test_an_fio_that_does_not_come_from_its_disk_is_waited_for_as_long_as_there_is_time(
    fake: Path,
) -> None:
    write(fake, "exec sleep 300\n")
    begun = time.monotonic()
    with pytest.raises(FioNotLoaded) as error:
        version(0.5)
    assert time.monotonic() - begun < 60
    assert error.value.exit_code == 4
    assert f"the disk that fio itself lies on ({fake})" in error.value.message
    assert "run `fio --version` yourself until it answers" in (error.value.hint or "")
    write(fake, "kill -KILL $$\n")  # which nobody ignores, as they may HUP
    with pytest.raises(CommandFailed, match="was ended by SIGKILL"):
        version(0.5)


def test_what_fio_says_is_of_the_file_as_people_know_it(fake: Path) -> None:
    write(fake, "echo 'fio: failed to open /proc/7/fd/3: No such file' >&2; exit 1\n")
    with pytest.raises(FioFailed) as error:
        measure(Job("/proc/7/fd/3", "/data/the file", "read", 4096, 1, 1, 1 << 20, True))
    assert "/proc/7" not in error.value.message
    assert "--filename='/data/the file'" in error.value.message
    assert "failed to open /data/the file: No such file" in error.value.message


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("1.9.5", "is not fio, the disk benchmark"),  # Fiona's, of a Python environment
        ("", "is not fio"),
        ("fio-2.16", "too old"),
    ],
)
def test_another_program_of_this_name_is_not_asked_to_measure(
    fake: Path, says: str, words: str
) -> None:
    write(fake, f"echo {says}\n")
    with pytest.raises(FioFailed, match=words) as error:
        version()
    assert "apt-get install fio" in (error.value.hint or "")
    for fine in ("fio-3.0", "fio-3.33", "fio-3.37-33-g1234"):
        write(fake, f"echo {fine}\n")
        assert version() == fine
    write(fake, "echo 'wrapper: loading modules'; echo fio-3.33\n")
    assert version() == "fio-3.33"


@pytest.mark.parametrize(
    "jobs", ["[]", "{}", "[{}]", '[{"read": {}}]', '[{"read": {"io_bytes": "1 MiB"}}]', "7"]
)
def test_a_document_without_a_result_is_none(fake: Path, jobs: str) -> None:
    write(fake, say('{\n "jobs": ' + jobs + "\n}"))
    with pytest.raises(FioFailed, match="gave no result"):
        measure(Job("/data/file", "/data/file", "read", 4096, 1, 0.1, 1 << 20, True))


@pytest.mark.parametrize(
    "latency",
    [
        "[]",
        "null",
        '{"percentile": {"50.000000": "x"}}',
        '{"percentile": [1]}',
        '{"percentile": {"50.000000": 1, "95.000000": 2, "99.000000": 1%s}}' % (400 * "0"),
        '{"percentile": {"50.000000": -1, "95.000000": 2, "99.000000": 3}}',
    ],
)
def test_latencies_in_another_form_are_not_told(fake: Path, latency: str) -> None:
    read = f'{{"io_bytes": 8192, "runtime": 100, "total_ios": 2, "lat_ns": {latency}}}'
    write(fake, say('{\n "jobs": [{"error": 0, "read": ' + read + "}]\n}"))
    result = measure(JOB)
    assert (result.iops, result.latency) == (20, None)


@pytest.mark.parametrize("figure", ["-1", "true", "1e400", str(10**30)])
def test_figures_that_nobody_can_reckon_with_are_no_result(fake: Path, figure: str) -> None:
    for name in ("io_bytes", "runtime", "total_ios"):
        read = json.loads(status())["jobs"][0]["read"] | {name: "FIGURE"}
        text = json.dumps({"jobs": [{"error": 0, "read": read}]}, indent=1)
        write(fake, say(text.replace('"FIGURE"', figure)))
        with pytest.raises(FioFailed, match="gave no result"):
            measure(JOB)


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        (say(status(error=errno.ENOMEM)), "free some memory"),
        ("echo 'fio: io_u error on file' >&2; exit 1\n", "fix that"),
        (say(status(error=errno.EIO)), "fix that"),
        (say(status(error=10**30)), "fix that"),
        (say(status().replace('"error": 0', '"error": "5"')), "fix that"),
        (say(status().replace('"error": 0', '"error": [5]')), "fix that"),
        (say(status(io_bytes=0)), "--seconds"),
        (say(status(io_bytes=512)), "--seconds"),  # no request came to its end
    ],
)
def test_what_fails_in_fio_has_a_remedy(fake: Path, script: str, hint: str) -> None:
    write(fake, script)
    with pytest.raises(FioFailed) as caught:
        measure(JOB)
    assert hint in (caught.value.hint or "")


def test_an_error_of_the_job_alone_is_told_in_words(fake: Path) -> None:
    write(fake, say(status(error=5)))
    with pytest.raises(FioFailed, match=r"error 5\): Input/output error$"):
        measure(Job("/data/file", "/data/file", "read", 4096, 1, 0.1, 1 << 20, True))


def test_no_fio_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool) as error:
        version()
    assert error.value.package == "fio"


@pytest.mark.parametrize("name", ["plain", "co:lon", "line\nend", 'a;#[b] \t"c\\'])
def test_the_real_fio_reads_the_very_file_whatever_its_name(name: str, tmp_path: Path) -> None:
    try:
        run(["fio", "--version"], wanted_for="test", timeout_seconds=10)
    except MissingTool:
        pytest.skip("fio is not installed")
    file = tmp_path / name
    file.write_bytes(b"x" * (1 << 20))
    told: list[float] = []
    held = open_existing(str(file), 1 << 20)
    job = Job(held.opened, held.path, "randread", 4096, 4, 1.3, held.size_bytes, False)
    file.rename(tmp_path / "moved")
    result = measure(job, tell=told.append)
    os.close(held.fd)
    assert result.read_bytes > 0
    assert result.iops == pytest.approx(result.bytes_per_s / 4096)
    assert result.latency is not None
    assert 0 < result.latency.p50 <= result.latency.p95 <= result.latency.p99
    assert told and max(told) > 0
    assert (tmp_path / "moved").read_bytes() == b"x" * (1 << 20)
