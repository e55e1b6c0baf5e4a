"""From the file's bytes to a ``Spec``."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.spec.finding import read_spec_bytes
from hostprep.spec.model import Spec
from hostprep.system.following import followed


def load_spec(path: Path, *, named: bool = False) -> Spec:
    """Return what the spec file asks for; an empty file asks for nothing.

    ``named`` says that the user wrote this path on the command line. Otherwise root obeys it only
    where nobody else can write it: ``Refused``. Raises ``SpecError`` (a ``UsageError``) with all
    mistakes, ``UsageError`` where it can be no spec, ``HostprepError`` where it cannot be read.
    """
    content = read_spec_bytes(path, named=named)
    # Relative to the folder in which it was found, also where it is a link to a shared file.
    folder = followed(path.parent)
    return parse_spec(content, shown_path=str(path), path=os.path.join(folder, path.name))


def parse_spec(content: bytes, *, shown_path: str, path: str) -> Spec:
    """Return the spec in ``content``, of a file at ``path`` (absolute), called ``shown_path``."""
    from hostprep.spec.checking import check
    from hostprep.spec.document import parse_document

    return check(parse_document(shown_path, content), shown_path=shown_path, path=path)
