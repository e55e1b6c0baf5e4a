"""Probes, costs and hosts for tests of what is pure, and a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from hostprep.loading.model import HostShare, Pipeline, Probe, SampleCost, Subject
from hostprep.units import GIB


def probe(workers: int, rate: float, **changed: Any) -> Probe:
    fields: dict[str, Any] = {
        "workers": workers,
        "prefetch_factor": 2,
        "samples_per_s": rate,
        "undisturbed_samples_per_s": rate,
        "relative_error": 0.01,
        "samples": 1000,
        "seconds": 2.5,
        "discarded_batches": 2 * workers + 4,
        "first_batch_seconds": 0.1,
        "own_cpus": 1.0,
        "main_cpus": 0.2,
        "runnable_cpus": 1.0,
        "others_cpus": 0.0,
        "others_before_cpus": 0.0,
        "main_memory_bytes": None,
        "worker_memory_bytes": 100 << 20 if workers else None,
        "worker_growth_bytes_per_s": 0.0 if workers else None,
        "worker_threads": 2 if workers else None,
        "worker_affinity_cpus": 8 if workers else None,
        "main_descriptors": 30,
        "duplicate_workers": 0,
        "seen_before": False,
    }
    return Probe(**{**fields, **changed})


def cost(**changed: Any) -> SampleCost:
    fields: dict[str, Any] = {
        "batch_size": 32,
        "seconds": 0.002,
        "worker_seconds": 0.002,
        "cpu_seconds": 0.002,
        "waiting_seconds": 0.0,
        "collate_seconds": 0.0001,
        "collate_cpu_seconds": 0.0001,
        "sample_bytes": 600_000,
        "tensors_per_batch": 2,
        "batch_p99_over_mean": 1.1,
    }
    return SampleCost(**{**fields, **changed})


def share(**changed: Any) -> HostShare:
    fields: dict[str, Any] = {
        "ranks": 1,
        "ranks_from": "test",
        "affinity_cpus": 8,
        "physical_cores": 8,
        "quota_cpus": None,
        "quota_group": None,
        "capacity_cpus": 8.0,
        "start_cpus": 8.0,
        "cpus_from": "all processors that are online",
        "memory_available_bytes": 16 * GIB,
        "memory_from": "MemAvailable",
        "cache_bytes": 16 * GIB,
        "shm_size_bytes": 8 * GIB,
        "shm_free_bytes": 8 * GIB,
        "descriptors_limit": 65536,
    }
    return HostShare(**{**fields, **changed})


def subject(**changed: Any) -> Subject:
    fields: dict[str, Any] = {
        "kind": "dataloader",
        "description": "mine:loader",
        "length": 100_000,
        "batch_size": 32,
        "shuffled": True,
        "current_workers": None,
        "current_prefetch": None,
        "start_method": "fork",
        "pickle_errors": {},
        "pickle_bytes": 100,
        "opencv_threads": None,
        "torch_version": "2.13.0",
        "cuda": False,
        "cuda_error": None,
    }
    return Subject(**{**fields, **changed})


def pipeline(**changed: Any) -> Pipeline:
    fields: dict[str, Any] = {
        "samples_per_s": 1600.0,
        "relative_error": 0.01,
        "rows": 16,
        "counted": "as 16 samples, the first dimension of its arrays",
        "maker": None,
        "own_cpus": 1.5,
        "others_cpus": 0.1,
    }
    return Pipeline(**{**fields, **changed})


def picture(seed: int = 0) -> Image.Image:
    dice = np.random.default_rng(seed)
    small = dice.integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((80, 60), Image.Resampling.BICUBIC)
