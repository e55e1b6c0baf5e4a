"""How fast a source can be, according to an earlier probe of the same file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostprep.host.file_system_id import file_system_id
from hostprep.kinds import is_amount
from hostprep.system.kept import parse_kept, read_kept
from hostprep.system.state import readable_state_dirs

if TYPE_CHECKING:
    from hostprep.host.block import PathStorage

# Up to this mean size the probe's rate of whole small files is the ceiling, above it the sequential
# rate: at this size seeking and streaming take a disk arm about the same time.
_SMALL_FILE_BYTES = 1024 * 1024


def ceiling_of(
    storage: PathStorage, mean_bytes: float, rate: float
) -> tuple[float | None, str | None]:
    """Return a source's highest rate in a probe (bytes/s), and the probe's id.

    It is the rate for files of ``mean_bytes``. None if no probe is known to be of the same file
    system, or if ``rate`` (bytes/s) was higher: then memory answered, and it was no ceiling.
    """
    found = _latest_probe(storage)
    if found is None:
        return None, None
    figures = found.get("small_files" if mean_bytes < _SMALL_FILE_BYTES else "sequential")
    measured = figures.get("bytes_per_s") if isinstance(figures, dict) else None
    if measured is None or not is_amount(measured) or measured < rate:
        return None, None
    return float(measured), str(found.get("id"))


def _latest_probe(storage: PathStorage) -> dict[str, Any] | None:
    """Return the last valid probe of the same file system.

    The same device and mount point do not prove that: another disk may have them now.
    """
    own = file_system_id(storage)
    if own is None:
        return None
    found = []
    for state in readable_state_dirs():
        for path in (state / "probes").glob("*.json"):
            try:
                document = parse_kept(read_kept(path))
                if document["settings"]["file_system"] == own and document["valid"]:
                    found.append((document["time"], document))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not a reliable probe
    return max(found, key=lambda item: str(item[0]))[1] if found else None
