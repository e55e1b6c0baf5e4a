"""How a target keeps names: each as given, or two different ones as the same.

exFAT, NTFS and SMB take ``A.jpg`` for ``a.jpg``, macOS takes composed for decomposed letters, and
some drop a dot at the end. A new name may then replace a file that is a different one in the
source.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.system.trees import DIRECTORY_FLAGS, NEW_FILE_FLAGS, names_in, remove_tree

# These keep every name as it is, unless a directory was set to ignore case.
_EXACT = frozenset(("tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"))
_SCRATCH = "names"
_LETTER, _END = "hostprep-\u00e9", "hostprep-end."


@dataclass(frozen=True, slots=True)
class Spelling:
    """How two names may differ that a target takes for the same.

    ``sure``: it is known from the type of file system that names are kept, not just from a test.
    """

    case: bool = False
    letters: bool = False
    ends: bool = False
    sure: bool = False

    @property
    def folds(self) -> bool:
        """Whether two names may become the same."""
        return self.case or self.letters or self.ends

    def key(self, name: str) -> str:
        """Return a key that is equal for names which may become the same."""
        if self.case:
            name = unicodedata.normalize("NFD", name).casefold()
        if self.letters:
            name = unicodedata.normalize("NFC", name)
        return name.rstrip(". ") if self.ends else name

    def may_alter(self, name: str) -> bool:
        """Whether the target may list a different name than it was given."""
        return (self.ends and name != name.rstrip(". ")) or (
            self.letters and not name.isascii() and not _is_plain(name)
        )


def _is_plain(name: str) -> bool:
    return all(unicodedata.is_normalized(form, name) for form in ("NFC", "NFD"))


@contextlib.contextmanager
def scratch(private_fd: int) -> Iterator[int]:
    """Make an empty directory inside the private one, in which to try names."""
    remove_tree(private_fd, _SCRATCH)
    os.mkdir(_SCRATCH, 0o700, dir_fd=private_fd)
    descriptor = os.open(_SCRATCH, DIRECTORY_FLAGS, dir_fd=private_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        remove_tree(private_fd, _SCRATCH)


def spelling_in(parent_fd: int, name: str, private_fd: int, fstype: str | None) -> Spelling:
    """Test with a few names how the file system of the private directory ``name`` keeps them."""
    case = _is_another(parent_fd, name.swapcase())
    if fstype in _EXACT:
        return Spelling(case=case, letters=case, sure=not case)
    try:
        with scratch(private_fd) as directory_fd:
            for probe in (_LETTER, _END):
                with contextlib.suppress(OSError):
                    _make(directory_fd, probe)
            there = names_in(directory_fd)
            decomposed = unicodedata.normalize("NFD", _LETTER)
            return Spelling(
                case=case or _is_another(directory_fd, _LETTER.upper()),
                letters=_LETTER not in there or _is_another(directory_fd, decomposed),
                ends=_END not in there and len(there) > 1,
            )
    except OSError:  # a full target: copying will report it
        return Spelling(case=case)


def fall_together(directory_fd: int, one: str, other: str) -> bool:
    """Whether two names are the same there; ``directory_fd`` is a scratch directory."""
    made = []
    try:
        for name in (one, other):
            _make(directory_fd, name)
            made.append(name)
    except FileExistsError:
        return True
    except OSError:
        return False  # a name that cannot exist is in nobody's way
    finally:
        for name in made:
            os.unlink(name, dir_fd=directory_fd)
    return False


def altered(directory_fd: int, name: str) -> str | None:
    """Return the name that a target lists instead of ``name``, None if it is the same."""
    try:
        _make(directory_fd, name)
    except OSError:
        return None
    there = names_in(directory_fd)
    os.unlink(name, dir_fd=directory_fd)
    return None if name in there or not there else there[0]


def _make(directory_fd: int, name: str) -> None:
    os.close(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=directory_fd))


def _is_another(directory_fd: int, name: str) -> bool:
    """Whether a name under which nothing is listed can be opened all the same.

    Inode numbers would not show it: some FUSE file systems give each spelling its own.
    """
    try:
        os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return False
    return name not in names_in(directory_fd)
