"""``hostprep stage``: put a data set into RAM or onto a faster disk, complete and verified."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from hostprep.cli.completion import reading_orders, ways_to_verify
from hostprep.cli.options import (
    DryRunOption,
    ForceOption,
    FstabOption,
    JsonOption,
    ReserveOption,
    size_in_bytes,
    volume_bytes,
)
from hostprep.cli.output import tell_of_waiting
from hostprep.errors import HostprepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hostprep.spec.model import DatasetSpec
    from hostprep.staging.model import StageRequest

DEFAULT_VOLUME = "/mnt/hostprep"


def stage(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="The data set, a directory. If not given: those of the spec file or, if there is"
            " none, the current directory.",
        ),
    ] = None,
    to_tmpfs: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Stage into a tmpfs volume of this size: 30G, 50%."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=f"Mount point of the volume. If not given: {DEFAULT_VOLUME}, or without SOURCE"
            " the one in the spec.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Stage into this directory, for instance on NVMe."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Its name on the target. If not given: the source's own."
        ),
    ] = None,
    fstab: FstabOption = False,
    verify: Annotated[
        str,
        typer.Option(
            metavar="<readback|inflight|none>",
            help="Read the copies back, only hash the data as it is copied, or neither.",
            autocompletion=ways_to_verify,
        ),
    ] = "readback",
    partial: Annotated[
        bool, typer.Option("--partial", help="Publish even if some files could not be staged.")
    ] = False,
    full_check: Annotated[
        bool, typer.Option("--full-check", help="Read unchanged files too, in source and copy.")
    ] = False,
    readers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=256,
            help="Maximum number of files to read in parallel; chosen if not given.",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="<listed|inode|physical>",
            help="Order in which files are read; chosen if not given.",
            autocompletion=reading_orders,
        ),
    ] = None,
    gentle: Annotated[
        bool,
        typer.Option(
            "--gentle", help="Yield to a running training job: one reader with idle priority."
        ),
    ] = False,
    reserve: ReserveOption = None,
    force: ForceOption = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Fail if another run is working on the target.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stage a data set: copy, verify and publish it in one go.

    The source is only read. The first time, readers see the whole data set or none of it. Run it
    again to update the copy: files are replaced one by one, each as a whole. An update needs room
    for what it copies beside what is there; if there is too little room, unstage first.
    """
    from hostprep.cli.stage_run import stage_all
    from hostprep.host.answering import wait_for_answers
    from hostprep.staging.model import StageRequest, Verify
    from hostprep.system.gentle import step_behind
    from hostprep.system.links import real_path

    _check_options(
        to_tmpfs=to_tmpfs,
        at=at,
        to=to,
        fstab=fstab,
        verify=verify,
        full_check=full_check,
        readers=readers,
        order=order,
        gentle=gentle,
    )
    size_bytes = None if to_tmpfs is None else volume_bytes(to_tmpfs)
    reserve_bytes = None if reserve is None else size_in_bytes(reserve)
    if to_tmpfs is not None and not dry_run:
        need_root_for_tmpfs()
    if gentle:
        step_behind()
    declared = _datasets_of_spec() if source is None else ()
    if name is not None and len(declared) > 1:
        raise UsageError(
            "--name goes with one data set; the spec file names several.",
            "name its SOURCE too, or leave --name out",
        )
    found: list[tuple[str, str | None]] = [(each.source, each.name) for each in declared]
    if not found:
        found = [(os.getcwd() if source is None else source, None)]
    wait_for_answers((*([] if to is None else [to]), *(path for path, _ in found)), tell_of_waiting)
    volume = "" if to is not None else os.path.abspath(at or _volume_of(declared))
    parent = volume if to is None else real_path(to, writes=True)
    requests = []
    for path, spec_name in found:
        real = real_path(path)
        request = StageRequest(
            source=real,
            name=_name_of(real, spec_name if name is None else name),
            parent=parent,
            volume_size_bytes=size_bytes,
            volume_of_ram=to_tmpfs is not None and "%" in to_tmpfs,
            verify=Verify(verify),
            fstab=fstab,
            partial=partial,
            full_check=full_check,
            reserve_bytes=reserve_bytes,
            force=force,
            readers=readers,
            order=order,
            gentle=gentle,
        )
        requests.append(request)
    _check_distinct(requests)
    stage_all(requests, dry_run=dry_run, as_json=as_json, no_wait=no_wait)


