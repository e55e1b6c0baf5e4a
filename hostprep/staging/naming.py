"""Do all of a source's files keep names of their own on the target?

If a target takes two names for the same one, the second file would silently replace the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from hostprep.errors import HostprepError, Refused
from hostprep.staging.record.lines import decode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.source.scan import Scan
from hostprep.staging.target.private import PrivateDir
from hostprep.staging.target.spelling import Spelling, altered, fall_together, scratch, spelling_in
from hostprep.system.trees import DirCache, join, names_in

# Names that only look as if the target would merge them are rare; untried ones show after copying.
_MOST_TRIED, _MOST_LISTED = 64, 4
_HINT = (
    "stage to a file system that keeps such names apart (ext4, XFS, a tmpfs), or rename them in the"
    " source"
)


def check_names(scan: Scan, private: PrivateDir, fstype: str | None) -> Spelling:
    """Return how the target keeps names; raise ``Refused`` if two of the source's would be one."""
    spelling = spelling_in(private.parent_fd, private.name, private.fd, fstype)
    if spelling.folds:
        with scratch(private.fd) as directory_fd:
            _try_names(scan, spelling, directory_fd)
    return spelling


def _try_names(scan: Scan, spelling: Spelling, directory_fd: int) -> None:
    subdirectories: dict[str, list[str]] = {}
    for path in scan.directories:
        if path:
            parent, _, name = path.rpartition("/")
            subdirectories.setdefault(parent, []).append(name)
    compared = listed = 0
    for listing in scan.listings:
        seen: dict[str, str] = {}
        names = [entry.name for entry in listing.entries()]
        for name in (*names, *subdirectories.get(listing.directory, ())):
            other = seen.setdefault(spelling.key(name), name)
            if other != name and compared < _MOST_TRIED:
                compared += 1
                if fall_together(directory_fd, other, name):
                    one, two = (join(listing.directory, each) for each in (other, name))
                    raise Refused(
                        f"{_shown(one, two)} of the source are the same name to the target's file"
                        " system: one would replace the other; nothing was changed.",
                        _HINT,
                    )
            elif listed < _MOST_LISTED and spelling.may_alter(name):
                listed += 1
                if found := altered(directory_fd, name):
                    path = join(listing.directory, name)
                    raise Refused(
                        f"the target's file system keeps another name for {_shown(path)} of the"
                        f" source: {found!a}; nothing was changed.",
                        _HINT,
                    )


def check_kept_names(private: PrivateDir, lines: Iterable[bytes], spelling: Spelling) -> None:
    """Raise ``HostprepError`` if something that was copied is not there under its own name.

    ``lines`` are the manifest lines of hard links. Not checked on file systems that keep all names.
    """
    if spelling.sure:
        return
    # Only one directory's files at a time: there may be millions in all.
    expected: dict[str, set[str]] = {"": set()}
    for directory, records in map(decode_line, lines):
        _expect(expected, directory, (record.name for record in records))
    with (
        closing(ManifestIndex(private.journals())) as journal,
        DirCache(private.tree_fd, create=True) as tree,
    ):
        for directory in journal.directories():
            _expect(expected, directory)
        for directory, others in expected.items():
            names = others.union(journal.records(directory))
            missing = names.difference(names_in(tree.fd(directory)) if names else ())
            if missing:
                raise HostprepError(
                    f"{_shown(join(directory, min(missing)))} was copied, and the target does not"
                    " list it: its file system keeps it under another name, or took that for"
                    " another file's; nothing was published.",
                    _HINT,
                )


def _expect(expected: dict[str, set[str]], directory: str, names: Iterable[str] = ()) -> None:
    expected.setdefault(directory, set()).update(names)
    while directory:
        parent, _, name = directory.rpartition("/")
        expected.setdefault(parent, set()).add(name)
        directory = parent


def _shown(*paths: str) -> str:
    """Quote paths so that they can be told apart even if they look the same."""
    plain = all(path.isascii() for path in paths)
    return " and ".join(paths if plain else map(ascii, paths))
