"""Which rows of a pass were cropped: counted where a recording can tell, and else not said."""

import copy

import pytest
import small
import torch
import unusual_loops
from transformers import DynamicCache, StaticCache

from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.paged import PagedKVCache
from kvviz.recording.cropped import CacheNumbers
from kvviz.recording.recorder import record
from kvviz.recording.run import Run


@pytest.fixture(scope="module")
def llama():
    return small.llama()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def feed(model, *parts):
    """A recording of a cache that is fed `n` tokens, or cropped by -n, for each of `parts`."""
    cache = DynamicCache(config=model.config)
    with record(model, keep=()) as run:
        for seed, n in enumerate(parts):
            if n < 0:
                cache.crop(n)
            else:
                model(small.prompt(n, seed=seed), cache=cache)
    return run


# -- what was cropped --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((6, 5, -3, 1), [0, 3, None]),
        ((6, 5, -5, 1), [0, 5, None]),
        ((6, 1, 5, 1), [0, 0, 0, None]),
        ((6, 5, -3), [0, None]),  # nothing went on from it, so nobody can tell
        ((6, -2, 1, 1), [2, 0, None]),
        ((6, 3, -2, 4, -1, 1), [0, 2, 1, None]),
        ((6, 3, -1, -1, 1), [0, 2, None]),
    ],
)
def test_rows_that_no_later_pass_holds_are_cropped(llama, parts, expected):
    run = feed(llama, *parts)
    assert run.cropped == [step.cropped for step in run] == expected


def test_rows_that_another_pass_read_before_were_not_cropped_from_their_own_pass(llama):
    """Five, two, one and three; cropped by five, only the last three were never read."""
    run = feed(llama, 5, 2, 1, 3, -5, 1)
    assert run.cropped == [0, 0, 0, 3, None]


def test_the_same_cache_can_go_on_from_one_pass_twice(llama):
    """Each branch is rolled back, and the prompt stays; the second one is longer."""
    assert feed(llama, 6, 2, -2, 4, -4, 1).cropped == [0, 2, 4, None]
    assert feed(llama, 6, 4, -3, 2, -2, 1).cropped == [0, 3, 2, None]


def test_the_library_and_loops_of_ones_own_crop_what_they_guessed_wrong(llama):
    ids = small.prompt(6)

    def count(loop, *args, **options):
        with record(llama, keep=()) as run:
            loop(*args, **options)
        for step, later in zip(run, run[1:], strict=False):
            assert step.cropped == step.visible - later.held_before
        assert run[-1].cropped is None
        return run.cropped[:-1]

    ids = torch.cat([ids, ids, ids[:, :3]], dim=1)
    options = dict(max_new_tokens=12, do_sample=False)
    assert sum(count(llama.generate, ids, prompt_lookup_num_tokens=4, **options)) > 0
    assert sum(count(unusual_loops.guesses_at_random, llama, ids, 8)) > 0
    assert sum(count(llama.generate, ids, **options)) == 0
    assert sum(count(unusual_loops.wrong_guesses_stay, llama, ids, 8)) == 0
    assert count(unusual_loops.second_best_tried, llama, ids, 5) == [0, 1, 0, 1, 0, 1, 0, 1]


def test_the_same_tokens_fed_again_after_a_crop_are_cropped_and_recomputed(llama):
    ids, cache = small.prompt(9), DynamicCache(config=llama.config)
    with record(llama, keep=()) as run:
        llama(ids[:, :5], cache=cache)
        llama(ids[:, 5:8], cache=cache)
        cache.crop(-2)
        llama(ids[:, 6:], cache=cache)
    assert run.cropped == [0, 2, None]
    assert run[2].square(0, 0).row_states == ("recomputed", "recomputed", "new")
    assert run[2].tokens() == ids[0].tolist()


def test_a_static_cache_and_a_batch(llama):
    ids, cache = small.prompt(7, n_batch=3), StaticCache(llama.config, max_cache_len=16)
    with record(llama, keep=()) as run:
        llama(ids[:, :4], cache=cache)
        llama(ids[:, 4:], cache=cache)
        cache.crop(-2)
        llama(ids[:, 5:6], cache=cache)
        llama(ids[:, 6:], cache=cache)
    assert run.cropped == [0, 2, 0, None]


def test_a_window_that_records_its_past_is_cropped():
    model = small.mistral()
    cache = DynamicCache(config=model.config)
    with record(model, keep=()) as run:
        model(small.prompt(9), cache=cache)
        for layer in cache.layers:
            layer.activate_past_recording()
        model(small.prompt(4, seed=1), cache=cache)
        cache.crop(-3)
        model(small.prompt(1, seed=2), cache=cache)
    assert run.cropped == [0, 3, None]


