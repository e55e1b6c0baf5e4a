"""Where a volume may be: rules for the path, and what exists there, component by component."""

from __future__ import annotations

import errno
import os
import stat
from enum import StrEnum

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, reading_hint
from hostprep.host.capabilities import unknown_uid
from hostprep.host.elsewhere import mounts_elsewhere
from hostprep.host.mounts import lies_in
from hostprep.system.accounts import has_acl
from hostprep.system.descriptors import closing_fd
from hostprep.system.following import followed
from hostprep.system.links import leads_in_circle
from hostprep.system.trees import DIRECTORY_FLAGS

_NAMES_SHOWN = 5
# What Linux accepts (PATH_MAX with its NUL, NAME_MAX). Longer paths can be made but not removed.
_LONGEST_PATH, _LONGEST_NAME = 4095, 255
_SAFER = "choose an empty or new directory such as /mnt/NAME"

# The system's own folders, which nothing may cover.
# fmt: off
_SYSTEM_DIRS = frozenset({
    "/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/run/lock", "/run/user", "/srv",
    "/tmp", "/usr/local", "/var", "/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp",
})
# Nor anything below these, where programs, devices and kernel interfaces are.
_SYSTEM_TREES = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc",
    "/run/systemd", "/sbin", "/sys", "/usr",
)
# fmt: on


class NotEmpty(Refused):
    """There is something where a volume is wanted, and the volume would hide it."""


class PointKind(StrEnum):
    """What is at the path where a volume is wanted."""

    MISSING = "missing"
    DIRECTORY = "directory"
    OTHER = "not a directory"


@dataclass(frozen=True, slots=True)
class Folder:
    """An existing directory above a mount point, and what decides who can exchange its contents.

    ``of_unknown``: its uid is the one shown for all users that this user namespace does not know.
    """

    path: str
    uid: int
    gid: int
    mode: int
    acl: bool = False
    of_unknown: bool = False

    @property
    def others_can_write(self) -> str | None:
        """Say who besides root can rename things in it, None if nobody can.

        A sticky directory such as ``/tmp`` counts: before the next boot's mount, anybody may put
        their directory or symlink in the place of the mount point. With an ACL, the group bits are
        its mask, which covers every user and group that it names.
        """
        if self.of_unknown:
            return f"belongs to somebody whom this user namespace does not know (uid {self.uid})"
        if self.uid != 0:
            return f"belongs to uid {self.uid}"
        if self.mode & stat.S_IWOTH:
            return "is writable by everybody"
        if self.mode & stat.S_IWGRP and self.acl:
            return "has an ACL that lets others write (getfacl shows whom)"
        if self.mode & stat.S_IWGRP and self.gid != 0:
            return f"is writable by gid {self.gid}"
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """What is found on the way to a mount point.

    ``parents`` are the existing directories above it, ``/`` first; ``missing`` are the directories
    that do not exist yet, outermost first, the mount point last. ``symlink`` is the first component
    that is one. ``entries`` are the first few names in the mount point, if it is not empty.
    """

    kind: PointKind
    parents: tuple[Folder, ...]
    missing: tuple[str, ...] = ()
    symlink: str | None = None
    entries: tuple[str, ...] = ()
    read_only: bool = False


def check_path(path: str) -> str:
    """Return ``path`` without superfluous slashes; raise ``Refused`` if its text is unsafe.

    Control characters break fstab and terminals, ``..`` may lead to another place than it seems,
    and blanks at the end break systemd's mount units (systemd#38804).
    """
    if not path.startswith("/"):
        raise Refused(f"{path!r} is not an absolute path; nothing was changed.", _SAFER)
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise Refused(f"{path!r} holds control characters; nothing was changed.", _SAFER)
    if path != path.strip():
        raise Refused(f"{path!r} ends in a blank, which systemd cannot mount on.", _SAFER)
    if not path.isprintable():
        raise Refused(f"{path!r} holds characters that cannot be shown.", _SAFER)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Refused(f"{path!r} goes through `..`; nothing was changed.", "write the path out")
    found = "/" + "/".join(parts)
    lengths = (len(os.fsencode(part)) for part in parts)
    if len(os.fsencode(found)) > _LONGEST_PATH or max(lengths, default=0) > _LONGEST_NAME:
        raise Refused(
            f"{path[:60]!r}... is longer than the kernel takes ({_LONGEST_PATH} bytes,"
            f" {_LONGEST_NAME} a name); nothing was changed.",
            _SAFER,
        )
    return found


