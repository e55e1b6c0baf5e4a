"""What is timed beside each other, and what is not worth it."""

from __future__ import annotations

import importlib.util
import random
import statistics
from dataclasses import field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.cli import recommend_text
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.loading.measuring.variants import (
    Variant,
    compare_files,
    compare_prefetching,
    leads,
    relative_error,
    undecided,
)
from hostprep.loading.model import Binding, FailedProbe
from hostprep.loading.recommend import _compared, from_host
from hostprep.loading.report import Report, Wish, report_fields
from hostprep.loading.search import Point
from hostprep.loading.verdict.binding import remedy
from tests.unit.loading.making import probe, share

WISH = Wish(None, None, 5.0, 224, measure=True, compare=True)


@dataclass(slots=True)
class Timed:
    """A measurer that is asked for rates, and notes for which; ``fails`` is what it cannot time.

    ``drift`` is by how much the machine gives more with each probe, ``killed_at`` at which of its
    own a competitor runs out of memory; 0 is never.
    """

    source: dict[str, Any] = field(default_factory=dict)
    what: str = "mine"
    first: int = 0
    deadline: float = 0.0
    window_seconds: float = 2.5
    opening_seconds: float = 1.0
    drift: float = 1.0
    asked: list[tuple[int, bool]] = field(default_factory=list)
    sources: list[tuple[Any, ...]] = field(default_factory=list)
    fails: str = ""
    killed_at: int = 0

    def with_workers(self, workers: int, *, background: bool = False) -> Any:
        self.asked.append((workers, background))
        self.sources.append(tuple(self.source.values()))
        if self.fails and self.fails in self.source.values():
            raise HostprepError("it raised.")
        if self.asked.count((workers, background)) == self.killed_at:
            return FailedProbe(workers, Binding.MEMORY, "no memory.")
        return probe(workers, 100.0 + 10 * workers + self.drift * len(self.asked))


def modelled() -> Report:
    """A report of files, of which decoding is what binds."""
    known: Any = SimpleNamespace(stages=None, host=share(), subject=None)
    report = from_host(share(), WISH, gpus=0)
    told = remedy(known, Point(2, 500.0, 0.01, 1), Binding.DECODE)
    made = replace(report.recommendation, binding=Binding.DECODE, remedy=told)
    return replace(report, recommendation=made)


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in modules else found(name)
    )


def test_the_thread_is_timed_alone_and_around_workers() -> None:
    timed: Any = Timed()
    found = compare_prefetching(timed, 3)
    there = [(3, False), (0, True), (3, True)]
    assert timed.asked == [*there, *reversed(there)]
    assert [variant.name for variant in found] == [
        "DataLoader, 3 workers",
        "prefetch_generator, no workers",
        "prefetch_generator, 3 workers",
    ]


def test_without_workers_nothing_is_timed_twice() -> None:
    timed: Any = Timed()
    found = compare_prefetching(timed, 0)
    assert timed.asked == [(0, False), (0, True), (0, True), (0, False)]
    assert [variant.name for variant in found] == [
        "DataLoader, no workers",
        "prefetch_generator, no workers",
    ]
    assert found[0].alone_samples_per_s == found[0].peak_samples_per_s


def test_a_machine_that_drifts_makes_no_winner() -> None:
    timed: Any = Timed(drift=20.0)
    found = compare_prefetching(timed, 3)
    own, _, around = found
    # Once each, one after the other, the third would have been a quarter faster than the first.
    assert own.rounds == (150.0, 250.0, 270.0, 370.0)
    assert around.rounds == (190.0, 210.0, 310.0, 330.0)
    assert own.peak_samples_per_s == around.peak_samples_per_s == 260.0
    (lead,) = leads(found)
    assert lead.rivals[0] == around.name
    assert lead.factor == pytest.approx(1.0)


def rated(name: str, *rounds: float) -> Variant:
    """Return a variant with the error of its rounds."""
    rate = statistics.fmean(rounds)
    return Variant("form", name, None, rate, None, relative_error(rounds, 0.0), rounds)


