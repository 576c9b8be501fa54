"""Notebook 13: a cache in pages whose `fork` shares them."""

from __future__ import annotations

import torch

from kvviz.checking.cache import check_cache
from kvviz.checking.learner_code import is_unwritten
from kvviz.checking.verdict import Verdict
from kvviz.exercises.feedback import NOT_DONE, Feedback, Hinted, reject, with_hints
from kvviz.forge import Forge

_N_TOKENS = 33  # two pages of 16, and one more token
NOTHING_SHARED = (
    "each cache is right, and the tables are equal, but the fork has a memory of its own: its "
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
    `table` of page numbers, as `kv.PagedKVCache` has, that of a fork must list the same pages.

    >>> kv.exercises.shared_pages(kv.PagedKVCache).passed
    True
    >>> kv.exercises.shared_pages(kv.KVCache)
    ✗ not right yet: KVCache has no `fork`: give it one that returns a second cache
    """
    if not hasattr(cache_class, "fork"):
        return reject(
            f"{cache_class.__name__} has no `fork`: give it one that returns a second cache"
        )
    if is_unwritten(cache_class.fork):
        return NOT_DONE
    verdict = check_cache(cache_class)
    return _judge_tables(cache_class) or verdict if verdict.passed else verdict


def _judge_tables(cache_class) -> Feedback | None:
    """Whether a fork copied pages that it could have shared; None if not, or if that isn't seen."""
    forge = Forge.small()
    cache = cache_class(len(forge.layers))
    forge(torch.arange(_N_TOKENS)[None], cache)
    fork = cache.fork()
    tables = [getattr(each, "table", None) for each in (cache, fork)]
    if not all(isinstance(table, list) for table in tables):
        return None
    if tables[0] == tables[1]:
        return None if _find_memory(cache) & _find_memory(fork) else reject(NOTHING_SHARED)
    return reject(
        f"each cache is right, but after a fork the tables are {tables[0]} and {tables[1]}: the "
        "same pages can be in both, until somebody writes to one"
    )


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
