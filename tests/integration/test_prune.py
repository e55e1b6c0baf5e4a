"""What the spec does not name is left, and told of; `--prune` takes away what hostprep made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostprep.host.memory import read_headroom
from hostprep.volumes.fstab import volume_id_for
from tests.kit.converging import QUIET, apply, keys, plan, write_spec
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import hostprep, make_source, run_hostprep, snapshot

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def spec(safe_dir: Path) -> Path:
    """A spec of two volumes, three data sets; all there."""
    for name in ("one", "two", "three"):
        make_source(safe_dir / name, directories=1, files=3)
    path = safe_dir / "hostprep.yml"
    apply(
        write_spec(
            path,
            volumes=[{"path": safe_dir / name, "size": "64M"} for name in ("a", "b")],
            datasets=[
                {"source": "one", "volume": safe_dir / "a"},
                {"source": "two", "volume": safe_dir / "b"},
                {"source": "three", "to": safe_dir / "disk"},
            ],
        )
    )
    return path


def test_nothing_goes_unless_asked_for(spec: Path, safe_dir: Path) -> None:
    write_spec(spec, volumes=[{"path": safe_dir / "a", "size": "64M"}])
    before = snapshot(safe_dir / "state")
    planned = plan(spec)
    assert planned["changes"] == []
    stays = [each for each in planned["unchanged"] if "--prune" in each["reason"]]
    assert all(each["prunable"] == (each in stays) for each in planned["unchanged"])
    told = {(each["kind"], each["subject"]) for each in stays}
    datasets = {("dataset", str(safe_dir / path)) for path in ("a/one", "b/two", "disk/three")}
    assert told == {*datasets, ("volume", str(safe_dir / "b"))}
    assert apply(spec)["changed"] is False
    assert snapshot(safe_dir / "state") == before


def test_what_lies_where_nothing_can_be_removed_is_refused_before_anything_goes(
    safe_dir: Path,
) -> None:
    """A volume that somebody made read-only, as so that nobody changes the data in a long run."""
    make_source(safe_dir / "one", directories=1, files=3)
    volumes = [{"path": safe_dir / name, "size": "64M"} for name in ("a", "b")]
    spec = safe_dir / "hostprep.yml"
    datasets = [{"source": "one", "volume": safe_dir / "a"}]
    apply(write_spec(spec, volumes=volumes, datasets=datasets))
    subprocess.run(["mount", "-o", "remount,ro", safe_dir / "a"], check=True)
    before = snapshot(safe_dir / "state")
    spec.write_text("{}")
    for words in (
        ("apply", spec, "--prune", "--yes", *QUIET),
        ("unstage", "one", "--dry-run"),
        ("unstage", "one"),
    ):
        found = hostprep(*words, expect=5)
        assert "is mounted read-only; nothing was changed" in str(found)
    assert snapshot(safe_dir / "state") == before
    assert os.path.ismount(safe_dir / "b")
    subprocess.run(["mount", "-o", "remount,rw", safe_dir / "a"], check=True)
    assert apply(spec, "--prune")["changed"]


def test_what_does_not_answer_is_refused_and_not_waited_for(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C would not end that, and nobody say what it waits for."""
    monkeypatch.setattr("hostprep.converging.prune.PATIENCE_SECONDS", 0.5)
    (safe_dir / "beneath").mkdir()
    with failing_fs(safe_dir / "beneath", where=safe_dir) as fs:
        target = f"{fs.mount}/far"
        hostprep("stage", make_source(safe_dir / "far"), "--to", fs.mount)
        fs.tell(Rule("*", "getattr", None, hang_seconds=60))
        (refusal,) = plan(write_spec(safe_dir / "spec.yml"), "--prune", expect=5)["refusals"]
        assert refusal["subject"] == target
        assert refusal["message"] == f"{target} did not answer within 0.5 s; nothing was changed."
        assert f"hostprep unstage {target} --forget" in refusal["hint"]