@pytest.mark.parametrize("build", [KVCache, PagedKVCache])
def test_the_forges_caches(build):
    forge, cache = Forge.small(), build(4)
    with record(forge, keep=()) as run:
        forge(small.prompt(6) % 50, cache)
        forge(small.prompt(4, seed=1) % 50, cache)
        crop(cache, 7)
        forge(small.prompt(1, seed=2) % 50, cache)
    assert run.cropped == [0, 3, None]


def crop(cache, n):
    """Leave the first `n` tokens in the same cache object."""
    entries = [cache.get(layer) for layer in range(len(cache))]
    cache.reset()
    for layer, entry in enumerate(entries):
        cache.update(layer, KVEntry(entry.keys[:, :, :n], entry.values[:, :, :n]))


# -- what wasn't -------------------------------------------------------------------------------


def test_a_copied_cache_was_not_cropped(llama):
    """Two questions on copies of one prompt's cache: the second never read the first."""
    with record(llama, keep=()) as run:
        prompt = llama(small.prompt(6)).cache
        for seed in (1, 2):
            cache = copy.deepcopy(prompt)
            llama(small.prompt(4, seed=seed), cache=cache)
    assert run[2].lineage.parents == [(1, 0)]  # equal keys, and later than the prompt
    assert run.cropped == [0, None, None]


def test_of_a_copy_that_is_cropped_nobody_can_tell(llama):
    """What the copy lacks may still be read from the cache that it was made from."""
    with record(llama, keep=()) as run:
        prompt = llama(small.prompt(6)).cache
        cache = copy.deepcopy(prompt)
        cache.crop(-2)
        llama(small.prompt(1, seed=1), cache=cache)
    assert run.cropped == [None, None]
    with record(llama, keep=()) as run:
        prompt = llama(small.prompt(6)).cache
        cache = copy.deepcopy(prompt)
        cache.crop(-2)
        llama(small.prompt(1, seed=1), cache=cache)
        llama(small.prompt(1, seed=2), cache=prompt)
    assert run.cropped == [0, None, None]


def test_a_copy_keeps_what_its_cache_lost(llama):
    with record(llama, keep=()) as run:
        cache = llama(small.prompt(6)).cache
        kept = copy.deepcopy(cache)
        cache.crop(-2)
        llama(small.prompt(1, seed=1), cache=cache)
        assert run.cropped == [2, None]
        llama(small.prompt(1, seed=2), cache=kept)
    assert run.cropped == [0, None, None]


def test_what_any_later_pass_holds_was_kept(llama):
    with record(llama, keep=()) as run:
        cache = llama(small.prompt(6)).cache
        longer = copy.deepcopy(cache)
        longer.crop(-1)
        cache.crop(-3)
        llama(small.prompt(1, seed=1), cache=longer)
        assert run.cropped == [None, None]
        llama(small.prompt(1, seed=2), cache=cache)
    assert run.cropped == [1, None, None]


def test_a_fork_leaves_its_cache_as_it_was():
    forge, cache = Forge.small(), PagedKVCache(4)
    with record(forge, keep=()) as run:
        forge(small.prompt(6) % 50, cache)
        forge(small.prompt(2, seed=1) % 50, cache.fork(4))
        assert run.cropped == [None, None]
        forge(small.prompt(1, seed=2) % 50, cache)
    assert run.cropped == [0, None, None]


def test_two_caches_side_by_side_go_on_from_themselves(llama):
    with record(llama, keep=()) as run:
        unusual_loops.two_caches(llama, small.prompt(6), 4)
    assert run.cropped == [0] * 6 + [None] * 2


def test_a_cache_that_begins_again_was_not_cropped(llama):
    """Emptied and refilled with another text, or with the same."""
    cache, ids = StaticCache(llama.config, max_cache_len=16), small.prompt(6)
    with record(llama, keep=()) as run:
        for prompt in (ids, small.prompt(3, seed=5), ids):
            llama(prompt, cache=cache)
            llama(small.prompt(1, seed=1), cache=cache)
            cache.reset()
    assert run.cropped == [0, None] * 3


def test_a_window_drops_columns_and_crops_none():
    for build in (small.mistral, small.gemma3):
        model = build()
        with record(model, keep=()) as run:
            small.cached_loop(model, small.prompt(7), 5)
        assert run.cropped == [0, 0, 0, 0, None]


