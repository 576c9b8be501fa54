"""A cache in pages holds what a plain one holds, in as many pages as counted, and shares them."""

import pytest
import small
import torch

import kvviz as kv
from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.paged import PagedKVCache, PagePool

N_LAYERS = 4


def paged(page_size=4, n_pages=64, **named):
    return PagedKVCache(N_LAYERS, page_size, n_pages, **named)


def of_size(page_size):
    """A class that `check_cache` can make."""

    class Sized(PagedKVCache):
        def __init__(self, n_layers):
            super().__init__(n_layers, page_size, n_pages=96)

    return Sized


def same(cache, other):
    pairs = [(cache.get(layer), other.get(layer)) for layer in range(len(cache))]
    return all(torch.equal(x, y) for ours, right in pairs for x, y in zip(ours, right, strict=True))


def solo(forge, ids):
    """What a plain cache holds after this text, fed token by token."""
    cache = KVCache(N_LAYERS)
    for token in ids.split(1, dim=1):
        forge(token, cache)
    return cache


def close(cache, other):
    pairs = [(cache.get(layer), other.get(layer)) for layer in range(len(cache))]
    return all(
        torch.allclose(x, y, atol=1e-5)
        for ours, right in pairs
        for x, y in zip(ours, right, strict=True)
    )


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_check_cache_finds_nothing_wrong(page_size):
    verdict = kv.check_cache(of_size(page_size))
    assert verdict.passed, verdict.headline


@pytest.mark.parametrize("page_size", [1, 3, 16, 50])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_it_holds_the_same_tensors_as_a_plain_cache(page_size, batch_size):
    forge, ids = Forge.small(), torch.cat([small.prompt(23, seed=i) for i in range(batch_size)])
    ours, plain = paged(page_size), KVCache(N_LAYERS)
    for piece in ids.split([9, 1, 1, 7, 1, 4], dim=1):
        assert torch.equal(forge(piece, ours), forge(piece, plain))
        assert same(ours, plain)
        assert ours.held == plain.held
        assert len(ours.table) == kv.count.pages_needed(ours.held, page_size)


def test_it_works_with_the_weights_of_a_real_model_and_is_recorded():
    model = small.llama(tie_word_embeddings=True)
    forge, ids = Forge.from_pretrained(model), small.prompt(6)
    cache = PagedKVCache(len(forge.layers), page_size=4)
    with kv.record(forge) as run:
        for piece in ids.split([4, 1, 1], dim=1):
            logits = forge(piece, cache)
    right = model(ids).logits[:, -1:].detach()
    assert torch.allclose(logits, right, atol=1e-4 * float(right.abs().max()))
    assert [step.held_before for step in run] == [0, 4, 5]
    assert [step.fed for step in run] == [4, 1, 1]


def test_pages_are_taken_as_they_are_needed_and_given_back():
    cache, forge = paged(page_size=4, n_pages=5), Forge.small()
    forge(small.prompt(9), cache)
    assert (cache.table, cache.pool.owners) == ([0, 1, 2], [1, 1, 1, 0, 0])
    assert repr(cache) == "PagedKVCache(4), 9 tokens held in 3 pages of 4"
    assert repr(cache.pool) == "PagePool(5 pages of 4 tokens), 2 free"
    cache.reset()
    assert (cache.table, cache.pool.owners, cache.held) == ([], [0] * 5, 0)
    assert cache.get(0) is None


def test_without_a_free_page_it_says_how_many_it_takes_and_writes_nothing():
    pool, forge = PagePool(n_pages=3, page_size=4), Forge.small()
    one, other = paged(pool=pool), paged(pool=pool)
    forge(small.prompt(7), one)
    with pytest.raises(RuntimeError, match="no room: this takes 2 more pages, and 1 of 3 is free"):
        forge(small.prompt(5), other)
    assert (other.table, other.held, pool.free) == ([], 0, [2])
    one.reset()
    forge(small.prompt(5), other)
    assert other.held == 5


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="page_size: expected a whole number of at least 1"):
        paged(page_size=0)
    with pytest.raises(ValueError, match="n_pages: expected a whole number of at least 1"):
        paged(n_pages=0)
    cache, forge = paged(), Forge.small()
    forge(small.prompt(6), cache)
    with pytest.raises(ValueError, match="expected at most the 6 held, got 7"):
        cache.fork(7)
    with pytest.raises(ValueError, match="expected at least the 6 tokens held, got 2"):
        cache.update(0, KVEntry(*torch.zeros(2, 1, 2, 2, 14)))
    with pytest.raises(ValueError, match="expected pages of"):
        forge(torch.cat([small.prompt(3)] * 2), paged(pool=cache.pool))
    cache.reset()
    forge(torch.cat([small.prompt(3)] * 2), paged(pool=cache.pool))  # nobody holds the old pages


