"""Print every event of a run as one line of JSON, for hostprep.fleet to read."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: hostprep_events
type: stdout
short_description: One line of JSON for each event
description: What hostprep.fleet reads from ansible-playbook's stdout.
"""


# Added by ssh when a session over a shared connection ends.
_FAREWELL = re.compile(r"^(Shared c|C)onnection to \S+ closed\.$", re.MULTILINE)
_MOST_OUTPUT = 2000
# The limit for one host: more would delay the results of all, or push them off the screen.
_MOST_WORDS = 20_000
_MOST_LINE = 16 * 1024 * 1024
_MOST_DIFF_LINES = 2_000  # comparing takes at least their square
_SIDES = ("before", "after")
_MOST_LEVELS = 32  # deeper documents make readers fail, here or later
_SAYING = ("debug", "ansible.builtin.debug")
# Actions that the controller performs by itself, without a connection to the host.
_HERE = {
    "assert", "debug", "fail", "include_role", "include_tasks", "set_fact", "validate_argument_spec"
}  # fmt: skip
# Ansible's generic words for a failure, used although the failed program printed its own.
_SAYS_NOTHING = re.compile(
    r"non-zero return code|failed to validate|MODULE FAILURE\b.*|Module result deserialization"
    r" failed: No start of json char found",
    re.DOTALL,
)
# The position in Ansible's or a module's code before the error itself.
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?=\S)", re.MULTILINE
)
_NOT_UNDERSTOOD = "its answer is not understood. What was done there is not known"


class CallbackModule(CallbackBase):
    """Events of plays, of tasks on hosts, and the final statistics."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "hostprep_events"

    def v2_playbook_on_play_start(self, play: Any) -> None:
        hosts = play.get_variable_manager()._inventory.get_hosts(play.hosts)
        self._emit("play", name=play.get_name(), hosts=[host.name for host in hosts])

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._emit("start", host=host.get_name(), task=task.name or task.get_name())

    def v2_runner_on_ok(self, result: Any) -> None:
        self._result("ok", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._result("skipped", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._result("unreachable", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._result("ok" if ignore_errors else "failed", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._emit("stats", hosts=sorted(stats.processed))

    def _result(self, event: str, result: Any) -> None:
        # The name without an underscore is from ansible-core 2.19 on.
        host = getattr(result, "host", None) or result._host
        task = getattr(result, "task", None) or result._task
        whose = {"host": host.get_name(), "task": task.name or task.get_name()}
        try:
            # What our playbooks say themselves is for whoever maintains the inventory. Ansible may
            # not know the action of a result that is nested too deeply to be copied.
            action = task.action or ""
            warns = event == "ok" and action in _SAYING
            reached = event in ("ok", "failed") and not (
                task.delegate_to or action.removeprefix("ansible.builtin.") in _HERE
            )
            told = self._told(result, failed=event == "failed")
            line = self._line(event, **whose, **told, warns=warns, reached=reached)
            if len(line) > _MOST_LINE or _nests([told["document"]], _MOST_LEVELS):
                raise ValueError(_NOT_UNDERSTOOD)
        except Exception:
            # A host may send anything. Without a final event it would count as unharmed.
            line = self._line("failed", **whose, message=_NOT_UNDERSTOOD)
        self._display.display(line, screen_only=True)

    def _told(self, result: Any, *, failed: bool) -> dict[str, Any]:
        fields = getattr(result, "result", None) or result._result
        changed = bool(fields.get("changed", False))
        return {
            "changed": changed,
            "message": self._message(fields, failed=failed),
            "diff": self._diff(fields["diff"]) if changed and fields.get("diff") else None,
            "document": fields.get("document"),
            "predicted": bool(fields.get("predicted", True)),
        }

    def _diff(self, diff: Any) -> str | None:
        try:
            parts = diff if isinstance(diff, list) else [diff]
            length = sum(self._length(part.get(side)) for part in parts for side in _SIDES)
            if length > _MOST_DIFF_LINES:
                return "(too long to be compared)\n"
            return str(self._get_diff(diff))
        except Exception:  # not a document; everything else that the host says still counts
            return None

    def _length(self, side: Any) -> int:
        text = self._serialize_diff(side) if isinstance(side, dict) else str(side or "")
        return len(text.splitlines())

    def _message(self, fields: dict[str, Any], *, failed: bool) -> str | None:
        message, *errors = (self._words(fields, key) for key in ("msg", "stderr", "module_stderr"))
        if failed and not any(errors):
            # ssh gives scripts a terminal, so their errors come as output.
            errors = [
                self._words(fields, key)[-_MOST_OUTPUT:] for key in ("stdout", "module_stdout")
            ]
            # The reason why an archive was not unpacked is in a field of its own.
            if isinstance(unpacked := fields.get("extract_results"), dict):
                errors.append(self._words(unpacked, "err"))
        if any(errors) and _SAYS_NOTHING.fullmatch(message):
            message = ""
        told = "\n".join(filter(None, (message, *errors)))
        places = _TRACEBACK.findall(told)
        # What happened comes first, as everywhere: for a full /tmp nothing more is needed.
        told = _TRACEBACK.sub("", told)
        return "\n".join((told, *map(str.rstrip, places))) or None

    def _words(self, fields: dict[str, Any], key: str) -> str:
        words = str(fields.get(key) or "").replace("\r", "")
        if len(words) > _MOST_WORDS:
            words = f"{words[: _MOST_WORDS // 2]}\n...\n{words[-_MOST_WORDS // 2 :]}"
        return _FAREWELL.sub("", words).strip()

    def _emit(self, event: str, **fields: Any) -> None:
        self._display.display(self._line(event, **fields), screen_only=True)

    def _line(self, event: str, **fields: Any) -> str:
        # NaN and infinity are not JSON: passed on, they would spoil the document about all hosts.
        fields = {"event": event, "time": time.time(), **fields}
        return json.dumps(fields, default=str, allow_nan=False)


def _nests(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested in more levels than that."""
    held = [value]
    for _ in range(levels):
        lists = (each.values() if isinstance(each, dict) else each for each in held)
        held = [inner for each in lists for inner in each if isinstance(inner, (dict, list))]
    return bool(held)
