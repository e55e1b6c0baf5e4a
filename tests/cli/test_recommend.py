"""``hostprep recommend`` on the command line: all modes, all ends, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hostprep.cli.main import run as run_cli
from hostprep.cli.recommend_text import report_text
from hostprep.host import gpu_bounded, gpu_driver
from hostprep.host.gpu import TIMEOUT, Nvml
from hostprep.loading.curve import Ceiling, Curve
from hostprep.loading.recommend import from_host
from hostprep.loading.report import Wish
from hostprep.loading.search import Point
from hostprep.system.interruption import INTERRUPTIONS
from hostprep.units import format_number
from tests.kit.recommending import (
    CONTRACT,
    MARK,
    ROOT,
    command,
    gone,
    marked,
    recommend,
    recommend_for,
)
from tests.unit.loading.making import picture, share


def test_from_the_host_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["recommend", "--ranks", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= CONTRACT
    assert document["mode"] == "host"
    assert document["num_workers"] >= 1
    assert document["expected_samples_per_s"] is None
    assert document["confirmed"] is False
    assert document["evidence"]["host"]["affinity_cpus"] == len(os.sched_getaffinity(0))


def test_host_alone_for_people_is_called_a_starting_point(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["recommend", "--batch-size", "7"]) == 0
    text = capsys.readouterr().out
    assert "starting point, not a measurement" in text
    assert "DataLoader(dataset, batch_size=7, " in text
    assert "note: to measure, give --dataset DIR or --loader MODULE:NAME" in text
    assert ("pin_memory=False" in text) is (
        "why: pin_memory: False because no GPU is visible" in text
    )


@pytest.mark.parametrize("rate", [160.0, 609_114.0, 12_345_678.0])
def test_columns_stay_apart_however_long_the_rates(rate: float) -> None:
    wish = Wish(None, None, 5.0, 224, measure=True, compare=False)
    host = from_host(share(), wish, gpus=0)
    points = (Point(0, rate, 0.15, 1), Point(16, rate / 7, 0.02, 1))
    curve = Curve(rate, rate, rate, Ceiling.CPUS)
    lines = report_text(replace(host, points=points, curve=curve)).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("workers"))
    table = lines[head : head + 3]
    number = format_number(rate)
    assert table[1].split() == ["0", number, "±15%", number]
    ends = {len(line.removesuffix("  <-")) for line in table}
    assert len(ends) == 1, "what is under a head stands under its end"


def test_ranks_come_from_the_launcher(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert run_cli(["recommend", "--json"]) == 0
    host = json.loads(capsys.readouterr().out)["evidence"]["host"]
    assert (host["ranks"], host["ranks_from"]) == (4, "$LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(("devices", "noted"), [(("0000:01:00.0",), True), ((), False)])
def test_gpus_that_cannot_be_asked_are_noted_where_there_are_any(
    devices: tuple[str, ...],
    noted: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "NVML has not answered for 17 s: the driver hangs"
    asked = Nvml(TIMEOUT, said, None, None, None, ())
    monkeypatch.setattr(gpu_bounded, "ask_nvml", lambda: asked)
    driver = gpu_driver.DriverFacts("570.1", devices, (), ())
    monkeypatch.setattr(gpu_driver, "read_driver", lambda: driver)
    assert run_cli(["recommend"]) == 0
    assert ("the driver hangs" in capsys.readouterr().out) is noted


@pytest.mark.parametrize(
    "arguments",
    [
        ("--dataset", "/tmp", "--loader", "a:b"),
        ("--loader", "a:b", "--no-measure"),
        ("--compare",),
        ("--dataset", "/tmp", "--compare", "--no-measure"),
        ("--gpu-rate", "0"),
        ("--gpu-rate", "nan"),
        ("--gpu-rate", "inf"),
        ("--seconds", "nan"),
        ("--batch-size", "0"),
        ("--dataset", "/nowhere/at/all"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["recommend", *arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


@pytest.mark.timed
def test_workers_that_the_kernel_kills_are_a_bound() -> None:
    status, found, _ = recommend_for("KilledWhenMany", "--seconds", "30")
    assert status == 0
    assert found["num_workers"] <= 2
    assert {each["binding"] for each in found["evidence"]["failed_probes"]} == {"memory"}
    assert "workers_failed" in {hazard["code"] for hazard in found["hazards"]}


def test_a_batch_size_for_who_makes_the_batches_alone_is_refused() -> None:
    status, found, _ = recommend_for("bucketed", "--batch-size", "64")
    assert status == 2
    assert "--batch-size cannot change" in found["error"]["message"]


def test_a_module_that_parses_its_arguments_finds_none() -> None:
    status, found, _ = recommend_for("with_arguments", "--seconds", "5")
    assert status == 0
    assert found["evidence"]["loader"]["batch_size"] == 16


def test_prints_of_the_loader_stay_out_of_the_document() -> None:
    status, found, _ = recommend_for("prints_unpicklable")
    assert status == 0
    assert found["num_workers"] is not None
    assert "not" not in found
    # It cannot be pickled, either: a warning where workers are forked.
    assert "unpicklable" in {hazard["code"] for hazard in found["hazards"]}


def ends_in_a_sentence(name: str, status: int, words: str) -> str:
    """Have a loader fail, insist on the sentence with such words, and return it."""
    # Some fail with workers alone, for which there must be time, also on a busy machine.
    ended, found, stderr = recommend_for(name, "--seconds", "50")
    assert ended == status
    message: str = found["error"]["message"]
    assert words in message
    assert words in stderr
    assert "Traceback" not in stderr
    return message


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("Raises", 1, "raised while it made a batch: KeyError"),
        ("Dies", 1, "SIGSEGV"),
        ("NeedsGpu", 4, "needs a GPU"),
        ("empty", 4, "is empty"),
        ("three", 4, "has 3 samples, 1 batch of 32"),
        ("broken", 1, "could not be opened: FileNotFoundError: /data/train.lmdb"),
        ("constant", 2, "is not a loader"),
        ("train_and_validate", 2, "holds several things"),
        ("by_name", 2, "holds several things"),
        ("absent", 2, "has no absent"),
    ],
)
def test_bad_loaders_end_in_a_sentence(name: str, status: int, words: str) -> None:
    if name == "NeedsGpu":
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU here, so nothing is missing")
    ends_in_a_sentence(name, status, words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RaisesInWorkers", "KeyError: 'label'"),
        ("unpicklable_spawned", "cannot be sent to its workers"),
    ],
)
def test_where_only_workers_fail_it_is_told_what_came_without(name: str, words: str) -> None:
    message = ends_in_a_sentence(name, 1, words)
    told = re.search(r"Without workers \(num_workers=0\) it gave (\d+) ", message)
    assert told is not None
    assert 100 < int(told[1]) <= 340  # three milliseconds a sample


@pytest.mark.parametrize(("name", "seconds"), [("Hangs", "8"), ("HangsInWorkers", "20")])
def test_a_loader_that_hangs_is_killed(name: str, seconds: str) -> None:
    status, found, _ = recommend_for(name, "--seconds", seconds)
    if name == "HangsInWorkers" and status == 0:
        # Without workers it is well, and a busy machine may take all the time for that.
        assert {point["workers"] for point in found["evidence"]["points"]} == {0}
        status, found, _ = recommend_for(name, "--seconds", "100")
    assert status == 1
    assert "it hangs, or is slower than that; it was killed" in found["error"]["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [("nocolon", "names no loader"), ("no.such.module:x", "there is no module no")],
)
def test_names_of_nothing(spec: str, words: str) -> None:
    done = recommend("--loader", spec)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_file_instead_of_a_module_is_told_before_anything_is_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_cli(["recommend", "--loader", "./mydata.py:ds"]) == 2
    said = capsys.readouterr().err
    assert "accepted: MODULE:NAME" in said and "here mydata:ds" in said
    assert "timing" not in said and "Error" not in said


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        *(("HangsInWorkers", ending) for ending in (signal.SIGKILL, *INTERRUPTIONS)),
        ("hangs_in_forkserver_workers", signal.SIGKILL),
    ],
)
def test_no_worker_outlives_hostprep_however_it_ends(name: str, ending: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command("--loader", f"tests.cli.recommend_loaders:{name}", "--seconds", "60"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: mark},
        preexec_fn=lambda: ending == signal.SIGKILL or signal.signal(ending, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while len(marked(mark)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(marked(mark)) >= 4  # hostprep, the measuring child and its workers
        process.send_signal(ending)
        status = process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert status == (-signal.SIGKILL if ending == signal.SIGKILL else 130)
    assert gone(mark), f"left running: {marked(mark)}"


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """A Python path on which torch cannot be imported, as where it was never installed."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    before = os.environ.get("PYTHONPATH")  # perhaps where this hostprep is
    return {"PYTHONPATH": f"{hook}:{before}" if before else str(hook)}


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    folder = tmp_path / "photographs"
    folder.mkdir()
    for number in range(200):
        picture(number).save(folder / f"{number}.jpg")
    return folder


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(300):
        np.save(folder / f"{number}.npy", np.full((32, 32, 3), number % 256, np.uint8))
    return folder


