"""``hostprep check`` and ``explain``: exit codes, formats, files, baselines, documented uses.

HP001 (volumes of a spec) and HP020 (/dev/shm against the last recommendation) can be led to every
verdict on any host, so most runs are of these two alone.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from hostprep.cli.app import COMMANDS
from hostprep.cli.main import run
from hostprep.probing import results
from hostprep.readiness.formats import Format
from tests.unit.probing.test_results import made as made_probe

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/check.schema.json").read_text())
DOCS = (ROOT / "docs/check.md").read_text()


@dataclass(frozen=True)
class Done:
    """What a command line left."""

    returncode: int
    stdout: str
    stderr: str


def hostprep(*args: str) -> Done:
    """Run a command line in this process: its start-up alone would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(args))
    return Done(code, out.getvalue(), err.getvalue())


def document(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft202012Validator)
    return found


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of one's own, with the spec named, so that no spec of this host counts."""
    monkeypatch.chdir(tmp_path)
    spec("{}")
    monkeypatch.setenv("HOSTPREP_SPEC", str(tmp_path / "lab.yml"))


def spec(content: str) -> None:
    Path("lab.yml").write_text(content)


def shm(wanted_bytes: object) -> None:
    """Let ``hostprep recommend`` have found that a loader takes so much of /dev/shm."""
    folder = Path(os.environ["HOSTPREP_STATE_DIR"]) / "last"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"schema": "hostprep.recommend/1", "unix_seconds": 0, "shm_bytes": wanted_bytes}
    (folder / "recommend.json").write_text(json.dumps(kept))


ENOUGH, TOO_MUCH = 4096, 1 << 60
SHM_ALONE = ("check", "--only", "HP020")
# The two checks alone that a test can lead to every verdict, and how: of /dev/shm, of records.
BOTH = "HP010,HP020"
EVERY_VERDICT = {"PASS": (ENOUGH, None), "FAIL": (TOO_MUCH, None), "UNKNOWN": (ENOUGH, "{")}


def lead_to(verdict: str) -> None:
    wanted, record = EVERY_VERDICT[verdict]
    shm(wanted)
    if record is not None:
        damaged_record(record)


def damaged_record(content: str) -> Path:
    file = Path(os.environ["HOSTPREP_STATE_DIR"]) / "datasets/city-0123456789/dataset.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    return file


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("FAIL", 3), ("UNKNOWN", 4)])
def test_exit_codes(verdict: str, code: int) -> None:
    lead_to(verdict)
    plain, as_json = (hostprep("check", "--only", BOTH, *form) for form in ((), ("--json",)))
    assert plain.returncode == as_json.returncode == code
    assert plain.stdout.splitlines()[-1].startswith(f"{verdict}: 1 {verdict}, 1 ")
    assert plain.stdout.startswith(f"{verdict:<8}HP0")
    found = document(as_json)
    assert found["verdict"] == verdict and found["exit_code"] == code
    assert [check["status"] for check in found["checks"]].count(verdict) == 1


def test_nothing_checked_is_no_pass() -> None:
    done = hostprep("check", "--only", "HP001")
    assert done.returncode == 4
    assert "nothing was checked, which is not a pass" in done.stdout
    assert hostprep("check", "--skip", "HP001", "--only", "HP001").returncode == 4


def test_codes_are_named_one_by_one_as_well() -> None:
    """The last --only alone would count else, and what the first one finds be no FAIL."""
    found = document(hostprep("check", "--only", "HP030", "--only", "HP031,HP020", "--json"))
    assert {check["code"] for check in found["checks"]} == {"HP020", "HP030", "HP031"}
    skipped = ("--skip", "HP030", "--skip", "HP031")
    found = document(hostprep("check", "--only", "HP020,HP030,HP031", *skipped, "--json"))
    assert {check["code"] for check in found["checks"]} == {"HP020"}


def test_a_failure_in_front_of_a_job_holds_it_back() -> None:
    for wanted, said in ((ENOUGH, "trained\n"), (TOO_MUCH, "")):
        shm(wanted)
        check = shlex.join([sys.executable, "-m", "hostprep", "check", "--only", "HP020"])
        command = f"{check} >/dev/null && echo trained"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.stdout == said


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "hostprep.manifest/9"}'])
@pytest.mark.parametrize("code", ["HP010", "HP011", "HP012", "HP014"])
def test_a_record_that_cannot_be_read_is_no_record_of_nothing(code: str, content: str) -> None:
    file = damaged_record(content)
    done = hostprep("check", "--only", code, "--json")
    (found,) = document(done)["checks"]
    assert (done.returncode, found["status"]) == (4, "UNKNOWN")
    assert found["subject"] == "city-0123456789" and str(file) in found["message"]
    assert "move the folder away" in found["remedy"]["hint"]


