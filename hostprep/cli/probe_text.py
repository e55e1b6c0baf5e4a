"""A probe's result for people: the storage under the path, bars for the rates, the verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from hostprep.cli.output import drawable, printable
from hostprep.host.block import PathStorage
from hostprep.host.block_device import Device
from hostprep.host.block_health import Health
from hostprep.probing.judgement import Behaviour, Epoch, Judged, Judgement, Need, Reason, Verdict
from hostprep.probing.model import (
    NOT_WRITABLE,
    DataSet,
    FioRun,
    Latency,
    Measured,
    SmallFiles,
    SmallRun,
)
from hostprep.probing.rates import DISK_BUSY, FAILING, FAULT_HINT
from hostprep.probing.results import Difference
from hostprep.units import format_bytes, format_count, format_number, format_rate, format_seconds

_BAR_WIDTH = 24
_NAMES = {
    "arm": "hard disk",
    "sata_flash": "SATA flash",
    "nvme": "NVMe",
    "network": "network",
    "ram": "RAM",
    "overlay": "overlay",
    "fuse": "FUSE",
    "virtual": "virtual disk",
    "unknown": "unknown",
}
# The parts of the document, as the report calls them.
_PARTS = {
    "sequential": "sequential 1 MiB",
    "random_4k": "random 4 KiB",
    "small_files": "whole small files",
}
# Reasons that leave the other figures valid: there was nothing to read, or too little time for it.
_NOT_READ = frozenset({"no_file", "no_small_files"})
_NO_TIME = frozenset({"too_little_time", "too_few_files"})


def render(
    measured: Measured,
    judgement: Judgement,
    need: Need | None,
    result_id: str | None,
    changes: Iterable[Difference],
    *,
    earlier_valid: bool = True,
) -> str:
    """Return the whole report; ``earlier_valid``: the probe that ``changes`` refer to was valid."""
    parts = [
        _device(measured, judgement),
        _rates(measured),
        _small(measured, judgement),
        _fewer(measured, judgement),
        _epoch(judgement),
        _left_out(measured.dataset),
        printable(measured.folder_note or ""),
        _verdict(judgement, need),
        _changes(changes, earlier_valid=earlier_valid),
        f"took {format_seconds(measured.seconds)}"
        + (f"; kept as {result_id}" if result_id else ""),
    ]
    return "\n\n".join(part for part in parts if part)


def _device(measured: Measured, judgement: Judgement) -> str:
    storage = measured.storage
    lines = [
        f"{printable(storage.path)}: {_NAMES[judgement.storage_class]}",
        f"  {printable(judgement.class_reason)}",
        f"  {printable(_chain(storage))}",
    ]
    lines += [f"  {_disk(disk)}" for disk in storage.disks]
    if link := measured.link:
        slower = ""
        if link.degraded:
            slower = f"; it could do {link.max_speed_gt_per_s:g} GT/s x{link.max_width}"
        speed = f"{link.speed_gt_per_s:g} GT/s x{link.width} ({format_rate(link.bytes_per_s)})"
        lines.append(f"  PCIe under load: {speed} at {link.at}{slower}")
    lines += [f"  {name}: {_health(health)}" for name, health in measured.health]
    return "\n".join(lines)


def _disk(disk: Device) -> str:
    facts = [disk.name]
    if disk.size_bytes:
        facts.append(format_bytes(disk.size_bytes))
    if disk.scheduler:
        facts.append(f"scheduler {disk.scheduler}")
    if disk.readahead_bytes is not None:
        facts.append(f"readahead {format_bytes(disk.readahead_bytes)}")
    return ", ".join(facts)


def _health(health: Health) -> str:
    facts = []
    if health.passed is not None:
        facts.append("SMART passed" if health.passed else "SMART FAILED")
    if health.used_percent is not None:
        facts.append(f"{health.used_percent}% of its rated writes used")
    if health.media_errors:
        facts.append(format_count(health.media_errors, "media error"))
    return ", ".join(facts or ["SMART says little"])


def _chain(storage: PathStorage) -> str:
    """Return ``xfs on /data <- vg0-data (lvm) <- md0 (raid1) <- sda1 <- sda WDC ...``."""
    words = [f"{storage.fstype} on {storage.mount.target}"]
    for device in storage.devices:
        word = device.label if device.label and device.kind != "raid" else device.name
        if device.kind not in ("disk", "part"):
            word += f" ({device.label if device.kind == 'raid' else device.kind})"
        elif device.kind == "disk" and device.model:
            word += f" {device.model}"
        words.append(word)
    return " <- ".join(words)


def _bar(value: float, most: float) -> str:
    filled = round(value / most * _BAR_WIDTH * 8) if most > 0 else 0
    full, eighths = divmod(filled, 8)
    bar = "█" * full + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")
    return drawable(bar, sys.stdout).ljust(_BAR_WIDTH)


def _rates(measured: Measured) -> str:
    if not measured.fio:
        return ""
    direct = "direct" if measured.direct else "through the page cache"
    source = "an existing file" if measured.file_source == "existing" else "a test file"
    size = format_bytes(measured.file_bytes)
    lines = [f"one file ({measured.fio_version}, {direct}, {source} of {size})"]
    most = max(run.bytes_per_s for run in measured.fio)
    for run in measured.fio:
        name = _PARTS["sequential" if run.pattern == "read" else "random_4k"]
        lines.append(
            f"  {f'{name}, depth {run.depth}':<27} {_bar(run.bytes_per_s, most)} "
            f"{format_rate(run.bytes_per_s):>10} {_iops(run):>15}  {_latency(run.latency)}"
        )
    return "\n".join(lines)


def _iops(run: FioRun) -> str:
    return f"{format_number(run.iops)} IOPS"


def _small(measured: Measured, judgement: Judgement) -> str:
    small = measured.small
    if small is None:
        return ""
    origin = "from the data set" if small.source == "dataset" else "made for this"
    lines = [f"whole small files ({origin}, {format_bytes(small.mean_bytes)} on average)"]
    in_memory = judgement.behaviour is Behaviour.MEMORY
    shown = _small_rows(small, in_memory=in_memory)
    most = max(run.files_per_s for _, run in shown)
    for name, run in shown:
        rate = f"{format_number(run.files_per_s)} files/s"
        lines.append(
            f"  {name:<27} {_bar(run.files_per_s, most)} "
            f"{format_rate(run.bytes_per_s):>10} {rate:>15}  "
            f"{_latency(run.latency)}"
        )
        if run.early_files_per_s is not None:
            early = f"{format_number(run.early_files_per_s)} files/s"
            lines.append(f"    at first it was {early}: it did not last")
    cold = {run.readers: run.files_per_s for run in small.cold}
    if not in_memory and any(run.files_per_s < cold.get(run.readers, 0.0) for _, run in shown):
        lines.append(
            "  from memory they came no faster: the processors limit both, or were busier then"
        )
    if judgement.ratio is not None:
        lines.append(f"  small files give {judgement.ratio:.0%} of the sequential rate")
    if not small.metadata_cold and not in_memory:
        lines.append("  inodes were in memory: a first epoch may be slower than the cold rate")
    if small.unreadable:
        lines.append(f"  {format_count(small.unreadable, 'file')} could not be read")
    if small.empty:
        lines.append(
            "  left out, because nothing is in them to be read:"
            f" {format_count(small.empty, 'empty file')}"
        )
    return "\n".join(lines)


def _fewer(measured: Measured, judgement: Judgement) -> str:
    """Name the passes that ran with fewer readers, unless the verdict does."""
    told = [reason.message for reason in judgement.invalid]
    return "\n".join(
        f"  {printable(fewer.message)}"
        for fewer in measured.fewer
        if not any(fewer.message in message for message in told)
    )


def _small_rows(small: SmallFiles, *, in_memory: bool) -> list[tuple[str, SmallRun]]:
    first = "here" if in_memory else "cold"
    rows = [(f"{first}, {run.readers} at a time", run) for run in small.cold]
    for name, run in (("cached", small.cached), ("staged in RAM", small.staged)):
        if run is not None and run not in small.cold:  # on tmpfs they are the same run
            rows.append((f"{name}, {run.readers} at a time", run))
    return rows


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return ""
    return f"p50 {_short(latency.p50)}  p95 {_short(latency.p95)}  p99 {_short(latency.p99)}"


def _short(seconds: float) -> str:
    if seconds < 0.000_999_5:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.099_95 else format_seconds(seconds)


def _epoch(judgement: Judgement) -> str:
    epoch = judgement.epoch
    if epoch is None:
        return f"no epoch is predicted: {judgement.epoch_note}" if judgement.epoch_note else ""
    about = "about " if epoch.estimated_size else ""
    size = f"{format_count(epoch.files, 'file')}, {about}{format_bytes(epoch.size_bytes)}"
    if epoch.hole_bytes:
        size += f" without holes ({format_bytes(epoch.hole_bytes)})"
    lines = [f"an epoch of the data set ({size}; {epoch.readers} at a time)"]
    for name, seconds in (
        ("cold", epoch.cold_seconds),
        ("cached", epoch.cached_seconds),
        ("staged in RAM", epoch.staged_seconds),
    ):
        if seconds is not None:
            lines.append(f"  {name:<27} {format_seconds(seconds)}")
    if epoch.hit_high and epoch.cached_seconds is None and epoch.staged_seconds is None:
        lines.append(
            f"  {'from memory':<27} not predicted: no files of such sizes were read from memory"
        )
    lines.append(_cache_words(epoch))
    return "\n".join(lines)


def _left_out(dataset: DataSet) -> str:
    """Say which folders no figure includes, so that nobody takes them for counted."""
    kinds = (
        (dataset.mounts, "in which something else is mounted"),
        (dataset.closed, "that could not be listed"),
    )
    return "\n".join(
        f"not counted: {format_count(count, 'folder')} {words}" for count, words in kinds if count
    )


def _cache_words(epoch: Epoch) -> str:
    if not epoch.hit_high:
        return "  what was read does not stay in memory: every epoch is as slow as the first"
    if epoch.cache_share >= 1:
        return "  all of it fits into memory: from the second epoch on the page cache may serve it"
    band = f"{epoch.hit_low:.0%} (plain LRU) to {epoch.hit_high:.0%} (pinned)"
    words = f"  {epoch.cache_share:.0%} fits into memory; the page cache serves {band} of an epoch"
    if epoch.next_low_seconds is not None and epoch.next_high_seconds is not None:
        low, high = format_seconds(epoch.next_low_seconds), format_seconds(epoch.next_high_seconds)
        words += f":\n  {'later epochs':<27} {low} to {high}"
    return words


def _verdict(judgement: Judgement, need: Need | None) -> str:
    is_valid = judgement.verdict is not Verdict.INVALID
    lines = [] if is_valid else _invalid_lines(judgement.invalid, need)
    if judged := judgement.judged:
        assert need is not None
        held = _held_against(judged, need)
        lines.append(f"{judgement.verdict}: {held}" if is_valid else f"  {held}")
        if need.source != "--need":
            lines.append(f"  ({need.source})")
    if judgement.invalid and is_valid:
        lines.append("  that is certain, although not every figure is the storage's own:")
        lines += _told(judgement.invalid)
    if judgement.remedies:
        lines.append("  what would help, the cheapest first:")
    for number, remedy in enumerate(judgement.remedies, start=1):
        enough = {True: "enough", False: "not enough", None: "perhaps"}[remedy.enough]
        lines.append(f"  {number}. {remedy.action}: {enough}; {remedy.why}")
    return "\n".join(lines)


def _invalid_lines(invalid: Sequence[Reason], need: Need | None) -> list[str]:
    codes = {reason.code for reason in invalid}
    doubt = bool(codes - _NOT_READ - _NO_TIME)
    what = "these numbers do not say" if doubt else "these are too few numbers to say"
    lines = [f"INVALID: {what} what the storage gives", *_told(invalid)]
    if DISK_BUSY in codes:
        lines.append(
            "  -> probe again when they are idle: `pidstat -d 1` (sysstat) or iotop names them"
        )
    if codes & _NO_TIME:
        lines.append("  -> give it more time: --seconds")
    elif not doubt and need is None:
        hint = "  -> give it room, or more time: --seconds"
        if any(NOT_WRITABLE in reason.message for reason in invalid):
            hint = "  -> name a folder on the same storage that you may write to"
        if all(reason.of for reason in invalid):  # something here was read
            hint += ", or say what is required of what is here: --need 1800 (samples/s), 400M"
            hint += " (bytes/s)"
        lines.append(hint)
    return lines


def _held_against(judged: Judged, need: Need) -> str:
    amount = format_rate if judged.unit == "bytes/s" else _samples
    named = "" if need.bytes_per_s is None else f" ({need.text})"  # a plain "1800" adds nothing
    return (
        f"{judged.of} give {amount(judged.measured)}, {judged.share:,.0%} of the required "
        f"{amount(judged.required)}{named}; 90% of it suffices"
    )


def _told(reasons: Sequence[Reason]) -> list[str]:
    """Return each sentence once, because several rates may have the same one, and the remedy."""
    lines = [f"  {printable(each)}" for each in dict.fromkeys(one.message for one in reasons)]
    failing = any(reason.code == FAILING for reason in reasons)
    return [*lines, f"  -> {FAULT_HINT}"] if failing else lines


def _samples(rate: float) -> str:
    return f"{format_number(rate)} samples/s"


def _changes(changes: Iterable[Difference], *, earlier_valid: bool) -> str:
    lines = []
    for change in changes:
        if change.before:
            part, _, figure = change.name.partition(".")
            then, now = _figure(figure, change.before), _figure(figure, change.now)
            grown = change.now / change.before - 1
            lines.append(f"  {_PARTS[part]:<27} {then} -> {now} ({grown:+.0%})")
    head = "since the earlier probe"
    if not earlier_valid:
        head += ", whose figures do not all say what the storage gave (it was not valid)"
    return "\n".join([head, *lines]) if lines else ""


def _figure(name: str, value: float) -> str:
    if name == "bytes_per_s":
        return format_rate(value)
    return f"{format_number(value)} {'IOPS' if name == 'iops' else 'files/s'}"