class Evicting(KVCache):
    """It holds four tokens at most; `keep` says which."""

    def __init__(self, n_layers, keep):
        super().__init__(n_layers)
        self.keep, self.next_position = keep, 0

    def update(self, layer, entry):
        if layer == 0:
            self.next_position += entry.keys.shape[2] - self.held
        kept = self.keep([*range(entry.keys.shape[2])])
        super().update(layer, KVEntry(entry.keys[:, :, kept], entry.values[:, :, kept]))


@pytest.mark.parametrize(
    "keep", [lambda all_: all_[:1] + all_[1:][-3:], lambda all_: all_[-4:], lambda all_: all_[:4]]
)
def test_a_cache_that_drops_tokens_itself_says_nothing(keep):
    forge, cache = Forge.small(), Evicting(4, keep)
    with record(forge, keep=()) as run:
        for seed, n in enumerate((4, 1, 1, 1)):
            forge(small.prompt(n, seed=seed) % 50, cache)
    assert [step.held_after for step in run] == [4] * 4
    assert run.cropped == [0, None, None, None]


def test_tokens_taken_out_of_the_middle_were_not_cropped(llama):
    with record(llama, keep=()) as run:
        cache = llama(small.prompt(6)).cache
        for layer in cache.layers:
            layer.keys, layer.values = (
                x[:, :, [0, 2, 3, 4, 5]] for x in (layer.keys, layer.values)
            )
        llama(small.prompt(1, seed=1), cache=cache)
    assert run[1].held_before == 5 and run[1].lineage.parents == [(0, 0)]
    assert run.cropped == [None, None]


def test_beams_that_are_given_up_were_not_cropped(llama):
    with record(llama, keep=()) as run:
        llama.generate(small.prompt(6), max_new_tokens=7, num_beams=3, do_sample=False)
    assert len({row for _, row in run[4].lineage.parents}) < 3  # some were given up
    assert run.cropped == [0] * 6 + [None]


def test_the_uncached_loop_crops_nothing(llama):
    with record(llama, keep=()) as run:
        small.plain_loop(llama, small.prompt(5), 3)
    assert run.cropped == [None] * 3
    with record(llama, keep=()) as run:
        for n in (5, 6, 4):
            llama(small.prompt(n), use_cache=True)  # each leaves a cache that nothing reads
    assert run.cropped == [None] * 3


def test_a_second_turn_crops_what_the_first_left_too_much(llama):
    """The last pass of the answer is one that no pass read."""
    cache, text = DynamicCache(config=llama.config), small.prompt(12)
    with record(llama, keep=()) as run:
        for new in (text[:, :6], text[:, 6:7], text[:, 7:8], small.prompt(1, seed=3)):
            llama(new, cache=cache)
        cache.crop(8 - cache.get_seq_length())
        llama(text[:, 8:], cache=cache)
    assert run.cropped == [0, 0, 0, 1, None]


# -- shown and kept ----------------------------------------------------------------------------


def test_a_loaded_run_knows_it_and_one_of_before_says_nothing_of_crops(llama, tmp_path):
    run = feed(llama, 6, 5, -3, 1, 1)
    loaded = Run.load(run.save(tmp_path / "run.npz"))
    assert loaded.cropped == run.cropped == [0, 3, 0, None]
    for step in run:
        object.__setattr__(step.lineage, "cache", None)
    assert run.cropped == [0, None, 0, None]


def test_the_table_has_a_column_only_where_something_was_cropped(llama):
    run = feed(llama, 6, 5, -3, 1)
    assert run._repr_html_().count("<th ") == 8 and '<th scope="col">cropped' in run._repr_html_()
    lines = [line.split() for line in repr(run).splitlines()]
    assert lines[0][:3] == ["step", "fed", "cropped"] and lines[2][:4] == ["1", "5", "3", "11"]
    assert "cropped" not in repr(feed(llama, 6, 1)) + feed(llama, 6, 1)._repr_html_()
    assert "step  fed  visible" in repr(Run())


def test_a_number_is_of_one_object_and_the_object_is_not_kept():
    class Slots:
        __slots__ = ()

    class Cache:
        def __eq__(self, other):
            return True

    numbers, one, other = CacheNumbers(), Cache(), Cache()
    assert numbers.number(one) == numbers.number(one) != numbers.number(other)
    assert numbers.number(Slots()) is None is numbers.number(None)
    seen = {numbers.number(Cache()) for _ in range(9)}  # most of them at the same address
    assert len(seen) == 9
