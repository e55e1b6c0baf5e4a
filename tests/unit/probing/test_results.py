"""Results as documents: their fields, where they are kept, when they may be compared."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.host.block import StorageClass
from hostprep.host.block_device import Transport
from hostprep.host.block_link import PcieLink
from hostprep.probing import results
from hostprep.probing.counters import counted_disks, disk_counts
from hostprep.probing.judge import judge
from hostprep.probing.model import Target
from hostprep.probing.needs import parse_need
from hostprep.probing.rates import compare, rates_in, rates_of
from hostprep.readiness.checks import nvme_link, storage_class
from hostprep.readiness.context import Context
from hostprep.readiness.measurements import measurements
from hostprep.system.state import state_dir
from tests.unit.probing.made import disk, measured, small_files, storage


def made(need: str | None = "1000", **changes: Any) -> dict[str, Any]:
    one = measured(**changes)
    required = parse_need(need) if need else None
    target = Target(one.storage, one.fio_version)
    return results.document(target, one, judge(one, required), required)


def test_the_fields_that_scripts_rely_on() -> None:
    fields = json.loads(json.dumps(made()))
    assert fields["device"]["class"] == "arm"
    assert fields["sequential"]["bytes_per_s"] == pytest.approx(150 * 2**20)
    assert fields["random_4k"]["iops"] == 180
    assert fields["random_4k"]["depth_1"]["iops"] == 90
    assert fields["small_files"]["files_per_s"] == 100
    assert fields["small_files"]["bytes_per_s"] == 10_000_000
    assert set(fields["small_files"]["latency_s"]) == {"p50", "p95", "p99"}
    assert (fields["valid"], fields["invalid_reasons"], fields["verdict"]) == (True, [], "FAIL")
    assert fields["need"]["judged"]["share"] == pytest.approx(0.1)
    assert [remedy["enough"] for remedy in fields["remedies"]] == [True, True, None, None]
    assert fields["epoch"]["cold_seconds"] == pytest.approx(100)
    assert fields["device"]["chain"][0]["transport"] == "sata"


def test_a_mean_of_sizes_is_a_whole_number_of_bytes() -> None:
    fields = made(small=small_files(mean_bytes=19_732.46))
    assert repr(fields["small_files"]["mean_bytes"]) == "19732"


def test_what_was_not_measured_is_null_and_not_zero() -> None:
    fields = made(None, fio=(), small=None)
    assert fields["sequential"] is None
    assert fields["random_4k"] is None
    assert fields["small_files"] is None
    assert fields["epoch"] is None
    assert fields["need"] is None
    assert (fields["valid"], fields["verdict"]) == (False, "INVALID")


def test_kept_and_found_again_by_id_by_path_and_by_file() -> None:
    first, second = made(), made()
    first_id, second_id = results.keep(first), results.keep(second)
    assert first_id != second_id
    assert results.load(first_id)["id"] == first_id
    assert results.load("/data")["id"] in (first_id, second_id)
    file = state_dir() / "probes" / f"{second_id}.json"
    assert results.load(str(file))["id"] == second_id
    assert {entry.suffix for entry in file.parent.iterdir()} == {".json"}


def test_what_another_host_measured_is_no_figure_of_this_one() -> None:
    # A home that machines share: /data is another disk on each.
    kept = results.keep(made())
    file = state_dir() / "probes" / f"{kept}.json"
    elsewhere = json.loads(file.read_text()) | {"host": "another"}
    file.write_text(json.dumps(elsewhere))
    assert results.best_of_each_path() == ()
    with pytest.raises(UsageError, match="no earlier probe '/data'"):
        results.load("/data")
    assert results.load(kept)["host"] == "another"  # asked for by its id
    del elsewhere["host"]  # an earlier version's
    file.write_text(json.dumps(elsewhere))
    assert len(results.best_of_each_path()) == 1


def test_what_cannot_be_written_leaves_nothing() -> None:
    kept = results.keep(made())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            results.keep(made())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in (state_dir() / "probes").iterdir()] == [f"{kept}.json"]


def test_of_each_path_the_newest_valid_one_or_else_the_newest(monkeypatch: Any) -> None:
    kept = [
        {"path": "/a", "valid": False, "time": "4"},
        {"path": "/b", "valid": False, "time": "3"},
        {"path": "/a", "valid": True, "time": "2"},
        {"path": "/b", "valid": False, "time": "1"},
        {"path": "/a", "valid": True, "time": "0"},
    ]
    monkeypatch.setattr(results, "newest_first", lambda: iter(kept))
    best = results.best_of_each_path()
    assert [(one["path"], one["time"]) for one in best] == [("/b", "3"), ("/a", "2")]


@pytest.mark.parametrize("need", ["200", "50M"])
def test_a_kept_result_is_held_against_a_need_as_a_fresh_one_is(need: str) -> None:
    for changes in ({}, {"small": None}, {"fio": ()}):
        kept = json.loads(json.dumps(made(None, **changes)))
        assert rates_in(kept) == rates_of(measured(**changes))
        assert compare(rates_in(kept), parse_need(need)) == compare(
            rates_of(measured(**changes)), parse_need(need)
        )


def test_an_unknown_or_foreign_result(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no earlier probe"):
        results.load("nothing-like-it")
    with pytest.raises(UsageError, match="no earlier probe 'xxx"):
        results.load("x" * 300)
    foreign = tmp_path / "other.json"
    for content in (b'{"schema": "hostprep.stage/1"}', b"{", b"[1]", b"\xff", b"[" * 100_000):
        foreign.write_bytes(content)
        with pytest.raises(UsageError, match="not a result"):
            results.load(str(foreign))
    os.truncate(foreign, 1 << 40)  # a disk image by mistake: not read into the memory
    with pytest.raises(UsageError, match="not a result"):
        results.load(str(foreign))


def test_a_result_that_was_saved_is_found_by_any_name_of_its_file(tmp_path: Path) -> None:
    saved = tmp_path / "before.txt"
    saved.write_text(json.dumps({"schema": results.SCHEMA, **made()}))
    assert results.load(str(saved))["path"] == made()["path"]


def test_a_result_that_fails_to_be_read_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path, most_bytes: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = tmp_path / "kept.json"
    file.touch()
    monkeypatch.setattr(results, "read_kept", fail)
    with pytest.raises(HostprepError, match="Input/output error") as caught:
        results.load(str(file))
    assert not isinstance(caught.value, UsageError)


def test_a_broken_file_does_not_hide_the_others() -> None:
    kept = results.keep(made())
    (state_dir() / "probes/99999999T000000Z-broken.json").write_text("{")
    assert results.load("/data")["id"] == kept


def _of_another_kind(value: Any) -> Iterator[Any]:
    """Yield a document with each of its parts, however deep, made something else or left out."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield {**value, name: {"a": "b"}}
            yield {**value, name: "\x00"}
            yield {key: other for key, other in value.items() if key != name}
            yield from ({**value, name: changed} for changed in _of_another_kind(part))
    if isinstance(value, list):
        yield from (
            [changed, *value[1:]] for part in value[:1] for changed in _of_another_kind(part)
        )


