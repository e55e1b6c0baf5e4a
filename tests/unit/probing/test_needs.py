"""Requirements as people write them, and the known ones."""

from __future__ import annotations

import pytest

from hostprep.errors import UsageError
from hostprep.probing.needs import PROFILES, parse_need, profile_need


@pytest.mark.parametrize(
    ("text", "samples", "size"),
    [
        ("1800", 1800, None),
        ("1800/s", 1800, None),
        ("0.5", 0.5, None),
        ("400M", None, 400 * 1024**2),
        ("400MB", None, 400_000_000),
        ("400MB/s", None, 400_000_000),
        ("2GiB/s", None, 2 * 1024**3),
    ],
)
def test_rates(text: str, samples: float | None, size: float | None) -> None:
    need = parse_need(text)
    assert (need.samples_per_s, need.bytes_per_s) == (samples, size)


@pytest.mark.parametrize(
    "text",
    ["", "fast", "-3", "0", "50%", "1.5M", "1800 images", "9" * 400, f"0.{'0' * 310}1"],
)
def test_what_is_no_rate_is_answered_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_need(text)
    assert "400M" in str(error.value.hint)


def test_the_profiles_are_those_of_the_facts() -> None:
    rates = {name: profile.bytes_per_s for name, profile in PROFILES.items()}
    assert rates["unet3d-h100"] == pytest.approx(3.18e9, rel=0.01)
    assert rates["cosmoflow-h100"] == pytest.approx(808e6, rel=0.01)
    assert rates["resnet50-h100"] == pytest.approx(205e6, rel=0.01)
    assert rates["retinanet-b200"] == pytest.approx(163e6, rel=0.01)
    assert PROFILES["resnet50-h100"].samples_per_s == pytest.approx(1786, abs=1)
    assert PROFILES["retinanet-b200"].samples_per_s == pytest.approx(505, abs=1)
    assert all(profile.source for profile in PROFILES.values())


def test_an_unknown_profile_lists_the_known() -> None:
    with pytest.raises(UsageError) as error:
        profile_need("resnet")
    assert "resnet50-h100" in str(error.value.hint)
