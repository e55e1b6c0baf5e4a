"""``hostprep verify`` on the command line, on machines without a usable GPU.

NVML and torch are stand-ins where the machine cannot have the real ones: a library file that
answers as told, and a package ``torch`` that starts CUDA no more than a broken host would.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from hostprep.host.gpu_driver import read_driver
from tests.kit import fake_nvml

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() or read_driver().module_version is not None,
    reason="this machine has a driver: its own answers would mix with the stand-ins'",
)


def verify(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hostprep", "verify", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
        check=False,
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def fake_torch(
    folder: Path, problem: str, *, cuda: str = "12.6", devices: int = 0
) -> dict[str, str]:
    """Write a package ``torch`` whose CUDA does not start; return the environment that finds it."""
    (folder / "torch.py").write_text(
        textwrap.dedent(
            f"""
            class version:
                cuda, hip = {cuda!r}, None
            __version__ = "2.13.0+made"
            class cuda:
                def init():
                    raise RuntimeError({problem!r})
            """
        )
    )
    return {"PYTHONPATH": str(folder)}


def test_a_torch_without_cuda_is_a_skip_in_text_and_in_json() -> None:
    text = verify()
    assert text.returncode == 4
    last = text.stdout.splitlines()[-1]
    assert last.startswith("SKIP: 1 SKIP; nothing was tested, which is not a pass")
    assert "PASS" not in text.stdout and text.stderr == ""
    answer = verify("--json")
    fields = document(answer)
    assert answer.returncode == 4 and answer.stderr == ""
    assert fields["schema"] == "hostprep.verify/1"
    assert fields["verdict"] == "SKIP" and fields["traces"] == []
    assert [check["status"] for check in fields["checks"]] == ["SKIP"]
    assert "PASS" not in answer.stdout
    assert fields["survey"]["torch"]["version"] == torch.__version__


def test_no_torch_is_a_sentence_and_a_skip(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    done = verify(env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 4
    assert "torch is not installed in the Python that runs hostprep" in done.stdout
    assert f"{shlex.quote(sys.executable)} -m pip install torch" in done.stdout
    assert "hostprep[" not in done.stdout, "nobody's package on an index is meant"


def test_a_torch_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open')\n")
    done = verify("--quick", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 4 and "libcudart.so.12: cannot open" in done.stdout


def test_no_device_with_a_torch_that_has_cuda_is_a_skip(tmp_path: Path) -> None:
    done = verify("--json", env=fake_torch(tmp_path, "Found no NVIDIA driver on your system."))
    assert done.returncode == 4 and document(done)["verdict"] == "SKIP"
    env = fake_torch(tmp_path, "No CUDA GPUs are available")
    done = verify("--json", env=env | fake_nvml.build(tmp_path, DEVICES=0))
    assert done.returncode == 4 and document(done)["verdict"] == "SKIP"
    assert document(done)["survey"]["nvml"]["driver_version"] == "550.54.14"


@pytest.mark.parametrize(
    ("answers", "problem", "environment", "words"),
    [
        ({"CODE": 18}, "Error 803", {}, "upgraded and the old module is loaded"),
        ({"CODE": 4}, "No CUDA GPUs are available", {}, "may not open"),
        (
            {"CUDA": 11040},
            "The NVIDIA driver on your system is too old (found version 11040).",
            {},
            "knows CUDA 11.4",
        ),
        (
            {"DEVICES": 2},
            "No CUDA GPUs are available",
            {"CUDA_VISIBLE_DEVICES": ""},
            "CUDA_VISIBLE_DEVICES='' hides every device; NVML sees 2",
        ),
        ({}, "CUDA unknown error", {}, "CUDA does not start: CUDA unknown error"),
    ],
)
def test_a_driver_that_is_there_while_cuda_does_not_start_fails(
    tmp_path: Path,
    answers: dict[str, int],
    problem: str,
    environment: dict[str, str],
    words: str,
) -> None:
    env = fake_torch(tmp_path, problem) | fake_nvml.build(tmp_path, **answers) | environment
    text = verify(env=env)
    assert text.returncode == 3, text.stdout + text.stderr
    assert words in text.stdout and text.stdout.splitlines()[-1].startswith("FAIL: 1 FAIL")
    answer = verify("--json", env=env)
    (check,) = document(answer)["checks"]
    assert answer.returncode == 3 and document(answer)["verdict"] == "FAIL"
    assert check["status"] == "FAIL" and check["remedy"]
    assert set(check) >= {"name", "status", "measured", "threshold", "remedy"}


def test_a_process_that_dies_is_an_error_and_not_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os\nprint('a library that talks', flush=True)\nos.kill(os.getpid(), 11)\n"
    )
    done = verify("--json", env={"PYTHONPATH": str(tmp_path)})
    fields = document(done)
    assert done.returncode == 1 and fields["verdict"] == "ERROR"
    assert "signal 11" in fields["checks"][0]["message"]


def test_modules_in_the_current_folder_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("open('was-run', 'w')\n")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hostprep")), "verify"], cwd=tmp_path, check=False
    )
    assert done.returncode == 4 and not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:x", "cuda:", "cpu", "cuda:-1", "cuda:" + "9" * 5000]
)
def test_a_device_that_is_none_is_a_usage_error(device: str) -> None:
    done = verify("--device", device, "--json")
    assert done.returncode == 2
    assert document(done)["error"]["code"] == "usage"
    assert "cuda:0" in document(done)["error"]["hint"]


def test_a_folder_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    done = verify("--data", str(tmp_path / "nowhere"))
    assert done.returncode == 2 and "is not a folder" in done.stderr
