"""Many hosts' reports together: the order, who is unlike the others, and every format of it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from prometheus_client.parser import text_string_to_metric_families

from hostprep.cli.check import _in_form, _Shown
from hostprep.cli.check_fleet import _report, fleet_text
from hostprep.cli.output import json_text
from hostprep.fleet import HostOutcome
from hostprep.readiness.fleet import HostReport, fleet_document, outliers
from hostprep.readiness.formats import Format
from hostprep.readiness.formats.plots import plots
from hostprep.readiness.model import Measured, Remedy, Status
from tests.kit.browser import browser
from tests.kit.oddities import with_oddities
from tests.unit.readiness.samples import (
    HOST_CLASS,
    MEASUREMENTS,
    MOMENT,
    free,
    report,
    result,
    results,
)

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parents[2] / "docs/check.schema.json").read_text())


def host(name: str, **fields: Any) -> HostReport:
    """Return a host's report as it comes over the wire, under the name that it gives itself."""
    fields.setdefault("found", [result("HP001", Status.PASS, "/mnt/ram", "it is mounted.")])
    return HostReport(f"lab-{name}", json.loads(json_text("check", report(host=name, **fields))))


def in_form(form: Format, fleet: dict[str, Any]) -> str:
    return _in_form(_Shown("check-fleet", fleet, lambda _: fleet_text(fleet)), form)


def lab() -> dict[str, Any]:
    small = {**HOST_CLASS, "ram_gib": 256}
    return fleet_document(
        [
            host("ok"),
            host("bad", found=None, measured=MEASUREMENTS),
            HostReport("lab-gone", None, "cannot be reached: no route to host"),
            host("warned", found=[result("HP041", Status.WARN, "/", "it is full.", **free(1, 2))]),
            host("empty", found=[]),
            host("small", host_class=small),
            HostReport("lab-new", {"schema": "hostprep.check/2", "verdict": "PASS"}),
        ],
        unix_seconds=MOMENT,
        seconds=12.3,
    )


def test_hosts_come_worst_first_and_one_of_which_nothing_is_known_is_no_pass() -> None:
    fleet = lab()
    assert [(each["host"], each["verdict"]) for each in fleet["hosts"]] == [
        ("lab-bad", "FAIL"),
        ("lab-gone", "UNKNOWN"),
        ("lab-new", "UNKNOWN"),
        ("lab-empty", "SKIP"),
        ("lab-warned", "WARN"),
        ("lab-ok", "PASS"),
        ("lab-small", "PASS"),
    ]
    assert fleet["verdict"] == "FAIL" and fleet["exit_code"] == 3
    assert fleet["counts"] == {"FAIL": 1, "UNKNOWN": 2, "SKIP": 1, "WARN": 1, "PASS": 2}


def test_the_gpus_of_each_host_stand_beside_it_and_another_driver_is_unlike_the_others() -> None:
    def with_driver(name: str, version: str) -> HostReport:
        driver = Measured(f"driver {version}", version)
        answers = result("HP050", Status.PASS, "driver", "it answers.", measured=driver)
        return host(name, found=[answers])

    none = host("cpu", host_class={**HOST_CLASS, "gpus": []})
    lab = [with_driver(name, "550.54") for name in "abc"] + [with_driver("old", "535.1"), none]
    fleet = fleet_document(lab, unix_seconds=MOMENT, seconds=1.0)
    a, cpu = fleet["hosts"][0], fleet["hosts"][3]
    assert (a["gpus"], a["gpu_driver"]) == (["NVIDIA H100 80GB HBM3"] * 2, "550.54")
    assert (cpu["host"], cpu["gpus"], cpu["gpu_driver"]) == ("lab-cpu", [], None)
    text = fleet_text(fleet).splitlines()
    assert text[0] == "PASS    lab-a: 1 PASS; 2 x NVIDIA H100 80GB HBM3, driver 550.54"
    assert text[3] == "PASS    lab-cpu: 1 PASS"
    assert "    lab-old: gpu_driver: 535.1; 3 of 5 hosts have 550.54" in text
    assert "<td>2 x NVIDIA H100 80GB HBM3, driver 535.1</td>" in in_form(Format.HTML, fleet)


def mangled(**fields: Any) -> HostReport:
    report = host("bad", found=None).report
    assert report is not None
    return HostReport("lab-bad", {**report, **fields})