def _check_options(
    *,
    to_tmpfs: str | None,
    at: str | None,
    to: str | None,
    fstab: bool,
    verify: str,
    full_check: bool,
    readers: int | None,
    order: str | None,
    gentle: bool,
) -> None:
    """Raise ``UsageError`` for unknown values, and for options that exclude each other."""
    from hostprep.staging.model import ORDERS, Verify

    if (to_tmpfs is None) == (to is None):
        raise UsageError("say where to stage to, in exactly one way.", _ways())
    if to is not None and (at is not None or fstab):
        raise UsageError(
            "--at and --fstab go with --to-tmpfs, not with --to.",
            "they are about the volume that it mounts; leave them out",
        )
    if verify not in list(Verify):
        raise UsageError(f"{verify!r} is not a verify mode.", "accepted: readback, inflight, none")
    if gentle and readers not in (None, 1):
        raise UsageError(
            f"--gentle means one reader, and --readers {readers} asks for more.",
            "leave one of them out",
        )
    if full_check and verify == Verify.NONE:
        raise UsageError(
            "--full-check compares hashes, and --verify none computes none.",
            "leave one of them out",
        )
    if order not in (None, *ORDERS):
        raise UsageError(f"{order!r} is not an order of reading.", f"accepted: {', '.join(ORDERS)}")


def _name_of(source: str, given: str | None) -> str:
    """Return the data set's name: ``given``, or that of its source, a resolved path."""
    from hostprep.staging.source.opening import check_name

    if given is None and source == "/":
        raise UsageError("the source / has no name of its own.", "name a SOURCE, or give --name")
    return check_name(os.path.basename(source) if given is None else given)


def _check_distinct(requests: list[StageRequest]) -> None:
    """Raise if two would share a place; a spec may repeat a name for different places."""
    known: dict[str, str] = {}
    for request in requests:
        if request.target in known:
            raise UsageError(
                f"{known[request.target]} and {request.source} would both be staged to"
                f" {request.target}; nothing was changed.",
                "`hostprep apply` stages each where the spec says; or name one SOURCE",
            )
        known[request.target] = request.source


def _ways() -> str:
    """Return the hint that lists the options for where to stage to."""
    from hostprep.spec.finding import find_spec

    ways = "either --to-tmpfs SIZE [--at PATH], or --to DIR"
    spec = find_spec()
    return ways if spec is None else f"{ways}; or `hostprep apply`, as {spec} says"


def need_root_for_tmpfs() -> None:
    """Raise if an ordinary user asks for a mount, before anything is read."""
    if os.geteuid() != 0:
        raise HostprepError(
            "mounting a tmpfs needs root; nothing was changed.",
            "run it with sudo, or stage into the tmpfs that every Linux has: --to /dev/shm/NAME "
            "(a logout may clear it, where logind's RemoveIPC is on)",
        )


def _datasets_of_spec() -> tuple[DatasetSpec, ...]:
    """Return the data sets in the spec file, () if there is none."""
    from hostprep.spec.finding import find_spec
    from hostprep.spec.loading import load_spec

    path = find_spec()
    if path is None:
        return ()
    spec = load_spec(path)
    if not spec.datasets:
        raise UsageError(f"{path} names no data sets.", "name a SOURCE, or add `datasets:` to it")
    return spec.datasets


def _volume_of(declared: Sequence[DatasetSpec]) -> str:
    """Return the volume for data sets if ``--at`` names none: the spec's own, if it has one.

    Raises ``UsageError`` if the spec wants one of them elsewhere: ``apply``, ``status`` and
    ``check`` would not recognise a copy in another place than the spec's.
    """
    places = sorted({each.parent for each in declared})
    if not places:
        return DEFAULT_VOLUME
    if len(places) == 1 and declared[0].volume is not None:
        return declared[0].volume
    named = f"a directory, {places[0]}"
    if len(places) > 1:
        named = f"several places: {', '.join(places)}"
    raise UsageError(
        "without --at the data sets go to the volume that the spec names for them, and it names"
        f" {named}; nothing was changed.",
        "name the volume: --at PATH; or `hostprep apply`, which stages each where the spec says",
    )
