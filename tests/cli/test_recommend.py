"""``hostprep recommend`` on the command line: all modes, all ends, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostprep.cli.main import run as run_cli
from hostprep.host import gpu_bounded, gpu_driver
from hostprep.host.gpu import GpuFacts
from tests.kit.timed import measures_time

pytestmark = measures_time

ROOT = Path(__file__).parents[2]
CONTRACT = {
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "binding",
    "expected_samples_per_s",
    "evidence",
}
MARK = "HOSTPREP_TEST_MARK"
NO_RANKS = {"LOCAL_WORLD_SIZE": "", "SLURM_NTASKS_PER_NODE": "", "OMPI_COMM_WORLD_LOCAL_SIZE": ""}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hostprep", "recommend", *arguments]


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def gone(mark: str, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def hostprep(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    mark = uuid.uuid4().hex
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, **NO_RANKS, MARK: mark, **(env or {})},
        check=False,
    )
    assert gone(mark), f"left running: {marked(mark)}"
    # Other programs may use it, too: only what did not exist before and stays can be ours.
    assert not (left_over(before) and time.sleep(2) is None and left_over(before))
    return done


def left_over(before: set[str]) -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("torch_")} - before


def loader(name: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    spec = f"tests.cli.recommend_loaders:{name}"
    seconds = () if "--seconds" in arguments else ("--seconds", "10")
    done = hostprep("--loader", spec, *seconds, *arguments, "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "hostprep.recommend/1"
    assert document["ok"] is (done.returncode == 0)
    return done.returncode, document, done.stderr


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
    assert "note: --dataset DIR or --loader MODULE:NAME measures" in text


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
    asked = GpuFacts((), "NVML has not answered for 17 s: the driver hangs")
    monkeypatch.setattr(gpu_bounded, "ask_gpus", lambda: asked)
    driver = gpu_driver.DriverFacts("570.1", devices, (), ())
    monkeypatch.setattr(gpu_driver, "read_driver", lambda: driver)
    assert run_cli(["recommend"]) == 0
    assert ("the driver hangs" in capsys.readouterr().out) is noted


@pytest.mark.parametrize(
    "arguments",
    [
        ("--dataset", "/tmp", "--loader", "a:b"),
        ("--loader", "a:b", "--no-measure"),
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


def test_a_loader_that_waits_gets_more_workers_than_there_are_processors() -> None:
    status, found, _ = loader("Waiting", "--seconds", "16")
    assert status == 0
    assert set(found) >= CONTRACT
    assert found["num_workers"] > (os.cpu_count() or 1)
    assert found["confirmed"]
    evidence = found["evidence"]
    assert evidence["sample"]["waiting_seconds"] > evidence["sample"]["cpu_seconds"]
    probes = evidence["probes"]
    assert probes[0]["workers"] == 0
    assert all(probe["discarded_batches"] >= 2 * probe["workers"] + 4 for probe in probes[1:])
    at_best = [p for p in evidence["points"] if p["workers"] == found["num_workers"]]
    assert at_best[0]["probes"] >= 1
    assert found["expected_samples_per_s"] == pytest.approx(at_best[0]["rate"])


def test_a_stream_that_is_not_shared_out_gets_no_workers_for_their_copies() -> None:
    status, found, _ = loader("Unsharded", "--seconds", "16")
    assert status == 0
    assert found["num_workers"] <= 1
    assert found["binding"] == "sharding"
    (hazard,) = [each for each in found["hazards"] if each["code"] == "unsharded"]
    assert "get_worker_info" in hazard["cure"]
    # A sample takes three milliseconds, and once it came it counts once.
    assert found["expected_samples_per_s"] < 340


def test_a_stream_that_ends_before_the_clock_is_timed() -> None:
    status, found, _ = loader("short_stream", "--seconds", "16")
    assert status == 0
    assert found["num_workers"] is not None
    assert found["evidence"]["probes"][0]["samples"] > 4000
    assert "unsharded" not in {hazard["code"] for hazard in found["hazards"]}


def test_workers_that_the_kernel_kills_are_a_bound() -> None:
    status, found, _ = loader("KilledWhenMany", "--seconds", "20")
    assert status == 0
    assert found["num_workers"] <= 2
    assert {each["binding"] for each in found["evidence"]["failed_probes"]} == {"memory"}
    assert "workers_failed" in {hazard["code"] for hazard in found["hazards"]}


def test_ready_samples_get_none_and_what_is_set_already_may_stay() -> None:
    status, found, _ = loader("good_already")
    assert status == 0
    assert found["num_workers"] == 0
    assert found["prefetch_factor"] is None
    assert found["change_needed"] is False
    assert found["verdict"].startswith("no change needed")
    assert found["evidence"]["sample"]["batch_size"] == 16


@pytest.mark.parametrize(
    ("name", "batching", "batches", "batch_size"),
    [
        ("shards", "dataset", "batch_size=None", 16),
        ("bucketed", "batch_sampler", "batch_sampler=batch_sampler", 8),
        ("lost_first", "size", "batch_size=16", 16),
    ],
)
def test_loaders_that_are_not_plain_are_counted_as_they_are(
    name: str, batching: str, batches: str, batch_size: int
) -> None:
    status, found, _ = loader(name, "--gpu-rate", "600", "--seconds", "14")
    assert status == 0
    evidence = found["evidence"]
    assert evidence["loader"]["batching"] == batching
    assert f"DataLoader(dataset, {batches}, num_workers=" in found["code"]
    assert evidence["sample"]["batch_size"] == pytest.approx(batch_size, abs=1)
    # Three milliseconds a sample and worker are 333 samples a second, and no more.
    alone = evidence["points"][0]
    assert alone["workers"] == 0
    most = 333 if name != "lost_first" else 333 * 3 / 2
    assert 0.3 * most < alone["rate"] <= 1.05 * most
    assert evidence["transport"]["samples_per_s"] > 0


def test_a_batch_size_for_who_makes_the_batches_alone_is_refused() -> None:
    status, found, _ = loader("bucketed", "--batch-size", "64")
    assert status == 2
    assert "--batch-size cannot change" in found["error"]["message"]


def test_large_batches_of_slow_samples_take_a_larger_part_of_the_time() -> None:
    status, found, _ = loader("Waiting", "--batch-size", "1500", "--seconds", "16")
    assert status == 0
    assert found["evidence"]["points"][0]["rate"] == pytest.approx(333, rel=0.3)


def test_a_slow_gpu_is_fed_by_few() -> None:
    status, found, _ = loader("Waiting", "--gpu-rate", "400")
    assert status == 0
    assert 1 <= found["num_workers"] <= 4
    assert found["binding"] == "gpu"
    assert found["expected_samples_per_s"] == 400


def test_a_module_that_parses_its_arguments_finds_none() -> None:
    status, found, _ = loader("with_arguments", "--seconds", "5")
    assert status == 0
    assert found["evidence"]["loader"]["batch_size"] == 16


def test_prints_of_the_loader_stay_out_of_the_document() -> None:
    status, found, _ = loader("prints_unpicklable")
    assert status == 0
    assert found["num_workers"] is not None
    assert "not" not in found
    # It cannot be pickled, either: a warning where workers are forked.
    assert "unpicklable" in {hazard["code"] for hazard in found["hazards"]}


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("Raises", 1, "raised while it made a batch: KeyError"),
        ("RaisesInWorkers", 1, "KeyError: 'label'"),
        ("Dies", 1, "SIGSEGV"),
        ("NeedsGpu", 4, "needs a GPU"),
        ("empty", 4, "is empty"),
        ("three", 4, "has 3 samples, 1 batch of 32"),
        ("unpicklable_spawned", 1, "cannot be sent to its workers"),
        ("broken", 1, "could not be opened: FileNotFoundError: /data/train.lmdb"),
        ("constant", 2, "is no loader"),
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
    ended, found, stderr = loader(name, "--seconds", "25")
    assert ended == status
    assert words in found["error"]["message"]
    assert words in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("name", ["RaisesInWorkers", "unpicklable_spawned"])
def test_where_only_workers_fail_it_is_told_what_came_without(name: str) -> None:
    status, found, _ = loader(name, "--seconds", "25")
    assert status == 1
    told = re.search(r"Without workers \(num_workers=0\) it gave (\d+) ", found["error"]["message"])
    assert told is not None
    assert 100 < int(told[1]) <= 340  # three milliseconds a sample


# With workers it takes time for a probe without them first, also on a busy machine.
@pytest.mark.parametrize(("name", "seconds"), [("Hangs", "8"), ("HangsInWorkers", "20")])
def test_a_loader_that_hangs_is_killed(name: str, seconds: str) -> None:
    status, found, _ = loader(name, "--seconds", seconds)
    assert status == 1
    assert "it hangs, or is slower than that; it was killed" in found["error"]["message"]


def test_any_other_iterable_is_timed_as_it_is() -> None:
    status, found, _ = loader("pipeline", "--gpu-rate", "100")
    assert status == 0
    assert found["num_workers"] is None
    assert found["binding"] == "gpu"
    assert found["expected_samples_per_s"] > 100
    assert any("as 16 samples" in reason for reason in found["evidence"]["reasons"])
    counted = loader("pipeline", "--batch-size", "4")[1]
    assert counted["expected_samples_per_s"] <= 400


@pytest.mark.parametrize(
    ("spec", "words"),
    [("nocolon", "names no loader"), ("no.such.module:x", "there is no module no")],
)
def test_names_of_nothing(spec: str, words: str) -> None:
    done = hostprep("--loader", spec)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_hostprep_however_it_ends(ending: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        command("--loader", "tests.cli.recommend_loaders:HangsInWorkers", "--seconds", "60"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: mark},
    )
    try:
        deadline = time.monotonic() + 60
        while len(marked(mark)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(marked(mark)) >= 4  # hostprep, the measuring child and its workers
        process.send_signal(ending)
        status = process.wait(15)
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
    return {"PYTHONPATH": str(hook)}


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(300):
        np.save(folder / f"{number}.npy", np.full((32, 32, 3), number % 256, np.uint8))
    return folder


def test_without_torch_the_loader_mode_names_the_extra(without_torch: dict[str, str]) -> None:
    done = hostprep("--loader", "tests.cli.recommend_loaders:Ready", env=without_torch)
    assert done.returncode == 1
    assert "torch is not installed" in done.stderr
    assert "hostprep[torch]" in done.stderr


def test_without_torch_host_and_data_work(without_torch: dict[str, str], arrays: Path) -> None:
    assert hostprep("--json", env=without_torch).returncode == 0
    done = hostprep("--dataset", str(arrays), "--json", env=without_torch)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["num_workers"] is not None
    assert found["confirmed"] is False
    assert found["evidence"]["stages"]["kind"] == "npy"
    assert any("torch is not installed" in note for note in found["notes"])


def test_from_files_with_real_loaders(arrays: Path) -> None:
    done = hostprep("--dataset", str(arrays), "--seconds", "10", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert set(found) >= CONTRACT
    evidence = found["evidence"]
    assert evidence["files"]["count"] == 300
    assert {stage["name"] for stage in evidence["stages"]["stages"]} >= {"read_cold", "decode"}
    assert evidence["transport"]["samples_per_s"] > 0
    assert evidence["sample"]["sample_bytes"] == 32 * 32 * 3
    assert evidence["probes"]


def test_files_without_a_measurement_are_modelled(arrays: Path) -> None:
    done = hostprep("--dataset", str(arrays), "--no-measure")
    assert done.returncode == 0
    assert "by the model, not confirmed" in done.stdout


def test_side_by_side(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(140):
        Image.new("RGB", (64, 64), (number, 0, 0)).save(tmp_path / f"{number}.jpg")
    for number in range(20):  # as a broken download leaves them: left out, and named
        (tmp_path / f"broken-{number}.jpg").write_bytes(b"\xff\xd8\xff\xe0 half of one")
    done = hostprep("--dataset", str(tmp_path), "--seconds", "5", "--compare", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    found, notes = document["evidence"], document["notes"]
    assert any("cannot be read or decoded" in note and "broken-" in note for note in notes)
    rows = {(row["group"], row["name"]): row for row in found["comparison"]}
    assert rows["decoder", "pillow"]["peak_samples_per_s"] > 0
    assert rows["decoder", "opencv"]["peak_samples_per_s"] > 0
    assert {name for group, name in rows if group == "form"} == {"jpeg", "png", "npy"}
    assert any(group == "prefetching" for group, _ in rows)
    for row in rows.values():
        assert (row["problem"] is None) is (row["peak_samples_per_s"] is not None)
    assert {winner["group"] for winner in found["winners"]} >= {"decoder", "form"}
    assert all(winner["factor"] >= 1 for winner in found["winners"])
