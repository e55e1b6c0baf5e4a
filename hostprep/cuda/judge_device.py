"""The verdict on the device itself: link, clocks, other users, and the bandwidth. Pure."""

from __future__ import annotations

from hostprep.cuda.results import Check, Status, Threshold
from hostprep.cuda.traces import DeviceTrace, Trace
from hostprep.host.gpu import BUSY_PERCENT, HARD_REASONS
from hostprep.units import MIB, format_bytes, format_count, format_rate

BANDWIDTH_SHARE = 0.5
# For a copy of this size the cost of starting it is only a percent or so.
TELLING_BYTES = 16 * MIB
# PCI-SIG: bytes/s of a lane after encoding (8b/10b, 128b/130b; FLITs from generation 6).
LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# No GPU in use has a slower link: the yardstick if the link is not known.
LEAST_BYTES_PER_S = 4 * LANE_BYTES_PER_S[1]
LINK_SHARE = 0.25
# No link carries its full rate; beyond this factor it must be another link, whatever the noise.
OTHER_LINK = 1.1

_NVML = "NVML"
_LSPCI = "lspci -vv shows LnkSta, as root"
_SETTING = "page-locked, contiguous, not the default stream"
SOFT_REASONS = ("software thermal slowdown",)


def judge_device(trace: Trace) -> list[Check]:
    """Return the checks of the device's facts; none if they were not read."""
    subject, device = trace.subject, trace.device
    if device is None:
        return []
    return [
        _setting(subject, device),
        _busy(subject, device, trace.newcomers or 0),
        _link(subject, device, _fastest(trace)[1] if trace.copies else 0.0),
        _clocks(subject, device),
        *_kept(subject, device),
    ]


def judge_bandwidth(trace: Trace) -> Check:
    """Compare the best pinned bandwidth of the sweep with what the link could do."""
    subject, device = trace.subject, trace.device
    size_bytes, rate = _fastest(trace)
    words = f"pinned host to device: {format_rate(rate)} with {format_bytes(size_bytes)}"
    if trace.sweep_ended is not None:
        words += f" (larger copies were left out: {trace.sweep_ended})"
    threshold = Threshold(
        f">= {BANDWIDTH_SHARE:.0%} of the link", "PCI-SIG's rate by NVML's generation and width"
    )
    link = None if device is None else _both(device.link_generation, device.link_width)
    carried = 0.0 if link is None else _bytes_per_s(link)
    if link is None or rate > OTHER_LINK * carried:
        told = "NVML does not say over which link"
        if link is not None and carried:
            told = f"that is more than the PCIe {link[0]}.0 x{link[1]} that NVML names can carry"
        return Check(
            "copy.bandwidth",
            subject,
            Status.WARN if rate >= LEAST_BYTES_PER_S else Status.INCONCLUSIVE,
            f"{words}; {told}: there is nothing to compare it with",
            measured=round(rate),
            unit="bytes/s",
            threshold=Threshold(
                f">= {format_rate(LEAST_BYTES_PER_S)}",
                "PCI-SIG: PCIe 1.0 x4, and hardly any GPU's link is slower",
            ),
            remedy="if NVML works, nvidia-smi -q -d PCIE shows the link",
        )
    share = rate / carried
    enough = share >= BANDWIDTH_SHARE
    return Check(
        "copy.bandwidth",
        subject,
        Status.PASS if enough else failing_copies(trace),
        f"{words}, {share:.0%} of PCIe {link[0]}.0 x{link[1]}",
        measured=round(rate),
        unit="bytes/s",
        threshold=threshold,
        remedy=None
        if enough
        else "bind the process to the GPU's NUMA node (nvidia-smi topo -m), check the IOMMU and"
        " ACS settings, the CPU governor, and who else uses the link; Thunderbolt, and a switch or"
        " chipset on the way (lspci -tv), may carry less than the GPU's own link",
    )


def _fastest(trace: Trace) -> tuple[int, float]:
    """Return the size of the fastest copies, and their bytes/s."""
    best = max(trace.copies, key=lambda point: point.size_bytes / point.seconds)
    return best.size_bytes, best.size_bytes / best.seconds


def _bytes_per_s(link: tuple[int, int]) -> float:
    """Return what a link of a generation and width carries, 0 for an unknown generation."""
    return LANE_BYTES_PER_S.get(link[0], 0.0) * link[1]


def failing_copies(trace: Trace) -> Status:
    """Return the status of copies that are too slow: small ones always are, on any machine."""
    largest = max(point.size_bytes for point in trace.copies)
    return Status.FAIL if largest >= TELLING_BYTES else Status.INCONCLUSIVE


def is_disturbed(trace: Trace) -> bool:
    """Return whether others were using the device, or came to it meanwhile.

    If others are there and NVML does not say how busy the device is, as with MIG, they may be using
    it.
    """
    device = trace.device
    if trace.newcomers or device is None:
        return bool(trace.newcomers)
    used = device.utilisation_percent
    return bool(device.others) if used is None else used >= BUSY_PERCENT


def _setting(subject: str, device: DeviceTrace) -> Check:
    wrong = [
        words
        for holds, words in (
            (device.pinned, "the source is not page-locked"),
            (device.contiguous, "the source is not in one piece"),
            (device.own_stream, "the copies run on the default stream"),
        )
        if not holds
    ]
    return Check(
        "device.setting",
        subject,
        Status.ERROR if wrong else Status.PASS,
        "; ".join(wrong)
        or f"{device.name}, {format_bytes(device.total_bytes)}, compute capability"
        f" {device.capability}; page-locked source, a stream of its own",
        measured="; ".join(wrong) or _SETTING,
        threshold=Threshold(_SETTING, "CUDA's guide"),
        remedy="make sure that the host has free memory, and report it with --json"
        if wrong
        else None,
    )


