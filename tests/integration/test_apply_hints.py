"""What `plan` and `apply` advise is of use to who has a spec: keys of it, or whole commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.converging import apply, plan, write_spec
from tests.kit.stagecraft import hostprep, make_source

pytestmark = pytest.mark.usefixtures("state")
# Of the single commands, and not of `plan` and `apply`.
_OPTIONS = re.compile(r"--(size|inodes|huge|name|to|to-tmpfs|force|partial|discard-data)\b")


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "city", directories=1, files=3)


def mount_foreign(path: Path) -> None:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "alien", path], check=True)


def refusal(spec: Path, *words: str) -> dict[str, Any]:
    (found,) = plan(spec, *words, expect=5)["refusals"]
    return dict(found)


def test_a_foreign_tmpfs_is_taken_as_it_is_by_the_key_that_the_hint_names(
    safe_dir: Path, source: Path
) -> None:
    mount_foreign(safe_dir / "v")
    spec = safe_dir / "lab.yml"
    write_spec(spec, volumes=[{"path": safe_dir / "v", "size": "1M"}])
    hint = refusal(spec)["hint"]
    assert f"`to: {safe_dir / 'v'}`" in hint and not _OPTIONS.search(hint)
    apply(write_spec(spec, datasets=[{"source": source, "to": safe_dir / "v"}]))
    # The command of its own still names its option.
    own = hostprep("mount", safe_dir / "v", "--size", "1M", expect=5)["error"]["hint"]
    assert f"`hostprep stage --to {safe_dir / 'v'}`" in own


def test_a_command_in_a_hint_can_be_pasted(safe_dir: Path, source: Path) -> None:
    volume = safe_dir / "v"
    hostprep("mount", volume, "--size", "64M")
    subprocess.run(["umount", volume], check=True)
    spec = write_spec(safe_dir / "lab.yml", datasets=[{"source": source, "to": volume / "below"}])
    (command,) = re.findall(r"hostprep (mount [^;]*)", refusal(spec)["hint"])
    hostprep(*shlex.split(command))
    assert os.path.ismount(volume)


def test_what_cannot_be_staged_is_left_out_by_the_command_that_the_hint_has(
    safe_dir: Path, source: Path
) -> None:
    volume = safe_dir / "v"
    spec = write_spec(
        safe_dir / "lab.yml",
        volumes=[{"path": volume, "size": "16M"}],
        datasets=[{"source": source, "volume": volume, "name": "a b"}],
    )
    apply(spec)
    (volume / "a b/new").mkdir()  # somebody's, where a file of the source is to be
    for name in ("new", "newer"):
        (source / name).write_text("content")
    hint = refusal(spec)["hint"]
    (command,) = re.findall(r"`hostprep (stage [^`]*)`", hint)
    staged = hostprep(*shlex.split(command))
    assert staged["target"] == str(volume / "a b") and staged["copied_files"] == 1
    assert plan(spec)["changes"] == []


def test_prune_advises_nobody_to_lose_data(safe_dir: Path) -> None:
    hostprep("mount", safe_dir / "v", "--size", "1M")
    (safe_dir / "v/somebodys").touch()
    spec = safe_dir / "lab.yml"
    write_spec(spec, volumes=[{"path": safe_dir / "other", "size": "1M"}])
    found = refusal(spec, "--prune")
    assert "somebodys" in found["message"] and not _OPTIONS.search(found["hint"])
    own = hostprep("unmount", safe_dir / "v", expect=5)["error"]["hint"]
    assert f"`hostprep unmount {safe_dir / 'v'} --discard-data`" in own


def test_what_has_the_place_of_a_data_set_is_told_in_the_words_of_the_spec(
    safe_dir: Path, source: Path
) -> None:
    (safe_dir / "to/city").mkdir(parents=True)
    spec = write_spec(safe_dir / "lab.yml", datasets=[{"source": source, "to": safe_dir / "to"}])
    assert refusal(spec)["hint"].startswith("choose another `name`, or move it away; ")
    hint = hostprep("stage", source, "--to", safe_dir / "to", expect=5)["error"]["hint"]
    assert (
        hint.startswith("choose another --name, or move it away; ") and "HOSTPREP_STATE_DIR" in hint
    )
