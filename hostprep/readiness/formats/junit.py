"""JUnit XML, for CI servers: a suite for each host, a test case for each finding."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from hostprep.readiness.report import wanted

# Characters that XML 1.0 cannot contain, not even escaped, but names on a disk can.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(reports: Sequence[dict[str, Any]]) -> str:
    """Return the reports: FAIL is a failure, UNKNOWN an error, SKIP skipped; WARN passes.

    A suite that found out nothing gets an error of its own, so that no server shows it green.
    """
    root = ET.Element("testsuites", name="hostprep check")
    for report in reports:
        _suite(root, report)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, report: dict[str, Any]) -> None:
    counts = report["counts"]
    empty = report["verdict"] == "SKIP"
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"hostprep check --{report['level']}",
        tests=str(len(report["checks"]) + empty),
        failures=str(counts["FAIL"]),
        errors=str(counts["UNKNOWN"] + empty),
        skipped=str(counts["SKIP"]),
        time=f"{report['seconds']:.3f}",
        timestamp=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(report["unix_seconds"])),
        hostname=_text(report["host"]),
    )
    if empty:
        case = ET.SubElement(suite, "testcase", classname="hostprep", name="verdict", time="0")
        ET.SubElement(
            case, "error", message="nothing was checked, which is not a pass", type="SKIP"
        )
    for check in report["checks"]:
        _case(suite, check)


def _case(suite: ET.Element, check: dict[str, Any]) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"hostprep.{check['code']}",
        name=_text(f"{check['title']}: {check['subject']}"),
        time="0",
    )
    message = _text(check["message"])
    tag = {"FAIL": "failure", "UNKNOWN": "error"}.get(check["status"])
    if tag:
        problem = ET.SubElement(case, tag, message=message, type=check["severity"])
        problem.text = _text(_details(check))
    elif check["status"] == "SKIP":
        ET.SubElement(case, "skipped", message=message)
    elif check["status"] == "WARN":
        out = ET.SubElement(case, "system-out")
        out.text = _text(f"WARN: {check['message']}\n{_details(check)}")


def _details(check: dict[str, Any]) -> str:
    lines = []
    if check["measured"]:
        lines.append(f"measured: {check['measured']['text']}")
    if threshold := wanted(check):
        lines.append(f"wanted: {threshold}")
    remedy = check["remedy"] or {"commands": [], "hint": None}
    lines += remedy["commands"]
    if remedy["hint"]:
        lines.append(remedy["hint"])
    return "\n".join(lines)


def _text(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
