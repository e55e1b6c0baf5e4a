"""The HTML report, opened in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.readiness.formats import Format, render
from tests.kit.browser import Page, browser
from tests.unit.readiness.samples import MEASUREMENTS, report

# The page's colours as the eye has them, by the formula of WCAG 2.1 (relative luminance).
_CONTRAST = """
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(colour) && colour !== 'transparent') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own) continue;
    const style = getComputedStyle(node);
    const inks = [light(node.closest('svg') ? style.fill : style.color), light(behind(node))];
    const ratio = (Math.max(...inks) + 0.05) / (Math.min(...inks) + 0.05);
    if (ratio < 4.5) found.push([node.textContent.trim().slice(0, 40), ratio]);
  }
  return found;
})()
"""
_BEYOND_THE_EDGE = """
[...document.querySelectorAll('body *')].filter(node => !node.closest('pre') &&
  node.getBoundingClientRect().width > 0 &&
  node.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(node => node.textContent.trim().slice(0, 60))
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


@pytest.fixture
def url(tmp_path: Path) -> str:
    file = tmp_path / "report.html"
    file.write_text(render(Format.HTML, report(measured=MEASUREMENTS)))
    return file.as_uri()


def assert_quiet(page: Page, url: str) -> None:
    """Assert that nothing was logged, nothing raised, and nothing but the file itself fetched."""
    assert page.named("Log.entryAdded") == []
    assert page.named("Runtime.exceptionThrown") == []
    assert page.named("Runtime.consoleAPICalled") == []
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert [each for each in asked if not each.startswith("data:")] == [url]


@pytest.mark.parametrize("dark", [False, True], ids=["day", "night"])
@pytest.mark.parametrize("width", [360, 1100])
def test_readable_and_quiet(page: Page, url: str, tmp_path: Path, width: int, dark: bool) -> None:
    page.open(url, width=width, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert_quiet(page, url)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_BEYOND_THE_EDGE) == []
    assert page.evaluate(_CONTRAST) == []
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, colour.strip("rgb()").split(","))) < 3 * 128) is dark
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map(node =>"
        " parseFloat(getComputedStyle(node).fontSize) * node.getScreenCTM().a))"
    )
    assert smallest >= 9, "the plots' words on a phone"
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_the_browser_test_sees_faults(page: Page, tmp_path: Path) -> None:
    """The looks above would be worth nothing if they could not fail."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><meta name='viewport' content='width=device-width'>"
        "<p style='width:900px;color:#bbb;background:#fff'>pale and wide</p>"
        "<img src='http://192.0.2.1/x.png'><script>console.log(1); throw new Error('x')</script>"
    )
    page.open(file.as_uri(), width=360)
    assert page.evaluate(_CONTRAST) and page.evaluate(_BEYOND_THE_EDGE)
    assert page.named("Runtime.exceptionThrown") and page.named("Runtime.consoleAPICalled")
    asked = [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]
    assert "http://192.0.2.1/x.png" in asked


def test_what_it_shows(page: Page, url: str) -> None:
    page.open(url)
    shown = page.evaluate(
        "[...document.querySelectorAll('.finding .status')].map(n => n.innerText).filter(Boolean)"
    )
    assert shown == ["FAIL", "FAIL", "UNKNOWN", "WARN"], "what passed is folded away"
    assert page.evaluate("document.title") == "gpu-node-07: FAIL · hostprep check"
    assert page.evaluate("document.scripts.length") == 0, "a name became markup"
    assert page.evaluate("document.querySelectorAll('figure svg').length") == 4
    assert page.evaluate("document.querySelector('pre').innerText").startswith("hostprep mount")
    widths = page.evaluate(
        "[...document.querySelectorAll('figure:first-of-type rect')]"
        ".map(node => node.width.baseVal.value)"
    )
    assert widths[0] > 10 * widths[1] > 0, "6.4 GB/s against 410 MB/s"


def test_what_was_not_measured_says_so(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(Format.HTML, report(measured=dict.fromkeys(MEASUREMENTS))))
    page.open(file.as_uri())
    assert_quiet(page, file.as_uri())
    said = page.evaluate("[...document.querySelectorAll('figure')].map(node => node.innerText)")
    assert len(said) == 4 and all("Not measured yet: hostprep" in each for each in said)
    assert page.evaluate("document.querySelectorAll('svg').length") == 0