@pytest.mark.parametrize(
    "bad",
    [
        HostReport("lab-bad", {"schema": "hostprep.check/1", "verdict": "PASS"}),
        mangled(checks=None),
        mangled(checks=[{"code": "HP001"}]),
        mangled(checks=[]),
        mangled(verdict="PASS", exit_code=0),
        mangled(exit_code=0),
        mangled(counts={}),
        mangled(counts={**report()["counts"], "FAIL": 0}),
        mangled(checks=[{**check, "code": "HP001 |"} for check in report()["checks"]]),
        mangled(left_out=[{"code": "<b>", "reason": "so"}]),
        mangled(host_class=None),
        mangled(checks=[{**dict(mangled().report or {})["checks"][0], "measured": "much"}]),
        mangled(checks=[{**dict(mangled().report or {})["checks"][0], "remedy": {"hint": None}}]),
    ],
)
def test_a_report_that_is_none_costs_its_own_host_alone(bad: HostReport) -> None:
    fleet = fleet_document([host("a"), bad], unix_seconds=MOMENT, seconds=1.0)
    verdicts = {each["host"]: each["verdict"] for each in fleet["hosts"]}
    assert verdicts == {"lab-bad": "UNKNOWN", "lab-a": "PASS"}
    assert "lacks what belongs to one" in fleet_text(fleet)


def test_whatever_a_host_sends_the_others_are_shown_in_every_format() -> None:
    """A host of another version, or in somebody else's hands, puts each odd value anywhere."""
    odd = (None, "\ud800\x1b", 1e300, 10**400, float("nan"), [1])
    one = next(each for each in results() if each.code == "HP002")
    sound = host("odd", found=[one], measured=MEASUREMENTS).report
    assert sound is not None
    for path, value, sent in with_oddities(sound, odd):
        hosts = [host("a"), host("b"), HostReport("lab-odd", sent)]
        fleet = fleet_document(hosts, unix_seconds=MOMENT, seconds=1.0)
        shown = next(each for each in fleet["hosts"] if each["host"] == "lab-odd")
        if not shown["reached"]:
            continue  # one of our own stands in its place
        plots(shown["report"]["measurements"])
        for form in (Format.TEXT, Format.JSON, Format.JUNIT, Format.MARKDOWN, Format.HTML):
            assert "lab-a" in in_form(form, fleet), (form, path, value)
        text = in_form(Format.PROMETHEUS, fleet)
        assert len(list(text_string_to_metric_families(text))) >= 4, (path, value)


def test_the_table_of_the_page_names_what_is_wrong_wherever_the_host_puts_it() -> None:
    good = result("HP001", Status.PASS, "/mnt/ram", "all is well.")
    bad = result("HP041", Status.FAIL, "/", "it is full.")
    sent = dict(host("a", found=[bad, good]).report or {})
    sent["checks"] = sent["checks"][::-1]
    fleet = fleet_document([HostReport("lab-a", sent)], unix_seconds=MOMENT, seconds=1.0)
    assert "<br><small>/: it is full.</small></td>" in in_form(Format.HTML, fleet)


def test_a_whole_report_of_another_schema_is_not_taken_for_one() -> None:
    fleet = fleet_document([mangled(schema="hostprep.check/2")], unix_seconds=MOMENT, seconds=1.0)
    (only,) = fleet["hosts"]
    assert (only["reached"], only["verdict"]) == (False, "UNKNOWN")
    assert "its schema is hostprep.check/2" in fleet_text(fleet)


def test_an_error_that_is_none_costs_its_own_host_alone() -> None:
    outcomes = (HostOutcome("a", documents=({"error": "so"},)), HostOutcome("b"))
    reports = [_report(outcome) for outcome in outcomes]
    fleet = fleet_document(reports, unix_seconds=MOMENT, seconds=1.0)
    assert fleet["counts"]["UNKNOWN"] == 2


def test_a_host_that_says_what_cures_it_is_not_told_to_be_provisioned() -> None:
    error = {"code": "usage", "message": "the spec has a mistake.", "hint": "mend line 3"}
    reports = [
        _report(HostOutcome(name, documents=(said,)))
        for name, said in (
            ("a", {"error": error}),
            ("b", {"error": {**error, "hint": None}}),
            ("c", {"error": {}}),
        )
    ]
    fleet = fleet_document(reports, unix_seconds=MOMENT, seconds=1.0)
    a, b, c = (each["report"]["checks"][0] for each in fleet["hosts"])
    assert (a["message"], a["remedy"]) == (
        "the spec has a mistake.",
        {"commands": [], "hint": "mend line 3"},
    )
    assert (b["message"], b["remedy"]["commands"]) == (
        "the spec has a mistake.",
        ["ssh b hostprep check"],
    )
    assert c["message"] == "it gave no report."