def test_of_equal_variants_next_to_none_wins_and_of_unequal_ones_most_do() -> None:
    """With rounds that differ by 5 %; by the spread of two rounds alone 17 % of the equal won."""
    chance = random.Random(1)

    def wins(lead: float) -> float:
        won = 0
        for _ in range(500):
            true = {"npy": 100.0 * lead, "png": 100.0}
            given = {name: [chance.gauss(1, 0.05) * true[name] for _ in range(4)] for name in true}
            found = [rated(name, *rounds[:2]) for name, rounds in given.items()]
            again = [each.name for each in undecided(found)]
            last = [
                rated(name, *given[name]) if name in again else each
                for name, each in zip(true, found, strict=True)
            ]
            won += not leads(last)[0].rivals
        return won / 500

    assert wins(1.0) < 0.09
    assert wins(1.2) > 0.95


def test_more_rounds_are_for_those_that_they_may_tell_apart() -> None:
    best, clear = rated("npy", 101.0, 99.0), rated("jpeg", 50.0, 51.0)
    assert undecided([best, clear]) == []
    # As good as the best: more rounds would say so once more.
    assert undecided([best, clear, rated("png", 99.0, 98.0)]) == []
    slower, alike = rated("png", 94.0, 88.0), rated("webp", 99.0, 96.0)
    assert undecided([clear, slower, best]) == [slower, best]
    # All that may be the best have as many rounds in the end.
    assert undecided([slower, alike, best, clear]) == [slower, alike, best]
    failed = replace(best, relative_error=None, problem="killed.")
    assert undecided([failed, slower, clear]) == undecided([]) == []


def test_an_error_is_that_of_the_rounds_or_of_what_each_of_them_saw() -> None:
    assert relative_error((95.0, 105.0), 0.0) == pytest.approx(6.2 * 5 / 100)
    # Four that differ as much say far more.
    assert relative_error((95.0, 105.0, 95.0, 105.0), 0.0) < 0.08
    assert relative_error((100.0, 100.0), 0.02) == pytest.approx(2 * 0.02 / 2**0.5)


@pytest.mark.parametrize(("png", "rounds"), [(60.0, 2), (93.0, 4)])
def test_what_is_undecided_after_two_rounds_is_timed_in_four(png: float, rounds: int) -> None:
    class Uneven(Timed):
        def with_workers(self, workers: int, *, background: bool = False) -> Any:
            found = Timed.with_workers(self, workers, background=background)
            of_form = {"jpeg": 100.0, "png": png, "npy": 50.0}
            rate = of_form.get(self.source["form"], 100.0) + 3 * (len(self.asked) % 2)
            return replace(found, undisturbed_samples_per_s=rate)

    timed: Any = Uneven()
    rows = {row.name: row for row in compare_files(timed, 2, jpeg=True) if row.group == "form"}
    assert [len(rows[name].rounds) for name in ("jpeg", "png", "npy")] == [rounds, rounds, 2]


def test_who_fails_in_a_later_round_is_no_rival_any_more() -> None:
    timed: Any = Timed(drift=20.0, killed_at=3)
    found = compare_prefetching(timed, 3)
    assert {(row.problem, row.relative_error, len(row.rounds)) for row in found} == {
        ("no memory.", None, 2)
    }
    assert leads(found) == ()


def test_a_difference_beyond_that_of_the_rounds_has_a_winner() -> None:
    timed: Any = Timed(drift=0.0)
    (lead,) = leads(compare_prefetching(timed, 0))
    assert lead.rivals == ("prefetch_generator, no workers",)  # both gave the same
    rows = (
        Variant("form", "npy", None, 107.0, relative_error=0.04),
        Variant("form", "jpeg", None, 100.0, relative_error=0.04),
        Variant("form", "png", None, 103.0, relative_error=0.001),
    )
    (lead,) = leads(rows)  # png's factor is 1.04, within 4 %; jpeg's 1.07, beyond 5.7 %
    assert (lead.name, lead.rivals) == ("npy", ("png",))
    (lead,) = leads(rows[:2])
    assert (lead.name, lead.factor, lead.rivals) == ("npy", 1.07, ())
    # The next one can be told from it, but not the third.
    (lead,) = leads((*rows[:2], Variant("form", "png", None, 90.0, relative_error=0.5)))
    assert lead.rivals == ("png",)
    assert lead.factor == pytest.approx(107 / 90)


