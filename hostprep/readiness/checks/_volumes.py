"""The volumes that checks judge: the spec's, as they are mounted and as they are in fstab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.mounts import mount_at
from hostprep.readiness.checks._commands import WHO_TAKES_MEMORY
from hostprep.readiness.checks._sizes import (
    is_limited,
    is_wanted_size,
    ram_for,
    too_little_memory,
    wanted_bytes,
)
from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Remedy, Status, verdict
from hostprep.readiness.shell import quote
from hostprep.spec.model import VolumeSpec
from hostprep.units import format_bytes
from hostprep.volumes.model import SOURCE, VOLUME_SOURCES, Huge, LiveVolume
from hostprep.volumes.options import OptionValues, parse_options
from hostprep.volumes.settings import making_writable

_NOT_IN_A_JOB = "not inside a job: if a cgroup has a limit, a percentage refers to that limit"


@dataclass(frozen=True, slots=True)
class JudgedVolume:
    """A volume of the spec. ``size_bytes`` is the wanted size, calculated if it is a percentage.

    ``limited``: the wanted size is a percentage and a cgroup limits this process, so a volume
    mounted from here would get a percentage of that limit.
    ``live`` is None if no tmpfs is mounted there. ``line`` is None if fstab has no line of ours for
    it; ``no_mode``: that line has no mode.
    ``foreign``: what is mounted there is not hostprep's, and hostprep leaves it alone.
    ``owner`` is None if the spec does not name one, or it was not looked up (``with_owners``), or
    this host does not know the name, in which case ``no_owner`` says so.
    ``spoiled``: what its line says, or lacks, so that it is not mounted at boot, or stops the boot,
    or is useless, whatever the spec wants.
    ``too_little``: why there is not enough memory for it as the spec wants it, as a calculation.
    """

    spec: VolumeSpec
    size_bytes: int
    live: LiveVolume | None
    line: OptionValues | None
    owner: tuple[int, int] | None = None
    spoiled: tuple[str, ...] = ()
    limited: bool = False
    too_little: str | None = None
    no_owner: HostprepError | None = None
    no_mode: bool = False
    foreign: bool = False

    @property
    def wanted(self) -> VolumeSpec:
        """Its spec, completed from its line in fstab, with the owner as numbers.

        Without an owner if this host does not know the spec's, because the line's is another one.
        """
        spec, owner = self._by_line(), self.spec.owner
        if owner is not None:
            owner = None if self.owner is None else f"{self.owner[0]}:{self.owner[1]}"
        line_inodes = None if self.line is None else self.line.inodes
        return replace(spec, owner=owner or spec.owner, inodes=spec.inodes or line_inodes)

    @property
    def undrifted(self) -> VolumeSpec:
        """The spec; where it leaves open what is mounted differently, the values of the fstab line.

        If `hostprep mount` is given no value, the line follows what is mounted, a `chmod` by hand
        included.
        """
        spec, live, line = self.spec, self.live, self._by_line()
        if live is None:
            return spec
        return replace(
            spec,
            mode=spec.mode if line.mode == live.mode else line.mode,
            owner=spec.owner if line.owner == f"{live.uid}:{live.gid}" else line.owner,
            huge=spec.huge if line.huge == live.huge else line.huge,
        )

    def _by_line(self) -> VolumeSpec:
        """Return the spec; mode, owner and huge pages that it leaves open are the line's."""
        spec, line = self.spec, self.line
        if line is None:
            return replace(spec, owner=None if self.no_owner else spec.owner)
        owner = spec.owner
        if owner is None and line.uid is not None and line.gid is not None:
            owner = f"{line.uid}:{line.gid}"
        says_mode = line.mode >= 0 and not self.no_mode
        return replace(
            spec,
            mode=line.mode if spec.mode is None and says_mode else spec.mode,
            owner=None if self.no_owner else owner,
            huge=spec.huge or (line.huge if line.huge in {*Huge} else None),
        )

    def mount_hint(self, hint: str | None, *, mounts: bool = True) -> str | None:
        """Return a hint; if its line ``mounts`` the volume, add not to run it within a job."""
        return hint_outside_of_jobs(hint, limited=self.limited and mounts)

    def making_writable(self) -> tuple[str, ...]:
        """Return the line that makes it writable, if it is read-only; no hostprep command does."""
        if self.live is None or "ro" not in self.live.options:
            return ()
        return (making_writable(self.spec.path, self.live.options),)

    def changing(self, lines: tuple[str, ...], hint: str | None = None) -> Remedy:
        """Return ``lines``, which resize it as the spec says, or what has to be done first."""
        live = self.live
        if self.foreign:
            return self.left_alone()
        if live is not None and not live.size_bytes:
            return self.unlimited()
        if live is not None and live.used_bytes > self.size_bytes:
            return Remedy(
                ("hostprep status",),
                f"it holds {format_bytes(live.used_bytes)}, so it cannot shrink to"
                f" {format_bytes(self.size_bytes)}: give it a larger `size:` in the spec, or"
                " unstage something; then `hostprep apply`",
            )
        if self.too_little is not None:
            return freeing_memory(self.too_little)
        return Remedy((*self.making_writable(), *lines), self.mount_hint(hint))

    def left_alone(self) -> Remedy:
        """Return the remedy for a tmpfs that is not hostprep's: none of its commands touch it."""
        path = quote(self.spec.path)
        return Remedy(
            (f"findmnt {path}",),
            "hostprep did not mount it, so it neither changes nor unmounts it: unmount it yourself"
            f" (umount {path}), then `hostprep apply`; or keep it as it is: remove the volume from"
            f" the spec, and give its data sets `to: {self.spec.path}`",
        )

    def unlimited(self) -> Remedy:
        """Return the remedy for a volume that is mounted without a size limit."""
        if self.foreign:
            return self.left_alone()
        return Remedy(
            ("hostprep status",),
            self.mount_hint(
                "the kernel cannot give a limit to a mounted tmpfs that has none: unstage what is"
                f" in it, unmount it (hostprep unmount {quote(self.spec.path)}), then `hostprep"
                " apply`"
            ),
        )

    def beside_owner(self, found: Finding) -> Finding:
        """Add to a finding that this host does not know the spec's owner, if that is so.

        A known problem must not be hidden by something unknown: a FAIL stays one.
        """
        error, remedy = self.no_owner, found.remedy or Remedy()
        if error is None:
            return found
        if found.status is Status.PASS:
            message = f"{self.spec.path}: {error.message}"
            return Finding(Status.UNKNOWN, found.subject, message, remedy=Remedy(hint=error.hint))
        hint = error.hint and f"for the owner: {error.hint}"
        return replace(
            found,
            status=verdict((found.status, Status.UNKNOWN)),
            message=f"{found.message.removesuffix('.')}; and its owner: {error.message}",
            remedy=replace(remedy, hint="; ".join(filter(None, (remedy.hint, hint)))),
        )

    def has_size(self, size_bytes: int) -> bool:
        """Whether ``size_bytes`` is the wanted size: to the page, or nearly for a percentage."""
        return is_wanted_size(self.spec, size_bytes, self.size_bytes)


