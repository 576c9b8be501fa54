"""Try the `crop` of a cache that has one: wrong tokens are fed, taken out, and right ones follow.

By contract, which is the library's, crop(-n) takes the last n tokens out, and crop(0) changes
nothing. Whatever a positive number does is accepted. What must be held is what another cache of the
same class holds that was only fed the right tokens.
"""

from __future__ import annotations

import torch

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.columns import match_columns
from kvviz.checking.crop_rules import begins
from kvviz.checking.crop_walk import Mistake, Refused, Walk
from kvviz.checking.right_forge import Text
from kvviz.checking.sharing import ALIKE, FREED, LEAK, UNCOPIED, run_out
from kvviz.checking.stubs import has_written
from kvviz.forge import KVEntry

TOKENS = 40  # of the longest text: several pages of 16
REACHES = "crop reaches another cache"


def cropped(trial) -> Cause | None:
    """What went wrong when tokens were taken out; None if it can't, or says that it can't."""
    if not has_written(trial.given_class, "crop"):
        return None
    trial.trace = None  # several caches at once: nothing of them is recorded
    try:
        for tried in (go_back, in_a_batch, beside_another, beside_a_fork, use_up):
            tried(trial)
    except Refused as refused:
        trial.not_cropped = str(refused)
    except Mistake as mistake:
        if not (owner := find_other_storage(trial.given_class)):
            return mistake.cause
        trial.not_cropped = (
            f"it is {owner}'s, and this class has a `get` and an `update` of its own"
        )
    return None


def find_other_storage(cache_class) -> str:
    """The class that an inherited `crop` is of, if columns are kept otherwise since; else empty."""
    order = cache_class.__mro__
    where = {name: _find_owner(order, name) for name in ("crop", "get", "update")}
    later = max(where["get"], where["update"]) < where["crop"] < len(order)
    return order[where["crop"]].__name__ if later else ""


def _find_owner(order, name) -> int:
    return next((i for i, kind in enumerate(order) if name in vars(kind)), len(order))


# -- what is tried ---------------------------------------------------------------------------------


def go_back(trial) -> None:
    """One cache goes back time and again: a little, over several calls, to its prompt, to nothing.

    Wrong tokens come in one call and in several; right ones follow in chunks and one by one.
    """
    right = trial.right
    text = right.further if right.further.fed >= right.other.fed else right.other
    walk = Walk(trial, Text(text.text[:, :TOKENS], right.refer))
    walk.feed(4, 1).stray(3).crop(3).feed(1).crop(0).feed(2)  # 8 held
    walk.stray(1).crop(1).feed(1, 1)  # 10
    walk.stray(2, 1, 1).crop(2).crop(2).feed(8)  # 18: more than a page of 16
    walk.stray(2).crop(6).feed(1, 3)  # of these, four were right
    walk.stray(16).crop(17).feed(5)
    walk.crop(max(0, walk.held - 6)).feed(1, 4)  # back to a prompt of six
    walk.crop(walk.held).feed(3, 1)


def in_a_batch(trial) -> None:
    """Two texts side by side."""
    Walk(trial, trial.right.two).feed(4).stray(2).crop(2).feed(1, 3)


def beside_another(trial) -> None:
    """Two caches of one forge in turn."""
    one = Walk(trial, trial.right.other)
    other = Walk(trial, trial.right.earlier, forge=one.forge)
    one.feed(4), other.feed(3)
    one.stray(2), other.feed(1)
    one.crop(3)
    see_apart(other, "state shared between caches", "another cache was cropped")
    one.feed(2), other.feed(1)
    see_apart(one, "state shared between caches", "another cache was fed")


def see_apart(walk: Walk, name: str, when: str, beside: Walk | None = None) -> None:
    """What a cache holds, after something was done to another one."""
    for layer, entry in enumerate(walk.read()):
        if not begins(entry, walk.right[layer], walk.held):
            says = f"{when}, and layer {layer} of this one holds something else"
            if beside is not None and not holds_some_of(entry, walk, beside, layer):
                name = UNKNOWN
            raise Mistake(Cause(name, says, layer=layer))


def holds_some_of(entry, walk, beside, layer: int) -> bool:
    """Whether a column is the other cache's, and isn't this one's own."""
    values = entry.values[0] if entry is not None else walk.right[layer].values[0]
    own, theirs = (match_columns(values, each.right[layer].values[0]) for each in (walk, beside))
    return bool((theirs.any(1) & ~own.any(1)).any())


def beside_a_fork(trial) -> None:
    """A cache and its fork: each goes back into what they share, and goes on by itself."""
    if not has_written(trial.given_class, "fork"):
        return
    for n_alike in ALIKE:
        _part(trial, n_alike)


def _part(trial, n_alike: int) -> None:
    right, first = trial.right, trial.right.other
    parted = first.text.clone()
    parted[:, n_alike - 1 :] = (parted[:, n_alike - 1 :] + 1) % right.forge.config.vocab_size
    one = Walk(trial, first).feed(n_alike)
    fork = Walk(trial, Text(parted, right.refer), one.cache.fork(), one.forge)
    fork.held = n_alike  # the last of them is another text's
    fork.crop(1)
    see_apart(one, REACHES, "a fork was cropped")
    fork.feed(1)
    see_apart(one, UNCOPIED, "a fork was cropped, and fed another token", fork)
    one.feed(1), fork.feed(1)
    one.crop(2)
    see_apart(fork, REACHES, "the cache it came from was cropped")
    one.feed(2)
    see_apart(fork, UNCOPIED, "the cache it came from was cropped and fed again", one)
    third = Walk(trial, right.earlier, one.cache.fork(), one.forge)
    third.held = one.held
    third.crop(third.held).feed(right.earlier.fed)  # it may be given any free page
    for walk in (one, fork):
        see_apart(walk, FREED, "a cache was cropped, and a third one fed", third)


def use_up(trial) -> None:
    """Write, and take out again, time and again: pages that aren't given back run out."""
    config = trial.right.forge.config
    tokens = min(20, config.max_positions)
    numbers = torch.zeros(config.n_layers, 2, 1, config.n_kv_heads, tokens, config.head_dim)
    cache = trial.new_cache()

    def fill_and_crop():
        for layer in range(config.n_layers):
            cache.update(layer, KVEntry(*numbers[layer].clone()))
        cache.crop(-tokens)

    if cause := run_out(trial, cache, fill_and_crop, "crops, each of all that was held"):
        raise Mistake(cause)
    _see_table(trial)


def _see_table(trial) -> None:
    """Of a cache that shows its pages: after a crop, it has as many as hold something."""
    fed = trial.right.other.fed
    cache = Walk(trial, trial.right.other).feed(fed).crop(fed - 1).cache
    table, pool = (getattr(cache, name, None) for name in ("table", "pool"))
    size = getattr(pool, "page_size", None)
    if type(table) is list and type(size) is int and len(table) > 1:
        says = f"after crop({1 - fed}), one token is held, and the table lists {len(table)} pages"
        raise Mistake(Cause(LEAK, says))