def test_the_runs_own_working_directory_is_no_use_of_a_volume(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused as in use by itself, it had nothing that could be ended."""
    volume = safe_dir / "a"
    spec = write_spec(safe_dir / "hostprep.yml", volumes=[{"path": volume, "size": "64M"}])
    apply(spec)
    spec.write_text("{}")
    monkeypatch.chdir(volume)
    assert apply(spec, "--prune")["changed"] and not volume.exists()


@pytest.mark.parametrize("text", ["", "# cut short\n", "volumes:\ndatasets:\n"])
def test_a_blank_file_clears_no_host(spec: Path, safe_dir: Path, text: str) -> None:
    spec.write_text(text)
    before = snapshot(safe_dir)
    for words in (["plan", spec, "--prune"], ["apply", spec, "--prune", "--yes"]):
        found = hostprep(*words, expect=2)
        assert "is empty, and --prune would remove all" in found["error"]["message"]
    assert snapshot(safe_dir) == before
    assert plan(spec)["changes"] == []  # without --prune it asks for nothing
    spec.write_text("{}")
    goes = {change["subject"] for change in plan(spec, "--prune")["changes"]}
    assert goes >= {str(safe_dir / path) for path in ("a", "b", "a/one", "b/two", "disk/three")}


@pytest.mark.parametrize(("section", "things"), [("volumes", "volume"), ("datasets", "data set")])
def test_a_section_with_nothing_behind_it_is_no_wish_for_none(
    spec: Path, safe_dir: Path, section: str, things: str
) -> None:
    spec.write_text(f"packages: []\n{section}:\n")
    before = snapshot(safe_dir)
    for words in (["plan", spec, "--prune"], ["apply", spec, "--prune", "--yes"]):
        error = hostprep(*words, expect=2)["error"]
        assert f"`{section}:`, and --prune would remove every {things}" in error["message"]
        assert error["hint"].endswith(f"write `{section}: []`")
    assert snapshot(safe_dir) == before
    spec.write_text(f"packages: []\n{section}: []\n")
    assert plan(spec, "--prune")["changes"]


def test_prune_takes_it_away_and_keeps_what_the_spec_names(
    spec: Path, safe_dir: Path, own_state: Path
) -> None:
    write_spec(spec, volumes=[{"path": safe_dir / "a", "size": "64M"}])
    planned = plan(spec, "--prune")
    pruned = apply(spec, "--prune")
    assert pruned["done"] == planned["changes"]
    assert os.path.ismount(safe_dir / "a") and os.listdir(safe_dir / "a") == []
    assert not (safe_dir / "b").exists() and not (safe_dir / "disk/three").exists()
    assert str(safe_dir / "b") not in (own_state / "fstab").read_text()
    assert str(safe_dir / "a") in (own_state / "fstab").read_text()
    for name in ("one", "two", "three"):
        assert (safe_dir / name / "hard").exists(), "the source is only ever read"
    assert apply(spec, "--prune")["changed"] is False
    (left,) = hostprep("status")["volumes"]
    assert left["path"] == str(safe_dir / "a") and hostprep("status")["datasets"] == []


def test_what_is_not_ours_is_refused_or_not_seen(spec: Path, safe_dir: Path) -> None:
    theirs = safe_dir / "theirs"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "theirs", theirs], check=True)
    (safe_dir / "disk/somebody").mkdir()
    (safe_dir / "a/one/note").write_text("mine")
    (safe_dir / "b/results").write_text("mine")
    write_spec(spec, volumes=[])
    before = snapshot(safe_dir / "a"), snapshot(safe_dir / "b"), snapshot(safe_dir / "disk")
    planned = plan(spec, "--prune", expect=5)
    refused = {
        ("dataset", str(safe_dir / "a/one")),
        ("volume", str(safe_dir / "a")),
        ("volume", str(safe_dir / "b")),
    }
    assert set(keys(planned["refusals"])) == refused
    messages = " ".join(refusal["message"] for refusal in planned["refusals"])
    assert "note" in messages and "results" in messages
    assert apply(spec, "--prune", expect=5)["changed"] is False
    after = snapshot(safe_dir / "a"), snapshot(safe_dir / "b"), snapshot(safe_dir / "disk")
    assert after == before
    (safe_dir / "a/one/note").unlink()
    (safe_dir / "b/results").unlink()
    apply(spec, "--prune")
    assert os.path.ismount(theirs) and (safe_dir / "disk/somebody").is_dir()


@pytest.mark.parametrize("kind", ["dataset", "volume"])
def test_a_record_that_cannot_be_read_is_named_and_nothing_is_pruned(
    kind: str, spec: Path, safe_dir: Path, own_state: Path, state: Path
) -> None:
    pattern = "datasets/three-*/dataset.json" if kind == "dataset" else "volumes/*-b.json"
    (record,) = state.glob(pattern)
    record.write_text("{")
    if kind == "volume":  # by its line in fstab it would be known all the same
        (own_state / "fstab").write_text("")
    write_spec(spec, volumes=[{"path": safe_dir / "a", "size": "64M"}])
    named = [each for each in plan(spec)["unchanged"] if str(record) in each["reason"]]
    assert [each["kind"] for each in named] == [kind]
    for found in (plan(spec, "--prune", expect=5), apply(spec, "--prune", expect=5)):
        name = record.parent.name if kind == "dataset" else record.stem
        (refusal,) = [each for each in found["refusals"] if each["subject"] == name]
        assert (refusal["kind"], str(record) in refusal["message"]) == (kind, True)
        assert refusal["hint"]
    assert (safe_dir / "disk/three/hard").exists() and (safe_dir / "a/one/hard").exists()
    if kind == "dataset":
        notes = hostprep("spec", "init", safe_dir / "drafted.yml")["notes"]
        assert any(str(record) in note for note in notes)


def test_a_volume_that_still_serves_the_spec_stays(spec: Path, safe_dir: Path) -> None:
    write_spec(spec, datasets=[{"source": "one", "to": safe_dir / "a"}])
    for planned in (plan(spec), plan(spec, "--prune")):
        assert ("volume", str(safe_dir / "a")) not in keys(planned["changes"])
        assert kept(planned, safe_dir / "a") == (
            f"the spec does not name it; it holds {safe_dir / 'a/one'}, where the spec stages to,"
            " so it stays, with its line in fstab"
        )


def kept(planned: dict[str, Any], path: Path) -> str:
    """Return why ``path``, that the spec does not name, is left as it is."""
    (reason,) = [each["reason"] for each in planned["unchanged"] if each["subject"] == str(path)]
    return str(reason)


def test_a_data_set_that_moves_is_there_before_the_old_one_goes(spec: Path, safe_dir: Path) -> None:
    write_spec(
        spec,
        volumes=[{"path": safe_dir / "a", "size": "64M"}],
        datasets=[{"source": "one", "to": safe_dir / "disk"}],
    )
    done = keys(apply(spec, "--prune")["done"])
    moved = [done.index(("dataset", each)) for each in ("one", str(safe_dir / "a/one"))]
    assert moved == sorted(moved)
    assert (safe_dir / "disk/one/hard").exists() and not (safe_dir / "a/one").exists()


def staged_in_most_of_the_memory(spec: Path, at: Path) -> dict[str, Any]:
    """Have a volume beside which no second one of its size fits, a data set in it; return it."""
    volume = {"path": at, "size": str(read_headroom().available_bytes * 6 // 10)}
    apply(write_spec(spec, volumes=[volume], datasets=[{"source": "one", "volume": at}]), "--prune")
    return volume


@pytest.mark.parametrize("known_by", ["record", "fstab"])
def test_a_volume_is_replaced_by_another_of_its_size(
    known_by: str, spec: Path, safe_dir: Path, state: Path
) -> None:
    old, new = safe_dir / "old", safe_dir / "new"
    volume = staged_in_most_of_the_memory(spec, old)
    if known_by == "fstab":  # its line is flushed to the disk, its record is not
        (state / "volumes" / f"{volume_id_for(str(old))}.json").unlink()
    write_spec(spec, volumes=[{**volume, "path": new}], datasets=[{"source": "one", "volume": new}])
    (refusal,) = plan(spec, expect=5)["refusals"]  # nobody said that the old one may go
    assert "promised to other volumes" in refusal["message"]
    planned = plan(spec, "--prune")
    assert apply(spec, "--prune")["done"] == planned["changes"]
    order = keys(planned["changes"])
    gone = [order.index(key) for key in (("dataset", str(old / "one")), ("volume", str(old)))]
    assert max(gone) < order.index(("volume", str(new)))
    assert (new / "one" / "hard").exists() and not os.path.ismount(old)
    assert known_by == "fstab" or not old.exists()
    assert apply(spec, "--prune")["changed"] is False


def test_a_volume_from_which_the_spec_stages_does_not_make_room(spec: Path, safe_dir: Path) -> None:
    old, new = safe_dir / "old", safe_dir / "new"
    volume = staged_in_most_of_the_memory(spec, old)
    (safe_dir / "link").symlink_to(old / "one")
    write_spec(
        spec, volumes=[{**volume, "path": new}], datasets=[{"source": "link", "volume": new}]
    )
    (refusal,) = plan(spec, "--prune", expect=5)["refusals"]
    assert "promised to other volumes" in refusal["message"]


def test_what_the_spec_stages_from_stays(spec: Path, safe_dir: Path) -> None:
    (safe_dir / "link").symlink_to(safe_dir / "disk" / "three")
    sources = [{"source": each, "to": safe_dir / "far"} for each in ("link", "b/two/class-0")]
    write_spec(spec, datasets=sources)
    applied = apply(spec, "--prune")
    assert {("dataset", str(safe_dir / "a/one")), ("volume", str(safe_dir / "a"))} <= set(
        keys(applied["done"])
    )
    assert (safe_dir / "disk/three/hard").exists() and (safe_dir / "b/two/hard").exists()
    again = apply(spec, "--prune")
    assert again["changed"] is False
    three, two = safe_dir / "disk/three", safe_dir / "b/two"
    assert f"the spec stages from {three}, so it stays" in kept(again, three)
    assert f"the spec stages from {two / 'class-0'}, so it stays" in kept(again, two)
    assert f"it holds {two / 'class-0'}, from which the spec" in kept(again, safe_dir / "b")


def test_a_volume_in_which_one_of_the_spec_lies_stays(spec: Path, safe_dir: Path) -> None:
    inside = safe_dir / "b" / "inside"
    write_spec(spec, volumes=[{"path": inside, "size": "16M"}])
    assert ("volume", str(safe_dir / "b")) not in keys(apply(spec, "--prune")["done"])
    assert os.path.ismount(inside)
    assert apply(spec, "--prune")["changed"] is False
    for planned in (plan(spec), plan(spec, "--prune")):
        assert f"it holds {inside}, which the spec names" in kept(planned, safe_dir / "b")


def nest(spec: Path, safe_dir: Path) -> Path:
    """Have a volume inside another, in a directory of its own; return the outer."""
    inner = safe_dir / "a" / "deep" / "inner"
    volumes = [{"path": path, "size": "32M"} for path in (safe_dir / "a", inner)]
    datasets = [{"source": "one", "volume": inner}, {"source": "two", "volume": safe_dir / "a"}]
    apply(write_spec(spec, volumes=volumes, datasets=datasets), "--prune")
    spec.write_text("{}")
    return safe_dir / "a"


def test_volumes_inside_others_go_before_them(spec: Path, safe_dir: Path, own_state: Path) -> None:
    outer = nest(spec, safe_dir)
    planned = plan(spec, "--prune")
    order = keys(planned["changes"])
    wanted = [("volume", str(path)) for path in (outer / "deep" / "inner", outer)]
    assert [order.index(key) for key in wanted] == sorted(order.index(key) for key in wanted)
    assert apply(spec, "--prune")["done"] == planned["changes"]
    assert not outer.exists() and str(outer) not in (own_state / "fstab").read_text()
    assert apply(spec, "--prune")["changed"] is False


@pytest.mark.parametrize("where", ["deep", "deep/inner", "mount"])
def test_what_lies_beside_a_volume_inside_another_keeps_both(
    spec: Path, safe_dir: Path, where: str
) -> None:
    outer = nest(spec, safe_dir)
    if where == "mount":
        (outer / "theirs").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "theirs", outer / "theirs"], check=True)
    else:
        (outer / where / "note").write_text("mine")
    before = snapshot(outer)
    refused = {each["subject"]: each for each in plan(spec, "--prune", expect=5)["refusals"]}
    assert str(outer) in refused
    named = {"deep": "deep", "deep/inner": "is mounted inside", "mount": "theirs is mounted inside"}
    assert named[where] in refused[str(outer)]["message"]
    apply(spec, "--prune", expect=5)
    assert snapshot(outer) == before


@pytest.mark.parametrize("instead", ["an entry", "a file", "a link", "nothing"])
def test_what_lies_where_an_inner_volume_was_mounted_keeps_the_outer(
    spec: Path, safe_dir: Path, instead: str
) -> None:
    outer = nest(spec, safe_dir)
    inner = outer / "deep" / "inner"
    subprocess.run(["umount", inner], check=True)
    if instead == "an entry":
        (inner / "note").write_text("mine")
    elif instead != "nothing":
        inner.rmdir()
        if instead == "a file":
            inner.write_text("mine")
        else:
            inner.symlink_to(safe_dir / "state" / "none")
    if instead == "nothing":
        assert apply(spec, "--prune")["done"] and not outer.exists()
        return
    before = snapshot(outer)
    (refusal,) = plan(spec, "--prune", expect=5)["refusals"]
    assert refusal["subject"] == str(outer)
    assert "still holds" in refusal["message"] and "(deep)" in refusal["message"]
    apply(spec, "--prune", expect=5)
    assert snapshot(outer) == before


def test_one_name_in_two_places_is_two_data_sets(spec: Path, safe_dir: Path) -> None:
    write_spec(
        spec, datasets=[{"source": "one", "to": safe_dir / place} for place in ("disk", "other")]
    )
    planned = plan(spec)
    places = [("dataset", str(safe_dir / place / "one")) for place in ("disk", "other")]
    assert keys(planned["changes"]) == places
    assert apply(spec)["done"] == planned["changes"]


class TestDrafting:
    """`spec init` on a host that has something: what it writes loads, and asks for nothing new."""

    def test_what_it_writes_is_what_is_there(self, spec: Path, safe_dir: Path) -> None:
        os.chown(safe_dir / "a", 65534, 65534)
        (safe_dir / "b").chmod(0o1777)
        apply(
            write_spec(
                spec,
                volumes=[
                    {"path": safe_dir / "a", "size": "64M", "owner": "nobody:nogroup"},
                    {"path": safe_dir / "b", "size": "64M", "mode": "1777", "huge": "advise"},
                    {"path": safe_dir / "c", "size": "16M", "swap": True},
                ],
                datasets=[{"source": "one", "volume": safe_dir / "a", "at_boot": True}],
            )
        )
        drafted = safe_dir / "drafted.yml"
        found = hostprep("spec", "init", drafted)
        assert (found["path"], found["notes"]) == (str(drafted), [])
        checked = hostprep("spec", "check", drafted)
        assert [each["name"] for each in checked["datasets"]] == ["one", "two", "three"]
        assert [each["at_boot"] for each in checked["datasets"]] == [True, False, False]
        by_path = {each["path"]: each for each in checked["volumes"]}
        assert by_path[str(safe_dir / "a")]["owner"] == "nobody:nogroup"
        assert by_path[str(safe_dir / "b")]["huge"] == "advise"
        assert by_path[str(safe_dir / "c")]["swap"] is True
        planned = plan(drafted, "--prune")
        # A checkout may well lie where others can write, and systemd may not run: both are then
        # said of the boot service.
        said = [words for words in planned["warnings"] if "boot" not in words]
        assert (planned["changes"], said) == ([], [])
        assert {each["kind"] for each in planned["unchanged"]} >= {"volume", "dataset", "boot"}

    def test_what_is_not_in_fstab_is_said(self, safe_dir: Path) -> None:
        hostprep("mount", safe_dir / "v", "--size", "16M", *QUIET)
        drafted = safe_dir / "drafted.yml"
        (note,) = hostprep("spec", "init", drafted)["notes"]
        assert "no line in fstab" in note
        assert keys(plan(drafted)["changes"]) == [("fstab", str(safe_dir / "v"))]
        hostprep("unmount", safe_dir / "v")

    def test_what_was_staged_inside_a_volume_is_left_out(self, spec: Path, safe_dir: Path) -> None:
        hostprep("stage", safe_dir / "two", "--to", safe_dir / "a/sets")
        drafted = safe_dir / "drafted.yml"
        (note,) = hostprep("spec", "init", drafted)["notes"]
        assert note == f"two is left out: a spec can only stage directly below {safe_dir / 'a'}"
        named = [each["name"] for each in hostprep("spec", "check", drafted)["datasets"]]
        assert sorted(named) == ["one", "three", "two"]

    def test_what_comes_back_at_boot_is_told_by_its_place_and_not_by_its_name(
        self, spec: Path, safe_dir: Path, own_state: Path
    ) -> None:
        write_spec(
            spec,
            volumes=[{"path": safe_dir / "a", "size": "64M"}],
            datasets=[{"source": "one", "volume": safe_dir / "a", "at_boot": True}],
        )
        apply(spec)
        hostprep("stage", safe_dir / "one", "--to", safe_dir / "elsewhere")
        assert self.at_boot(safe_dir) == [str(safe_dir / "a/one")]
        (unit,) = (own_state / "units").glob("hostprep-stage-*.service")
        content = unit.read_text()
        unit.write_text(f"# somebody's\n{content}")
        assert self.at_boot(safe_dir) == []
        unit.write_text(content)
        next((own_state / "units").glob("multi-user.target.wants/*")).unlink()
        assert self.at_boot(safe_dir) == []

    @staticmethod
    def at_boot(safe_dir: Path) -> list[str]:
        """Draft a spec that ``plan`` takes; return the data sets that it has staged at boot."""
        drafted = safe_dir / "drafted.yml"
        drafted.unlink(missing_ok=True)
        hostprep("spec", "init", drafted)
        plan(drafted)
        found = hostprep("spec", "check", drafted)["datasets"]
        return [f"{each['volume']}/{each['name']}" for each in found if each["at_boot"]]

    def test_what_was_removed_or_never_there_is_not_wanted(
        self, spec: Path, safe_dir: Path
    ) -> None:
        (safe_dir / "a/one/somebodys").touch()
        hostprep("unstage", "one", expect=1)
        (safe_dir / "four").mkdir()
        (safe_dir / "four/vanishing").touch()
        with pytest.MonkeyPatch.context() as patch:
            failing = "hostprep.staging.stage.order_files"
            patch.setattr(failing, lambda *_: (safe_dir / "four/vanishing").unlink())
            ways = ("--to", safe_dir / "disk", "--order", "inode")
            hostprep("stage", safe_dir / "four", *ways, expect=1)
        drafted = safe_dir / "drafted.yml"
        found = hostprep("spec", "init", drafted)
        assert sorted(found["notes"]) == [
            f"{safe_dir / 'a/one'} is left out: it was unstaged, though not all of it is gone",
            f"{safe_dir / 'disk/four'} is left out: the run that was to stage it first has not got"
            " to its end",
        ]
        named = [each["name"] for each in hostprep("spec", "check", drafted)["datasets"]]
        assert sorted(named) == ["three", "two"]

    def test_a_spec_is_never_overwritten(self, spec: Path) -> None:
        before = spec.read_bytes()
        refused = hostprep("spec", "init", spec, expect=5)
        assert str(spec) in refused["error"]["message"]
        assert spec.read_bytes() == before
        shown = run_hostprep("spec", "init", "-").stdout
        assert "\nvolumes:\n  - path: " in shown
