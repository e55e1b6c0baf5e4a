"""YAML into plain values that remember their lines.

PyYAML composes the tree of nodes; nothing is ever constructed from a tag. A number stays the text
that was written: YAML 1.1 would make 493 of ``0755`` and 60050 of the owner ``1000:50``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import field
from typing import TYPE_CHECKING

from hostprep.dataclass import dataclass
from hostprep.spec.model import Problem, SpecError

if TYPE_CHECKING:
    import yaml

Value = str | bool | None | list["Value"] | dict[str, "Value"]
KeyPath = tuple[str | int, ...]

_MOST_VALUES = 10_000  # an alias counts each time, or nine lines could ask for all the memory
_MOST_DEPTH = 16
_MOST_TEXT = 4096  # a path's longest; and below the digits at which int() gives up
_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset({"str", "int", "float", "bool", "null", "timestamp", "value", "merge"})
# What PyYAML sees at whatever follows, or at the end of the file, and not where it begins.
_SEEN_LATER = {
    "could not find expected ':'": "is not a key; is a blank missing after the `:`?",
    "found unexpected end of stream": "a quotation mark stands here that no other closes",
}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file, ``None`` for an empty one, and the line of each, by its key path."""

    value: Value
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def problem(self, where: KeyPath, message: str) -> Problem:
        """Return a problem at ``where``, on the line of the nearest value that was written."""
        known = where
        while known and known not in self.lines:
            known = known[:-1]
        return Problem(self.lines.get(known, 1), key_path(where), message)


def key_path(where: KeyPath) -> str:
    """Return a path as people write it: ``datasets[0].source``."""
    words = ""
    for part in where:
        if isinstance(part, int):
            words += f"[{part}]"
        else:
            words += ("." if words else "") + shown_key(part)
    return words


def shown_key(key: str) -> str:
    """Return a key as it may be printed: quoted and cut where it is odd."""
    return key if _PLAIN_KEY.fullmatch(key) else shown(key)


def shown(text: str) -> str:
    """Return what was written, quoted, cut to a length that still reads as one line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def parse_document(path: str, content: bytes) -> Document:
    """Return the document in ``content``; ``path`` is for messages.

    Raises ``SpecError`` for what is not YAML in UTF-8, or too deep or too large once its aliases
    are written out. Mistakes that leave the rest readable are in ``Document.problems``.
    """
    import yaml

    text = _decode(path, content)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        marks = [error.problem_mark, error.context_mark]
        if error.problem in _SEEN_LATER:
            marks.reverse()
        mark = next(filter(None, marks), None)
        line = 1 if mark is None else _line(text, mark.index)
        raise SpecError(path, (Problem(line, "", _yaml_sentence(error)),)) from None
    except yaml.reader.ReaderError as error:
        line = _line(text, error.position)
        sentence = f"holds the character U+{error.character:04X}, which YAML does not allow"
        raise SpecError(path, (Problem(line, "", sentence),)) from None
    except RecursionError:
        raise SpecError(path, (Problem(1, "", "is nested too deeply"),)) from None
    except (ValueError, OverflowError):
        # PyYAML hands "\UFFFFFFFF" to chr(), which raises without a line.
        sentence = "holds an escape that is not a character"
        raise SpecError(path, (Problem(1, "", sentence),)) from None
    if node is None:
        return Document(None)
    walk = _Walk(path, text)
    value = walk.value(node, ())
    return Document(value, walk.lines, tuple(walk.problems))


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        text = f"is not UTF-8 text (byte 0x{content[error.start]:02x}); save it as UTF-8"
        raise SpecError(path, (Problem(line, "", text),)) from None


def _line(text: str, index: int) -> int:
    """Return the line as editors count; PyYAML's own marks break at U+0085 and U+2028 too."""
    return text.count("\n", 0, index) + 1


def _joined(text: str) -> str:
    """Return text with JSON's two escapes of one character, which YAML reads as two, joined."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _yaml_sentence(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "cannot be parsed"
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces"
    if "expected a single document" in (error.context or ""):
        return "a second document begins; a spec file is one"
    if problem.startswith("found undefined alias"):
        return f"the alias {problem.removeprefix('found undefined alias').strip()} has no anchor"
    if problem == "mapping values are not allowed here":
        return (
            "a second `:` stands where YAML does not allow one; look for a blank that is missing"
            " after the `:` before it, and for lines that are indented unlike their neighbours"
        )
    if problem in _SEEN_LATER:
        return _SEEN_LATER[problem]
    context = f" ({error.context})" if error.context else ""
    return f"is not YAML: {problem}{context}"


class _Walk:
    """Turns nodes into values, and notes lines and mistakes on the way."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self._count = 0

    def value(self, node: yaml.Node, where: KeyPath) -> Value:
        import yaml

        line = self.lines.setdefault(where, self._line(node))
        self._count += 1
        if self._count > _MOST_VALUES:
            text = f"more than {_MOST_VALUES} values, those of aliases counted each time"
            raise SpecError(self.path, (Problem(line, "", text),))
        if len(where) > _MOST_DEPTH:
            raise SpecError(self.path, (Problem(line, "", "is nested too deeply"),))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, where)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, where, "seq")
            return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
        self._check_tag(node, where, "map")
        return self._mapping(node, where)

    def _line(self, node: yaml.Node) -> int:
        return bisect_left(self._ends, node.start_mark.index) + 1

    def _scalar(self, node: yaml.ScalarNode, where: KeyPath) -> Value:
        import yaml

        tag = node.tag.removeprefix(_TAG)
        if tag not in _SCALARS or tag == node.tag:
            self._foreign_tag(node, where)
        if len(node.value) > _MOST_TEXT:
            self._note(where, f"is longer than {_MOST_TEXT} characters")
            return str(node.value[:_MOST_TEXT])
        if tag == "null":
            return None
        if tag == "bool":
            known: dict[str, bool] = yaml.SafeLoader.bool_values
            return known.get(node.value.lower(), str(node.value))
        return _joined(node.value)

    def _mapping(self, node: yaml.Node, where: KeyPath) -> dict[str, Value]:
        import yaml

        found: dict[str, Value] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = self._line(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(
                    Problem(line, key_path(where), "a key must be text, not a list or a mapping")
                )
                continue
            key = _joined(key_node.value)
            below = (*where, key)
            if key_node.tag == _TAG + "merge":
                text = "merging is not supported; write the keys out"
                self.problems.append(Problem(line, key_path(below), text))
                continue
            if key in first:
                text = f"is given twice, first on line {first[key]}"
                self.problems.append(Problem(line, key_path(below), text))
                continue
            first[key] = line
            # The key's line, not the value's: an empty value is marked at whatever follows it.
            self.lines[below] = line
            found[key] = self.value(value_node, below)
        return found

    def _check_tag(self, node: yaml.Node, where: KeyPath, wanted: str) -> None:
        if node.tag != _TAG + wanted:
            self._foreign_tag(node, where)

    def _foreign_tag(self, node: yaml.Node, where: KeyPath) -> None:
        tag = "!!" + node.tag.removeprefix(_TAG) if node.tag.startswith(_TAG) else node.tag
        self._note(where, f"carries the tag {shown(tag)}; a spec holds plain values only")

    def _note(self, where: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.lines[where], key_path(where), message))
