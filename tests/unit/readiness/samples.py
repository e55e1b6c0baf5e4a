"""Reports as the formats meet them: every status, names from strangers, figures and none."""

from __future__ import annotations

from typing import Any

from hostprep.readiness.model import (
    Finding,
    Level,
    Measured,
    Remedy,
    Result,
    Severity,
    Status,
)
from hostprep.readiness.report import document

MOMENT = 1_790_000_000.0
GIB = 2**30
# A directory may be called so: a bar, quotes, markup, a control character, a byte that is no UTF-8.
HOSTILE = "/data/<script>alert('x')</script>|a\"b\\c`\x1b[31m\udcff&amp;"
HOST_CLASS = {
    "machine": "x86_64",
    "cpu_model": "AMD EPYC 9554",
    "cpus": 64,
    "ram_gib": 512,
    "gpus": ["NVIDIA H100 80GB HBM3"] * 2,
}


def result(
    code: str,
    status: Status,
    subject: str,
    message: str,
    severity: Severity = Severity.MAJOR,
    **fields: Any,
) -> Result:
    if status in (Status.WARN, Status.FAIL, Status.UNKNOWN):
        fields.setdefault("remedy", Remedy((f"mend --it {code}",), "then check again"))
    finding = Finding(status, subject, message, **fields)
    return Result(code, f"title of {code}", severity, finding)


def free(gib: float, least_gib: float) -> dict[str, Any]:
    return {
        "measured": Measured(f"{gib:g} GiB free", int(gib * GIB), "bytes", "higher"),
        "threshold": f"at least {least_gib:g} GiB",
        "threshold_from": "rule of thumb",
        "threshold_value": int(least_gib * GIB),
    }


def results() -> list[Result]:
    """Return findings of every status, the passes first, as no report shows them."""
    critical = Severity.CRITICAL
    return [
        result("HP001", Status.PASS, "/mnt/ram", "/mnt/ram is mounted.", critical),
        result("HP020", Status.PASS, "/dev/shm", "/dev/shm has 23.5 GiB.", **free(23.5, 1)),
        result("HP050", Status.SKIP, "GPUs", "there is no NVIDIA GPU in this machine."),
        result(
            "HP041",
            Status.WARN,
            "/",
            "/ has 3 GiB free: staging to disk will soon fail.",
            **free(3, 10),
        ),
        result("HP012", Status.FAIL, HOSTILE, f"{HOSTILE} holds 1 file that is not whole."),
        result(
            "HP002",
            Status.FAIL,
            "/mnt/ram",
            "/mnt/ram has 20 GiB, where the spec wants 30 GiB.",
            critical,
            measured=Measured("20 GiB", 20 * GIB, "bytes"),
            threshold="30 GiB",
            threshold_from="the spec",
            threshold_value=30 * GIB,
            remedy=Remedy(
                ("hostprep mount /mnt/ram --size 30G --mode 0755 --owner trainer:trainer --fstab",),
                "what is in it stays",
            ),
        ),
        result("HP044", Status.UNKNOWN, "nvme0", "SMART data may not be read by this user."),
    ]


MEASUREMENTS: dict[str, Any] = {
    "storage": [
        {
            "path": "/srv/imagenet",
            "class": "nvme",
            "age_seconds": 7200.0,
            "valid": True,
            "sequential_bytes_per_s": 6.4e9,
            "small_files_bytes_per_s": 4.1e8,
            "small_files_per_s": 3650.0,
        },
        {
            "path": "/mnt/archive/very/long/path/that/does/not/fit/on/a/phone/in/one/line",
            "class": "network",
            "age_seconds": 90000.0,
            "valid": False,
            "sequential_bytes_per_s": 1.1e9,
            "small_files_bytes_per_s": None,
            "small_files_per_s": None,
        },
    ],
    "epoch": {
        "path": "/srv/imagenet",
        "age_seconds": 7200.0,
        "files": 1_281_167,
        "size_bytes": 147_897_477_120,
        "cold_seconds": 351.0,
        "next_low_seconds": 210.0,
        "next_high_seconds": 262.0,
        "staged_seconds": 19.5,
    },
    "loader": {
        "age_seconds": 86400.0 * 3,
        "num_workers": 12,
        "binding": "decode",
        "gpu_rate_samples_per_s": 2900.0,
        "points": [
            {"workers": 0, "samples_per_s": 210.0, "relative_error": 0.02},
            {"workers": 4, "samples_per_s": 1130.0, "relative_error": 0.03},
            {"workers": 8, "samples_per_s": 2080.0, "relative_error": 0.03},
            {"workers": 12, "samples_per_s": 2760.0, "relative_error": 0.04},
            {"workers": 16, "samples_per_s": 2790.0, "relative_error": 0.08},
        ],
    },
    "overlap": {
        "age_seconds": 240.0,
        "verdict": "PASS",
        "rows": [
            {
                "device": "cuda:0",
                "kind": "spin",
                "copy_seconds": 0.0051,
                "compute_seconds": 0.0050,
                "both_seconds": 0.0053,
                "phi": 0.96,
            },
            {
                "device": "cuda:0",
                "kind": "prefetcher",
                "copy_seconds": 0.0207,
                "compute_seconds": 0.0201,
                "both_seconds": 0.0214,
                "phi": 0.95,
            },
        ],
    },
}


def report(
    found: list[Result] | None = None,
    measured: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    return document(
        results() if found is None else found,
        **{
            "level": Level.QUICK,
            "host": "gpu-node-07",
            "host_class": HOST_CLASS,
            "spec": "/etc/hostprep/hostprep.yml",
            "unix_seconds": MOMENT,
            "seconds": 1.234,
            "left_out": [("HP062", "needs --full")],
            "measured": measured,
            **fields,
        },
    )
