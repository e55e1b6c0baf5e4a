"""The contents of a tree on the target, one directory at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from hostprep.staging.model import Entry
from hostprep.staging.parted import split
from hostprep.staging.plans.standing import Standing
from hostprep.staging.tree import Plain, entries_in, entry_of, says_absent
from hostprep.system.trees import DirCache, join


class TargetTree:
    """A tree that may not exist, listed one directory at a time; what is missing is empty.

    A directory exists only if it is listed: if case does not count, ``Dir`` can be opened as
    ``dir``.
    """

    def __init__(self, root_fd: int | None) -> None:
        self._cache = DirCache(root_fd) if root_fd is not None else None
        self._below: dict[str, tuple[str, ...]] = {}  # names of directories in what was listed
        self._there = {""}

    def list(self, directory: str) -> dict[str, Entry]:
        """Return the entries of a directory by name; none if it is missing.

        Raises OSError if it exists but cannot be read: otherwise its contents would count as gone,
        and be forgotten without being removed.
        """
        return next(self.by_names(directory, 1))

    def by_names(self, directory: str, parts: int) -> Iterator[dict[str, Entry]]:
        """Yield what ``list`` returns in so many ``parts`` by names, see ``parted``."""
        for part in split(self._entries(directory), parts):
            yield {entry[0]: Entry._make(entry) for entry in part}

    def _entries(self, directory: str) -> Iterator[Plain]:
        if self._cache is None or not self.is_there(directory):
            return
        below = []
        try:
            for entry in entries_in(self._cache.fd(directory)):
                if stat.S_ISDIR(entry[1]):
                    below.append(entry[0])
                yield entry
        except OSError as error:
            # Missing, or something else in its place: nothing of ours is there.
            if not says_absent(error):
                path = f"{directory or '.'} on the target"
                raise OSError(error.errno, error.strerror, path) from None
        self._note(directory, below)

    def take(self, directory: str, stands: Standing) -> None:
        """Take over a listing that was made elsewhere."""
        self._note(directory, stands.subdirectories)

    def subdirectories(self, directory: str) -> tuple[str, ...]:
        """Return the names of the directories in ``directory``, as it was listed last."""
        if directory not in self._below:
            self.list(directory)
        return self._below.get(directory, ())

    def _note(self, directory: str, names: Iterable[str]) -> None:
        self._below[directory] = tuple(names)
        self._there.update(join(directory, name) for name in self._below[directory])

    def is_there(self, directory: str) -> bool:
        """Return whether a directory is listed in its parent."""
        parent = directory.rpartition("/")[0]
        if directory and parent not in self._below:
            self.list(parent)
        return directory in self._there

    def stat(self, directory: str) -> Entry | None:
        """Return a directory's own entry, None where it is missing."""
        if self._cache is None or not self.is_there(directory):
            return None
        try:
            return entry_of("", os.fstat(self._cache.fd(directory)))
        except OSError:
            return None

    def close(self) -> None:
        """Close what is open."""
        if self._cache is not None:
            self._cache.close()
