"""Looks at a spec's data sets through the planner of ``stage``; changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Mapping
from enum import Enum, auto

from hostprep.converging.dataset_words import (
    MOST_NAMED,
    action_of,
    reason_of,
    stage_command,
    warnings_of,
)
from hostprep.converging.datasets import DatasetLook
from hostprep.converging.sources import (
    Patient,
    SilentOnes,
    SourceAway,
    kept_target,
    led_to,
    real_paths,
)
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, Stopped, reading_hint, where_in
from hostprep.host.answering import NoAnswer
from hostprep.host.mounts import lies_in
from hostprep.spec.model import DatasetSpec
from hostprep.staging.forbidding import of_another_source
from hostprep.staging.model import StageRequest
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan, plan_stage
from hostprep.staging.plans.space import check_space
from hostprep.staging.record.readers import ALL, Readers, common
from hostprep.staging.record.records import ClosedManifest, load_record
from hostprep.staging.shortfall import cure_of
from hostprep.staging.source.opening import check_name
from hostprep.staging.target.owned import private_name
from hostprep.staging.target.place import open_parent, standing_directory
from hostprep.staging.target.private import is_there
from hostprep.staging.untouched import readers_of_names
from hostprep.system.descriptors import closing_fd
from hostprep.system.links import link_at, real_path, walk
from hostprep.units import format_count


@dataclass(frozen=True, slots=True)
class Looker:
    """Looks at the data sets of a spec.

    ``sizes`` are those that the spec's volumes will have, by path. ``reserve_bytes`` is the memory
    that volumes must leave for the machine, None for the default. ``passing``: who will be let into
    those whose owner or mode is to change, by path. ``silent``: what has not answered so far.
    """

    sizes: Mapping[str, int]
    reserve_bytes: int | None
    observer: Observer
    passing: Mapping[str, Readers] = dataclasses.field(default_factory=dict)
    silent: SilentOnes = dataclasses.field(default_factory=SilentOnes)

    def look(self, spec: DatasetSpec) -> DatasetLook:
        """Plan the staging of a data set and return the result; changes nothing.

        A source or target that does not answer becomes a problem after a while, see ``sources``. A
        data set that is staged and complete needs no source, so the rest of the host can still be
        fixed without it.
        """
        try:
            source, parent = real_paths(spec, self.silent.patience_for(spec))
            return self._plan(spec, source, parent, source)
        except (NoAnswer, SourceAway) as problem:
            if isinstance(problem, NoAnswer):
                self.silent.add(spec)
            return _without_source(spec, problem)
        except ClosedManifest as closed:
            return DatasetLook(
                spec,
                f"{parent.rstrip('/')}/{spec.name}",
                reason="on record; only root can tell whether it is whole and fresh",
                warnings=(f"{closed.found}",),
                source=source,
                origin=source,
            )
        except Stopped:
            raise
        except HostprepError as problem:
            return DatasetLook(spec, spec.target, problem=problem)
        except OSError as error:  # of its records, or of its target
            return DatasetLook(spec, spec.target, problem=_unlooked(spec, error))

    def look_ahead(self, look: DatasetLook, feeder: DatasetLook) -> DatasetLook:
        """Look again at a data set whose source ``feeder`` has yet to stage; changes nothing.

        It is planned from what ``feeder`` is staged from, because its copy will be like that. If
        the data set itself already exists, it is updated when its source is there.
        """
        assert look.source is not None and feeder.origin is not None
        spec, parent, source = look.spec, os.path.dirname(look.target), look.source
        try:
            origin = real_path(_origin(look, feeder))
            way = _way_of_links(_origin(look, feeder), feeder.origin)
            if way is _Way.OUT:
                raise Refused(
                    f"the source {source} is in the copy of {feeder.spec.name}, but there, as in"
                    f" what that is copied from, a symlink leads out of it, to {origin}; nothing"
                    " was changed.",
                    f"give the place that you mean as its `source`, such as {shlex.quote(origin)}",
                )
            same = way is _Way.ABSOLUTE or not lies_in(origin, feeder.origin)
            if same and not lies_in(origin, feeder.target):
                # That exists now, or is away, just as if no other data set fed this one.
                now = self.look(dataclasses.replace(spec, source=origin))
                return dataclasses.replace(now, spec=spec, target=look.target, source=origin)
            source = origin if same else feeder.target + origin.removeprefix(feeder.origin)
            look = dataclasses.replace(look, source=source)
            kept = load_record(spec.name, look.target)
            # Also after an interrupted run; but before a publication nothing of it is there.
            if kept is not None and kept.phase != "copying" and os.path.lexists(look.target):
                if kept.source != source:  # by its origin it may seem to be the same
                    raise of_another_source(self._request(spec, source, parent), kept)
                return self.look_behind(look, feeder)
            if not os.path.isdir(origin):
                raise Refused(
                    f"the source {source} would be in the copy of {feeder.spec.name}, but will not"
                    f" be there: there is no directory {origin} to copy; nothing was changed.",
                    "correct its `source`",
                )
            return self._plan(spec, source, parent, origin)
        except Stopped:
            raise
        except HostprepError as problem:
            return dataclasses.replace(look, problem=problem)
        except OSError as error:
            return dataclasses.replace(look, problem=_unlooked(spec, error))

    def look_behind(self, look: DatasetLook, feeder: DatasetLook) -> DatasetLook:
        """Return what to do with an existing data set whose source is yet to change.

        The present content of its source does not show what it will be.
        """
        assert look.source is not None
        return dataclasses.replace(
            look,
            request=self._request(look.spec, look.source, os.path.dirname(look.target)),
            action=f"bring {look.target} up to date with {look.source}",
            reason=f"its source is in the copy of {feeder.spec.name}, which is changed first",
            origin=_origin(look, feeder),
            warnings=look.warnings if look.request is not None else (),
            away=False,
            problem=None,
        )

    def _request(self, spec: DatasetSpec, source: str, parent: str) -> StageRequest:
        return StageRequest(
            source=source,
            name=check_name(spec.name),
            parent=parent,
            volume_size_bytes=None if spec.volume is None else self.sizes[spec.volume],
            reserve_bytes=self.reserve_bytes,
        )

    def _plan(self, spec: DatasetSpec, source: str, parent: str, origin: str) -> DatasetLook:
        """Plan the staging from ``origin``, but describe it as from ``source``.

        Neither has symlinks: their owners were checked, and they are not followed again.
        """
        request = self._request(spec, source, parent)
        read = dataclasses.replace(request, source=origin)
        with plan_stage(read, Patient(self.observer, origin)) as plan:
            plan.request = request
            return dataclasses.replace(
                _seen(spec, plan, self.passing), source=source, origin=origin
            )


def _unlooked(spec: DatasetSpec, error: OSError) -> HostprepError:
    return HostprepError(
        f"what staging {spec.target} takes cannot be told: {error.strerror or error}"
        f"{where_in(error)}; nothing was changed.",
        reading_hint(error),
    )


def _origin(look: DatasetLook, feeder: DatasetLook) -> str:
    """Return what the source of a data set fed by ``feeder`` will be a copy of."""
    assert look.source is not None and feeder.origin is not None
    return feeder.origin + look.source.removeprefix(feeder.target)


class _Way(Enum):
    """Where symlinks in a tree lead, and whether a copy's lead to the corresponding place."""

    INSIDE = auto()
    OUT = auto()  # to something next to the tree; a copy's lead to something next to the copy
    ABSOLUTE = auto()  # a copy's lead to the same place as the tree's


