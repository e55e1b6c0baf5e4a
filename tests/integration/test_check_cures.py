"""Each remedy that `check` prints is run as it stands, and cures what was planted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.host.memory import read_headroom
from tests.kit.stagecraft import make_source

GIB = 1 << 30
OF_THE_SPEC = ("HP001", "HP002", "HP003", "HP004", "HP010", "HP011", "HP012")


class Host:
    """A host with one volume and one data set in it, as its spec wants them."""

    def __init__(self, folder: Path, fstab: Path) -> None:
        self.folder, self.fstab = folder, fstab
        self.source, self.volume = folder / "source", folder / "ram"
        self.target = self.volume / "data"
        self.spec = folder / "hostprep.yml"
        make_source(self.source, directories=2, files=4)
        self.say(self.source)

    def say(self, source: Path, extra: str = "") -> None:
        self.spec.write_text(
            f"volumes:\n  - {{path: {self.volume}, size: 64M{extra}}}\n"
            f"datasets:\n  - {{name: data, source: {source}, volume: {self.volume}}}\n"
        )

    def check(self, *codes: str) -> dict[str, dict[str, Any]]:
        """Return the findings of these checks, one each."""
        said = quietly("check", str(self.spec), "--only", ",".join(codes), "--json")
        found = json.loads(said)["checks"]
        assert len(found) == len(codes), found
        return {each["code"]: each for each in found}


def quietly(*words: str) -> str:
    """Run hostprep in this process, which saves the interpreter's start; return what it printed."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(io.StringIO()):
        run(list(words))
    return stdout.getvalue()


