"""Why something is not staged, or not as it should be, and what to do about it."""

from __future__ import annotations

import errno
import os
import stat

from hostprep.dataclass import dataclass
from hostprep.errors import OF_A_DISK, OF_A_SERVER

_SPECIAL = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a fifo",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def describe_special(mode: int) -> str:
    """Return in words which kind of entry that cannot be staged this is."""
    return _SPECIAL.get(stat.S_IFMT(mode), "of an unknown kind")


# Beginnings of reasons, or whole ones, by which ``CURES`` finds the remedy.
TARGET_CANNOT = "the target's file system cannot hold "
NO_CHOWN = "its owner cannot be set without CAP_CHOWN, which root does not have here"
LET_CHOWN = "start it with that capability (docker run --cap-add=CHOWN)"
FILE_SIZE_LIMIT = "no file may be written here (ulimit -f) that is larger than "
CHANGED_TWICE = "changed while it was copied, twice"
GONE = "is not there any more: it was deleted after it was listed"
# Appended to a failed file's reason, followed by the other name that is reported.
ITS_HARD_LINK = " (its hard link "
PLACE_TAKEN = "its place on the target is taken by something that hostprep did not make"
READ_BACK = "read back"
_QUIET = "let nothing write to the source meanwhile"
_DISK_OR_SERVER = (
    "repair the failing disk or server, of the source or of the target (for a disk, `dmesg` says"
    " more)"
)
_GONE_SERVER = "mount anew the share that is gone, of the source or of the target"
# What to do if something other than the source has to be fixed, by the beginning of the reason.
CURES = {
    PLACE_TAKEN: "move away what has its place on the target",
    TARGET_CANNOT: "stage to a file system that can hold all of it (ext4, XFS, a tmpfs)",
    NO_CHOWN: LET_CHOWN,
    FILE_SIZE_LIMIT: "have that limit raised (of a service: LimitFSIZE=)",
    CHANGED_TWICE: _QUIET,
    GONE: _QUIET,
    READ_BACK: "find out what alters the data on the target: its disk (`dmesg`), or somebody",
    os.strerror(errno.EACCES): (
        "have its owner let this user read it (even root may be kept out: by a server with"
        " root_squash, and in a container by --cap-drop, or because its root is an ordinary user of"
        " the host)"
    ),
    os.strerror(errno.ENOKEY): "unlock what is encrypted in the source (fscrypt unlock)",
    # A target whose disk or server has gone gives these errors for each file, as a source does.
    **dict.fromkeys(map(os.strerror, sorted(OF_A_DISK)), _DISK_OR_SERVER),
    **dict.fromkeys(map(os.strerror, sorted(OF_A_SERVER)), _GONE_SERVER),
    # What the machine lacks is no fault of the source. The first begins with the second.
    os.strerror(errno.ENFILE): "raise the machine's limit on open files (sysctl fs.file-max)",
    os.strerror(errno.EMFILE): "raise the limit on open files (ulimit -n)",
    os.strerror(errno.ENOMEM): "free some memory",
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something of the source that is not in the staged data set, and why.

    ``failed``: it should have been staged (it is unreadable, or changing); otherwise it never is.
    """

    path: str
    reason: str
    failed: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the target and not the source has to be fixed for it."""
        return self.failed and self.reason == PLACE_TAKEN

    @property
    def unholdable(self) -> bool:
        """Whether the target's file system can never hold it."""
        return self.failed and self.reason.startswith(TARGET_CANNOT)

    @property
    def cure(self) -> str | None:
        """What to fix so that it is staged; None if the reason is about the source."""
        if not self.failed:
            return None
        return next((cure for why, cure in CURES.items() if self.reason.startswith(why)), None)


OTHER_CONTENT = "has other content"


@dataclass(frozen=True, slots=True)
class Differing:
    """A file that a full check found different from what was staged, and how.

    ``place`` is ``source`` or ``target``. By lstat it was still as staged.
    """

    path: str
    place: str
    reason: str
