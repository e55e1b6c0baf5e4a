"""The data files that are shipped with hostprep: ``playbooks/`` and ``templates/``.

In a checkout they are next to the package; in an installed wheel inside it, below ``_data/``.
"""

from __future__ import annotations

from pathlib import Path

from hostprep.errors import HostprepError

_PACKAGE = Path(__file__).resolve().parent.parent


def data_path(*parts: str) -> Path:
    """Return the path of the file or folder ``parts`` (``"templates", "stage.service.j2"``).

    Raises ``HostprepError`` if this installation does not have it.
    """
    for home in (_PACKAGE / "_data", _PACKAGE.parent):
        path = home.joinpath(*parts)
        if path.exists():
            return path
    raise HostprepError(
        f"this installation of hostprep lacks {'/'.join(parts)}.", "install it again from its wheel"
    )
