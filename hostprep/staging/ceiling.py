"""What a source is known to give: what an earlier probe of the same file system measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostprep.host.file_system_id import file_system_id
from hostprep.kinds import is_amount
from hostprep.system.kept import parse_kept, read_kept
from hostprep.system.state import readable_state_dirs

if TYPE_CHECKING:
    from hostprep.host.block import PathStorage

# Up to this mean size the probe's rate of whole small files is the ceiling, above it the
# sequential one: the size at which seeking and streaming take an arm about the same time.
_SMALL_FILE_BYTES = 1024 * 1024


def ceiling_of(
    storage: PathStorage, mean_bytes: float, rate: float
) -> tuple[float | None, str | None]:
    """Return the most that a source gave in a probe (bytes/s), and the probe's id.

    Of files of ``mean_bytes``. None where no probe is known to be of the same file system, or where
    ``rate`` (bytes/s) was more: then memory answered, and it was no ceiling.
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

    Its device and mount point are no proof of that: another disk may have them by now.
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
                continue  # not a probe that one could rely on
    return max(found, key=lambda item: str(item[0]))[1] if found else None
