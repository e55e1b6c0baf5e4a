"""Symlinks in paths that a user named: their owners matter if root follows them."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Callable

from hostprep.errors import HostprepError, Refused
from hostprep.host.capabilities import unknown_uid
from hostprep.system.accounts import trusted_users
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child
from hostprep.system.descriptors import closing_fd

MOST_LINKS = 40  # the kernel's own limit
_ANYBODYS = stat.S_ISVTX | stat.S_IWOTH
_NOBODYS_GROUP = 65534
# For a server to say whether it lets somebody in; it is already known to answer at all. This is
# less than the time limit of callers that run all this in a child: if the child were killed while
# its own question is open, a process that a user has stopped would stay behind, and nobody would
# report why there was no answer.
_PATIENCE_SECONDS = 6.0
_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _LINK | os.O_DIRECTORY


def real_path(
    path: str,
    *,
    writes: bool = False,
    replaces: str | None = None,
    led_by: dict[int, str] | None = None,
) -> str:
    """Return ``path`` absolute and without symlinks; parts that do not exist stay as they are.

    The result is going to be read or, with ``writes``, written to; ``replaces`` is the name of a
    file in it that will be created or replaced. A caller that follows further links from the result
    passes the same ``led_by`` each time: the users' links that led there so far, which are added
    to it.

    Raises ``Refused`` if a link in a directory such as ``/tmp`` is somebody else's: a predictable
    name there may lead to what only root may read or write. It follows links of root, of this user,
    of the user who called sudo, and of the directory's owner. The kernel
    (``fs.protected_symlinks``) checks this only for the last part of a path, and only if a link is
    followed, not if it is read, as here.

    Also raises it if a user's link, wherever it is, would lead root to something that that user may
    not read, or write: a folder of their own can be replaced by such a link before the next run.

    The result is what was checked; looked up again, the path might lead elsewhere.
    """
    trusted, nobody = trusted_users(), unknown_uid()
    strangers = {} if led_by is None else led_by  # each with a followed link of theirs

    def checked(there: str) -> str | None:
        folder, name = os.path.split(there)
        try:
            if not stat.S_ISLNK(os.lstat(there).st_mode):
                return None
            link, around, leads_to = _link_in(folder, name)
        except OSError:
            return None  # it cannot be reached; opening it reports why
        anybodys = around.st_mode & _ANYBODYS == _ANYBODYS
        # If some users are unknown, two different ones may appear as the same.
        if anybodys and link.st_uid not in trusted | ({around.st_uid} - {nobody}):
            raise Refused(
                f"{there}, on the way to {path}, is a symlink of uid {link.st_uid} in a directory"
                f" where everybody may make one; it leads to {os.path.join(folder, leads_to)}."
                " Nothing was changed.",
                f"name that, if it is what you mean; ls -ld {shlex.quote(there)} shows it",
            )
        # In a user namespace the host's root may be unknown; its links are as good as ours.
        if os.geteuid() == 0 and link.st_uid not in trusted | {nobody}:
            strangers.setdefault(link.st_uid, there)
        return leads_to

    here = walk(path if path.startswith("/") else os.path.join(os.getcwd(), path), checked)
    _check_led(strangers, path, here, writes=writes, replaces=replaces)
    return here


def _check_led(
    led_by: dict[int, str], path: str, here: str, *, writes: bool, replaces: str | None
) -> None:
    """Raise ``Refused`` if a user's link led to something that user may not read, or write."""
    for uid, laid in led_by.items():
        closed = _is_closed_to(uid, here, os.W_OK if writes else os.R_OK)
        if closed or (replaces is not None and _is_kept_from(uid, here, replaces)):
            use = "write to" if writes else "read"
            led_to = here if closed or replaces is None else os.path.join(here, replaces)
            raise Refused(
                f"{laid}, on the way to {path}, is a symlink of uid {uid}, and leads to {led_to},"
                f" which that user may not {use}. Nothing was changed.",
                f"name that, if it is what you mean; ls -ld {shlex.quote(laid)} shows it",
            )