def test_without_torch_the_loader_mode_says_how_to_get_it(without_torch: dict[str, str]) -> None:
    done = recommend("--loader", "tests.cli.recommend_loaders:Ready", env=without_torch)
    assert done.returncode == 1
    assert "torch is not installed" in done.stderr
    assert f"{shlex.quote(sys.executable)} -m pip install torch" in done.stderr


def test_without_torch_an_iterable_is_timed_all_the_same(
    without_torch: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torchless.py").write_text(
        "import itertools, numpy, time\n"
        "def batches():\n"
        "    for number in itertools.count():\n"
        "        time.sleep(0.001)\n"
        "        yield numpy.zeros((16, 8)), numpy.zeros(16)\n"
        "samples = list(range(100))\n"
    )
    env = {"PYTHONPATH": f"{without_torch['PYTHONPATH']}:{tmp_path}"}
    done = recommend("--loader", "torchless:batches", "--seconds", "5", "--json", env=env)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert 0 < found["expected_samples_per_s"] <= 16_000
    assert found["evidence"]["loader"]["torch_version"] is None
    assert found["evidence"]["pipeline"]["rows"] == 16
    refused = recommend("--loader", "torchless:samples", env=env)
    assert "torch is not installed" in refused.stderr  # a data set, and needs a DataLoader


