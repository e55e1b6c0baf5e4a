"""The process that tests, followed: what it left when it died, hung, or never came to a device."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.cuda import child, session
from hostprep.cuda.results import Status
from hostprep.errors import UsageError
from tests.kit import fake_nvml
from tests.unit.cuda.test_starting import GOOD


class Silent:
    def stage(self, subject: str, name: str) -> None:
        """Nobody listens."""


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch that starts CUDA with two devices and does ``END`` on the first question to one."""
    # Of the checkout's own hostprep, also where another one is installed.
    root = Path(session.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{root}")
    (tmp_path / "torch.py").write_text(
        textwrap.dedent(
            """
            import os, time
            class version:
                cuda, hip = "12.6", None
            __version__ = "2.13.0+made"
            class zeros:
                def __init__(self, *_, device): pass
                def add_(self, _): return self
                def item(self): return 1.0
            class cuda:
                def init(): pass
                def device_count(): return 2
                def get_device_properties(_): END
            """
        )
    )
    return tmp_path / "torch.py"


def run(path: Path, end: str, device: int | None = None) -> session.Report:
    path.write_text(path.read_text().replace("END", end))
    return session.verify(device=device, quick=True, folder=None, observer=Silent())


def test_a_process_that_dies_leaves_an_error_and_devices_that_were_skipped(
    fake_torch: Path,
) -> None:
    report = run(fake_torch, "os.kill(os.getpid(), 9)")
    found = [(check.name, check.subject, check.status) for check in report.checks]
    assert found == [
        ("cuda.start", "driver", Status.PASS),
        ("run.process", "hostprep", Status.ERROR),
        ("run.device", "cuda:0", Status.SKIP),
        ("run.device", "cuda:1", Status.SKIP),
    ]
    assert report.verdict is Status.ERROR
    assert "signal 9" in report.checks[1].message
    assert all(check.threshold and check.remedy for check in report.checks[1:])


def test_a_process_that_fails_says_with_what(fake_torch: Path) -> None:
    report = run(fake_torch, "raise RuntimeError('no such thing')", device=1)
    assert "RuntimeError: no such thing" in report.checks[1].message
    assert [check.subject for check in report.checks[2:]] == ["cuda:1"]


@pytest.mark.parametrize(
    ("status", "stderr", "words"),
    [
        (1, "python: No module named hostprep", "it ended with status 1: python: No module"),
        (
            1,
            "a warning\nTraceback (most recent call last):\n  x = y\n"
            "RuntimeError: CUDA error: lost\nCompile with `TORCH_USE_CUDA_DSA`.\n",
            "status 1: RuntimeError: CUDA error: lost",
        ),
        (-11, "x.py:3: UserWarning: old\n  x = y", "it ended with signal 11: it said nothing"),
        (-9, "x.py:3: UserWarning: old\n  x = y", "signal 9: the kernel sends it when memory"),
        (
            -6,
            "terminate called after throwing an instance of 'c10::Error'\n"
            "  what():  CUDA error: unspecified launch failure\n\nframe #0: c10::Error",
            "it ended with signal 6: what():  CUDA error: unspecified launch failure",
        ),
    ],
)
def test_the_last_words_of_a_process_are_those_of_its_end(
    status: int, stderr: str, words: str
) -> None:
    assert words in session._end_in_words(status, stderr)


def test_a_process_without_hostprep_is_no_driver_that_hangs(fake_torch: Path) -> None:
    (fake_torch.parent / "hostprep").mkdir()
    (fake_torch.parent / "hostprep" / "__init__.py").touch()
    (check,) = run(fake_torch, "pass").checks
    assert check.status is Status.ERROR
    assert "No module named 'hostprep.cuda'" in check.message
    assert "PYTHONPATH" in (check.remedy or "")


# A stage that has sample files and workers: torch raises wherever it is when one of these ends.
HANGING = """
import os, signal, time
from hostprep.cuda.telling import tell
from hostprep.system.own_directory import VERIFY_PREFIX, own_directory
def worker_died(*_): raise RuntimeError("DataLoader worker is killed by signal: Terminated.")
with own_directory("FOLDER", VERIFY_PREFIX) as place:
    status = os.fstat(place)
    made = os.readlink(f"/proc/self/fd/{place}")
    tell("folder", path=made, device=status.st_dev, inode=status.st_ino + OTHER)
    for number in range(1000):
        open(f"/proc/self/fd/{place}/{number}.raw", "w")
    signal.signal(signal.SIGCHLD, worker_died)
    parent = os.getpid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while os.getppid() == parent:
            time.sleep(0.01)
        os._exit(0)
    END
    while True:
        time.sleep(600)
"""


def hanging(folder: Path, end: str = "pass", other: int = 0) -> str:
    folder.mkdir()
    words = {"FOLDER": folder, "END": end, "OTHER": other}
    source = HANGING
    for name, value in words.items():
        source = source.replace(name, str(value))
    (folder.parent / "hanging.py").write_text(source)
    return "__import__('hanging')"


def test_a_process_that_hangs_is_ended_and_its_sample_files_go(
    fake_torch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "QUICK_SECONDS", 0.5)
    monkeypatch.setattr(session, "_GRACE_SECONDS", 1.0)
    fake_torch.write_text(
        f"open({str(fake_torch) + '.pid'!r}, 'w').write(str(__import__('os').getpid()))\n"
        + fake_torch.read_text()
    )
    folder = tmp_path / "samples"
    report = run(fake_torch, hanging(folder, other=1))
    assert report.verdict is Status.ERROR
    assert "said nothing for 2 s and was ended" in report.checks[1].message
    pid = int(Path(f"{fake_torch}.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("other", "left"), [(0, 0), (1, 1)])
def test_so_do_those_of_a_process_that_was_killed_if_the_folder_is_that_one(
    other: int, left: int, fake_torch: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "samples"
    report = run(fake_torch, hanging(folder, "os.kill(os.getpid(), 9)", other))
    assert "signal 9" in report.checks[1].message
    assert len(list(folder.iterdir())) == left


@pytest.mark.parametrize(
    ("where", "doing", "remedy"),
    [
        ("import os, time", "imported torch", "import torch"),
        ("def init(): pass", "started CUDA", "dmesg"),
    ],
)
def test_what_hangs_before_there_is_a_survey_is_named(
    where: str, doing: str, remedy: str, fake_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {
        "QUICK_SECONDS": 0.5,
        "_GRACE_SECONDS": 0.5,
        "_IMPORT_SECONDS": 1.5,
    }.items():
        monkeypatch.setattr(session, name, seconds)
    hanging = where.replace("pass", "time.sleep(600)")
    hanging += "\ntime.sleep(600)" if where == hanging else ""
    fake_torch.write_text(fake_torch.read_text().replace(where, hanging))
    (check,) = run(fake_torch, "pass").checks
    assert check.status is Status.ERROR
    assert f"ended while it {doing}: it has said nothing for" in check.message
    assert remedy in (check.remedy or "")


def test_torch_may_take_its_time_to_be_read(
    fake_torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "QUICK_SECONDS", 0.5)
    monkeypatch.setattr(session, "_GRACE_SECONDS", 0.5)
    fake_torch.write_text(
        fake_torch.read_text().replace("import os, time", "import os, time\ntime.sleep(2)")
    )
    report = run(fake_torch, "os._exit(0)")
    assert (report.checks[0].name, report.checks[0].status) == ("cuda.start", Status.PASS)


def test_the_time_of_a_device_begins_after_the_import_and_pays_its_share_of_the_survey(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, until, turns = [1000.0], [], []

    def taking(seconds: float, answer: Any) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            now[0] += seconds
            return answer

        return call

    class Run:
        def __init__(self, *arguments: Any) -> None:
            until.append(arguments[-1])

        def all(self, *, first: bool) -> None:
            now[0] += 15
            turns.append(first)

    torch = replace(GOOD.torch, devices=3, unusable=((1, "cuda:1: CUDA error: out of memory"),))
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(child.surveying, "import_torch", taking(60, (None, None)))
    monkeypatch.setattr(child.surveying, "survey", taking(4, replace(GOOD, torch=torch)))
    monkeypatch.setattr(child, "_Run", Run)
    child.main(json.dumps({"device": None, "quick": True, "folder": None, "seconds": 17}))
    assert until == [1064 + 15, 1064 + 30]
    assert turns == [True, False]  # of the second, the survey is too old
    assert child.seconds_each(17, 30, 1) == 8.5  # a driver that is slow to start leaves something


def test_a_torch_for_other_gpus_is_not_tested_and_not_judged(fake_torch: Path) -> None:
    fake_torch.write_text(fake_torch.read_text().replace('"12.6", None', 'None, "6.3"'))
    report = run(fake_torch, "os.kill(os.getpid(), 9)")
    assert [(check.name, check.status) for check in report.checks] == [("cuda.start", Status.SKIP)]
    assert report.verdict is Status.SKIP
    assert report.survey is not None and report.survey.torch.devices == 0


@pytest.mark.parametrize(
    ("failing", "device", "found"),
    [
        # The others are tested; this one has a check of its own.
        ("0", None, [("driver", "PASS"), ("cuda:0", "INCONCLUSIVE"), ("cuda:1", "SKIP")]),
        # One that was not asked for is not tried.
        ("0", 1, [("driver", "PASS"), ("cuda:1", "SKIP")]),
        ("1", 1, [("driver", "INCONCLUSIVE")]),
        ("01", None, [("driver", "INCONCLUSIVE"), ("cuda:1", "INCONCLUSIVE")]),
    ],
)
def test_a_device_that_is_not_usable_hides_no_other(
    failing: str, device: int | None, found: list[tuple[str, str]], fake_torch: Path
) -> None:
    full = f"""def __init__(self, *_, device):
        if device[-1] in {failing!r}: raise RuntimeError("CUDA error: out of memory\\nAdvice.")
"""
    fake_torch.write_text(
        fake_torch.read_text().replace("def __init__(self, *_, device): pass", full)
    )
    # The process ends by itself when it comes to the first device that can be tested.
    report = run(fake_torch, "os._exit(0)", device)
    assert [(check.subject, check.status.value) for check in report.checks] == found
    assert {check.name for check in report.checks} <= {"cuda.start", "run.device"}
    for check in report.checks:
        if check.status is Status.INCONCLUSIVE:
            assert "out of memory" in check.message and check.remedy


def test_a_gpu_that_is_lost_is_told_beside_what_was_tested(
    fake_torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_nvml.build(tmp_path, DEVICES=3, LOST=1).items():
        monkeypatch.setenv(name, value)
    report = run(fake_torch, "os._exit(0)")
    assert [(check.name, check.status) for check in report.checks[:2]] == [
        ("cuda.start", Status.PASS),
        ("cuda.lost", Status.INCONCLUSIVE),
    ]
    assert "shows 2 GPUs of 3" in report.checks[1].message


def test_a_device_that_does_not_start_is_named(fake_torch: Path) -> None:
    full = 'def item(self): raise RuntimeError("CUDA out of memory.\\nMore of it.")'
    fake_torch.write_text(fake_torch.read_text().replace("def item(self): return 1.0", full))
    report = run(fake_torch, "pass", device=1)
    assert report.survey is not None
    assert report.survey.torch.problem == "cuda:1: CUDA out of memory."


def test_a_device_that_torch_does_not_see_is_a_usage_error(fake_torch: Path) -> None:
    with pytest.raises(UsageError, match="no cuda:7; torch sees 2"):
        run(fake_torch, "pass", device=7)
