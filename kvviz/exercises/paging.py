"""Notebook 13: a cache in pages whose `fork` shares them."""

from __future__ import annotations

import torch

from kvviz.arguments import describe
from kvviz.checking.cache import check_cache
from kvviz.checking.causes import UNKNOWN
from kvviz.checking.learner_code import is_unwritten
from kvviz.checking.verdict import Verdict
from kvviz.exercises.feedback import NOT_DONE, Feedback, Hinted, reject, with_hints
from kvviz.forge import Forge

_N_TOKENS = 37  # prime: the last page isn't full, unless pages have one token (or all of them)
NOTHING_SHARED = (
    "each cache is right, and the tables are alike, but the fork has a memory of its own: its "
    "pages are copies. Let both caches use the same memory, the same free pages and the same owners"
)


@with_hints(
    "After a fork, the same page is in two tables. Who may write to it, and who has to give it "
    "back?",
    "Count one more owner for each page of the fork's table. Before a write to a page with several "
    "owners, take a free page, copy what's there, put the copy into your table and count one owner "
    "less. `reset` counts one less for each page, and empties the table.",
)
def shared_pages(cache_class) -> Feedback | Hinted | Verdict:
    """Notebook 13: a cache with a `fork()`, another cache that begins with the same pages.

    It's checked as `kv.check_cache` does it, with two caches that go their own ways. Where it has a
    `table` of page numbers, as `kv.PagedKVCache` has, that of a fork must list the same full pages.

    Raises:
        TypeError: `cache_class` isn't a class.

    >>> kv.exercises.shared_pages(kv.PagedKVCache).passed
    True
    >>> kv.exercises.shared_pages(kv.KVCache)
    ✗ not right yet: KVCache has no `fork`: give it one that returns a second cache
    """
    if not isinstance(cache_class, type):
        came = describe(cache_class)
        raise TypeError(f"cache_class: expected a class, got an instance: {came}")
    if not hasattr(cache_class, "fork"):
        return reject(
            f"{cache_class.__name__} has no `fork`: give it one that returns a second cache"
        )
    if is_unwritten(cache_class.fork):
        return NOT_DONE
    verdict = check_cache(cache_class)
    if verdict.passed:
        return _judge_tables(cache_class) or verdict
    return (_find_same_list(cache_class) if verdict.cause == UNKNOWN else None) or verdict


def _find_same_list(cache_class) -> Feedback | None:
    """Whether a cache and its fork have one `table` or `held` between them."""
    _, cache, fork = _fork_one(cache_class)
    mine = [getattr(cache, name, None) for name in ("table", "held")]
    same = [
        name
        for name, each in zip(("table", "held"), mine, strict=True)
        if isinstance(each, list) and each is getattr(fork, name, None) and fork is not cache
    ]
    if not same:
        return None
    names = " and ".join(f"`{name}`" for name in same)
    return reject(
        f"{names}: the cache and its fork have one and the same list, so a change to one is a "
        "change to both. Give the fork a list of its own, with the same numbers in it"
    )


def _fork_one(cache_class):
    """A forge, a cache that it fed, and its fork."""
    forge = Forge.small()
    cache = cache_class(len(forge.layers))
    forge(torch.arange(_N_TOKENS)[None], cache)
    return forge, cache, cache.fork()


def _judge_tables(cache_class) -> Feedback | None:
    """Whether full pages were copied that could be shared; None if not, or if that isn't seen."""
    forge, cache, fork = _fork_one(cache_class)
    if says := _compare(cache, fork, "after a fork"):
        return reject(says)
    for token, each in enumerate((cache, fork)):
        forge(torch.tensor([[token]]), each)
    says = _compare(cache, fork, "once both have written a token")
    return reject(says) if says else None


def _compare(cache, fork, when: str) -> str | None:
    """What is wrong if a cache and its fork don't have their full pages in common."""
    tables = [getattr(each, "table", None) for each in (cache, fork)]
    if not all(isinstance(table, list) for table in tables):
        return None
    n_full = _N_TOKENS if len(tables[0]) >= _N_TOKENS else len(tables[0]) - 1
    if tables[0][:n_full] != tables[1][:n_full]:
        return (
            f"each cache is right, but {when} the tables are {tables[0]} and {tables[1]}: full "
            "pages are never written again, so they stay in both"
        )
    return None if _find_memory(cache) & _find_memory(fork) else NOTHING_SHARED


def _find_memory(thing, seen=None) -> set[int]:
    """Where the tensors lie that an object holds, in its attributes, lists and dicts."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return set()
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        return {thing.untyped_storage().data_ptr()}
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple | set):
        parts = list(thing)
    else:
        parts = list(getattr(thing, "__dict__", {}).values())
    return set().union(*(_find_memory(part, seen) for part in parts))
