"""``hostprep recommend --compare`` with the libraries themselves: the table, and who wins."""

from __future__ import annotations

import json
import re
import statistics
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hostprep.cli.recommend_text import report_text
from hostprep.loading.recommend import from_dataset
from hostprep.loading.report import Report, Wish, report_fields
from hostprep.loading.share import read_share
from tests.kit.recommending import MARK, gone, marked, recommend

# Some thirty processes import torch, one after the other.
pytestmark = pytest.mark.timeout(600)

GROUPS = {
    "decoder": ["pillow", "opencv", "simplejpeg"],
    "resize": ["pillow", "opencv"],
    "form": ["jpeg", "png", "npy"],
}


class Silent:
    def note(self, message: str) -> None:
        pass

    def going_on(self) -> None:
        pass


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs, and some as a broken download leaves them."""
    folder = tmp_path_factory.mktemp("photographs")
    noise = Image.effect_noise((320, 240), 60).convert("RGB")
    for number in range(140):
        noise.rotate(number).save(folder / f"{number}.jpg")
    for number in range(20):
        (folder / f"broken-{number}.jpg").write_bytes(b"\xff\xd8\xff\xe0 half of one")
    return folder


@pytest.fixture(scope="module")
def report(photographs: Path) -> Iterator[Report]:
    """What comes of comparing; no process of it may be left, nor a thread that holds one."""
    mark = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        wish = Wish(None, None, 5.0, 64, measure=True, compare=True)
        yield from_dataset(str(photographs), read_share(1, "test"), wish, Silent())
    assert gone(mark), f"left running: {marked(mark)}"


def peaks(document: dict[str, Any], group: str) -> dict[str, float]:
    rows = document["evidence"]["comparison"]
    return {row["name"]: row["peak_samples_per_s"] for row in rows if row["group"] == group}


def test_all_that_is_tried_by_hand_was_timed(report: Report) -> None:
    document = json.loads(json.dumps(report_fields(report)))
    for group, names in GROUPS.items():
        found = peaks(document, group)
        assert list(found) == names
        assert all(rate > 0 for rate in found.values())
    workers = document["num_workers"]
    with_workers = f"{workers} worker{'s' if workers > 1 else ''}" if workers else "no workers"
    around = ["prefetch_generator, no workers"]
    around += [f"prefetch_generator, {with_workers}"] if workers else []
    assert list(peaks(document, "prefetching")) == [f"DataLoader, {with_workers}", *around]
    for row in document["evidence"]["comparison"]:
        assert row["problem"] is None
        assert row["relative_error"] >= 0
        one_core = row["alone_samples_per_s"]
        assert one_core is None or one_core > 0
        assert len(row["rounds"]) in (2, 4)
        assert row["peak_samples_per_s"] == pytest.approx(statistics.fmean(row["rounds"]))
        assert (one_core is not None) or row["group"] not in ("decoder", "resize")


def test_the_best_is_named_with_its_ratio_at_the_peak(report: Report) -> None:
    document = report_fields(report)
    winners, undecided = (document["evidence"][name] for name in ("winners", "undecided"))
    leads = {lead["group"]: lead for lead in (*winners, *undecided)}
    assert set(leads) == {*GROUPS, "prefetching"}
    assert "form" in {winner["group"] for winner in winners}  # arrays need no decoding
    for group, lead in leads.items():
        rates = peaks(document, group)
        best = max(rates, key=lambda name: rates[name])
        assert lead["name"] == best
        next_best = max(rates[name] for name in lead["rivals"] or rates if name != best)
        assert lead["factor"] == pytest.approx(rates[best] / next_best)
        assert (lead["factor"] - 1 > max(lead["relative_error"], 0.05)) is (lead in winners)
        assert bool(lead["rivals"]) is (lead in undecided)


def test_the_table_says_the_same_to_people(report: Report) -> None:
    text = report_text(report)
    table = text[text.index("side by side, samples/s") :]
    for variant in report.variants:
        assert variant.peak_samples_per_s is not None
        row = re.search(rf"^  {variant.group} {re.escape(variant.name)} .*$", table, re.M)
        assert row is not None
        assert row[0].endswith(f" {variant.peak_samples_per_s:,.0f}")
    for lead in report.leads:
        won = f"{lead.name}, {lead.factor:.2f} times as fast as the next at the peak, ±"
        drawn = f"no clear winner ({lead.factor:.2f} times, "
        assert f"  {lead.group}: {drawn if lead.rivals else won}" in table
    assert "the results differ" in table  # of one resizing and the other


def test_who_has_compared_is_not_told_to_compare(report: Report) -> None:
    assert "--compare" not in report_text(report)
    assert "--compare" not in json.dumps(report_fields(report))


def test_files_that_cannot_be_decoded_are_left_out_and_named(report: Report) -> None:
    assert any("cannot be read or decoded" in note and "broken-" in note for note in report.notes)


def test_a_loader_of_ones_own_is_compared_by_its_prefetching() -> None:
    done = recommend(
        "--loader", "tests.cli.recommend_loaders:Waiting", "--seconds", "5", "--compare"
    )
    assert done.returncode == 0
    assert re.search(r"^  prefetching DataLoader, \d+ workers? ", done.stdout, re.M)
    assert re.search(r"^  prefetching prefetch_generator, no workers ", done.stdout, re.M)
    told = re.search(r"^  prefetching: .*\d\.\d\d times", done.stdout, re.M)
    assert told is not None
    assert "decoder" not in done.stdout
