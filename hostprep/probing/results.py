"""A probe as a document: printed by ``--json``, stored, and compared with an earlier one."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.host.file_system_id import file_system_id
from hostprep.probing.judgement import Judgement, Need
from hostprep.probing.model import (
    DEPTHS,
    ENGINE,
    RANDOM_BLOCK_BYTES,
    SEQUENTIAL_BLOCK_BYTES,
    FioRun,
    Measured,
    Settings,
    SmallFiles,
    SmallRun,
    Target,
)
from hostprep.probing.received import is_whole
from hostprep.system.following import followed
from hostprep.system.kept import of_this_host, parse_kept, read_kept, this_host, unreadable
from hostprep.system.own_files import write_atomically
from hostprep.system.state import readable_state_dirs, remembered, state_dir

SCHEMA = "hostprep.probe/1"
_FOLDER = "probes"
_MOST_BYTES = 1 << 20  # a result has some kilobytes; a larger file was named by mistake
# What both results must have in common: otherwise the storage is not the only difference.
_CHOSEN = (
    "path", "fstype", "mounted", "engine", "fio_version", "sequential_block_bytes",
    "random_block_bytes", "depths", "readers", "seconds", "size_bytes", "drop_caches",
)  # fmt: skip
# And each with the field that says that it was measured at all: there may have been no time.
_FOUND = {
    "direct": "file_source",
    "file_source": "file_source",
    "small_source": "small_source",
}
_COMPARED = (
    ("sequential", "bytes_per_s"),
    ("random_4k", "iops"),
    ("small_files", "files_per_s"),
    ("small_files", "bytes_per_s"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of an earlier probe beside the same figure of this one."""

    name: str
    before: float
    now: float


def chosen_settings(to: Target, settings: Settings) -> dict[str, Any]:
    """Return the settings that are known before anything is measured."""
    return {
        "path": to.storage.path,
        "fstype": to.storage.fstype,
        "mounted": to.storage.mount.source,
        "file_system": file_system_id(to.storage),
        "engine": ENGINE,
        "fio_version": to.fio_version,
        "sequential_block_bytes": SEQUENTIAL_BLOCK_BYTES,
        "random_block_bytes": RANDOM_BLOCK_BYTES,
        "depths": list(DEPTHS),
        "readers": settings.readers,
        "seconds": settings.seconds,
        "size_bytes": settings.size_bytes,
        "drop_caches": settings.drop_caches,
    }


def document(
    to: Target, measured: Measured, judgement: Judgement, need: Need | None
) -> dict[str, Any]:
    """Return everything as plain data, the contract's fields first."""
    storage, small = measured.storage, measured.small
    return {
        "device": _device(measured, judgement),
        "sequential": _fio(measured.sequential, measured, "read"),
        "random_4k": _fio(measured.random, measured, "randread"),
        "small_files": _small_files(small) if small else None,
        "valid": not judgement.invalid,
        "invalid_reasons": [asdict(reason) for reason in judgement.invalid],
        "verdict": judgement.verdict.value,
        "need": _need(need, judgement),
        "remedies": [asdict(remedy) for remedy in judgement.remedies],
        "ratio": judgement.ratio,
        "dataset": asdict(measured.dataset),
        "compressed": measured.compressed,
        "epoch": asdict(judgement.epoch) if judgement.epoch else None,
        "epoch_note": judgement.epoch_note,
        "file": {
            "source": measured.file_source,
            "size_bytes": measured.file_bytes,
            "note": measured.file_note,
        },
        "fewer": [asdict(fewer) for fewer in measured.fewer],
        "folder_note": measured.folder_note,
        "path": storage.path,
        "mount": {
            "target": storage.mount.target,
            "source": storage.mount.source,
            "fstype": storage.fstype,
            "options": [*storage.mount.mount_options, *storage.mount.super_options],
        },
        "settings": {
            **chosen_settings(to, measured.settings),
            "direct": measured.direct,
            "file_source": measured.file_source,
            "small_source": small.source if small else None,
        },
        "seconds": measured.seconds,
    }


def _device(measured: Measured, judgement: Judgement) -> dict[str, Any]:
    storage, link = measured.storage, measured.link
    return {
        "class": judgement.storage_class.value,
        "kernel_class": storage.storage_class.value,
        "behaviour": judgement.behaviour.value,
        "kernel_and_measurement_agree": judgement.agrees,
        "reason": judgement.class_reason,
        "disks": [disk.name for disk in storage.disks],
        "chain": [asdict(entry) for entry in storage.devices],
        "link": asdict(link) | {"degraded": link.degraded} if link else None,
        "health": {name: asdict(health) for name, health in measured.health},
    }


def _fio(best: FioRun | None, measured: Measured, pattern: str) -> dict[str, Any] | None:
    if best is None:
        return None
    runs = {f"depth_{run.depth}": asdict(run) for run in measured.fio if run.pattern == pattern}
    return {
        "bytes_per_s": best.bytes_per_s,
        "iops": best.iops,
        "depth": best.depth,
        "latency_s": asdict(best.latency) if best.latency else None,
        **runs,
    }


def _small_files(small: SmallFiles) -> dict[str, Any]:
    return {
        **_small(small.best),
        "source": small.source,
        "mean_bytes": round(small.mean_bytes),
        "cold": [_small(run) for run in small.cold],
        "cached": _small(small.cached) if small.cached else None,
        "staged": _small(small.staged) if small.staged else None,
        "cached_share": small.cached_share,
        "metadata_cold": small.metadata_cold,
        "stays_in_memory": small.stays_in_memory,
        "unreadable": small.unreadable,
        "empty": small.empty,
    }