def _way_of_links(path: str, origin: str) -> _Way:
    """Return how a path below ``origin``, which has no symlinks, follows those inside it."""
    way = _Way.INSIDE

    def followed(there: str) -> str | None:
        nonlocal way
        if way is not _Way.INSIDE:
            return None
        if not lies_in(there, origin):
            way = _Way.OUT
            return None
        link = link_at(there)
        if link is not None and link.startswith("/"):
            way = _Way.ABSOLUTE
        return link

    walk(path.removeprefix(origin), followed, origin)
    return way


def _without_source(spec: DatasetSpec, problem: NoAnswer | SourceAway) -> DatasetLook:
    away = isinstance(problem, NoAnswer)
    missing, source = False, None
    place = spec.target
    if isinstance(problem, SourceAway):
        missing, source = True, problem.source
        place = f"{problem.parent.rstrip('/')}/{spec.name}"
    target = kept_target(spec, source or led_to(spec.source))
    if target is None:
        return DatasetLook(spec, place, problem=problem, away=away, missing=missing, source=source)
    why = problem.message.removesuffix("; nothing was changed.")
    warning = f"{why}: {target} stays as it was staged, and whether it is fresh is not known"
    reason = "whole by its manifest; whether it is fresh is unknown, since its source is away"
    return DatasetLook(
        spec,
        target,
        reason=reason,
        warnings=(warning,),
        away=True,
        missing=missing,
        source=source,
    )


