"""Which variables of a host begin with hostprep_ but are not known to the roles."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

_PREFIX = "hostprep_"
# Not in any argument_specs.yml: from readiness.yml, and what the roles set for each other.
_BESIDE = {"hostprep_check_arguments", "hostprep_install_preview", "hostprep_install_unpacked"}
# hostprep_wave is close to hostprep_waves; hostprep_volume_size, a lab's own, is close to nothing.
_NEAR, _NEARLY = 0.75, 0.9


def strange(names: Iterable[str]) -> dict[str, Any]:
    """Return those of ``names`` that are unknown.

    ``misspelt`` has, by name, what each was probably meant to be; ``others`` has the rest, perhaps
    a lab's own for its templates.
    """
    public = _public()
    misspelt: dict[str, str] = {}
    others: list[str] = []
    for name in sorted(map(str, names)):
        if not name.startswith(_PREFIX) or name in public or name in _BESIDE:
            continue
        if near := _meant(name.removeprefix(_PREFIX), public):
            misspelt[name] = near
        else:
            others.append(name)
    return {"misspelt": misspelt, "others": others}


def _public() -> set[str]:
    """Return the variables that the roles declare."""
    found: set[str] = set()
    for path in Path(__file__).parents[2].glob("*/meta/argument_specs.yml"):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.update(spec["argument_specs"]["main"]["options"])
    return found


def _meant(word: str, public: Iterable[str]) -> str | None:
    known = {name.removeprefix(_PREFIX) for name in public}
    others = {each for each in known if not _is_kind_of(word, each)}
    # A variation of another name counts as a misspelling only if hardly more than a letter differs.
    cutoff = _NEAR if others == known else _NEARLY
    near = difflib.get_close_matches(word.lower(), sorted(others), n=1, cutoff=cutoff)
    return _PREFIX + near[0] if near else None


def _is_kind_of(word: str, known: str) -> bool:
    """Whether a name was made as a variation of a known one: volumes_gpu, lab_datasets."""
    stem = f"{re.escape(known.removesuffix('s'))}s?"
    return re.fullmatch(f"{stem}[_0-9].*|.*_{stem}", word) is not None


class FilterModule:
    """Ansible looks for this class."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"hostprep_strange": strange}