def test_what_others_took_from_all_alike_hides_no_difference() -> None:
    class Beside(Timed):
        def with_workers(self, workers: int, *, background: bool = False) -> Any:
            found = Timed.with_workers(self, workers, background=background)
            return replace(found, samples_per_s=found.undisturbed_samples_per_s / 2)

    timed: Any = Beside(drift=0.0)
    own, alone, _ = compare_prefetching(timed, 30)
    assert (own.rounds, alone.rounds) == ((400.0, 400.0), (100.0, 100.0))
    assert own.relative_error == pytest.approx(2 * 0.01 / 2**0.5)
    (lead,) = leads((own, alone))
    assert (lead.factor, lead.rivals) == (4.0, ())


def test_what_was_timed_but_once_neither_wins_nor_keeps_others_from_it() -> None:
    timed: Any = Timed(killed_at=2)
    found = compare_prefetching(timed, 50)
    assert [row.problem for row in found] == ["no memory."] * 3
    assert [len(row.rounds) for row in found] == [1, 1, 1]
    assert found[0].peak_samples_per_s == 601.0
    assert leads(found) == ()
    whole = [Variant("prefetching", name, None, 100.0, None, 0.01) for name in ("a", "b")]
    (lead,) = leads((*found, replace(whole[0], peak_samples_per_s=200.0), whole[1]))
    assert (lead.name, lead.factor, lead.rivals) == ("a", 2.0, ())


def test_of_what_is_not_installed_only_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "prefetch_generator", "simplejpeg")
    timed: Any = Timed()
    (thread,) = compare_prefetching(timed, 2)
    assert (thread.name, thread.problem) == ("prefetch_generator", "not installed")
    assert not timed.asked
    found = {(row.group, row.name): row for row in compare_files(timed, 2, jpeg=True)}
    assert found["decoder", "simplejpeg"].problem == "not installed"
    assert found["decoder", "opencv"].peak_samples_per_s


def test_decoders_share_the_resizing_and_forms_share_both() -> None:
    timed: Any = Timed()
    found = compare_files(timed, 2, jpeg=True)
    of_decoders = [("as_is", name, "opencv") for name in ("pillow", "opencv", "simplejpeg")]
    of_forms = [(form, "pillow", "opencv") for form in ("jpeg", "png", "npy")]
    each = [*of_decoders, ("as_is", "pillow", "pillow")]
    assert timed.sources == [*each, *each, *reversed(each), *of_forms, *reversed(of_forms)]
    assert timed.asked == [(0, False)] * 4 + [(2, False)] * 14
    rows = {(row.group, row.name): row for row in found}
    shared = rows["decoder", "pillow"], rows["resize", "opencv"]
    assert shared[0].rounds == shared[1].rounds
    assert rows["resize", "pillow"].rounds != shared[0].rounds


def test_without_opencv_there_is_one_way_to_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "cv2")
    timed: Any = Timed()
    found = compare_files(timed, 2, jpeg=False)
    assert {row.group for row in found} == {"decoder", "form"}
    assert {source[-1] for source in timed.sources} == {"pillow"}
    problems = {row.name: row.problem for row in found if row.problem}
    assert problems == {"opencv": "not installed", "simplejpeg": "reads only JPEG"}


def test_a_decoder_that_fails_fails_alone() -> None:
    timed: Any = Timed(fails="simplejpeg")
    found = compare_files(timed, 2, jpeg=True)
    (failed,) = [row for row in found if row.name == "simplejpeg"]
    assert (failed.problem, failed.peak_samples_per_s) == ("it raised.", None)
    assert timed.sources.count(("as_is", "simplejpeg", "opencv")) == 1
    assert {lead.group for lead in leads(found)} == {"decoder", "resize", "form"}


