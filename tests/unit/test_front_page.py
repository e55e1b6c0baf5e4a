"""What the README says of speed is what the kept results say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

from benchmarks.report import front_table, write_front

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results.json").read_text())
RECOMMENDED = (ROOT / "benchmarks" / "recommend" / "README.md").read_text()


def percents(row: str) -> list[float]:
    """Return the regrets of a rule on all machines, one for each workload that has such a point."""
    found = re.findall(rf"^\| {re.escape(row)}[^|]* \|(.*)\|$", RECOMMENDED, re.M)
    cells = [cell.strip() for rest in found for cell in rest.split("|")]
    assert any(cells), row
    return [float(cell.rstrip("%")) for cell in cells if cell]


def test_the_table_is_that_of_the_results() -> None:
    assert front_table(RESULTS) in (ROOT / "README.md").read_text()


def test_a_run_writes_between_the_marks_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    before = (ROOT / "README.md").read_text()
    page.write_text(before.replace(front_table(RESULTS), "an older table\n"))
    write_front(page, RESULTS)
    assert page.read_text() == before


def test_one_machine_has_one_column() -> None:
    machine = RESULTS[0]["machine"]
    head, _, *rows = front_table([each for each in RESULTS if each["machine"] == machine]).split(
        "\n"
    )
    assert head.count("|") == 3 and all(row.count(": **") == 1 for row in rows if row)


def test_what_is_said_of_recommend_is_in_its_table() -> None:
    told = (ROOT / "README.md").read_text()
    most = re.search(r"it loses ([\d.]+) % of the best rate at most", told)
    assert most is not None and float(most[1]) == max(percents("**hostprep recommend**"))
    rules = ("PyTorch's warning", "Lightning", "Ultralytics", "fastai", "nnU-Net")
    assert "over 90 % on one of them" in told
    assert all(max(percents(rule)) > 90 for rule in rules)


def test_what_is_said_of_prefetchers_is_in_their_table() -> None:
    (found,) = json.loads((ROOT / "benchmarks" / "prefetchers" / "results.json").read_text())
    rates = {name: median(rates) for name, rates in found["rate"]["rates"].items()}
    ideal = min(rates.pop("compute alone"), rates.pop("copy alone"))
    ours = rates["CudaPrefetcher, depth 1"]
    assert ours > 0.99 * max(rates.values()) and round(100 * ours / ideal) == 84
    in_the_loop = sorted(round(100 * rate / ideal) for rate in rates.values())[:3]
    assert in_the_loop == [17, 50, 50]
    wrong = found["values"]["slow consumer"]
    assert wrong["data_prefetcher"]["wrong"] // 10**6 == 13
    assert wrong["data_prefetcher"]["values"] // 10**6 == 15
    for told in found["values"].values():
        assert (
            told["CudaPrefetcher, depth 1"]["wrong"]
            == told["CudaPrefetcher, depth 2"]["wrong"]
            == 0
        )
    text = " ".join((ROOT / "README.md").read_text().split())
    assert (
        "within 1 % of the fastest (84 % of the ideal, where copies by `to` in the loop reach 17"
        in text
    )
    assert "17 to 50 %) and brings every value" in text and "13 of 15 million values wrong" in text


def test_as_many_cards_are_named_as_there_are_transcripts_of() -> None:
    files = (ROOT / "docs" / "verify-transcripts").glob("*.json")
    cards = {card for file in files for card in re.findall(r"GPU-[0-9a-f-]{36}", file.read_text())}
    number = ("no", "one", "two", "three", "four", "five", "six")[len(cards)]
    assert f"so far of {number} H100 cards" in (ROOT / "README.md").read_text()
    assert f"an H100\n({number} cards)" in (ROOT / "docs" / "prefetching.md").read_text()


def test_what_is_said_of_a_training_is_in_its_table() -> None:
    (found,) = json.loads((ROOT / "benchmarks" / "training" / "results.json").read_text())
    busy, rate = (
        {name: round(median(run[field] for run in runs)) for name, runs in found["runs"].items()}
        for field in ("utilisation", "rate")
    )
    defaults, four, one_a_core, _, ours = list(busy)[1:]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"torch's defaults kept it busy for {busy[defaults]} % of the time" in text
    assert f"four workers for {busy[four]} %, one worker a core for {busy[one_a_core]} %" in text
    assert f"gave together was {busy[ours]} %, at {rate[ours]:,} samples/s" in text
    assert f"had said {found['advice']['expected_samples_per_s']:,.0f} before" in text
    assert found["advice"]["binding"] == "cpu"