def is_system_dir(path: str) -> bool:
    """Return whether ``path``, checked, belongs to the system and may not be covered."""
    if path in _SYSTEM_DIRS:
        return True
    if path.startswith("/usr/local/"):
        return False
    return any(lies_in(path, tree) for tree in _SYSTEM_TREES)


def look(path: str) -> Place:
    """Walk to ``path`` (checked) without following links, and return what is there.

    Raises ``HostprepError`` if something on the way cannot be looked at.
    """
    parents: list[Folder] = []
    current = "/"
    below = path.strip("/").split("/")
    for depth, name in enumerate(["", *below]):
        current = os.path.join(current, name) if name else "/"
        try:
            status = os.lstat(current)
        except FileNotFoundError:
            missing = ["/" + "/".join(below[:count]) for count in range(depth, len(below) + 1)]
            read_only = bool(os.statvfs(parents[-1].path).f_flag & os.ST_RDONLY)
            return Place(
                PointKind.MISSING, tuple(parents), missing=tuple(missing), read_only=read_only
            )
        except OSError as error:
            raise HostprepError(
                f"{current} cannot be looked at: {error.strerror}.", reading_hint(error)
            ) from None
        if stat.S_ISLNK(status.st_mode):
            return Place(PointKind.OTHER, tuple(parents), symlink=current)
        if not stat.S_ISDIR(status.st_mode):
            return Place(PointKind.OTHER, tuple(parents))
        if current != path:
            parents.append(_folder(current, status, current))
    try:
        entries = first_names(path)
    except OSError as error:
        raise HostprepError(
            f"{path} cannot be looked at: {error.strerror}.", reading_hint(error)
        ) from None
    return Place(PointKind.DIRECTORY, tuple(parents), entries=entries)


def place_refusal(path: str, place: Place) -> Refused | None:
    """Return why a volume may not be at ``path``, whatever is mounted there, otherwise None."""
    if is_system_dir(path):
        return Refused(f"{path} belongs to the system; nothing was changed.", _SAFER)
    if place.symlink:
        return symlink_refusal(path, place.symlink)
    for folder in place.parents:
        if folder.of_unknown:
            outside = "mount it outside of the namespace, as root of the host, or do without"
            return Refused(
                f"{folder.path}, above the mount point, {folder.others_can_write}, as in a"
                " container without root: whether others could put another directory in its place"
                " cannot be told; nothing was changed.",
                f"{outside} a volume: `hostprep stage --to DIR`",
                spec_hint=f"{outside} a volume: `to: DIR`",
            )
        if who := folder.others_can_write:
            # Usually only root can write to /mnt; if /mnt is the problem, do not suggest it.
            safer = _SAFER.replace("/mnt", "/srv") if folder.path == "/mnt" else _SAFER
            return Refused(
                f"{folder.path}, above the mount point, {who}: others could put another directory"
                " in its place; nothing was changed.",
                f"{safer}, below directories that only root can write",
            )
    if place.kind is PointKind.OTHER:
        return Refused(f"{path} is not a directory; nothing was changed.", _SAFER)
    if place.read_only:
        return Refused(
            f"{place.missing[0]} cannot be made: its file system is mounted read-only.",
            # If the root file system is read-only, so is /mnt.
            "choose a directory on one that can be written, such as /run/NAME",
        )
    return None


def symlink_refusal(path: str, symlink: str) -> Refused:
    """Return why nothing is done at ``path``, whose way contains a symlink."""
    hint = "it leads back to itself, and nowhere: name a directory instead"
    if not leads_in_circle(path):
        hint = f"it leads to {followed(path)}: name that instead, if it is what you mean"
    return Refused(f"{symlink} is a symbolic link; nothing was changed.", hint)