@pytest.fixture
def unreadable_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name records that nobody may look into: root reads all that has a right mode, but no loop."""
    loop = tmp_path / "records"
    loop.symlink_to(loop)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(loop))
    return loop


def test_without_readable_records_all_else_is_judged(unreadable_records: Path) -> None:
    spec(f"volumes: [{{path: {unreadable_records.parent}/no/volume, size: 1M}}]")
    done = hostprep("check", "--json")
    found = document(done)["checks"]
    assert found, done.stderr
    unread = [each for each in found if str(unreadable_records) in each["message"]]
    codes = {each["code"] for each in unread if each["status"] == "UNKNOWN"}
    assert {"HP010", "HP011", "HP012"} <= codes
    for each in unread:
        if each["status"] == "UNKNOWN":
            assert "HOSTPREP_STATE_DIR=DIR" in each["remedy"]["hint"]
    # What needs no record is told, also what is wrong.
    told = {each["code"]: each["status"] for each in found if each["code"] not in codes}
    assert told["HP001"] == "FAIL" and {"HP031", "HP040"} <= told.keys()
    assert "HP001" in hostprep("check").stdout


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.TEXT])
def test_every_format_takes_a_host_whose_records_are_closed(
    unreadable_records: Path, form: Format
) -> None:
    done = hostprep("check", "--only", "HP010,HP031", "--format", form)
    assert done.returncode == 4 and "HP010" in done.stdout, done.stderr


def test_a_damaged_probe_was_measured(tmp_path: Path) -> None:
    spec(
        f"datasets: [{{name: city, source: {tmp_path}/source, to: {tmp_path}/to}}]\n"
        "requirements: [{dataset: city, samples_per_second: 100}]\n"
    )
    (never,) = document(hostprep("check", "--only", "HP062", "--json"))["checks"]
    wanted = f"{tmp_path}/to/city gives 100 samples/s"
    assert never["message"] == f"it was never measured whether {wanted}."
    document_of_it = made_probe() | {"path": f"{tmp_path}/to/city"}
    results.keep(document_of_it)
    file = results.folder() / f"{document_of_it['id']}.json"
    file.write_bytes(file.read_bytes()[:200])
    done = hostprep("check", "--only", "HP062", "--json")
    (found,) = document(done)["checks"]
    assert (done.returncode, found["status"]) == (4, "UNKNOWN")
    assert str(file) in found["message"] and "never measured" not in found["message"]
    assert found["remedy"]["commands"] == never["remedy"]["commands"]


def test_the_spec_that_is_named_counts(tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text(f"volumes: [{{path: {tmp_path}/no/volume, size: 1M}}]")
    done = hostprep("check", str(other), "--only", "HP001", "--json")
    found = document(done)
    assert done.returncode == 3 and found["spec"] == str(other)
    (command,) = found["checks"][0]["remedy"]["commands"]
    assert command.startswith(f"hostprep mount {tmp_path}/no/volume --size 1M")


def test_a_spec_with_mistakes_is_a_usage_error() -> None:
    spec("volumes: [{path: relative, size: 1M}]")
    done = hostprep("check", "--only", "HP001", "--json")
    assert done.returncode == 2 and document(done)["error"]["code"] == "spec"


@pytest.mark.parametrize(
    "args",
    [
        ("--quick", "--full"),
        ("--only", "HP999"),
        ("--skip", "HP20"),
        ("-i", "hosts,", "--baseline", "base.json"),
        ("--format", "yaml"),
        ("--baseline", "/no/such/file"),
        ("/no/such/spec.yml",),
    ],
)
def test_a_wrong_command_line(args: tuple[str, ...]) -> None:
    done = hostprep("check", *args)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("hostprep: ")


def test_two_documents_on_stdout_are_refused() -> None:
    done = hostprep("check", "--json", "--format", "html")
    assert done.returncode == 2 and document(done)["error"]["code"] == "usage"


def test_json_by_its_format_is_one_document_also_when_it_fails() -> None:
    for args in (("--format", "json"), ("--format=json",)):
        assert document(hostprep(*SHM_ALONE, *args))["ok"] is True
        done = hostprep("check", *args, "--only", "HP999")
        assert done.returncode == 2 and document(done)["ok"] is False


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.TEXT])
def test_a_format_goes_into_a_file_and_the_text_to_the_terminal(form: Format) -> None:
    shm(ENOUGH)
    alone = hostprep(*SHM_ALONE, "--format", form)
    file = Path("report")
    file.write_text("the old one")
    done = hostprep(*SHM_ALONE, "--format", form, "--output", "report")
    assert alone.returncode == done.returncode == 0
    assert done.stdout.startswith("PASS    HP020") and "the report is in report" in done.stderr

    def timeless(text: str) -> str:
        return re.sub(r"[0-9]+([.:][0-9]+)*( ms| s)?", "0", text)

    assert timeless(file.read_text()) == timeless(alone.stdout)
    assert sorted(os.listdir()) == ["lab.yml", "report"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()


def test_an_output_of_a_dash_is_stdout() -> None:
    done = hostprep(*SHM_ALONE, "--format", "markdown", "--output", "-")
    assert done.stdout.startswith("#") and "the report is in" not in done.stderr
    assert document(hostprep(*SHM_ALONE, "--format", "json", "--output=-"))["ok"]
    assert hostprep(*SHM_ALONE, "--format", "html", "--output", "-", "--json").returncode == 2
    assert os.listdir() == ["lab.yml"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_json_on_stdout_beside_another_format_in_a_file() -> None:
    done = hostprep(*SHM_ALONE, "--json", "--format", "junit", "--output", "r.xml")
    assert document(done)["ok"] and Path("r.xml").read_text().startswith("<?xml")


@pytest.mark.parametrize("option", ["--output", "--save-baseline"])
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("/no/such/folder/report", "there is no folder /no/such/folder"),
        ("/tmp", "it is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(
    option: str, file: str, reason: str
) -> None:
    done = hostprep(*SHM_ALONE, option, file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hostprep: the report cannot be written to {file}: {reason}; nothing was checked.\n"
        "  -> name another file, in a folder that is there and that you may write to\n"
    )


@pytest.mark.parametrize(
    ("option", "so"), [("--output", "the verdict is PASS"), ("--save-baseline", "no baseline")]
)
def test_a_full_disk_under_the_report_has_a_hint(option: str, so: str) -> None:
    lead_to("PASS")
    done = hostprep(*SHM_ALONE, option, "/dev/full", "--json")
    error = document(done)["error"]
    assert done.returncode == 1 and "No space left" in error["message"] and so in error["message"]
    assert "`df`" in error["hint"]


def test_to_name_no_check_is_a_mistake_and_not_to_name_all() -> None:
    done = hostprep("check", "--only", " ,")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--only names no check" in done.stderr
    assert hostprep(*SHM_ALONE, "--skip", "").returncode == 0


def test_what_was_found_is_told_though_no_file_is_there_for_it() -> None:
    shm(TOO_MUCH)
    done = hostprep(*SHM_ALONE, "--format", "html", "--output", "/dev/full")
    assert done.returncode == 1 and "HP020" in done.stdout and "<" not in done.stdout
    for form in (["--json"], ["--format", "json"]):
        done = hostprep(*SHM_ALONE, *form, "--output", "/dev/full")
        found = document(done)
        assert done.returncode == 1 and "no space" in found["error"]["message"].lower()
        assert not found["ok"] and found["verdict"] == "FAIL"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_a_refused_file_does_not_keep_the_verdict_back() -> None:
    shm(TOO_MUCH)
    os.mkdir("all")
    os.chmod("all", 0o1777)
    os.symlink("/root", "all/way")
    os.chown("all/way", 65534, -1, follow_symlinks=False)
    done = hostprep(*SHM_ALONE, "--output", "all/way/report")
    assert done.returncode == 5 and "HP020" in done.stdout
    assert "Nothing was changed. The verdict is FAIL.\n" in done.stderr


def test_what_got_worse_since_a_baseline() -> None:
    shm(ENOUGH)
    assert hostprep(*SHM_ALONE, "--save-baseline", "base.json").returncode == 0
    same = hostprep(*SHM_ALONE, "--baseline", "base.json")
    assert "nothing changed" in same.stdout
    shm(TOO_MUCH)
    done = hostprep(*SHM_ALONE, "--baseline", "base.json", "--json")
    assert done.returncode == 3
    (worse,) = document(done)["baseline"]["worse"]
    assert worse["code"] == "HP020" and worse["before"]["status"] == "PASS"
    assert worse["now"]["status"] == "FAIL"


def test_neither_a_report_nor_the_standard_output_takes_the_place_of_a_baseline() -> None:
    for option in ("--baseline", "--save-baseline"):
        done = hostprep(*SHM_ALONE, option, "base.json", "--output", "./base.json")
        assert done.returncode == 2 and "would write over the baseline" in done.stderr
    done = hostprep(*SHM_ALONE, "--save-baseline", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a file" in done.stderr and not Path("-").exists()


def test_a_baseline_of_another_host_is_refused() -> None:
    hostprep(*SHM_ALONE, "--save-baseline", "base.json")
    saved = json.loads(Path("base.json").read_text())
    saved["host_class"]["cpu_model"] = "another"
    Path("base.json").write_text(json.dumps(saved))
    done = hostprep(*SHM_ALONE, "--baseline", "base.json", "--json")
    assert done.returncode == 5 and document(done)["error"]["code"] == "refused"


def test_a_host_that_lost_a_gpu_is_checked_and_the_loss_is_shown() -> None:
    shm(ENOUGH)
    hostprep(*SHM_ALONE, "--save-baseline", "base.json")
    saved = json.loads(Path("base.json").read_text())
    saved["host_class"]["gpus"] = [*saved["host_class"]["gpus"], "NVIDIA H100"]
    Path("base.json").write_text(json.dumps(saved))
    for form in ("text", "html", "markdown"):
        done = hostprep(*SHM_ALONE, "--baseline", "base.json", "--format", form)
        assert done.returncode == 0 and "1 x NVIDIA H100" in done.stdout, done.stderr
    found = document(hostprep(*SHM_ALONE, "--baseline", "base.json", "--json"))
    (worse,) = found["baseline"]["worse"]
    assert (worse["code"], worse["subject"]) == (None, "GPUs") and found["verdict"] == "PASS"


def test_a_whole_quick_run_of_this_host() -> None:
    done = hostprep("check", "--quick", "--json")
    found = document(done)
    assert done.returncode == found["exit_code"] and done.returncode in (0, 3, 4)
    crashed = [check for check in found["checks"] if "the check failed with" in check["message"]]
    assert not crashed
    assert {each["reason"] for each in found["left_out"]} <= {"needs --full"}
    series = [(check["code"], check["subject"]) for check in found["checks"]]
    assert len(series) == len(set(series))


def test_recommend_is_kept_for_the_check(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for index in range(64):
        np.save(data / f"{index}.npy", np.full((32, 32), index, np.float32))
    done = hostprep(
        "recommend", "--dataset", str(data), "--batch-size", "1", "--seconds", "5", "--json"
    )
    recommended = json.loads(done.stdout)
    found = document(hostprep(*SHM_ALONE, "--json"))
    points = found["measurements"]["loader"]["points"]
    assert [point["workers"] for point in points] == sorted(
        point["workers"] for point in recommended["evidence"]["points"]
    )
    assert found["checks"][0]["threshold_value"] == int(recommended["shm_bytes"] * 1.25)


def test_explain() -> None:
    page = hostprep("explain", "hp020")
    assert page.returncode == 0 and page.stdout.startswith("# HP020: ")
    listed = hostprep("explain")
    codes = [line.split()[0] for line in listed.stdout.splitlines()]
    assert codes == sorted(codes) and {"HP001", "HP020"} <= set(codes)
    wrong = hostprep("explain", "hp20")
    assert wrong.returncode == 2 and "did you mean HP020?" in wrong.stderr
    fields = json.loads(hostprep("explain", "HP020", "--json").stdout)
    assert hostprep("explain", "hp000").stdout.startswith("# HP000: the host gives a report")
    assert fields["checks"][0]["page"] in page.stdout + "\n"
    assert {"check", "explain"} <= COMMANDS.keys()


def blocks(language: str, containing: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", DOCS, re.S)
    return [block for block in found if containing in block]


@pytest.fixture
def path_with_hostprep(tmp_path: Path) -> str:
    """Return a PATH on which ``hostprep`` and a ``torchrun`` that tells are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tools = {
        "hostprep": f'exec {shlex.quote(sys.executable)} -m hostprep "$@" --only {BOTH}',
        "torchrun": 'echo "trains: $*"',
        "logger": 'echo "$*" >>logged',
    }
    for name, line in tools.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def documented(script: str, path: str, spec: str = "{}") -> subprocess.CompletedProcess[str]:
    file = Path("script")
    here = str(Path.cwd())
    script = script.replace("/etc/hostprep", here).replace("/run/", f"{here}/")
    file.write_text(script.replace("/usr/local/bin/", ""))
    Path("hostprep.yml").write_text(spec)
    file.chmod(0o755)
    env = {**os.environ, "PATH": path, "SLURM_JOB_ID": "4711"}
    return subprocess.run(["./script"], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    ("verdict", "strict", "lenient"), [("PASS", 0, 0), ("FAIL", 3, 3), ("UNKNOWN", 4, 0)]
)
def test_the_documented_job_scripts(
    path_with_hostprep: str, verdict: str, strict: int, lenient: int
) -> None:
    lead_to(verdict)
    scripts = blocks("bash", "torchrun")
    assert len(scripts) == 2
    for script, code in zip(scripts, (strict, lenient), strict=True):
        done = documented(script, path_with_hostprep)
        assert done.returncode == code
        assert ("trains: --nproc-per-node=8 train.py" in done.stdout) is (code == 0)


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("FAIL", 1), ("UNKNOWN", 0)])
def test_the_documented_slurm_prolog(path_with_hostprep: str, verdict: str, code: int) -> None:
    lead_to(verdict)
    (script,) = blocks("sh", "SLURM_JOB_ID")
    done = documented(script, path_with_hostprep)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    jsonschema.validate(json.loads(Path("hostprep-check.json").read_text()), SCHEMA)
    assert Path("logged").exists() is (verdict != "PASS")
    if code:
        logged = Path("logged").read_text()
        assert "job 4711: the check ended with 3: FAIL: 1 FAIL" in logged