def leads_in_circle(path: str) -> bool:
    """Whether symlinks on the way to ``path`` lead back to themselves, and so nowhere."""
    try:
        os.path.realpath(path, strict=True)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def links_to(path: str) -> list[str]:
    """Return the symlinks by which an absolute ``path`` leads on, each where it lies itself."""
    found: list[str] = []

    def noted(there: str) -> str | None:
        leads_to = link_at(there)
        if leads_to is not None:
            found.append(there)
        return leads_to

    walk(path, noted)
    return found


def link_at(path: str) -> str | None:
    """Return where the symlink at ``path`` leads; None if it is none, or there is no way to it."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def walk(path: str, leads_to: Callable[[str], str | None], here: str = "/") -> str:
    """Return where ``path``, looked up from ``here``, leads; parts need not exist.

    ``leads_to`` is asked at each place on the way for the contents of the symlink there; if it
    returns None, the way goes on below that place. Too many links are left in the result.
    """
    pending, links = path.split("/")[::-1], 0
    while pending:
        name = pending.pop()
        if name in ("", os.curdir):
            continue
        # Not normalized before, because `..` goes up from where a preceding symlink led.
        there = os.path.dirname(here) if name == os.pardir else os.path.join(here, name)
        link = leads_to(there)
        if link is None:
            here = there
            continue
        links += 1
        if links > MOST_LINKS:  # opening it reports this
            return os.path.join(there, *reversed(pending))
        here = "/" if link.startswith("/") else here
        pending += link.split("/")[::-1]
    return here


def open_folder(path: str) -> int:
    """Open a directory by an absolute path without symlinks, to look up its contents.

    Raises ``OSError`` if a part of the path is a symlink by now: following it would lead to other
    contents.
    """
    above = os.open("/", _FOLDER)
    try:
        for part in filter(None, path.split("/")):
            below = os.open(part, _FOLDER, dir_fd=above)
            os.close(above)
            above = below
    except BaseException:
        os.close(above)
        raise
    return above


def _link_in(folder: str, name: str) -> tuple[os.stat_result, os.stat_result, str]:
    """Return the status of a symlink and of its directory, and where it leads, all held open.

    If they were looked up by path one after the other, somebody who may write above could answer
    each with another one: the owner from a link of root's elsewhere, the target from their own.
    """
    with (
        closing_fd(open_folder(folder)) as around,
        closing_fd(os.open(name, _LINK, dir_fd=around)) as link,
    ):
        return os.fstat(link), os.fstat(around), os.readlink("", dir_fd=link)


def _is_kept_from(uid: int, folder: str, name: str) -> bool:
    """Whether a directory such as ``/tmp`` keeps a user from replacing others' entries in it."""
    around = os.stat(folder)
    try:
        owner = os.lstat(os.path.join(folder, name)).st_uid
    except FileNotFoundError:
        return False
    return bool(around.st_mode & stat.S_ISVTX) and uid not in (owner, around.st_uid)


def _is_closed_to(uid: int, path: str, mode: int) -> bool:
    """Whether a user may not use ``path`` as ``mode`` says, or may not enter the directory there.

    If it does not exist, or is to be created, its nearest existing parent counts.
    """
    while not os.path.lexists(path):
        path = os.path.dirname(path)
        mode = mode & os.W_OK

    def ask() -> bool:
        try:
            account = pwd.getpwuid(uid)
            group = account.pw_gid
            groups = os.getgrouplist(account.pw_name, group)
        except KeyError:
            group, groups = _NOBODYS_GROUP, []
        try:
            os.setgroups(groups)
            os.setresgid(group, -1, -1)
            os.setresuid(uid, -1, -1)  # the real user id, which access(2) checks
        except OSError as error:
            raise HostprepError(
                f"hostprep may not ask in their name (without CAP_SETUID, CAP_SETGID):"
                f" {error.strerror}"
            ) from None
        return not os.access(path, mode | (os.X_OK if os.path.isdir(path) else 0))

    try:
        closed: bool = ask_in_child(ask, patience_seconds=_PATIENCE_SECONDS)
    # The user in whose name a process asks can kill, and stop, that process.
    except (NoAnswerInTime, QuestionFailed) as error:
        why = str(error) or "there was no answer in time"
        raise HostprepError(
            f"whether uid {uid}, whose symlink leads to {path}, may use that could not be found"
            f" out: {why}; nothing was changed.",
            "name the directory without that symlink",
        ) from None
    return closed