def _seen(spec: DatasetSpec, plan: StagePlan, passing: Mapping[str, Readers]) -> DatasetLook:
    files, request = plan.files, plan.request
    failed = [item for item in files.skipped if item.failed]
    look = DatasetLook(
        spec,
        request.target,
        request,
        warnings=warnings_of(plan),
        problem=_problem(plan),
        reason="whole and fresh"
        + (f", but for {format_count(len(failed), 'entry')}" if failed else ""),
    )
    if look.problem is not None:
        return look
    if plan.is_fresh:
        left = _left_beside(request)
        if left is None:
            action, reason = _to_names(plan, passing) or (None, look.reason)
            return dataclasses.replace(look, action=action, reason=reason)
        return dataclasses.replace(
            look, action=f"remove {left}", reason="a run that was interrupted left it"
        )
    if failed:
        named = ", ".join(f"{item.path} ({item.reason})" for item in failed[:MOST_NAMED])
        problem = HostprepError(
            f"{format_count(len(failed), 'entry')} of {request.source} cannot be staged: {named};"
            " nothing was changed.",
            f"{cure_of(failed)}, or stage the rest yourself: `{stage_command(request)} --partial`",
        )
        return dataclasses.replace(look, problem=problem)
    return dataclasses.replace(
        look,
        needed_bytes=max(0, plan.space.needed_bytes - _reclaimed(plan)),
        needed_inodes=plan.space.needed_inodes,
        device=None if plan.volume is not None else _device(request.parent),
        free_bytes=plan.space.free_bytes,
        budget=plan.budget if plan.volume is None else None,
        action=action_of(plan),
        reason=reason_of(plan),
    )


def _to_names(plan: StagePlan, passing: Mapping[str, Readers]) -> tuple[str, str] | None:
    """Return what to do about the readers of its list of files, and why."""
    readers = None
    with contextlib.suppress(OSError, HostprepError):  # the copies are gone meanwhile
        readers = readers_of_names(plan, passing)
    if readers is None:
        return None
    now, wanted = readers
    if common(now, wanted) != now:
        why = "some users may read it, but not list all of its folders"
        return "restrict who may read the recorded list of its files", why
    if wanted == ALL != now:  # some file systems cannot admit single groups or users
        why = "all users may list its folders, but not all may read it"
        return "let everybody read the recorded list of its files", why
    return None


def _left_beside(request: StageRequest) -> str | None:
    """Return the private directory that is left to be removed next to a data set, if any.

    One that is not this user's stays, and so does one on a read-only file system.
    """
    with (
        contextlib.suppress(OSError, Refused),
        closing_fd(open_parent(request.parent)) as parent_fd,
    ):
        fixed = os.fstatvfs(parent_fd).f_flag & os.ST_RDONLY
        if not fixed and is_there(parent_fd, request.target):
            return os.path.join(request.parent, private_name(request.name))
    return None


def _problem(plan: StagePlan) -> HostprepError | None:
    """Return what forbids the run, except what its volume's plan reports: rules, and its room."""
    if plan.volume is None or plan.refusal is None:
        return plan.refusal
    room = check_space(plan.request, plan.space)
    of_volume = (plan.volume.refusal, room)
    told = any(each is not None and each.message == plan.refusal.message for each in of_volume)
    return None if told else plan.refusal


def _reclaimed(plan: StagePlan) -> int:
    """Return the bytes of an interrupted run's files that this run will remove first."""
    if plan.volume is None or plan.space.free_bytes is None:
        return 0
    used = plan.volume.live.used_bytes if plan.volume.live is not None else 0
    return max(0, plan.space.free_bytes - max(0, plan.volume.size_bytes - used))


def _device(path: str) -> int:
    """Return the file system of ``path``, or of its nearest existing parent."""
    return os.stat(standing_directory(path)).st_dev