def hint_outside_of_jobs(hint: str | None, *, limited: bool) -> str | None:
    """Return the hint of a line that mounts a volume; ``limited``: not to be run in a job."""
    return "; ".join(filter(None, (hint, _NOT_IN_A_JOB if limited else None))) or None


def freeing_memory(too_little: str) -> Remedy:
    """Return the remedy if there is not enough memory for a volume as the spec wants it."""
    return Remedy(
        ("hostprep status", WHO_TAKES_MEMORY),
        f"there is too little memory now ({too_little}): end what uses it, unstage something, or"
        " give the volumes a smaller `size:` in the spec; then `hostprep apply` (a smaller"
        " --reserve keeps less for the machine)",
    )


def judged_volumes(context: Context) -> tuple[JudgedVolume, ...] | None:
    """Return the spec's volumes; None if there is no spec.

    Raises ``HostprepError`` if the memory cannot be read and one has a percentage of it.
    """
    if context.spec is None:
        return None
    lines = {entry.simple_target: entry for entry in context.fstab if entry.is_ours}
    looks = []
    for volume in context.spec.volumes:
        live = context.live(volume.path)
        line: OptionValues | None = None
        spoiled: tuple[str, ...] = ()
        no_mode = False
        if entry := lines.get(volume.path):
            no_mode = not any(option.startswith("mode=") for option in entry.options)
            line = parse_options(entry.options, ram_bytes=ram_for(entry.options, context))
            spoiled = tuple(_spoiled(entry.options))
        looks.append(
            JudgedVolume(
                spec=volume,
                size_bytes=wanted_bytes(volume, context, live, line),
                live=live,
                line=line,
                spoiled=spoiled,
                limited=is_limited(volume, context),
                too_little=too_little_memory(volume, context),
                no_mode=no_mode,
                foreign=live is not None and _is_foreign(context, volume.path, line is not None),
            )
        )
    return tuple(looks)


def _is_foreign(context: Context, path: str, has_line: bool) -> bool:
    """Whether the tmpfs at a volume's path is certainly neither hostprep's nor from its line."""
    mount = mount_at(path, context.mounts)
    if mount is None or mount.source in (VOLUME_SOURCES if has_line else (SOURCE,)):
        return False
    try:
        return all(each.live is None for each in context.volumes if each.path == path)
    except HostprepError:
        return False


def with_owners(volumes: tuple[JudgedVolume, ...] | None) -> tuple[JudgedVolume, ...] | None:
    """Return the volumes with the spec's owners looked up as numbers."""
    return None if volumes is None else tuple(map(_with_owner, volumes))


def _with_owner(volume: JudgedVolume) -> JudgedVolume:
    from hostprep.system.accounts import owner_of

    if volume.spec.owner is None:
        return volume
    try:
        return replace(volume, owner=owner_of(volume.spec.owner))
    except HostprepError as error:
        return replace(volume, no_owner=error)


def _spoiled(options: Sequence[str]) -> Iterator[str]:
    if "noauto" in options:
        yield "noauto, so it is not mounted at boot"
    elif "nofail" not in options:
        yield "nofail is missing, so the boot stops if the mount fails"
    if "ro" in options:
        yield "ro, so nothing can be staged into it"


def nothing_to_judge(volumes: tuple[JudgedVolume, ...] | None) -> Iterator[Finding]:
    """Yield a SKIP if no volume of the spec is mounted on this host, otherwise nothing."""
    if volumes is None:
        yield Finding(Status.SKIP, "volumes", "there is no spec file, so no volume is expected.")
    elif not volumes:
        yield Finding(Status.SKIP, "volumes", "the spec has no volumes.")
    elif not any(volume.live for volume in volumes):
        message = "no volume of the spec is mounted (HP001 says which)."
        yield Finding(Status.SKIP, "volumes", message)
