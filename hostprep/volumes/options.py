"""tmpfs mount options as numbers, so that a volume and its fstab line can be compared.

Their texts cannot: ``size=2m`` is shown as ``size=2048k`` in /proc/mounts, and defaults are not
shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hostprep.dataclass import dataclass
from hostprep.units import PAGE_BYTES, format_bytes
from hostprep.volumes.model import FLAGS, LiveVolume

# No more digits than 64 bits have, because int() refuses some thousands of digits.
_NUMBER = re.compile(r"([0-9]{1,20})([kmgtpe]?)", re.I | re.A)
_PERCENTAGE = re.compile(r"([0-9]{1,20})%")
# SELinux labels (mount(8)); one with commas in it is quoted.
_LABEL = re.compile(r'(?:|fs|def|root)context=(?:"[!#-~]*"|[!#-+\--~]*)')


@dataclass(frozen=True, slots=True)
class OptionValues:
    """What mount options mean to the kernel; for missing ones, its defaults (tmpfs(5)).

    ``size_bytes`` and ``inodes`` are None if they are not given, so that the kernel takes half of
    the RAM. ``inodes`` of 0 means no limit. ``uid`` and ``gid`` are None if given as names.
    """

    size_bytes: int | None
    inodes: int | None
    mode: int
    uid: int | None
    gid: int | None
    huge: str
    nosuid: bool
    nodev: bool
    noexec: bool
    noswap: bool


def parse_options(options: Sequence[str], *, ram_bytes: int | None = None) -> OptionValues:
    """Return what ``options`` mean; those for other readers (``nofail``, ``X-...``) are ignored.

    ``ram_bytes`` is what ``size=50%`` refers to; without it such a size counts as not given.
    """
    given: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name in ("suid", "dev", "exec"):
            given.pop(f"no{name}", None)
        elif name == "defaults":
            for flag in FLAGS:
                given.pop(flag, None)
        else:
            given[name] = value
    return OptionValues(
        size_bytes=_size(given.get("size"), ram_bytes),
        inodes=_number(given.get("nr_inodes")),
        mode=_octal(given.get("mode", "1777")),
        uid=_number(given.get("uid", "0")),
        gid=_number(given.get("gid", "0")),
        huge=given.get("huge", "never"),
        nosuid="nosuid" in given,
        nodev="nodev" in given,
        noexec="noexec" in given,
        noswap="noswap" in given,
    )


def compare_options(live: LiveVolume, options: Sequence[str]) -> tuple[str, ...]:
    """Return, as phrases, where ``live`` differs from mount ``options``; none if it does not.

    A size or number of inodes that ``options`` omit, or give as a percentage, is not compared.
    """
    want = parse_options(options)
    found = []
    # The kernel rounds a size up to whole pages, and statvfs reports the rounded one.
    if want.size_bytes is not None and not 0 <= live.size_bytes - want.size_bytes < PAGE_BYTES:
        found.append(size_drift(live.size_bytes, want.size_bytes))
    if want.inodes is not None and want.inodes != (live.inodes or 0):
        found.append(f"nr_inodes {live.inodes or 0} instead of {want.inodes} (0 is no limit)")
    if want.mode != live.mode:
        found.append(f"mode {live.mode:04o} instead of {want.mode:04o}")
    if want.uid is not None and want.uid != live.uid:
        found.append(f"uid {live.uid} instead of {want.uid}")
    if want.gid is not None and want.gid != live.gid:
        found.append(f"gid {live.gid} instead of {want.gid}")
    if want.huge != live.huge:
        found.append(f"huge={live.huge} instead of huge={want.huge}")
    for flag in (*FLAGS, "noswap"):
        if getattr(live, flag) and not getattr(want, flag):
            found.append(f"{flag} is set, and should not be")
        elif getattr(want, flag) and not getattr(live, flag):
            found.append(f"{flag} is missing")
    return tuple(found)


def labels_in(options: Sequence[str]) -> tuple[str, ...]:
    """Return the SELinux labels among mount ``options``: the admin's choice, not the volume's.

    The kernel takes them only when mounting; a remount leaves the labels as they are.
    """
    return tuple(option for option in options if _LABEL.fullmatch(option))


def size_drift(size_bytes: int, wanted_bytes: int) -> str:
    """Return the words for a volume of another size than it should have."""
    return f"size {_bytes_in_words(size_bytes)} instead of {_bytes_in_words(wanted_bytes)}"


def _bytes_in_words(size_bytes: int) -> str:
    if not size_bytes:  # so statvfs says it, and tmpfs takes it
        return "unlimited"
    return f"{format_bytes(size_bytes)} ({size_bytes} bytes)"


def _octal(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    # -1, which no volume can have, if the kernel would refuse the mount. From a mode as stat(1)
    # prints it, such as 100755, the kernel takes the bits that chmod(2) sets.
    return -1 if mode < 0 else mode & 0o7777


def _size(text: str | None, ram_bytes: int | None) -> int | None:
    if match := _PERCENTAGE.fullmatch(text or ""):
        return None if ram_bytes is None else ram_bytes * int(match[1]) // 100
    return _number(text)


def _number(text: str | None) -> int | None:
    """Parse as the kernel's memparse does: suffixes k, m, g, t, p, e in powers of 1024."""
    match = _NUMBER.fullmatch(text or "")
    if match is None:
        return None
    return int(match[1]) * int(1024 ** " kmgtpe".index(match[2].lower()))