def test_without_torch_host_and_data_work(without_torch: dict[str, str], arrays: Path) -> None:
    assert recommend("--json", env=without_torch).returncode == 0
    done = recommend("--dataset", str(arrays), "--json", env=without_torch)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["num_workers"] is not None
    assert found["confirmed"] is False
    assert found["evidence"]["stages"]["kind"] == "npy"
    assert any("torch is not installed" in note for note in found["notes"])


@pytest.fixture
def without_decoders(tmp_path: Path) -> dict[str, str]:
    """A Python path on which nothing that decodes images can be imported."""
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import sys\nfor name in ('PIL', 'cv2', 'simplejpeg'):\n    sys.modules[name] = None\n"
    )
    before = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{hook}:{before}" if before else str(hook),
        "HOSTPREP_STATE_DIR": str(tmp_path / "state"),
    }


@pytest.mark.parametrize("more", [(), ("--no-measure",), ("--gpu-rate", "100", "--compare")])
def test_images_that_nothing_here_decodes_are_no_answer(
    more: tuple[str, ...], without_decoders: dict[str, str], photographs: Path
) -> None:
    arguments = ("--dataset", str(photographs), "--seconds", "8", *more)
    done = recommend(*arguments, "--json", env=without_decoders)
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert set(found) >= CONTRACT
    assert (found["ok"], found["error"]["code"]) == (False, "inconclusive")
    assert found["verdict"].startswith("inconclusive: only reading was measured")
    assert found["verdict"] in done.stderr
    assert found["expected_samples_per_s"] is found["relative_error"] is found["binding"] is None
    assert not found["confirmed"]
    assert found["memory_bytes"] is found["shm_bytes"] is None
    assert found["remedy"].endswith("-m pip install numpy pillow")
    assert "neither Pillow nor OpenCV" in found["evidence"]["files"]["undecoded"]
    # `hostprep check` goes by what is kept, and finds no rate there of files that were only read.
    assert not list((Path(without_decoders["HOSTPREP_STATE_DIR"])).rglob("*recommend*"))
    text = recommend(*arguments, env=without_decoders)
    assert text.returncode == 4
    assert text.stdout.startswith("inconclusive: only reading was measured")
    assert "expected:" not in text.stdout and "bottleneck" not in text.stdout


def test_nor_are_files_of_which_only_ones_own_code_makes_samples(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.flac").write_bytes(bytes([number]) * (20_000 + number % 3))
    done = recommend("--dataset", str(tmp_path), "--seconds", "8", "--json")
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert (found["ok"], found["error"]["code"]) == (False, "inconclusive")
    assert found["verdict"].startswith("inconclusive: only reading was measured, because files")
    assert found["expected_samples_per_s"] is found["binding"] is None
    assert found["num_workers"] is not None and found["evidence"]["points"] == []
    assert found["error"]["hint"] == "hostprep recommend --loader MODULE:NAME"
    assert {each["name"] for each in found["evidence"]["stages"]["stages"]} >= {"read_cold"}
    for part in ("files", "stages"):  # sizes are whole numbers, on the mean too
        assert type(found["evidence"][part]["mean_file_bytes"]) is int


def test_from_files_with_real_loaders(arrays: Path) -> None:
    for seconds in ("25", "100"):  # a busy machine takes most of the first for importing torch
        done = recommend("--dataset", str(arrays), "--seconds", seconds, "--json")
        found = json.loads(done.stdout)
        assert done.returncode in (0, 4)
        evidence = found["evidence"] if done.returncode == 0 else {}
        if evidence.get("probes") and evidence["transport"]:
            break
    assert done.returncode == 0
    assert set(found) >= CONTRACT
    assert evidence["files"]["count"] == 300
    assert {stage["name"] for stage in evidence["stages"]["stages"]} >= {"read_cold", "decode"}
    assert evidence["transport"]["samples_per_s"] > 0
    assert evidence["sample"]["sample_bytes"] == 32 * 32 * 3
    assert evidence["probes"]


def test_files_without_a_measurement_are_modelled(arrays: Path) -> None:
    done = recommend("--dataset", str(arrays), "--no-measure")
    assert done.returncode == 0
    assert "by the model, not confirmed" in done.stdout
