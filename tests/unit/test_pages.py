"""What the pages name is there: each link with its heading, each command with its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hostprep.cli.app import COMMANDS, load

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "benchmarks/**/*.md", "playbooks/*.md", "templates/*.md")
    for path in ROOT.glob(pattern)
)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Return the headings of a page as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in headings}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        there = page.parent / path if path else page
        assert there.exists(), path
        assert not anchor or anchor in anchors(there), f"{path}#{anchor}"


def test_each_option_of_stage_is_on_its_page() -> None:
    page = (ROOT / "docs/staging.md").read_text()
    known = {name for parameter in load("stage").params for name in parameter.opts}
    named = set(re.findall(r"--[a-z-]+", page)) | {"--json"}  # docs/json.md
    assert {name for name in known if name.startswith("--")} <= named


@each_page
def test_commands_take_the_options_that_they_are_shown_with(page: Path) -> None:
    # Up to the end of the command: of the code, or where the shell has something else to do.
    shown = re.findall(
        r"\bhostprep ([a-z]+)\b((?:(?!\| [a-z])[^`;&#>\n]|\n {3,})*)", page.read_text()
    )
    for command, rest in shown:
        given = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest))
        if given and command in COMMANDS:
            known = {name for parameter in load(command).params for name in parameter.opts}
            assert given <= known, command