def test_a_finding_that_a_host_sends_twice_is_one_series_the_worse_one() -> None:
    finding = result("HP001", Status.FAIL, "/mnt/ram", "it is not mounted.")
    again = result("HP001", Status.PASS, "/mnt/ram", "it is mounted.")
    hosts = [host("a"), host("b", found=[again, finding])]
    fleet = fleet_document(hosts, unix_seconds=MOMENT, seconds=1.0)
    families = text_string_to_metric_families(in_form(Format.PROMETHEUS, fleet))
    (statuses,) = (each.samples for each in families if each.name == "hostprep_check_status")
    series = {tuple(sorted(each.labels.items())): each.value for each in statuses}
    assert len(series) == len(statuses) == 2 * 5
    assert [each.labels["status"] for each in statuses if each.value == 1] == ["FAIL", "PASS"]


def test_json_is_as_its_schema_says() -> None:
    document = json.loads(in_form(Format.JSON, lab()))
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    document["hosts"][0]["report"]["verdict"] = "OK"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("hosts", "verdict", "code"),
    [
        ([host("a"), host("b", found=[])], "SKIP", 4),
        ([host("a"), HostReport("b", None, "down")], "UNKNOWN", 4),
        ([host("a"), host("b")], "PASS", 0),
        ([host("a"), host("b", found=[result("HP041", Status.WARN, "/", "full.")])], "WARN", 0),
        ([], "SKIP", 4),
    ],
)
def test_the_verdict_is_that_of_the_worst(hosts: list[HostReport], verdict: str, code: int) -> None:
    fleet = fleet_document(hosts, unix_seconds=0, seconds=0)
    assert (fleet["verdict"], fleet["exit_code"]) == (verdict, code)


def measured(**values: float) -> list[dict[str, Any]]:
    return [
        report(
            [
                result(
                    "HP061",
                    Status.PASS,
                    "/data",
                    "it is read.",
                    measured=Measured(f"{value:g}", value, "bytes", "higher"),
                )
            ],
            host=name,
        )
        for name, value in values.items()
    ]


def found(**values: float) -> list[str]:
    return [each["host"] for each in outliers(measured(**values))]


def test_an_outlier_is_far_from_the_median_in_its_bad_direction() -> None:
    assert found(a=100, b=101, c=99, d=40) == ["d"]
    assert found(a=100, b=101, c=99, d=400) == [], "better than the others is no fault"
    assert found(a=100, b=101, c=99, d=95) == [], "within a fifth"
    assert found(a=100, b=40) == [], "two hosts have no median to speak of"
    assert found(a=100, b=60, c=140, d=90, e=55) == [], "they all differ"
    (outlier,) = outliers(measured(a=100 * 2**30, b=100 * 2**30, c=2**30))
    assert outlier["fleet_text"] == "the median of 3 hosts is 100 GiB"


def test_where_less_is_better_it_is_who_has_more_that_is_unlike_the_others() -> None:
    reports = measured(a=100, b=101, c=99, much=400, little=4)
    for each in reports:
        each["checks"][0]["measured"] |= {"better": "lower", "unit": "seconds"}
    (outlier,) = outliers(reports)
    assert outlier["host"] == "much"
    assert outlier["fleet_text"] == "the median of 5 hosts is 1 min 40 s"


def test_values_without_a_direction_are_not_compared() -> None:
    reports = measured(a=100, b=100, c=1)
    for each in reports:
        each["checks"][0]["measured"]["better"] = None
    assert outliers(reports) == []


def test_where_no_class_has_most_of_the_hosts_none_is_unlike_the_others() -> None:
    reports = measured(a=1, b=1, c=1, d=1)
    for each, ram in zip(reports, (256, 256, 512, 512), strict=True):
        each["host_class"] = {**each["host_class"], "ram_gib": ram}
    assert outliers(reports) == []
    reports[1]["host_class"]["ram_gib"] = 512
    assert [(each["host"], each["subject"]) for each in outliers(reports)] == [("a", "ram_gib")]


def test_a_host_of_another_class_is_named() -> None:
    (outlier,) = lab()["outliers"]
    assert (outlier["host"], outlier["subject"], outlier["text"]) == ("lab-small", "ram_gib", "256")
    assert outlier["fleet_text"] == "4 of 5 hosts have 512"


def test_a_host_that_missed_the_spec_or_an_upgrade_is_named() -> None:
    reports = measured(a=1, b=1, c=1)
    for each in reports:
        each["spec"] = "/etc/hostprep/hostprep.yml"
    assert outliers(reports) == []
    reports[0] |= {"spec": None, "version": "0.0.9"}
    usual = reports[1]["version"]
    assert [(each["host"], each["subject"], each["text"]) for each in outliers(reports)] == [
        ("a", "spec", "none"),
        ("a", "hostprep", "0.0.9"),
    ]
    assert [each["fleet_text"] for each in outliers(reports)] == [
        "2 of 3 hosts have one",
        f"2 of 3 hosts have {usual}",
    ]