def test_the_documented_slurm_prolog_logs_why_nothing_was_checked(path_with_hostprep: str) -> None:
    (script,) = blocks("sh", "SLURM_JOB_ID")
    assert documented(script, path_with_hostprep, "typo: 1").returncode == 0
    assert re.search(r"ended with 2: hostprep: .*typo: unknown key", Path("logged").read_text())


@pytest.mark.parametrize(("verdict", "code"), [("PASS", 0), ("FAIL", 2), ("UNKNOWN", 3)])
def test_the_documented_nagios_plugin(path_with_hostprep: str, verdict: str, code: int) -> None:
    lead_to(verdict)
    (script,) = blocks("sh", "HOSTPREP CRITICAL")
    done = documented(script, path_with_hostprep)
    assert done.returncode == code and done.stdout.startswith("HOSTPREP ")
    assert done.stdout.count("\n") == 1


def test_the_documented_nagios_plugin_says_why_nothing_was_checked(
    path_with_hostprep: str,
) -> None:
    (script,) = blocks("sh", "HOSTPREP CRITICAL")
    spec("volumes: [{path: relative, size: 1M}]")
    done = documented(script, path_with_hostprep)
    assert done.returncode == 3
    assert done.stdout.startswith("HOSTPREP UNKNOWN - ") and "lab.yml" in done.stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 2),
        (("/no/such/spec|.yml",), 2),
        (("--no-such-option",), 2),
        (("--only", "HP999"), 2),
        (("--save-baseline", "/no/such/folder/base.json"), 1),
        (("--output", "-"), 2),
    ],
)
@pytest.mark.parametrize("form", [("--format", "nagios"), ("--format=nagios",)])
def test_nagios_has_its_line_where_nothing_was_checked(
    form: tuple[str, ...], args: tuple[str, ...], code: int
) -> None:
    spec("volumes: [{path: relative, size: 1M}]")
    done = hostprep("check", *form, *args)
    assert done.returncode == code, "the code is hostprep's own: docs/check.md"
    assert re.fullmatch(r"HOSTPREP UNKNOWN - [^|\n]+\n", done.stdout)
    assert done.stderr.startswith("hostprep: ")


def test_a_report_for_nagios_that_goes_into_a_file_leaves_no_line_on_stdout() -> None:
    spec("volumes: [{path: relative, size: 1M}]")
    done = hostprep("check", "--format", "nagios", "--output", "line")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_documented_units_are_what_systemd_understands(tmp_path: Path) -> None:
    names = {"Type=oneshot": "hostprep-check.service", "OnBootSec": "hostprep-check.timer"}
    for containing, name in names.items():
        (unit,) = blocks("ini", containing)
        # Verifying wants the program to be there, which an installed hostprep is.
        (tmp_path / name).write_text(unit.replace("/usr/local/bin/hostprep", "/bin/true"))
    (dropin,) = blocks("ini", "ExecStartPre")
    folder = tmp_path / "train.service.d"
    folder.mkdir()
    (folder / "check.conf").write_text(dropin.replace("/usr/local/bin/hostprep", "/bin/true"))
    (tmp_path / "train.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = [*names.values(), "train.service"]
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in units)],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("no systemd-analyze here")
    said = [line for line in done.stderr.splitlines() if any(name in line for name in units)]
    assert said == []