@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
@pytest.mark.parametrize("prefix", [1, 4, 6])
def test_forks_share_pages_and_go_their_own_ways(page_size, prefix):
    """Three texts begin alike; each cache ends up with what it would hold alone."""
    forge, start = Forge.small(), small.prompt(prefix)
    ends = [small.prompt(n, seed=n) for n in (5, 7, 6)]
    first = paged(page_size)
    forge(start, first)
    caches = [first, first.fork(), first.fork()]
    pool = first.pool
    assert all(pool.owners[page] == 3 for page in first.table)
    for i in range(7):
        for cache, end in zip(caches, ends, strict=True):
            if i < end.shape[1]:
                forge(end[:, i : i + 1], cache)
    for cache, end in zip(caches, ends, strict=True):
        assert close(cache, solo(forge, torch.cat([start, end], dim=1)))
    lengths = [cache.held for cache in caches]
    used = len(pool.owners) - len(pool.free)
    assert used == kv.count.pages_needed(lengths, page_size, prefix=prefix)
    caches[0].reset()
    forge(small.prompt(8, seed=9), caches[0])
    assert close(caches[1], solo(forge, torch.cat([start, ends[1]], dim=1)))
    for cache in caches:
        cache.reset()
    assert pool.free == list(range(64))


def test_to_write_nothing_new_copies_no_shared_page():
    cache, forge = paged(page_size=4), Forge.small()
    forge(small.prompt(6), cache)
    fork = cache.fork()
    for layer in range(N_LAYERS):
        fork.update(layer, cache.get(layer))
    assert fork.table == cache.table
    PagedKVCache(1).update(0, KVEntry(*torch.zeros(2, 1, 2, 0, 14)))  # nothing at all


def test_a_fork_of_some_tokens_leaves_the_others_where_they_are():
    forge, ids, end = Forge.small(), small.prompt(9), small.prompt(4, seed=5)
    cache = paged(page_size=4)
    forge(ids, cache)
    part = cache.fork(6)
    assert (part.held, part.table, cache.pool.owners[:3]) == (6, [0, 1], [2, 2, 1])
    forge(end, part)
    assert close(part, solo(forge, torch.cat([ids[:, :6], end], dim=1)))
    assert close(cache, solo(forge, ids))


# -- counted ---------------------------------------------------------------------------------------


def test_33_tokens_take_three_pages_of_16():
    assert kv.count.pages_needed(33, 16) == 3
    assert [kv.count.pages_needed(n, 16) for n in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]


def test_texts_that_end_with_the_prefix_share_its_last_page_too():
    cache, forge = paged(page_size=4), Forge.small()
    forge(small.prompt(6), cache)
    forks = [cache.fork(), cache.fork()]
    assert len({*cache.table}) == kv.count.pages_needed([6, 6, 6], 4, prefix=6) == 2
    forge(small.prompt(1), forks[0])
    tables = {*cache.table, *forks[0].table, *forks[1].table}
    assert len(tables) == kv.count.pages_needed([7, 6, 6], 4, prefix=6) == 3


def test_bytes_of_pages_are_those_of_the_tensors():
    model = small.llama(tie_word_embeddings=True)
    forge = Forge.from_pretrained(model)
    cache = PagedKVCache(len(forge.layers), page_size=4, n_pages=8)
    forge(small.prompt(6), cache)
    pages = cache.pool.pages[cache.table]
    assert kv.count.paged_bytes(model.config, 6, 4) == pages.nbytes
    held = sum(x.nbytes for layer in range(len(cache)) for x in cache.get(layer))
    assert kv.count.cache_bytes(model.config, 6) == held
    assert kv.count.paged_bytes(model.config, 6, 4, bytes_per_number=2) == pages.nbytes / 2
    assert kv.count.paged_bytes(model.config, 8, 4) == kv.count.cache_bytes(model.config, 8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((-1, 4), "held: expected a whole number of at least 0"),
        (([3, 2.5], 4), "held: expected a whole number of at least 0"),
        ((3, 0), "page_size: expected a whole number of at least 1"),
    ],
)
def test_counting_refuses_what_is_no_length(arguments, says):
    with pytest.raises(ValueError, match=says):
        kv.count.pages_needed(*arguments)


def test_counting_refuses_a_prefix_longer_than_a_text_and_layers_with_windows():
    with pytest.raises(ValueError, match="prefix: expected at most 5, the shortest, but got 6"):
        kv.count.pages_needed([9, 5], 4, prefix=6)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    fields = {"model_type": "mistral", "hidden_size": 8, "sliding_window": 4, **sizes}
    from kvviz.models import load_config

    with pytest.raises(ValueError, match="attend to all tokens, but got sliding_attention"):
        kv.count.paged_bytes(load_config(fields), 6, 4)
    with pytest.raises(ValueError, match="bytes_per_number: expected a number above 0"):
        kv.count.paged_bytes(small.llama().config, 6, 4, bytes_per_number="4")