def test_text_names_what_fails_where() -> None:
    lines = fleet_text(lab()).splitlines()
    counts = "2 FAIL, 1 UNKNOWN, 1 WARN, 2 PASS, 1 SKIP"
    assert lines[0] == f"FAIL    lab-bad: {counts}; 2 x NVIDIA H100 80GB HBM3"
    wrong = lines.index("FAIL    HP002  /mnt/ram has 20 GiB, where the spec wants 30 GiB.")
    assert lines[wrong + 1] == "        on lab-bad"
    assert lines[wrong + 2].startswith("        -> hostprep mount /mnt/ram --size 30G ")
    warned = lines.index("WARN    HP041  /: it is full.")
    assert lines[warned + 1 : warned + 3] == ["        on lab-warned", "        -> mend --it HP041"]
    assert not any("is mounted" in line or "no NVIDIA GPU" in line for line in lines)
    assert "    lab-small: ram_gib: 256; 4 of 5 hosts have 512" in lines
    assert lines[-1] == "FAIL: 7 hosts, 1 FAIL, 2 UNKNOWN, 1 SKIP, 1 WARN, 2 PASS; took 12.3 s"


def test_what_many_hosts_have_in_common_is_said_once() -> None:
    def full(name: str, message: str = "it is full.") -> HostReport:
        return host(name, found=[result("HP041", Status.WARN, "/", message)])

    def said(*hosts: HostReport) -> list[str]:
        text = fleet_text(fleet_document(hosts, unix_seconds=0, seconds=0))
        return [line.strip() for line in text.splitlines() if "HP041  " in line or " on " in line]

    one = "WARN    HP041  /: it is full."
    other = "WARN    HP041  /: it is nearly full."
    many = [full(f"n{number:02}") for number in range(50)]
    assert said(*many) == [one, "on all 50 hosts"]
    assert said(*many[:9], host("ok")) == [
        one, "on " + ", ".join(f"lab-n{number:02}" for number in range(9)),
    ]  # fmt: skip
    assert said(*many[:2], full("z", "it is nearly full."), host("ok")) == [
        *(one, "on lab-n00, lab-n01"),
        *(other, "on lab-z"),
    ]


def test_a_cure_of_several_lines_is_shown_whole() -> None:
    """The first one alone, pasted over a lab, would remove the data set and stage nothing."""
    cure = Remedy(("hostprep unstage /mnt/ram/city", "hostprep stage /data/city"), "a hint")
    words = Remedy((), "bring it back")
    found = [
        result("HP012", Status.FAIL, "city", "it is another.", remedy=cure),
        result("HP014", Status.WARN, "city", "it is gone.", remedy=words),
    ]
    lines = fleet_text(
        fleet_document([host("a", found=found)], unix_seconds=0, seconds=0)
    ).splitlines()
    first = lines.index("        -> hostprep unstage /mnt/ram/city")
    assert lines[first + 1 : first + 3] == ["           hostprep stage /data/city", ""]
    assert "        -> bring it back" in lines


def test_every_host_is_in_every_format() -> None:
    fleet = lab()
    names = {each["host"] for each in fleet["hosts"]}
    junit = in_form(Format.JUNIT, fleet)
    xmlschema.XMLSchema(HERE / "junit.xsd").validate(junit)
    assert {suite.get("hostname") for suite in ET.fromstring(junit)} == names
    families = {
        family.name: family
        for family in text_string_to_metric_families(in_form(Format.PROMETHEUS, fleet))
    }
    verdicts = families["hostprep_check_verdict"].samples
    assert {sample.labels["host"] for sample in verdicts} == names
    as_json = json.loads(in_form(Format.JSON, fleet))
    assert as_json["schema"] == "hostprep.check-fleet/1"
    assert {each["host"] for each in as_json["hosts"]} == names
    markdown = in_form(Format.MARKDOWN, fleet)
    assert all(f"# {name}: " in markdown for name in names)
    with pytest.raises(ValueError):
        in_form(Format.NAGIOS, fleet)


def test_one_page_for_all(tmp_path: Path) -> None:
    file = tmp_path / "fleet.html"
    file.write_text(in_form(Format.HTML, lab()))
    with browser() as page:
        page.open(file.as_uri(), width=360)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.querySelectorAll('.hosts tbody tr').length") == 7
        links = page.evaluate(
            "[...document.querySelectorAll('.hosts a')].every(link =>"
            " document.querySelector(link.getAttribute('href')).querySelector('summary')"
            ".innerText.startsWith(link.innerText))"
        )
        assert links is True, "each line of the table leads to its host"
        assert page.evaluate("document.querySelector('.changes').innerText").startswith("lab-small")
        assert page.named("Log.entryAdded") == []
        asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
        assert [each for each in asked if not each.startswith("data:")] == [file.as_uri()]
        page.screenshot(tmp_path / "fleet.png")