def _folder(path: str, status: os.stat_result, place: str | int) -> Folder:
    """Return the directory at ``path``; ``place`` is the same, or a descriptor of it."""
    uid, acl = status.st_uid, has_acl(place)
    unknown = uid != 0 and uid == unknown_uid()
    return Folder(path, uid, status.st_gid, stat.S_IMODE(status.st_mode), acl, unknown)


def not_empty_refusal(path: str, place: Place) -> NotEmpty | None:
    """Return why no volume may be mounted over the contents of ``path``, None if there are none.

    To be called only if nothing is mounted there yet.
    """
    if not place.entries:
        return None
    names = ", ".join(place.entries[:3])
    return NotEmpty(
        f"{path} is not empty ({names} ...): a volume would hide what is in it; nothing was"
        " changed.",
        "choose an empty or new directory",
    )


def make_dirs(paths: tuple[str, ...]) -> None:
    """Make the directories, outermost first, as root's with mode 0755, without following links.

    Each parent must be a directory that others cannot write to, so that nothing can be exchanged
    between check and creation. Raises ``Refused`` otherwise, and ``HostprepError`` if one cannot be
    made; those before it stay.
    """
    for path in paths:
        parent, name = os.path.split(path)
        descriptor = _open_walking(parent)
        try:
            os.mkdir(name, 0o755, dir_fd=descriptor)
            with closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)) as made:
                os.fchmod(made, 0o755)  # whatever the umask is
        except OSError as error:
            raise HostprepError(
                f"{path} could not be made: {error.strerror}.", reading_hint(error)
            ) from None
        finally:
            os.close(descriptor)


def remove_dirs(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Remove the empty ones of the directories (outermost first); return what was removed.

    A mount point in another mount namespace stays: removing it makes the kernel unmount what is
    mounted there, in use or not (rmdir(2) fails only for mounts in our own namespace). Raises
    ``HostprepError`` if that cannot be told; then a record of them has to stay.
    """
    removed: list[str] = []
    if not paths:
        return ()
    try:
        elsewhere = [(pid, each.target) for pid, each in mounts_elsewhere() if each.target in paths]
    except HostprepError as error:
        raise HostprepError(
            f"whether something is mounted on {paths[-1]} elsewhere cannot be told, so it was not"
            f" removed, and stays on record: {error.message}",
            error.hint,
        ) from None
    for path in reversed(paths):
        if any(target == path and _is_same_place(pid, path) for pid, target in elsewhere):
            break
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            break  # somebody uses it, so its parents stay too
        removed.append(path)
    return tuple(removed)


def _is_same_place(pid: int, path: str) -> bool:
    """Return whether ``path`` is the same directory for a process: containers have other roots.

    What it has mounted there hides the directory itself, so the parents are compared.
    """
    parent = os.path.dirname(path)
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/root{parent}"), os.stat(parent))
    except OSError:
        return True


def _open_walking(path: str) -> int:
    descriptor = os.open("/", DIRECTORY_FLAGS)
    for name in filter(None, path.split("/")):
        try:
            inner = os.open(name, DIRECTORY_FLAGS, dir_fd=descriptor)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise HostprepError(
                    f"{name}, on the way to {path}, cannot be opened: {error.strerror}.",
                    reading_hint(error),
                ) from None
            raise Refused(
                f"{path} changed meanwhile: {name}: {error.strerror}.", "run the same command again"
            ) from None
        finally:
            os.close(descriptor)
        descriptor = inner
        if who := _folder(path, os.fstat(descriptor), descriptor).others_can_write:
            os.close(descriptor)
            raise Refused(
                f"{path} changed meanwhile: {name} {who}; nothing was made in it.",
                "have it writable by root alone (chmod go-w), and run the same command again",
            )
    return descriptor


def first_names(path: str) -> tuple[str, ...]:
    """Return the first few names in a directory; none if this user may not look into it."""
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) > _NAMES_SHOWN:
                    break
    except PermissionError:
        return ()  # an ordinary user's dry run: root's run will see whether it is empty
    return tuple(names)