def _busy(subject: str, device: DeviceTrace, newcomers: int) -> Check:
    used, others = device.utilisation_percent, device.others
    threshold = Threshold(
        f"utilisation below {BUSY_PERCENT}% beforehand, and no other process begins", "hostprep"
    )
    if used is None:
        status, words = Status.WARN, "NVML does not say whether others use it"
    elif used >= BUSY_PERCENT:
        status, words = Status.INCONCLUSIVE, f"others keep it busy for {used}% of the time"
    else:
        status = Status.WARN if others else Status.PASS
        words = f"idle ({used}%)"
    if others:
        holds = "holds" if others == 1 else "hold"
        words += f"; {format_count(others, 'other process')} {holds} memory on it"
    if newcomers:
        status = Status.INCONCLUSIVE
        words += f"; {format_count(newcomers, 'other process')} came to it during the test"
    return Check(
        "device.idle",
        subject,
        status,
        words,
        measured=used,
        unit="percent",
        threshold=threshold,
        remedy=None
        if status is Status.PASS
        else "nvidia-smi shows them; run this again when they are gone",
    )


def _link(subject: str, device: DeviceTrace, bytes_per_s: float) -> Check:
    now = _both(device.link_generation, device.link_width)
    most = _both(device.max_link_generation, device.max_link_width)
    threshold = Threshold("the generation and width that card and slot can do", _NVML)
    if now is None or most is None:
        return Check(
            "device.link",
            subject,
            Status.WARN,
            "NVML does not say what PCIe link it has",
            threshold=threshold,
            remedy=_LSPCI,
        )
    # Some virtual machines report a maximum for a link that is below its present speed.
    full = all(part >= bound for part, bound in zip(now, most, strict=True))
    below = "" if full else f"; it could do {most[0]}.0 x{most[1]}"
    rates = [_bytes_per_s(link) for link in (now, most)]
    if not full and all(rates) and rates[0] < LINK_SHARE * rates[1]:
        below += f", and has {rates[0] / rates[1]:.0%} of that"
    remedy = (
        "reseat the card, use the slot next to the CPU, look for risers and for lanes shared"
        " with an NVMe drive in the board's manual; a laptop's or an eGPU's link is built that way"
    )
    # NVML is wrong about a GPU that is not a card (NVLink-C2C), and in some virtual machines.
    if 0 < OTHER_LINK * rates[0] < bytes_per_s:
        below = f"; NVML says so, but copies at {format_rate(bytes_per_s)} need more"
        remedy = _LSPCI
    return Check(
        "device.link",
        subject,
        Status.PASS if full else Status.WARN,
        f"PCIe {now[0]}.0 x{now[1]} under load{below}",
        measured=f"{now[0]}.0 x{now[1]}",
        threshold=threshold,
        remedy=None if full else remedy,
    )


def _both(generation: int | None, width: int | None) -> tuple[int, int] | None:
    """Return the link, None if it is not known; for a GPU on no bus some drivers say 0."""
    return (generation, width) if generation and width else None


def _clocks(subject: str, device: DeviceTrace) -> Check:
    reasons = device.clock_reasons
    threshold = Threshold("no thermal slowdown, hardware slowdown or power brake", _NVML)
    if reasons is None:
        return Check(
            "device.clocks",
            subject,
            Status.WARN,
            "NVML does not say whether it is throttled",
            threshold=threshold,
            remedy="nvidia-smi -q -d PERFORMANCE",
        )
    hard = [reason for reason in reasons if reason in HARD_REASONS]
    soft = [reason for reason in reasons if reason in SOFT_REASONS]
    status = Status.FAIL if hard else Status.WARN if soft else Status.PASS
    return Check(
        "device.clocks",
        subject,
        status,
        f"throttled under the load of copies: {', '.join(hard + soft)}"
        if hard or soft
        else f"not throttled ({', '.join(reasons) or 'full clocks'})",
        measured=", ".join(reasons),
        threshold=threshold,
        remedy="check fans, dust, the room, the power cables; laptops slow down on battery power"
        if status is not Status.PASS
        else None,
    )


def _kept(subject: str, device: DeviceTrace) -> list[Check]:
    """Return the checks of persistence and ECC, for devices that have them."""
    checks = []
    if device.persistence is not None:
        checks.append(
            Check(
                "device.persistence",
                subject,
                Status.PASS if device.persistence else Status.WARN,
                f"persistence mode is {'on' if device.persistence else 'off'}",
                measured="on" if device.persistence else "off",
                threshold=Threshold("on", "NVIDIA: otherwise each job's start loads the driver"),
                remedy=None if device.persistence else "systemctl enable --now nvidia-persistenced",
            )
        )
    if device.ecc_uncorrected is not None:
        clean = device.ecc_uncorrected == 0
        checks.append(
            Check(
                "device.ecc",
                subject,
                Status.PASS if clean else Status.FAIL,
                f"{format_count(device.ecc_uncorrected, 'uncorrected memory error')} since the"
                " driver was loaded",
                measured=device.ecc_uncorrected,
                unit="errors",
                threshold=Threshold("0", _NVML),
                remedy=None
                if clean
                else "nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the card",
            )
        )
    return checks
