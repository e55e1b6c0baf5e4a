"""The speed of an NVMe drive's PCIe link, and where on the way it is narrowest.

Idle links slow down: read this while the drive works.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.reading import matching, read_text

# Bytes a second of one lane: transfers a second, less the line code (8b/10b up to 5 GT/s, 128b/130b
# from 8 GT/s, the flits of 64 GT/s). PCI Express Base Specification.
_LANE_BYTES_PER_S = {
    2.5: 250e6,
    5.0: 500e6,
    8.0: 8e9 * 128 / 130 / 8,
    16.0: 16e9 * 128 / 130 / 8,
    32.0: 32e9 * 128 / 130 / 8,
    64.0: 64e9 * 242 / 256 / 8,
}


@dataclass(frozen=True, slots=True)
class PcieLink:
    """The narrowest link between a drive and the processor; ``bytes_per_s`` before protocol cost.

    ``max_*`` are the maxima of the device at the lower end of that link; ``at`` is its address.
    """

    at: str
    speed_gt_per_s: float
    width: int
    max_speed_gt_per_s: float | None
    max_width: int | None
    bytes_per_s: float

    @property
    def degraded(self) -> bool:
        """Return whether the link runs below what its device could do."""
        slower = self.max_speed_gt_per_s is not None and (
            self.speed_gt_per_s < self.max_speed_gt_per_s
        )
        return slower or (self.max_width is not None and self.width < self.max_width)


def nvme_link(name: str, root: Path = Path("/")) -> PcieLink | None:
    """Return the narrowest link on the way to the NVMe disk ``name``, None if it is not known."""
    device = root / "sys/block" / name / "device"
    controllers = [device, *matching(device, "nvme[0-9]*")]  # a subsystem has several
    links = [link for controller in controllers for link in _links(controller / "device")]
    return min(links, key=lambda link: link.bytes_per_s, default=None)


def _links(pci: Path) -> list[PcieLink]:
    """Return the links from a PCI function up to the root port."""
    links = []
    folder = pci.resolve() if os.path.exists(pci) else None
    while folder is not None and re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:.*", folder.name):
        if link := _link(folder):
            links.append(link)
        folder = folder.parent
    return links


def _link(folder: Path) -> PcieLink | None:
    speed = _leading_number(folder / "current_link_speed")
    width = _leading_number(folder / "current_link_width")
    if not speed or not width or speed not in _LANE_BYTES_PER_S:
        return None  # "Unknown", or 0 lanes: a virtual or an integrated function
    most = _leading_number(folder / "max_link_width")
    return PcieLink(
        at=folder.name,
        speed_gt_per_s=speed,
        width=int(width),
        max_speed_gt_per_s=_leading_number(folder / "max_link_speed"),
        max_width=None if not most or most == 255 else int(most),
        bytes_per_s=_LANE_BYTES_PER_S[speed] * width,
    )


def _leading_number(path: Path) -> float | None:
    match = re.match(r"[0-9.]+", read_text(path) or "")
    return float(match[0]) if match else None
