"""What is said of an iterable that is no DataLoader, as tf.data's and DALI's are."""

from __future__ import annotations

import pytest

from hostprep.loading.model import Binding
from hostprep.loading.verdict.pipelines import of_pipeline
from tests.unit.loading.making import pipeline


@pytest.mark.parametrize(
    ("maker", "whose", "setting"),
    [
        ("tf.data", "tf.data is not a DataLoader", "num_parallel_calls"),
        ("DALI", "DALI is not a DataLoader", "num_threads"),
        (None, "it is not a DataLoader", "threads, parallel reads"),
    ],
)
def test_it_has_no_num_workers_and_what_it_has_is_named(
    maker: str | None, whose: str, setting: str
) -> None:
    made = of_pipeline(pipeline(maker=maker), None, 8.0)
    assert made.num_workers is None and made.confirmed
    assert made.binding is Binding.PIPELINE
    assert any(f"{whose}, so has no num_workers" in reason for reason in made.reasons)
    assert any("counts as 16 samples" in reason for reason in made.reasons)
    assert setting in (made.remedy or "")
    assert "--gpu-rate" in made.verdict


@pytest.mark.parametrize(("own", "others"), [(7.5, 0.0), (3.0, 4.9)])
def test_where_no_processor_is_idle_more_threads_are_not_advised(own: float, others: float) -> None:
    made = of_pipeline(pipeline(maker="DALI", own_cpus=own, others_cpus=others), None, 8.0)
    assert made.binding is Binding.CPU
    assert "num_threads" not in (made.remedy or "")
    (words,) = [reason for reason in made.reasons if "processors busy" in reason]
    assert words.startswith(f"it kept {own} of 8 processors busy")
    assert ("other programs" in words) is (others > 0)


@pytest.mark.parametrize("own", [0.003, 0.3])
def test_one_that_waits_is_not_short_of_processors_however_busy_others_are(own: float) -> None:
    made = of_pipeline(pipeline(own_cpus=own, others_cpus=1.95), None, 2.0)
    assert made.binding is Binding.PIPELINE
    beside = of_pipeline(pipeline(own_cpus=0.5, others_cpus=1.5), None, 2.0)
    assert beside.binding is Binding.CPU


def test_what_feeds_the_gpu_needs_nothing() -> None:
    made = of_pipeline(pipeline(own_cpus=7.9), 1500.0, 8.0)
    assert (made.binding, made.remedy, made.change_needed) == (Binding.GPU, None, False)
    short = of_pipeline(pipeline(), 1700.0, 8.0)
    assert (short.binding, short.change_needed) == (Binding.PIPELINE, None)
    assert "the GPU takes 1,700" in short.verdict


def test_of_one_that_goes_over_a_dataloader_it_is_told_how_to_learn_more() -> None:
    made = of_pipeline(pipeline(goes_over="loader"), None, 8.0)
    assert any(reason.startswith("its .loader is a DataLoader") for reason in made.reasons)
    assert not any(
        "is a DataLoader" in reason for reason in of_pipeline(pipeline(), None, 8.0).reasons
    )
