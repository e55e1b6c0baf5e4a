"""DataLoaders of every valid make: timed with their own samples, and these counted as they are."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
import torch

from hostprep.errors import Inconclusive, UsageError
from hostprep.loading.child import jobs
from hostprep.loading.child.building import ProbeJob, UnseenEntries, UnseenIndices, build
from hostprep.loading.child.given import current_settings, in_order
from hostprep.loading.child.opening import Opened, describe, open_source
from hostprep.loading.child.timing import time_loader
from hostprep.loading.model import Batching
from hostprep.loading.verdict.settings import code
from tests.unit.loading import odd_loaders
from tests.unit.loading.making import subject
from tests.unit.loading.odd_loaders import OUT_OF_ORDER, SAMPLE_SECONDS, SIZE

pytestmark = pytest.mark.usefixtures("torchs_threads")


def opened(name: str, batch_size: int | None = None) -> Opened:
    return open_source({"loader": f"{odd_loaders.__name__}:{name}"}, batch_size)


def job(of: Opened, workers: int, **changed: Any) -> ProbeJob:
    fields: dict[str, Any] = {
        "workers": workers,
        "prefetch_factor": 2,
        "batch_size": of.batch_size,
        "first": 0,
        "seconds": 0.3,
        "limit_seconds": 20.0,
    }
    return ProbeJob(**{**fields, **changed})


def timed(of: Opened, workers: int, **changed: Any) -> dict[str, Any]:
    found, keep = time_loader(of, job(of, workers, **changed), lambda event, **fields: None)
    del keep
    return found


@pytest.mark.timed
@pytest.mark.parametrize(
    ("name", "batching", "batch_size", "each"),
    [
        ("shards", Batching.DATASET, 16, 1),
        ("batched", Batching.DATASET, 16, 1),
        ("by_lists", Batching.SAMPLER, 16, 16),
        ("bucketed", Batching.BATCH_SAMPLER, 6, 6),
        ("of_16", Batching.BATCH_SAMPLER, 16, 16),
        ("half", Batching.SIZE, 8, 8),
        ("by_name", Batching.SIZE, 8, 8),
        ("gaps", Batching.SIZE, 8, 8),
        ("distributed", Batching.SIZE, 8, 8),
    ],
)
def test_samples_are_counted_as_they_are(
    name: str, batching: Batching, batch_size: int, each: int
) -> None:
    """``each`` is how many samples of a batch take time."""
    of = opened(name)
    assert describe(of, thoroughly=True).batching is batching
    found = timed(of, 0)
    probe, cost = found["probe"], found["cost"]
    assert cost["batch_size"] == pytest.approx(batch_size, abs=1)
    # No faster than they are made; on a busy machine slower.
    possible = batch_size / each / SAMPLE_SECONDS
    assert 0.1 * possible < probe["samples_per_s"] < 1.1 * possible
    with_workers = timed(of, 2, first=found["next"])["probe"]
    assert 0.1 * possible < with_workers["samples_per_s"] < 2.2 * possible
    assert with_workers["samples"] / with_workers["seconds"] == pytest.approx(
        with_workers["samples_per_s"], rel=0.5
    )


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [
        ("shards", 16),
        ("batched", 16),
        ("by_lists", 16),
        ("all_at_once", 16),
        ("bucketed", 4),
        ("half", 8),
        ("gaps", 8),
    ],
)
def test_what_is_handed_out_ready_is_a_sample_that_there_is(name: str, batch_size: int) -> None:
    of = opened(name)
    built = build(of, job(of, 0, ready=True))
    batch = next(iter(built.loader))
    images = batch[0] if isinstance(batch, tuple | list) else batch
    assert images.shape == (batch_size, 3)
    assert built.samples(0, 1, [len(images)]) == batch_size


@pytest.mark.parametrize("name", ["of_16", "bucketed", "by_lists"])
def test_no_other_batch_size_where_a_sampler_makes_the_batches(name: str) -> None:
    with pytest.raises(UsageError, match="--batch-size cannot change"):
        opened(name, 64)


def test_the_samples_in_a_batch_of_the_data_set_may_be_said() -> None:
    of = opened("shards", 5)
    assert of.batch_size == 5
    assert timed(of, 0)["cost"]["batch_size"] == 5


@pytest.mark.parametrize(
    ("name", "length", "batches"),
    [
        ("shards", None, None),
        ("batched", 250, 250),
        ("by_lists", SIZE, SIZE // 16),
        ("bucketed", SIZE, 2 * (SIZE // 12)),
        ("half", SIZE // 2, SIZE // 16),
        ("by_name", SIZE, SIZE // 8),
        ("distributed", SIZE, SIZE // 8),  # of all its ranks
    ],
)
def test_an_epoch_is_what_the_sampler_draws(
    name: str, length: int | None, batches: int | None
) -> None:
    of = opened(name)
    assert (of.length, of.batches) == (length, batches)


def test_a_data_set_of_unknown_length_needs_a_sampler() -> None:
    with pytest.raises(UsageError, match="has no length"):
        describe(opened("unsized"), thoroughly=False)


def test_too_few_batches_are_said_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odd_loaders.Buckets, "__len__", lambda self: 3)
    with pytest.raises(Inconclusive, match="has 3 batches: too few"):
        jobs._long_enough(opened("bucketed"))


def test_where_items_may_be_batches_too_few_of_these_are_told_how_to_be_named() -> None:
    with pytest.raises(Inconclusive, match="1 batch of 4000: too few") as caught:
        jobs._long_enough(opened("Plain", SIZE))
    assert "batch_size=None" in (caught.value.hint or "")
    with pytest.raises(Inconclusive) as caught:
        jobs._long_enough(opened("half", SIZE))
    assert "batch_size=None" not in (caught.value.hint or "")


def test_their_own_order_goes_on_where_the_last_probe_ended_in_any_process() -> None:
    of = opened("by_name")
    keys = []
    for first in (0, 40):
        order = build(of, job(of, 0, first=first)).order
        assert order is not None
        keys.append(list(itertools.islice(order, 40)))
    assert not set(keys[0]) & set(keys[1])


def test_entries_of_their_own_sampler_come_again_when_all_have_come() -> None:
    order = UnseenEntries([[0, 1], [2], [3, 4, 5]], 1, lists=True)
    entries = iter(order)
    assert list(itertools.islice(entries, 2)) == [[2], [3, 4, 5]]
    assert not order.seen_before
    assert list(itertools.islice(entries, 2)) == [[0, 1], [2]]
    assert order.seen_before
    assert (order.taken, order.sizes) == (4, [1, 3, 2, 1])
    assert next(iter(UnseenEntries([], 0, lists=False)), None) is None


@pytest.mark.parametrize("batching", Batching)
def test_the_code_to_paste_leaves_the_batches_to_who_makes_them(batching: Batching) -> None:
    from torch.utils.data import BatchSampler, DataLoader

    text = code(16, 2, 2, pin=False, persistent=False, subject=subject(batching=batching))
    names: dict[str, Any] = {
        "DataLoader": DataLoader,
        "dataset": list(range(64)),
        "sampler": BatchSampler(range(64), 16, False),
        "batch_sampler": BatchSampler(range(64), 16, False),
    }
    loader = eval(text, names)
    assert loader.num_workers == 2
    assert loader.batch_size == (16 if batching is Batching.SIZE else None)
    assert (loader.batch_sampler is names["batch_sampler"]) is (batching is Batching.BATCH_SAMPLER)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "kept", "with_workers"),
    [
        (
            "all_given",
            "shuffle=True drop_last=True collate_fn=collate_fn"
            " worker_init_fn=worker_init_fn generator=generator",
            f"timeout=30 multiprocessing_context='spawn'{' in_order=False' * bool(OUT_OF_ORDER)}",
        ),
        ("half", "sampler=sampler", ""),
        ("some_of_them", "sampler=sampler", ""),
        ("grouped", "sampler=sampler drop_last=True", ""),
        ("gaps", "collate_fn=collate_fn", ""),
        ("bucketed", "", ""),
        ("by_lists", "", ""),
        ("batched", "shuffle=True", ""),
        ("shards", "", ""),
    ],
)
def test_the_code_to_paste_keeps_what_a_loader_was_given(
    name: str, kept: str, with_workers: str, workers: int
) -> None:
    of = opened(name)
    found = describe(of, thoroughly=False)
    assert (" ".join(found.kept), " ".join(found.kept_with_workers)) == (kept, with_workers)
    text = code(8, workers, 2 if workers else None, pin=False, persistent=False, subject=found)
    names = {
        each: getattr(of.loader, each)
        for each in ("dataset", "batch_sampler", "collate_fn", "worker_init_fn", "generator")
    }
    sampler = getattr(of.loader.batch_sampler, "sampler", of.loader.sampler)
    pasted = eval(text, {**names, "sampler": sampler, "DataLoader": torch.utils.data.DataLoader})
    for each in ("collate_fn", "worker_init_fn", "generator"):
        assert getattr(pasted, each) is names[each]
    assert len(pasted) == len(of.loader) if name != "shards" else True
    if workers:
        assert (pasted.timeout, in_order(pasted)) == (of.loader.timeout, in_order(of.loader))


@pytest.mark.skipif(not OUT_OF_ORDER, reason="torch before 2.6 waits for slow batches")
@pytest.mark.parametrize("ready", [False, True])
def test_who_does_not_wait_for_slow_batches_is_timed_so(ready: bool) -> None:
    of = opened("all_given")
    assert not of.loader.in_order
    assert not build(of, job(of, 2, ready=ready)).loader.in_order
    assert build(opened("half"), job(opened("half"), 2)).loader.in_order


def test_numbers_of_numpy_are_numbers() -> None:
    found = describe(opened("by_numpys_numbers"), thoroughly=False)
    assert json.loads(json.dumps(dataclasses.asdict(found)))["current_workers"] == 2


def test_the_order_is_drawn_whatever_the_default_device_is() -> None:
    with torch.device("meta"):  # as after torch.set_default_device("cuda")
        order = list(itertools.islice(UnseenIndices(8, 0, shuffled=True), 8))
    assert sorted(order) == list(range(8))


@pytest.mark.parametrize(("name", "own_iteration"), [("endless", True), ("renamed", False)])
def test_of_a_class_of_somebodys_own_only_what_changes_is_pasted(
    name: str, own_iteration: bool
) -> None:
    found = describe(opened(name), thoroughly=False)
    assert (found.own_class, found.own_iteration) == (name.capitalize(), own_iteration)
    text = code(8, 4, 2, pin=False, persistent=True, subject=found)
    assert text == (
        f"{name.capitalize()}(..., num_workers=4, prefetch_factor=2, pin_memory=False,"
        " persistent_workers=True)"
    )


def test_samplers_of_torchdata_are_as_plain_as_torchs() -> None:
    of = opened("as_torchdata_has_them", 16)
    assert (of.batching, of.batch_size) == (Batching.SIZE, 16)
    assert describe(of, thoroughly=False).kept == ("shuffle=True", "drop_last=True")


def test_an_iterable_may_have_a_length_that_raises() -> None:
    of = opened("unstarted")
    assert (of.kind, of.length) == ("iterable", None)


@pytest.mark.parametrize("name", ["splits", "by_stage", "loaders"])
def test_things_by_name_are_several_whatever_they_are(name: str) -> None:
    with pytest.raises(UsageError, match="holds several things"):
        opened(name)


def test_samples_by_number_are_a_data_set() -> None:
    assert opened("numbered").kind == "dataset"


def test_an_iterable_that_can_be_called_is_not_called() -> None:
    assert opened("callable_pipeline").kind == "iterable"


def test_a_module_that_another_one_hides_is_told_by_its_place() -> None:
    with pytest.raises(UsageError, match=r"module queue \(/.*/queue\.py\) has no loader") as caught:
        open_source({"loader": "queue:loader"}, None)
    assert "__main__" in (caught.value.hint or "")


def test_what_an_error_says_is_passed_on_without_its_middle() -> None:
    told = jobs._clipped("begin" + 10_000_000 * "x" + "end")
    assert told.startswith("begin") and told.endswith("end") and len(told) < 200_000
    assert jobs._clipped("short") == "short"


def test_a_loader_that_is_a_data_set_to_torch_is_not_batched_once_more() -> None:
    found = opened("web")
    assert found.batching is Batching.DATASET
    assert found.description.endswith("WebLoader): the DataLoader in it")
    of = describe(found, thoroughly=False)
    assert (of.current_workers, of.own_class, of.own_iteration) == (2, "WebLoader", False)
    assert code(32, 4, 2, pin=False, persistent=True, subject=of).startswith(
        "WebLoader(..., num_workers=4, "
    )


def test_what_comes_after_the_loader_in_a_chain_is_said_to_be_no_part_of_the_rates() -> None:
    of = describe(opened("chained"), thoroughly=False)
    assert (of.own_class, of.own_iteration) == ("WebLoader", True)


def test_what_keras_takes_for_batches_is_no_sample() -> None:
    of = opened("of_keras")
    assert (of.kind, of.batching, of.batches) == ("dataset", Batching.DATASET, 64)
    assert timed(of, 0)["cost"]["batch_size"] == 16
    assert timed(of, 2)["probe"]["samples"] % 16 == 0


def test_samples_count_as_they_are_drawn_whatever_is_made_of_them() -> None:
    few = timed(opened("cropped"), 0, seconds=0.01)
    assert (few["cost"]["batch_size"], few["cost"]["rows"]) == (8, 5.0)
    assert few["probe"]["samples"] % 8 == 0
    assert timed(opened("half"), 0, seconds=0.01)["cost"]["rows"] == 1.0


@pytest.mark.parametrize("name", ["of_web", "of_hub", "of_pipes"])
def test_a_stream_that_makes_batches_itself_is_not_batched_once_more(name: str) -> None:
    plain, batched, undone = (opened(f"{name}{end}") for end in ("", "_batched", "_unbatched"))
    assert (plain.batching, undone.batching) == (Batching.SIZE, Batching.SIZE)
    assert (batched.kind, batched.batching) == ("stream", Batching.DATASET)
    assert (batched.batch_size, opened(f"{name}_batched", 8).batch_size) == (None, 8)
    assert "batch_size=None" in code(
        16, 2, 2, pin=False, persistent=True, subject=describe(batched, thoroughly=False)
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("an_image", "returned torch.Tensor: that is an array of 32 x 3 x 8 x 8"),
        ("a_pair", r"returned tuple: that holds arrays \(of 32 x 3 x 8 x 8, of 32\)"),
        ("two_alike", r"returned tuple: that holds arrays \(of 12 x 256, of 12 x 256\)"),
        ("a_batch", "returned dict: that holds arrays"),
        ("a_name", "returned str: that is text"),
        ("a_file", r"returned _io\.BytesIO: that is an open file"),
        ("order", r"RandomSampler\): that is a sampler"),
        ("groups", r"BatchSampler\): that is a sampler"),
        ("one_pass", "that is one pass through a DataLoader"),
        ("nothing", "returned NoneType: that is not a loader"),
        ("a_function", "returned function: that is not a loader"),
        ("SIZE", r"SIZE \(builtins.int\): that is not a loader"),
    ],
)
def test_what_is_no_loader_is_said_with_what_is_wanted(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        opened(name)
    assert "DataLoader" in (caught.value.hint or "")


def test_a_name_that_is_none_yet_has_no_return() -> None:
    for name, words in (("nothing", "`return`"), ("set_later", "sets later")):
        with pytest.raises(UsageError, match="is not a loader") as caught:
            opened(name)
        assert words in (caught.value.hint or "")


def test_a_module_that_has_a_loader_is_told_how_to_name_it() -> None:
    with pytest.raises(UsageError, match="is not a loader") as caught:
        opened("DataModule")
    assert "train_dataloader()" in (caught.value.hint or "")


def test_what_a_loader_is_set_to_is_told() -> None:
    data = list(range(64))
    with_workers = torch.utils.data.DataLoader(
        data,  # type: ignore[arg-type]
        num_workers=3,
        prefetch_factor=5,
        persistent_workers=True,
        pin_memory=True,
    )
    assert current_settings(with_workers) == {
        "current_workers": 3,
        "current_prefetch": 5,
        "current_persistent": True,
        "current_pin": True,
    }
    alone = current_settings(torch.utils.data.DataLoader(data))  # type: ignore[arg-type]
    assert (alone["current_workers"], alone["current_prefetch"]) == (0, None)
    assert (alone["current_persistent"], alone["current_pin"]) == (None, False)