def test_the_factor_is_as_uncertain_as_the_two_rates() -> None:
    rows = (
        Variant("form", "npy", None, 300.0, relative_error=0.03),
        Variant("form", "jpeg", None, 200.0, relative_error=0.04),
        Variant("form", "png", None, 100.0, relative_error=0.5),
    )
    (lead,) = leads(rows[:2])
    assert (lead.name, lead.factor, lead.rivals) == ("npy", 1.5, ())
    assert lead.relative_error == pytest.approx(0.05)
    (lead,) = leads(rows)
    assert (lead.name, lead.factor, lead.rivals) == ("npy", 1.5, ())
    assert leads(rows[:1]) == ()


@pytest.mark.parametrize(("rate", "wins"), [(104.0, False), (106.0, True)])
def test_who_is_faster_by_next_to_nothing_has_not_won(rate: float, *, wins: bool) -> None:
    best = Variant("form", "npy", None, rate, relative_error=0.0)
    (lead,) = leads((best, Variant("form", "png", None, 100.0, relative_error=0.0)))
    assert lead.rivals == (() if wins else ("png",))


def test_scripts_and_people_are_told_of_a_winner_only_where_there_is_one() -> None:
    rows = (
        Variant("decoder", "opencv", 90.0, 200.0, relative_error=0.03),
        Variant("decoder", "pillow", 90.0, 100.0, relative_error=0.04),
        Variant("form", "npy", None, 107.0, relative_error=0.06),
        Variant("form", "png", None, 100.0, relative_error=0.08),
        Variant("form", "jpeg", None, 130.0, "killed.", rounds=(130.0,)),
    )
    report = replace(modelled(), variants=rows, leads=leads(rows))
    evidence = report_fields(report)["evidence"]
    assert [each["name"] for each in evidence["winners"]] == ["opencv"]
    assert [(each["group"], each["rivals"]) for each in evidence["undecided"]] == [
        ("form", ("png",))
    ]
    lines = recommend_text._variant_lines(report)
    assert lines[-3].startswith("  form jpeg") and lines[-3].endswith(" 130  then: killed.")
    assert lines[-2:] == [
        "  decoder: opencv, 2.00 times as fast as the next at the peak, ±5%",
        "  form: no clear winner (1.07 times, ±10%): npy; png",
    ]


@pytest.mark.parametrize("decoders_timed", [True, False])
def test_whoever_compares_is_not_told_to_compare(decoders_timed: bool) -> None:
    told = modelled()
    assert "--compare" in (told.recommendation.remedy or "")
    run: Any = SimpleNamespace(
        measurer=Timed(),
        wish=WISH,
        listing=SimpleNamespace(jpeg=True),
        stages=SimpleNamespace(decoder="pillow"),
        began=0.0,
    )
    report = replace(told, probes=(probe(2, 500.0),) if decoders_timed else ())
    made = _compared(run, report, image=True).recommendation
    assert "--compare" not in (made.remedy or "")
    assert ("pillow" in (made.remedy or "")) is decoders_timed


def test_who_compares_without_images_is_told_nothing_of_decoders() -> None:
    arrays = replace(modelled(), probes=(probe(2, 500.0),))
    arrays = replace(arrays, recommendation=replace(arrays.recommendation, remedy="smaller ones"))
    run: Any = SimpleNamespace(
        measurer=Timed(), wish=WISH, listing=None, stages=SimpleNamespace(decoder=None), began=0.0
    )
    assert _compared(run, arrays, image=False).recommendation.remedy == "smaller ones"


def test_the_columns_of_the_table_stand_below_each_other() -> None:
    report: Any = SimpleNamespace(
        variants=(
            Variant("decoder", "pillow", 465.0, 650.0),
            Variant("prefetching", "prefetch_generator, no workers", 470_828.0, 470_828.0),
            Variant("prefetching", "DataLoader, 16 workers", None, 1_000_000.0),
        ),
        leads=(),
    )
    lines = recommend_text._variant_lines(report)
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split()[-2:] == ["470,828", "470,828"]
