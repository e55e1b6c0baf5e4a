"""Compares a scanned source with what is staged already: which files a run is to copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from contextlib import ExitStack

from hostprep.errors import OF_A_DISK
from hostprep.host.block import locate
from hostprep.staging.checking import check_kept
from hostprep.staging.model import StageRequest, Verify
from hostprep.staging.observer import Observer
from hostprep.staging.planning import cores, purpose_of, target_lookers
from hostprep.staging.plans.copy_plan import CopyPlan, plan_fresh
from hostprep.staging.plans.update import plan_update
from hostprep.staging.record.damage import damage
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.record.records import Record, manifest_of
from hostprep.staging.resuming import begins_anew, is_in_ram
from hostprep.staging.source.scan import Scan
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.private import TREE, journals_in, open_resumable
from hostprep.system.trees import DIRECTORY_FLAGS


def plan_files(
    request: StageRequest,
    scan: Scan,
    previous: Record | None,
    parent_fd: int | None,
    published_fd: int | None,
    observer: Observer,
    source_fd: int,
) -> CopyPlan:
    """Return which files are to be copied, kept and removed.

    That is by the record of what was published, and by the journals of a run that was cut short.
    """
    private_fd = None
    if parent_fd is not None:
        private_fd = open_resumable(parent_fd, purpose_of(request))
    if published_fd is None and private_fd is None:
        return plan_fresh(scan)
    with ExitStack() as stack:
        tree_fd = None
        journals: list[str] = []
        if private_fd is not None:
            stack.callback(os.close, private_fd)
            journals = journals_in(private_fd)
            try:
                tree_fd = os.open(TREE, DIRECTORY_FLAGS, dir_fd=private_fd)
                stack.callback(os.close, tree_fd)
            except FileNotFoundError:
                pass
        manifest = ManifestIndex([])
        if published_fd is not None and previous is not None:
            manifest = manifest_of(previous)
        stack.callback(manifest.close)
        # Without its journals nothing can be taken over from an interrupted run: copy everything.
        in_ram = request.volume_size_bytes is not None or is_in_ram(request.parent)
        anew = begins_anew(request.verify, full_check=request.full_check, in_ram=in_ram)
        journal = _journal_of(request, [] if anew else journals, observer)
        stack.callback(journal.close)

        storage_class = locate(request.parent).storage_class
        lookers = target_lookers(storage_class, gentle=request.gentle)

        def plan(suspect: frozenset[str] = frozenset()) -> CopyPlan:
            return plan_update(
                scan,
                manifest=manifest,
                journal=journal,
                published_fd=published_fd,
                private_fd=tree_fd,
                suspect=suspect,
                verified=request.verify is not Verify.NONE,
                lookers=lookers,
                observer=observer,
            )

        found = plan()
        if damaged := damage(previous, manifest, found.strangers):
            raise damaged
        if request.full_check and published_fd is not None:
            differing = check_kept(
                found, source_fd, published_fd, cores(), observer, gentle=request.gentle
            )
            if differing:
                found = _plan_again(plan, found.kept_paths(), {each.path for each in differing})
            found.full_check, found.differing = True, differing
        return found


def _journal_of(request: StageRequest, paths: list[str], observer: Observer) -> ManifestIndex:
    """Return an interrupted run's journals; an empty index if its disk cannot read them.

    No later run could read them either, so the copies are made anew.
    """
    try:
        return ManifestIndex(paths)
    except OSError as error:
        where = f"{request.parent.rstrip('/')}/{private_name(request.name)}"
        if error.errno not in OF_A_DISK:
            error.filename = where  # instead of a descriptor's
            raise
        observer.note(
            f"the journal of an interrupted run in {where} cannot be read ({error.strerror}):"
            " whatever that run did not publish is copied again"
        )
        return ManifestIndex([])


def _plan_again(
    plan: Callable[[frozenset[str]], CopyPlan], read: Set[str], suspect: set[str]
) -> CopyPlan:
    """Return a plan that copies what is ``suspect`` and keeps nothing that was not ``read``."""
    found = plan(frozenset(suspect))
    # In the place of a file that is now copied, another of its hard links may be kept that was to
    # be copied before and therefore was not read.
    while unread := found.kept_paths() - read:
        suspect |= unread
        found = plan(frozenset(suspect))
    return found
