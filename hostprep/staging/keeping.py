"""Files that could not be copied now and stay as an earlier run published them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from hostprep.staging.files.holding import NAME_REFUSALS
from hostprep.staging.model import Entry
from hostprep.staging.plans.copy_plan import CopyPlan, keep_published
from hostprep.staging.reasons import Skipped
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.tree import entry_of, says_absent
from hostprep.system.trees import DirCache


def keep_failed(
    plan: CopyPlan, problems: Iterable[Skipped], published_fd: int, manifest: ManifestIndex
) -> None:
    """Count as kept what failed now but is published from an earlier run, and stays.

    Raises OSError if it is unknown what is there: what stays would be forgotten.
    """
    failed: dict[str, dict[str, Entry]] = {}
    with DirCache(published_fd) as tree:
        for problem in problems:
            parent, _, name = problem.path.rpartition("/")
            try:
                here = entry_of(name, os.lstat(name, dir_fd=tree.fd(parent)))
            except OSError as error:
                if says_absent(error) or error.errno in NAME_REFUSALS:
                    continue
                raise
            failed.setdefault(parent, {})[name] = here
    for parent, there in failed.items():
        for _, known in manifest.of(parent, [*there]):
            files = [record for record in known.records(there).values() if record.kind != "d"]
            keep_published(plan, parent, files, there)