def _small(run: SmallRun) -> dict[str, Any]:
    fields = asdict(run)
    return {
        "files_per_s": fields.pop("files_per_s"),
        "bytes_per_s": fields.pop("bytes_per_s"),
        "latency_s": fields.pop("latency"),
        **fields,
    }


def _need(need: Need | None, judgement: Judgement) -> dict[str, Any] | None:
    if need is None:
        return None
    judged = judgement.judged
    measured = asdict(judged) | {"share": judged.share} if judged else None
    return {**asdict(need), "judged": measured}


def folder() -> Path:
    """Return where results are stored."""
    return state_dir() / _FOLDER


def keep(fields: dict[str, Any]) -> str:
    """Write the result into the state directory and return its id.

    The id is added to ``fields``, as are the time and the host. Raises ``OSError`` or
    ``HostprepError`` if that fails.
    """
    word = _word(fields["path"])
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    fields["id"] = f"{moment}-{word}-{secrets.token_hex(2)}"
    fields["time"] = moment
    fields["host"] = this_host()
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, "ok": True, **fields}, indent=1)
    write_atomically(place / f"{fields['id']}.json", [f"{text}\n".encode()], durable=True)
    return str(fields["id"])


def _word(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-")[-40:] or "root"


def load(path_or_id: str) -> dict[str, Any]:
    """Return an earlier result by its id, by its file, or the newest of a probed path.

    Raises ``UsageError`` if there is none, or if the file is something else.
    """
    kept = [folder / _FOLDER for folder in readable_state_dirs()]
    files = [Path(path_or_id)]
    files += [folder / f"{path_or_id}.json" for folder in kept if "/" not in path_or_id]
    for file in files:
        try:
            there = file.is_file()
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            break
        if there:
            return _read(file)
    named = os.path.abspath(path_or_id)
    # Stored under the folder's real name, which was measured.
    for wanted in dict.fromkeys((named, followed(named))):
        for result in newest_first():
            if result.get("path") == wanted:
                return result
    raise UsageError(
        f"there is no earlier probe {path_or_id!r}.",
        "give the id of a probe, a path that was probed, or a file",
    )


def newest_first() -> Iterator[dict[str, Any]]:
    """Yield all stored results of this host, the newest first.

    Hosts may share a home directory, and use the same names for different disks. ``damaged``
    returns what cannot be read. Raises ``HostprepError`` if the stored results cannot be listed.
    """
    for file in _kept():
        try:
            result = _read(file)
        except HostprepError:
            continue  # one broken file must not hide the others
        if of_this_host(result):
            yield result


def damaged() -> dict[str, HostprepError]:
    """Return what is wrong with stored files that cannot be read, by path, the newest first."""
    return {str(file): error for file, error in unreadable(_kept(), _read).items()}


def is_of(file: str, path: str) -> bool:
    """Whether a file has the name of a result stored for ``path``, whatever it contains."""
    named = re.fullmatch(r"\d{8}T\d{6}Z-(.+)-[0-9a-f]{4}\.json", os.path.basename(file))
    return named is not None and named[1] == _word(path)


def _kept() -> list[Path]:
    files = sorted(file for file in remembered(_FOLDER) if file.suffix == ".json")
    return sorted(files, key=lambda one: one.name, reverse=True)


def best_of_each_path() -> tuple[dict[str, Any], ...]:
    """Return for each probed path the newest valid result or, if none is valid, the newest."""
    best: dict[Any, dict[str, Any]] = {}
    for result in newest_first():
        held = best.get(path := result.get("path"))
        if held is None or (result.get("valid") and not held.get("valid")):
            best[path] = result
    return tuple(sorted(best.values(), key=lambda one: str(one.get("time")), reverse=True))


def _read(file: Path) -> dict[str, Any]:
    try:
        result = parse_kept(read_kept(file, _MOST_BYTES))
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise HostprepError(f"{file} could not be read: {error.strerror}.") from None
        result = None
    except ValueError:
        result = None
    if not isinstance(result, dict) or result.get("schema") != SCHEMA or not is_whole(result):
        raise UsageError(
            f"{file} is not a result of hostprep probe, or a damaged one.",
            "`hostprep probe --json PATH` makes one",
        )
    return result


def refuse_unlike(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ``Refused`` if the two sets of settings differ in what both have."""
    mine, theirs = now, before.get("settings", {})
    measured = [name for name, by in _FOUND.items() if None not in (mine.get(by), theirs.get(by))]
    unlike = [
        f"{name} ({theirs.get(name)!r} then, {mine[name]!r} now)"
        for name in (*_CHOSEN, *measured)
        if name in mine and mine[name] != theirs.get(name)
    ]
    if unlike:
        raise Refused(
            f"the two probes are not comparable: {', '.join(unlike)} differ.",
            "probe again with the settings of the earlier one",
        )


def differences(before: dict[str, Any], now: dict[str, Any]) -> tuple[Difference, ...]:
    """Return the figures that both have."""
    found = []
    for part, name in _COMPARED:
        then, here = before.get(part), now.get(part)
        if then and here:
            found.append(Difference(f"{part}.{name}", then[name], here[name]))
    return tuple(found)