@pytest.fixture
def host(safe_dir: Path, own_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    if read_headroom().available_bytes < 6 * GIB:
        pytest.skip("less than 6 GiB are available: volumes leave 4 GiB to the machine")
    command = tmp_path / "hostprep"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hostprep "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (own_state / "fstab").write_text("# somebody's own\n")
    made = Host(safe_dir, own_state / "fstab")
    assert "the host is as the spec says" in quietly("apply", str(made.spec), "--yes")
    return made


def sh(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def chmod(host: Host) -> None:
    host.volume.chmod(0o777)


def lose_flags(host: Host) -> None:
    sh("mount", "-o", "remount,suid,exec", host.volume)


def want_other_options(host: Host) -> None:
    host.say(host.source, ", mode: '1770', owner: '12:34', inodes: 100000, huge: never")


def grow(host: Host) -> None:
    sh("mount", "-o", "remount,size=128M", host.volume)


def lose_fstab_line(host: Host) -> None:
    host.fstab.write_text("# somebody's own\n")


def change_fstab_line(host: Host) -> None:
    host.fstab.write_text(host.fstab.read_text().replace("size=67108864", "size=1048576"))


def lose_nofail(host: Host) -> None:
    host.fstab.write_text(host.fstab.read_text().replace(",nofail", ""))


def lose_noswap(host: Host) -> None:
    line = host.fstab.read_text()
    if ",noswap" not in line:
        pytest.skip("this kernel does not take noswap")
    host.fstab.write_text(line.replace(",noswap", ""))


def say_ro(host: Host) -> None:
    host.fstab.write_text(host.fstab.read_text().replace(",nofail", ",ro,nofail"))


def misspell_mode(host: Host) -> None:
    host.fstab.write_text(host.fstab.read_text().replace("mode=0755", "mode=rwxr-xr-x"))


def lose_volume(host: Host) -> None:
    sh("umount", host.volume)


def moved_aside_before(path: Path) -> None:
    """Have what an earlier run of the remedy moved aside, and nobody looked at since."""
    (path.with_name(f"{path.name}.old") / "earlier").mkdir(parents=True)


def use_the_disk_below(host: Host) -> None:
    lose_volume(host)
    moved_aside_before(host.volume)
    (host.volume / "run-17.ckpt").write_bytes(b"a job wrote on")


def lose_records(host: Host) -> None:
    moved_aside_before(host.target)
    shutil.rmtree(Path(os.environ["HOSTPREP_STATE_DIR"], "datasets"))


def lose_data_set(host: Host) -> None:
    shutil.rmtree(host.target)


def lose_file(host: Host) -> None:
    (host.target / "class-1/images/001.bin").unlink()


def change_copy(host: Host) -> None:
    (host.target / "class-1/images/002.bin").write_bytes(b"scribbled over")


def manifest() -> Path:
    (found,) = Path(os.environ["HOSTPREP_STATE_DIR"]).glob("datasets/*/manifest.jsonl")
    return found


def lose_manifest(host: Host) -> None:
    manifest().unlink()


def empty_manifest(host: Host) -> None:
    manifest().write_bytes(b"")


def cut_manifest(host: Host) -> None:
    manifest().write_bytes(manifest().read_bytes()[:300])


def name_other_source(host: Host) -> None:
    host.say(make_source(host.folder / "other", directories=1, files=3, seed=7))


@pytest.mark.parametrize(
    ("plant", "code", "status"),
    [
        (lose_volume, "HP001", "FAIL"),
        (use_the_disk_below, "HP001", "FAIL"),
        (grow, "HP002", "WARN"),
        (chmod, "HP003", "WARN"),
        (lose_flags, "HP003", "FAIL"),
        (want_other_options, "HP003", "WARN"),
        (want_other_options, "HP004", "WARN"),
        (lose_fstab_line, "HP004", "WARN"),
        (change_fstab_line, "HP004", "WARN"),
        (lose_nofail, "HP004", "WARN"),
        (lose_noswap, "HP004", "WARN"),
        (say_ro, "HP004", "WARN"),
        (misspell_mode, "HP004", "WARN"),
        (lose_data_set, "HP010", "FAIL"),
        (lose_records, "HP010", "FAIL"),
        (lose_file, "HP011", "FAIL"),
        (change_copy, "HP011", "FAIL"),
        (lose_manifest, "HP011", "UNKNOWN"),
        (empty_manifest, "HP011", "UNKNOWN"),
        (cut_manifest, "HP011", "UNKNOWN"),
        (name_other_source, "HP012", "FAIL"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_remedy_cures(host: Host, plant: Callable[[Host], None], code: str, status: str) -> None:
    plant(host)
    _cure(host, code, status)
    assert {each["status"] for each in host.check(*OF_THE_SPEC).values()} == {"PASS"}


def test_a_copy_stays_where_its_manifest_is_gone_and_its_source_too(host: Host) -> None:
    lose_manifest(host)
    host.source.rename(host.folder / "unplugged")
    (host.source).mkdir()
    found = host.check("HP011")["HP011"]
    assert (found["status"], found["remedy"]["commands"]) == ("UNKNOWN", [])
    assert "HP014" in found["remedy"]["hint"]


def test_a_volume_that_may_be_swapped_is_mounted_anew(host: Host, tmp_path: Path) -> None:
    if host.check("HP005")["HP005"]["measured"]["text"] != "noswap":
        pytest.skip("this kernel does not take noswap")
    sh("hostprep", "unstage", "data")
    sh("hostprep", "mount", host.volume, "--size", "64M", "--swap")
    sh("hostprep", "stage", host.source, "--to-tmpfs", "64M", "--at", host.volume, "--name", "data")
    # Swap for this namespace alone: what the kernel says of it.
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(
        "".join(
            "SwapTotal:  1048576 kB\n" if line.startswith("SwapTotal") else line
            for line in Path("/proc/meminfo").read_text().splitlines(keepends=True)
        )
    )
    sh("mount", "--bind", meminfo, "/proc/meminfo")
    try:
        _cure(host, "HP005", "WARN")
    finally:
        sh("umount", "/proc/meminfo")
    assert (host.target / "class-0/images/000.bin").exists()


def test_limits_and_affinity_are_cured_in_the_shell_that_starts_the_training(host: Host) -> None:
    processors = set(range(os.cpu_count() or 1))
    if len(processors) < 2 or os.sched_getaffinity(0) != processors:
        pytest.skip("needs two processors, and all of the machine's")
    check = "hostprep check --only HP022,HP031 --json"
    program = "import json, sys; [print(line) for each in json.load(sys.stdin)['checks'] "
    program += "for line in (each['remedy'] or {'commands': []})['commands']]"
    script = (
        f'ulimit -Sn 300; taskset --cpu-list --pid 0 $$ >&2; {check} > "$0/before"\n'
        f'{shlex.quote(sys.executable)} -c "$1" < "$0/before" > "$0/remedies"\n'
        f'set -e; source "$0/remedies" >&2; {check} > "$0/after"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script, str(host.folder), program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    def statuses(name: str) -> dict[str, str]:
        report = json.loads((host.folder / name).read_text())
        return {each["code"]: each["status"] for each in report["checks"]}

    assert statuses("before") == {"HP022": "WARN", "HP031": "WARN"}
    assert statuses("after") == {"HP022": "PASS", "HP031": "PASS"}


@pytest.mark.parametrize("gone", [True, False], ids=["missing", "empty"])
def test_no_line_is_printed_that_would_empty_the_copy(host: Host, gone: bool) -> None:
    """A source that is not mounted is an empty folder, and staging it would delete the copy."""
    lose_file(host)
    host.source.rename(host.folder / "unplugged")
    if not gone:
        host.source.mkdir()
    found_by_code = host.check("HP011", "HP012", "HP014")
    assert found_by_code.pop("HP012")["status"] == "SKIP"
    for found in found_by_code.values():
        assert found["status"] in ("FAIL", "WARN")
        assert found["remedy"]["commands"] == [] and str(host.source) in found["remedy"]["hint"]


def _cure(host: Host, code: str, status: str) -> None:
    found = host.check(code)[code]
    assert found["status"] == status, found
    assert found["remedy"]["commands"], found
    for line in found["remedy"]["commands"]:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
    after = host.check(code)[code]
    assert after["status"] == "PASS", after