@pytest.mark.parametrize("left", [b"", b'{"schema": "hostprep.probe/1"', bytes(512)])
def test_a_damaged_result_is_named_by_its_file(left: bytes) -> None:
    fields = made()
    results.keep(fields)
    assert results.damaged() == {}
    file = results.folder() / f"{fields['id']}.json"
    file.write_bytes(left)
    (found,) = results.damaged().items()
    assert found[0] == str(file) and str(file) in found[1].message
    assert results.is_of(str(file), fields["path"])
    assert not results.is_of(str(file), f"{fields['path']}/below")


def test_results_that_cannot_be_listed_are_not_none() -> None:
    results.folder().parent.mkdir()
    results.folder().symlink_to(results.folder())
    with pytest.raises(HostprepError, match="cannot be read"):
        list(results.newest_first())


def test_a_damaged_result_is_as_good_as_none_for_what_reads_it(tmp_path: Path) -> None:
    link = PcieLink("0000:01:00.0", 16.0, 4, 16.0, 4, 7e9)
    whole = json.loads(json.dumps({"schema": results.SCHEMA, **made(link=link), "time": "now"}))
    file = tmp_path / "kept.json"
    refused = 0
    for damaged in _of_another_kind(whole):
        file.write_text(json.dumps(damaged))
        try:
            found = results.load(str(file))
        except UsageError:
            refused += 1
            continue
        compare(rates_in(found), parse_need("1000"))
        results.differences(found, whole)
        context = Context(given={"probes": (found,), "now": 0.0})
        figures = measurements(context)
        assert figures["storage"] is not None
        assert figures["epoch"] is not None or not found.get("epoch") or not found["valid"]
        assert storage_class.seen_behaviours(context) is not None
        if (probed := nvme_link.probed(context, "sda")) is not None:
            nvme_link.link_of("sda", "/data", probed, in_use=True)
    assert refused > 50


