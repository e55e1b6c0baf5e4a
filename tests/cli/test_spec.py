"""``hostprep spec``: what it prints, on which stream, with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.converging import drafting
from hostprep.converging.packages import PackageFacts
from hostprep.errors import HostprepError
from hostprep.spec.finding import SYSTEM_SPEC

SPEC = """\
volumes:
  - {path: /mnt/hostprep, size: 30G, owner: "alice:ml", mode: 0750, inodes: 2000000, huge: never,
     swap: true}
datasets:
  - {name: city, source: sets/cityscapes, volume: /mnt/hostprep, at_boot: true}
  - {source: /srv/coco, to: /nvme}
requirements:
  - {dataset: city, samples_per_second: 1800}
  - {dataset: coco, bytes_per_second: 400MB}
packages: [fio, jq]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOSTPREP_SPEC", raising=False)
    return tmp_path


def check_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["spec", "check", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_sound_spec_is_said_in_words(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hostprep.yml").write_text(SPEC)
    assert run(["spec", "check"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        "hostprep.yml is valid:\n"
        "  volume /mnt/hostprep: 30.0 GiB, owner alice:ml, mode 0750, 2,000,000 inodes, "
        "huge pages never, may be swapped out\n"
        f"  data set city: {here}/sets/cityscapes -> /mnt/hostprep/city,"
        " staged again after each boot\n"
        "  data set coco: /srv/coco -> /nvme/coco\n"
        "  requirement city: 1800 samples/s\n"
        "  requirement coco: 400 MB/s\n"
        "  packages fio, jq\n"
    )


def test_a_sound_spec_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "h.yml").write_text(SPEC)
    code, document = check_json(capsys, "h.yml")
    assert code == 0
    assert document == {
        "schema": "hostprep.spec/1",
        "ok": True,
        "path": str(here / "h.yml"),
        "volumes": [
            {
                "path": "/mnt/hostprep",
                "size": "30G",
                "owner": "alice:ml",
                "mode": "0750",
                "inodes": 2_000_000,
                "huge": "never",
                "swap": True,
            }
        ],
        "datasets": [
            {
                "name": "city",
                "source": str(here / "sets/cityscapes"),
                "volume": "/mnt/hostprep",
                "to": None,
                "at_boot": True,
            },
            {
                "name": "coco",
                "source": "/srv/coco",
                "volume": None,
                "to": "/nvme",
                "at_boot": False,
            },
        ],
        "requirements": [
            {"dataset": "city", "samples_per_second": 1800.0, "bytes_per_second": None},
            {"dataset": "coco", "samples_per_second": None, "bytes_per_second": 400_000_000},
        ],
        "packages": ["fio", "jq"],
        "problems": [],
    }


def test_a_size_that_lost_its_unit_is_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hostprep.yml").write_text(
        "volumes: [{path: /a, size: 2}, {path: /b, size: 1M}, {path: /c, size: 1%}]\n"
    )
    warning = (
        "hostprep: warning: /a: 2 B is next to nothing for a volume; a size without a unit is in"
        " bytes: 30 is 30 bytes, 30G is 30 GiB\n"
    )
    assert run(["spec", "check"]) == 0
    out, err = capsys.readouterr()
    assert [line.strip() for line in out.splitlines()[1:]] == [
        "volume /a: 2 B",
        "volume /b: 1.00 MiB",
        "volume /c: 1% of the RAM",
    ]
    assert err == warning
    assert run(["spec", "check", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [volume["size"] for volume in json.loads(out)["volumes"]] == ["2", "1M", "1%"]
    assert err == warning


def test_an_empty_spec_names_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hostprep.yml").write_text("")
    assert run(["spec", "check"]) == 0
    assert capsys.readouterr().out == "hostprep.yml is valid; it names nothing\n"


def test_mistakes_go_to_stderr_with_exit_code_2(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "hostprep.yml").write_text("volumes:\n- path: /v\n  siez: 3G\npackages: 3\n")
    assert run(["spec", "check"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "hostprep: hostprep.yml holds 2 mistakes; nothing was changed.\n"
        "    hostprep.yml:3: volumes[0].siez: unknown key; did you mean `size`?\n"
        "    hostprep.yml:4: packages: must be a list: each entry begins with `- `\n"
        "  -> correct the file; `hostprep spec check` reads it without acting on it\n"
    )


def test_that_more_mistakes_may_come_to_light_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = here / "hostprep.yml"
    hint = "  -> correct the file; `hostprep spec check` reads it without acting on it"
    # Whether /b is a volume is not known while the only one has no path that is one.
    spec.write_text("volumes: [{path: b, size: 3G}]\ndatasets: [{source: /s, volume: /b}]\n")
    assert run(["spec", "check"]) == 2
    later = "; what depends on the entries with mistakes is checked once they are right\n"
    assert capsys.readouterr().err.endswith(f"{hint}{later}")
    spec.write_text("volumes: [{path: /a, size: 3G}]\ndatasets: [{source: /s, volume: /b}]\n")
    assert run(["spec", "check"]) == 2
    assert capsys.readouterr().err.endswith(f"{hint}\n")


def test_mistakes_as_json_are_a_list_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hostprep.yml").write_text("volumes:\n- path: /v\n  siez: 3G\n")
    code, document = check_json(capsys)
    assert code == 2
    assert document == {
        "schema": "hostprep.spec/1",
        "ok": False,
        "error": {
            "code": "spec",
            "message": "hostprep.yml:3: volumes[0].siez: unknown key; did you mean `size`?",
            "hint": "correct the file; `hostprep spec check` reads it without acting on it",
        },
        "problems": [
            {
                "line": 3,
                "key": "volumes[0].siez",
                "message": "unknown key; did you mean `size`?",
            }
        ],
    }


@pytest.mark.skipif(SYSTEM_SPEC.exists(), reason=f"this machine has {SYSTEM_SPEC}")
def test_a_spec_in_a_folder_that_is_missing_has_a_hint(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spec", "init", "none/hostprep.yml", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert "none/hostprep.yml was not written" in error["message"]
    assert error["hint"].startswith("make its folder first")


def test_no_spec_at_all(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spec", "check"]) == 2
    assert capsys.readouterr().err == (
        "hostprep: there is no spec file: neither ./hostprep.yml nor /etc/hostprep/hostprep.yml.\n"
        "  -> `hostprep spec init` writes one; `hostprep spec schema` describes it to your editor\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_root_refuses_a_strangers_file_that_it_found_and_reads_it_by_name(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    (here / "hostprep.yml").write_text(SPEC)
    os.chown(here / "hostprep.yml", 54321, -1)
    code, document = check_json(capsys)
    assert code == 5
    assert document["error"]["code"] == "refused"
    code, document = check_json(capsys, "hostprep.yml")
    assert code == 0
    assert document["packages"] == ["fio", "jq"]


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_the_schema_is_json(extra: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spec", "schema", *extra]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(schema["properties"]) == ["volumes", "datasets", "requirements", "packages"]


def test_the_help_of_hostprep_loads_neither_yaml_nor_pydantic() -> None:
    program = (
        "import sys; import hostprep.spec.loading; from hostprep.cli.main import run;"
        "code = run(['-h']);"
        "sys.exit(code or sorted({'yaml', 'pydantic'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "spec" in done.stdout


def test_a_package_database_that_is_broken_keeps_nobody_from_a_first_spec(
    here: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> PackageFacts:
        raise HostprepError("`dpkg-query` failed with status 2.")

    monkeypatch.setattr(drafting, "look_at_packages", failing)
    assert run(["spec", "init", "first.yml"]) == 0
    assert "\n# packages: [fio]\n" in (here / "first.yml").read_text()
