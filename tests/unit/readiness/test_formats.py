"""Every format against its own parser or schema, with names that try to break out of it."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from hostprep.cli.check_text import _FOR_ROOT, report_text
from hostprep.cli.output import json_text
from hostprep.readiness.baseline import compare
from hostprep.readiness.formats import Format, render
from hostprep.readiness.formats.prometheus import prometheus
from hostprep.readiness.model import Measured, Remedy, Status
from hostprep.readiness.report import ORDER
from hostprep.readiness.shell import quote
from tests.unit.readiness.samples import GIB, MEASUREMENTS, free, report, result

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/check.schema.json").read_text())
# Monitoring Plugins guidelines, "Performance data".
PERFDATA = re.compile(r"'[^'=]+'=-?[0-9.]+(B|s|%)?(;(-?[0-9.]+:?)?)?(;(-?[0-9.]+:?)?)?")


def validate(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)


def read(fields: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json_text("check", fields))
    return document


@pytest.mark.parametrize("measured", [None, MEASUREMENTS], ids=["nothing measured", "measured"])
def test_json_is_as_its_schema_says(measured: dict[str, Any] | None) -> None:
    document = read(report(measured=measured))
    validate(document)
    assert document["verdict"] == "FAIL" and document["exit_code"] == 3


def test_the_schema_refuses_what_is_not_so() -> None:
    document = read(report())
    for field, wrong in (("verdict", "OK"), ("exit_code", 1), ("counts", {}), ("checks", [{}])):
        with pytest.raises(jsonschema.ValidationError):
            validate({**document, field: wrong})
    without = next(check for check in document["checks"] if check["status"] == "WARN")
    without["remedy"] = None
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


def test_the_worst_comes_first_and_then_the_most_severe() -> None:
    checks = report()["checks"]
    assert [check["code"] for check in checks] == [
        "HP002", "HP012", "HP044", "HP041", "HP001", "HP020", "HP050",
    ]  # fmt: skip


def test_nothing_measured_is_no_pass() -> None:
    for found in ([], [result("HP050", Status.SKIP, "GPUs", "there is none.")]):
        fields = report(found)
        assert fields["verdict"] == "SKIP" and fields["exit_code"] == 4
        validate(read(fields))
        assert "not a pass" in report_text(fields, colours=False)
        assert render(Format.NAGIOS, fields).startswith("HOSTPREP UNKNOWN")
        suite = ET.fromstring(render(Format.JUNIT, fields))[0]
        assert suite.get("errors") == "1" and suite.findall("testcase/error")


def test_text_is_one_line_each_and_then_what_a_shell_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    text = report_text(report(), colours=False)
    assert text.isascii() or all(char.isprintable() or char == "\n" for char in text)
    found, *remedies, verdict = text.split("\n\n")
    assert [line.split()[0] for line in found.splitlines()] == [
        "FAIL", "FAIL", "UNKNOWN", "WARN", "PASS", "PASS", "SKIP",
    ]  # fmt: skip
    assert len(remedies) == 4 and verdict.startswith("FAIL: 2 FAIL, 1 UNKNOWN")
    script = "\n\n".join(remedies)
    echoing = subprocess.run(
        ["bash", "-c", f'mend() {{ echo "$@"; }}; hostprep() {{ echo "$@"; }}\n{script}'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\n# wanted: 30 GiB (the spec)\n" in script and script.count("# wanted: ") == 2
    assert echoing.stderr == ""
    assert echoing.stdout.splitlines()[0].startswith("mount /mnt/ram --size 30G")
    assert len(echoing.stdout.splitlines()) == 4
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert text.replace(script, f"{_FOR_ROOT}\n\n{script}") == report_text(report(), colours=False)


def test_colours_only_colour() -> None:
    plain, painted = (report_text(report(), colours=colours) for colours in (False, True))
    assert painted != plain and re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(
    "name",
    ["plain", "with space", "it's", "new\nline", "\x1b[31mred", "byte\udcff", "ümläut", "$x`y`"],
)
def test_a_quoted_word_reaches_the_program_as_it_is(name: str) -> None:
    word = quote(name)
    assert word.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert said.stdout == name.encode("utf-8", "surrogateescape")


def test_junit_is_valid_and_counts_right() -> None:
    text = render(Format.JUNIT, report())
    xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd")).validate(text)
    suite = ET.fromstring(text)[0]
    assert len(suite) == int(suite.get("tests", ""))
    for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert len(suite.findall(f"testcase/{tag}")) == int(suite.get(count, "")), tag
    assert "mend --it HP012" in (suite.findtext("testcase[@classname='hostprep.HP012']/failure"))
    assert "WARN" in str(suite.findtext("testcase[@classname='hostprep.HP041']/system-out"))


def test_prometheus_is_read_back() -> None:
    text = render(Format.PROMETHEUS, report())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    verdict = {s.labels["status"]: s.value for s in families["hostprep_check_verdict"].samples}
    assert verdict == {name: float(name == "FAIL") for name in ORDER}
    statuses = families["hostprep_check_status"].samples
    series = [tuple(sorted(sample.labels.items())) for sample in statuses]
    assert len(series) == len(set(series)) == 7 * len(ORDER)
    assert sum(sample.value for sample in statuses) == 7
    (value,) = (s for s in families["hostprep_check_value"].samples if s.labels["code"] == "HP002")
    assert value.value == 20 * GIB and value.labels["unit"] == "bytes"
    assert families["hostprep_check_last_run_timestamp_seconds"].samples[0].value == 1.79e9
    hostile = next(s for s in statuses if s.labels["code"] == "HP012")
    assert '</script>|a"b\\c`' in hostile.labels["subject"]


def test_names_that_differ_in_bytes_that_are_no_text_are_series_of_their_own() -> None:
    """Of two with the same labels node_exporter takes neither, nor anything else of the file."""
    names = ("/a\udcff", "/a\udcfe", "/a\ufffd", "/a?", "/a\n", "/a\r", "/a\x1b[31m")
    text = render(Format.PROMETHEUS, report([result("HP010", Status.PASS, n, ".") for n in names]))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["hostprep_check_status"].samples
    assert len({sample.labels["subject"] for sample in samples}) == len(names)


@pytest.mark.parametrize("form", [form for form in Format if form not in ("json", "text")])
def test_no_format_rewrites_the_terminal_that_shows_it(form: Format) -> None:
    odd = "/data/\x1b[2J\x9b31m\u202eevil\udcff\ttab"
    fields = report([result("HP012", Status.FAIL, odd, f"{odd} is gone.", remedy=Remedy((), odd))])
    text = render(form, fields)
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.encode().decode() == text


def test_prometheus_tells_hosts_apart() -> None:
    text = prometheus([report(host="one"), report(host="two")])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {s.labels["host"] for s in families["hostprep_check_status"].samples} == {"one", "two"}


def test_nagios_is_one_line_with_performance_data() -> None:
    text = render(Format.NAGIOS, report())
    assert text.endswith("\n") and text.count("\n") == 1 and text.count("|") == 1
    assert all(char.isprintable() for char in text[:-1])
    words, figures = text.rstrip().split(" | ")
    assert words.startswith("HOSTPREP CRITICAL - 2 FAIL, 1 UNKNOWN, 1 WARN, 2 PASS, 1 SKIP; HP002")
    found = re.findall(r"'[^']*'\S+", figures)
    assert len(found) == 3 and " ".join(found) == figures
    for figure in found:
        assert PERFDATA.fullmatch(figure), figure
    assert f"'HP041 /'={3 * GIB}B;{10 * GIB}:" in found


@pytest.mark.parametrize(
    ("status", "word"),
    [("PASS", "OK"), ("WARN", "WARNING"), ("FAIL", "CRITICAL"), ("UNKNOWN", "UNKNOWN")],
)
def test_nagios_words(status: str, word: str) -> None:
    found = [result("HP041", Status(status), "/", "so it is.", measured=Measured("x", 0.125, "s"))]
    line = render(Format.NAGIOS, report(found))
    assert line.startswith(f"HOSTPREP {word} - ") and "'HP041 /'=0.125" in line


def test_markdown_keeps_its_table_whatever_names_hold() -> None:
    text = render(Format.MARKDOWN, report())
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 7
    for row in table:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row
    assert "<script>" not in text
    assert "```sh\nhostprep mount /mnt/ram" in text


def test_commands_in_markdown_are_shown_as_they_are_typed() -> None:
    """As the parser that comes with rich reads it: escapes are none between backticks."""
    line = "`ps -eo pid,wchan:30 | grep my_job*`"
    hostile = "a ``b `c\\|d` <i>x</i> ` <b>y</b>"
    found = [
        result("HP001", Status.FAIL, "/x", f"{line} shows it.", remedy=Remedy((), f"see {line}")),
        result("HP002", Status.FAIL, hostile, f"{hostile} is full."),
    ]
    page = MarkdownIt("commonmark").enable("table").render(render(Format.MARKDOWN, report(found)))
    assert page.count("<code>ps -eo pid,wchan:30 | grep my_job*</code>") == 2
    assert page.count("<td>") == 2 * 4
    assert "<i>" not in page and "<b>" not in page


def test_a_code_is_text_in_markdown_too() -> None:
    code = "HP001 | [x](/evil) <b>"
    found = [result(code, Status.FAIL, "/x", "it is full.")]
    page = MarkdownIt("commonmark").enable("table").render(render(Format.MARKDOWN, report(found)))
    assert page.count("<td>") == 4
    assert "<a" not in page and "<b>" not in page


def test_a_name_like_an_entity_stays_as_it_is_in_markdown() -> None:
    found = [result("HP041", Status.FAIL, "/a&lt;b", "/a&lt;b is full.")]
    page = MarkdownIt("commonmark").enable("table").render(render(Format.MARKDOWN, report(found)))
    assert page.count("/a&amp;lt;b") >= 2 and "/a&lt;b" not in page


def test_a_skip_that_several_checks_have_is_one_line_of_the_text() -> None:
    nothing, other = "this host has no NVIDIA GPU.", "there is no InfiniBand here."
    skips = [("HP052", nothing), ("HP053", nothing), ("HP024", other), ("HP054", nothing)]
    fine = [result(code, Status.PASS, "GPU", nothing) for code in ("HP050", "HP051")]
    found = [*fine, *(result(code, Status.SKIP, "GPU", said) for code, said in skips)]
    lines = report_text(report(found), colours=False).splitlines()
    assert lines[:-1] == [
        f"PASS    HP050  {nothing}",
        f"PASS    HP051  {nothing}",
        f"SKIP    HP024  GPU: {other}",
        f"SKIP    HP052  {nothing} Likewise HP053, HP054.",
    ]
    assert lines[-1].startswith("PASS: 2 PASS, 4 SKIP; ")


def test_sentences_end_once_on_the_line_for_nagios() -> None:
    found = [result(f"HP04{n}", Status.WARN, "/", "/ is full.") for n in range(2)]
    line = render(Format.NAGIOS, report(found))
    assert line.startswith("HOSTPREP WARNING - 2 WARN; HP040 / is full; HP041 / is full")


def test_a_remedy_says_of_which_status_it_is() -> None:
    found = [result("HP041", Status.WARN, "/", "it is full.", remedy=Remedy(("du",)))]
    text = report_text(report(found), colours=False)
    assert '\n# HP041 /: WARN of "' in text


@pytest.mark.parametrize("form", [Format.HTML, Format.MARKDOWN, Format.NAGIOS, Format.JUNIT])
def test_what_is_worse_since_a_baseline(form: Format) -> None:
    before = report([result("HP041", Status.PASS, "/", "fine.", **free(50, 10))])
    fields = report()
    fields["baseline"] = compare(before, fields)
    text = render(form, fields)
    if form in (Format.HTML, Format.MARKDOWN):
        assert "worse" in text and "HP041" in text
    validate(read(fields))
    assert "worse: HP041 /: PASS (50 GiB free) -> WARN (3 GiB free)" in report_text(
        fields, colours=False
    )


def test_markdown_shows_what_two_passes_differ_by() -> None:
    """Without it a change read "PASS → PASS"."""
    before, fields = (
        report([result("HP041", Status.PASS, "/", "fine.", **free(gib, 10))]) for gib in (50, 20)
    )
    fields["baseline"] = compare(before, fields)
    text = render(Format.MARKDOWN, fields)
    assert "- worse: HP041 /: PASS (50 GiB free) → PASS (20 GiB free)" in text