def test_what_a_later_version_noted_beside_the_rates_is_let_be() -> None:
    fields = made()
    known = rates_in(fields)
    assert known.small is not None
    for part in ("dataset", "small_files", "sequential"):
        fields[part]["of_a_later_version"] = 1
    assert rates_in(fields) == known


def test_a_rate_below_nought_is_damage(tmp_path: Path) -> None:
    whole = json.loads(json.dumps({"schema": results.SCHEMA, **made()}))
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(whole))
    results.load(str(file))
    whole["small_files"]["files_per_s"] = -5.0
    file.write_text(json.dumps(whole))
    with pytest.raises(UsageError, match="damaged"):
        results.load(str(file))


def test_a_result_is_found_by_a_symlink_to_its_path(tmp_path: Path) -> None:
    fields = made()
    fields["path"] = str(tmp_path.resolve() / "data")
    kept = results.keep(fields)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert results.load(str(tmp_path / "link"))["id"] == kept


def test_like_is_compared_with_like() -> None:
    before, now = made(), made()
    results.refuse_unlike(before, now["settings"])
    now["sequential"]["bytes_per_s"] *= 2
    changes = {
        change.name: change.now / change.before for change in results.differences(before, now)
    }
    assert changes == {
        "sequential.bytes_per_s": 2,
        "random_4k.iops": 1,
        "small_files.files_per_s": 1,
        "small_files.bytes_per_s": 1,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "/other"),
        ("fstype", "xfs"),
        ("engine", "psync"),
        ("fio_version", "fio-3.1"),
        ("depths", [1]),
        ("direct", False),
        ("readers", 1),
        ("seconds", 5),
        ("file_source", "existing"),
    ],
)
def test_other_settings_are_refused(name: str, value: object) -> None:
    before = made()
    now = {**before["settings"], name: value}
    with pytest.raises(Refused, match=name):
        results.refuse_unlike(before, now)


def test_what_there_was_no_time_to_measure_makes_no_probe_unlike() -> None:
    before = made()
    now = {**before["settings"], "direct": False, "file_source": None}
    results.refuse_unlike(before, now)
    with pytest.raises(Refused, match="small_source"):
        results.refuse_unlike(before, now | {"small_source": "made up"})


def test_missing_figures_are_not_compared() -> None:
    without = made(None, fio=())
    names = {change.name for change in results.differences(made(), without)}
    assert names == {"small_files.files_per_s", "small_files.bytes_per_s"}


@pytest.mark.parametrize(("name", "there"), [("sda", "sda"), ("cciss/c0d0", "cciss!c0d0")])
def test_disks_that_do_not_count_are_not_asked(name: str, there: str, tmp_path: Path) -> None:
    queue = tmp_path / "sys/class/block" / there / "queue"
    queue.mkdir(parents=True)
    (queue / "iostats").write_text("1\n")
    assert counted_disks(storage(disks=(disk(name=name),)), tmp_path) == (name,)
    (queue / "iostats").write_text("0\n")
    assert counted_disks(storage(disks=(disk(name=name),)), tmp_path) == ()


def test_an_nvme_namespace_is_counted_by_the_paths_to_it(tmp_path: Path) -> None:
    def add(name: str, iostats: str) -> None:
        queue = tmp_path / "sys/class/block" / name / "queue"
        queue.mkdir(parents=True)
        (queue / "iostats").write_text(f"{iostats}\n")

    def on(name: str) -> tuple[str, ...]:
        drive = disk(name=name, transport=Transport.NVME)
        return counted_disks(storage(StorageClass.NVME, (drive,)), tmp_path)

    add("nvme3n1", "0")  # as kernels have it that count no reads of the namespace itself
    for path in ("nvme3c33n1", "nvme3c34n1", "nvme3c33n11", "nvme0c3n1"):
        add(path, "1")
    add("nvme1n1", "1")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/diskstats").write_text(
        "   0       0 nvme3c33n1 682 0 16000 59 67891 258573 17174264 58210 0 584 36052 0 0 0 0\n"
        "   0       0 nvme3c34n1 2 0 148 9 0 0 0 0 0 4 36 0 0 0 0\n"
        " 259      13 nvme3n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    assert on("nvme3n1") == ("nvme3c33n1", "nvme3c34n1")
    counts = disk_counts(on("nvme3n1"), tmp_path)
    assert counts is not None and counts.read_bytes == 16148 * 512
    assert on("nvme1n1") == ("nvme1n1",)
    add("nvme3c35n1", "0")
    assert on("nvme3n1") == ()
