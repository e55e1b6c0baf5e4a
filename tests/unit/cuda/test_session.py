"""The process that tests, followed: what it left when it died, hung, or never came to a device."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from hostprep.cuda import session
from hostprep.cuda.results import Status
from hostprep.errors import UsageError


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


def test_a_process_without_hostprep_is_no_driver_that_hangs(fake_torch: Path) -> None:
    (fake_torch.parent / "hostprep").mkdir()
    (fake_torch.parent / "hostprep" / "__init__.py").touch()
    (check,) = run(fake_torch, "pass").checks
    assert check.status is Status.ERROR
    assert "No module named 'hostprep.cuda'" in check.message
    assert "PYTHONPATH" in (check.remedy or "")


def test_a_process_that_hangs_is_ended(fake_torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "QUICK_SECONDS", 0.5)
    monkeypatch.setattr(session, "_GRACE_SECONDS", 1.0)
    fake_torch.write_text(
        f"open({str(fake_torch) + '.pid'!r}, 'w').write(str(__import__('os').getpid()))\n"
        + fake_torch.read_text()
    )
    report = run(fake_torch, "time.sleep(600)")
    assert report.verdict is Status.ERROR
    assert "said nothing for 2 s and was ended" in report.checks[1].message
    pid = int(Path(f"{fake_torch}.pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_device_that_does_not_start_is_named(fake_torch: Path) -> None:
    full = 'def item(self): raise RuntimeError("CUDA out of memory.\\nMore of it.")'
    fake_torch.write_text(fake_torch.read_text().replace("def item(self): return 1.0", full))
    report = run(fake_torch, "pass", device=1)
    assert report.survey is not None
    assert report.survey.torch.problem == "cuda:1: CUDA out of memory."


def test_a_device_that_torch_does_not_see_is_a_usage_error(fake_torch: Path) -> None:
    with pytest.raises(UsageError, match="no cuda:7; torch sees 2"):
        run(fake_torch, "pass", device=7)
